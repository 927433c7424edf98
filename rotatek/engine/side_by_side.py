"""One text behind several filled caches, read in one forward pass: the model's weights are read
once. Three or more with planes of one form attend in one call, for which a layer's planes are
copied side by side; others attend one by one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from kernels.dispatch import attend
from kernels.reference import Visual
from rotatek.bridge.state_layers import key_layers, state_layers
from rotatek.cache.layer import AttendingCache, CompressedLayer
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cache.text_buffer import TextBuffer
from rotatek.engine.joined_planes import alike, joined_visual, numbers_of

JOINED: Final = 3  # caches from which on copying a layer's tables costs less than calls apart


class SideBySideLayer(CompressedLayer):
    """One layer of `SideBySide`; rows: that layer of each cache."""

    def __init__(self, index: int, layers: Sequence[CompressedLayer]) -> None:
        super().__init__(index, 0)
        self.layers = layers
        self.logical = max(layer.logical for layer in layers)  # masks are the layers' own
        self.parts: Sequence[Tensor] = ()  # each layer's Keys in `text`, which holds all of them
        self.before: Tensor | None = None  # as of `numbers_of`, on the device

    @property
    def is_filled(self) -> bool:
        """Always: the caches are."""
        return True

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        """Attention output [caches, T, Hq, d]; arguments as of `bridge.attention.Layer.attend`."""
        tokens, visual = key.shape[2], self._joined(key.shape[2])
        if visual is not None:
            return self._attend_joined(module, query, key, value, visual)
        found = []
        for row, layer in enumerate(self.layers):
            own = slice(row, row + 1)
            layer.logical += tokens
            found.append(layer.attend(module, query[own], key[own], value[own], full))
        return torch.cat(found)

    def _joined(self, tokens: int) -> Visual | None:
        """All layers' visual tokens as those of one batch; None where each attends alone."""
        texts = [layer.text for layer in self.layers if layer.text is not None]
        if self.text is None or self.before is None or any(la.pending for la in self.layers):
            return None
        self.text.longest = max(text.longest for text in texts)
        moved = any(text.keys is not part for text, part in zip(texts, self.parts, strict=True))
        if moved or self.text.longest + tokens > self.text.room:
            return None
        return joined_visual([layer.visual() for layer in self.layers], self.before)

    def _attend_joined(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, visual: Visual
    ) -> Tensor:
        """`attend` in one call."""
        assert self.text is not None
        self.text.append(key, value)  # and each layer's
        for layer in self.layers:
            layer.logical += key.shape[2]
            if layer.text is not None:
                layer.text.longest += key.shape[2]
        scale = getattr(module, "scaling", query.shape[-1] ** -0.5)
        return attend(query, visual, self.text.read(), scale).transpose(1, 2)

    def lend(self, module: nn.Module, query: Tensor, full: Callable) -> Tensor:
        """Attention output [caches, T, Hq, d] of a later layer, over this one's tokens."""
        parts = zip(self.layers, query.split(1), strict=True)
        return torch.cat([layer.lend(module, own, full) for layer, own in parts])


class SideBySide(AttendingCache):
    """A row for each of several filled caches of one sample, which grow by the same tokens.

    Args:
        caches: that `fits` accepts.
    """

    def __init__(self, caches: Sequence[RotateKCache]) -> None:
        self.caches = caches
        each = zip(*map(key_layers, caches), strict=True)
        super().__init__(layers=[SideBySideLayer(n, layers) for n, layers in enumerate(each)])
        if len(caches) >= JOINED:
            self._join()

    @torch.inference_mode()
    def _join(self) -> None:
        """Move the texts of all caches side by side, where they and the visual tokens allow it."""
        texts = [[own.text for own in layer.layers] for layer in self.layers]
        visuals = [[own.visual() for own in layer.layers] for layer in self.layers]
        every = [text for own in texts for text in own]
        forms = {(text.keys.shape[1::2], text.values.shape[1::2], text.keys.dtype, text.keys.device)
                 for text in every}  # fmt: skip
        plain = all(text.past is text.tables is None and not text.static for text in every)
        if len(forms) > 1 or not (plain and all(map(alike, visuals))):
            return
        slots, count = max(text.keys.shape[2] for text in every), len(self.caches)
        keys, values = (
            like.new_zeros(len(texts), count, *like.shape[1:2], slots, *like.shape[3:])
            for like in (every[0].keys, every[0].values)
        )
        held = keys.flatten(0, 1).split(1), values.flatten(0, 1).split(1)
        fits = [[part[:, :, : text.keys.shape[2]] for part, text in zip(parts, every, strict=True)]
                for parts in held]  # fmt: skip
        torch._foreach_copy_(fits[0], [text.keys for text in every])
        torch._foreach_copy_(fits[1], [text.values for text in every])
        lengths = torch.cat([text.lengths for text in every])
        for text, *parts in zip(every, *held, lengths.split(1), strict=True):
            text.keys, text.values, text.lengths = parts
        before = torch.tensor([numbers_of(own) for own in visuals]).to(keys.device)
        rows = lengths.unflatten(0, (-1, count))
        for number, layer in enumerate(self.layers):
            layer.before = before[number]
            layer.text = TextBuffer(keys[number], values[number], rows[number], ragged=True)
            layer.text.lengths = rows[number]  # which are the caches', too
            layer.parts = [one.text.keys for one in layer.layers]

    @staticmethod
    def fits(cache: RotateKCache) -> bool:
        """Whether a cache can be read side by side: it keeps no states, and no window moves."""
        return not state_layers(cache) and all(layer.span is None for layer in key_layers(cache))

    @property
    def only_grows(self) -> bool:
        """Whether each cache does."""
        return all(cache.only_grows for cache in self.caches)

    def meet(self, model: PreTrainedModel, given: Mapping[str, Any]) -> None:
        """See a call's arguments before the model does: each cache sees its own row."""
        for row, cache in enumerate(self.caches):
            cache.meet(model, {"input_ids": given["input_ids"][row : row + 1]})

    def counters(self) -> Any:
        """For `rewind`, of each cache."""
        return [cache.counters() for cache in self.caches]

    def rewind(self, counters: Any) -> None:
        """Forget the tokens that each cache has added since."""
        for cache, own in zip(self.caches, counters, strict=True):
            cache.rewind(own)
        for layer in self.layers:
            layer.logical = max(own.logical for own in layer.layers)
