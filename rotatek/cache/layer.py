"""One layer of a compressed cache: its visual store, its text, and how long it is.

Lengths are logical (positions come from them), never physical.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from rotatek.bridge.attention import tag
from rotatek.bridge.state_layers import change, key_layers, state_layers, tensors_of
from rotatek.cache.sliding_window import NOWHERE, WindowPositions
from rotatek.cache.text_buffer import TextBuffer, take_tokens
from rotatek.errors import ModeUnsupported, UserError
from rotatek.methods.channels.store import Store


class CompressedLayer(CacheLayerMixin):
    """One layer of a `RotateKCache`. `store_prefill` fills it at prefill; `text.append` grows
    it."""

    is_compileable = False
    is_croppable = False
    is_sliding = False
    supports_early_init = False

    def __init__(self, index: int, rows: int) -> None:
        super().__init__()
        self.index = index
        self.rows = rows  # logical rows of the prompt, padding included
        self.logical = 0
        self._made: Store | None = None
        self.text: TextBuffer | None = None
        self.span: WindowPositions | None = None  # of its tokens, if its attention has a window

    @property
    def store(self) -> Store | None:
        """Its visual tokens, or None where it has none."""
        return self._made

    @store.setter
    def store(self, store: Store | None) -> None:
        self._made = store

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to allocate before prefill."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Count the tokens and send this layer along to the attention function."""
        self.logical += key_states.shape[2] if self.is_filled else self.rows
        return tag(key_states, self), value_states

    @abstractmethod
    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        """Run one attention call over this layer's own Keys and Values.

        Args:
            module: the attention module that calls.
            query: [B, Hq, T, d].
            key: [B, Hkv, n, d], what the cache's `update` returned.
            value: [B, Hkv, n, d].
            full: runs plain attention over these three.

        Returns:
            [B, T, Hq, d].
        """

    @abstractmethod
    def lend(self, module: nn.Module, query: Tensor, full: Callable) -> Tensor:
        """Run a later decoder layer's attention call over these Keys and Values.

        Args:
            module: the attention module that calls, which has no cache.
            query: [B, Hq, T, d], of all rows of this forward pass, or of the last ones.
            full: runs plain attention over what this pass has brought.

        Returns:
            [B, T, Hq, d].
        """

    @property
    def is_filled(self) -> bool:
        """Whether the prefill has been stored."""
        return self.text is not None

    def get_seq_length(self) -> int:
        """Logical tokens so far, pruned ones included."""
        return self.logical

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Logical, like the padding mask `generate` carries; the layer masks for itself."""
        return self.logical + query_length, 0

    def get_max_length(self) -> int:
        """No maximum."""
        return -1

    def state(self) -> dict[str, Any]:
        """The argument of `restore`: the filled layer's state."""
        text = None if self.text is None else self.text.state()
        store = self.store
        span = None if self.span is None else dict(vars(self.span))
        if span is not None:
            span.pop("tables", None)  # the text's, if it follows them
        told = {"rows": self.rows, "logical": self.logical, "store": store}
        return told | {"text": text, "span": span}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become a filled layer again, whose text is still to be copied; state: of `state`."""
        self.rows, self.logical, self.store = state["rows"], state["logical"], state["store"]
        self.text, span = TextBuffer.of(state["text"]), state.get("span")
        self.span = None if span is None else WindowPositions(**span)

    def go_on_from(self, other: "CompressedLayer", text: TextBuffer) -> None:
        """Become a copy of a filled layer that shares its store, with a copy of its text."""
        self.rows, self.logical, self.store = other.rows, other.logical, other.store
        self.text = text
        self.span = None if other.span is None else replace(other.span)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """(kind, tensor) of all tensors of this layer."""
        if self.store is not None:
            yield from self.store.tensors()
        if self.text is not None:
            yield from (("text", tensor) for tensor in self.text.tensors())
            yield "lengths", self.text.lengths
            yield from (("lengths", tensor) for tensor in self.text.tables or ())
        if self.span is not None:
            yield from (("lengths", tensor) for tensor in self.span.tensors())

    def follow(self, tokens: int) -> None:
        """Let the window move with the text from here on, if `tokens` more would outgrow it."""
        if self.span is None or self.text is None or self.text.tables is not None:
            return
        if self.logical + tokens > self.span.width:
            self.text.follow(self.span.tables)

    @property
    def outgrown(self) -> bool:
        """Whether there have been more tokens than its window takes."""
        return self.span is not None and self.logical > self.span.width

    @property
    def follows(self) -> bool:
        """Whether a further token needs no change of the window on the host."""
        if self.span is None or self.logical < self.span.width:
            return True
        return self.text is not None and self.text.tables is not None

    def select(self, how: Callable[[Tensor], Tensor]) -> None:
        """Apply a batch selection to every tensor."""
        for part in (self.store, self.text):
            if part is not None:
                part.select(how)
        self.span = None if self.span is None else self.span.changed(how)

    def forget(self, lost: Tensor, slots: Tensor) -> None:
        """Give up text inside any window.

        Args:
            lost: [B, n] bool, which of all columns go.
            slots: [B, n] the text slot of each of them.
        """
        assert self.text is not None
        M, device = self.text.keys.shape[2], self.text.keys.device
        places = torch.where(lost, slots, M).to(device)
        gone = lost.new_zeros(len(lost), M + 1, device=device).scatter(1, places, True)[:, :M]
        span = None if self.span is None else self.span.now(self.text.lengths, M)
        order = self.text.forget(gone)
        if span is not None:
            dead = torch.arange(M, device=device) >= self.text.lengths[:, None]
            self.span = replace(span, text=span.text.gather(1, order).masked_fill(dead, NOWHERE))

    def append(self, keys: Tensor, values: Tensor, real: Tensor) -> None:
        """Add those of T tokens [B, Hkv, T, d] that are no padding, real [B, T], inside any
        window."""
        assert self.text is not None
        order = real.long().argsort(dim=1, descending=True, stable=True)
        count, before = real.sum(1, dtype=torch.int32), self.text.lengths.clone()
        self.text.append(take_tokens(keys, order), take_tokens(values, order), count)
        if self.span is not None:  # padding has an index, too
            M, span = self.text.keys.shape[2], self.span.now(before, self.text.keys.shape[2])
            step = torch.arange(real.shape[1], device=real.device)
            slots = torch.where(step < count[:, None], before[:, None] + step, M)
            places = (span.count[:, None] + order).int()
            places = pad(span.text, (0, 1)).scatter(1, slots, places)[:, :M]
            self.span = replace(span, text=places, count=span.count + real.shape[1])

    def offload(self) -> None:
        """Refused: the layer is not a pair of tensors."""
        raise ModeUnsupported("A compressed cache cannot be offloaded. Turn offloading off.")

    def reset(self) -> None:
        """Forget everything; the layer can take a new prefill."""
        self.logical, self.store, self.text, self.span = 0, None, None, None


def not_assisted() -> UserError:
    """The refusal of drafts, by an assistant or by prompt lookup."""
    return ModeUnsupported(
        "Assisted decoding does not work with a compressed cache, which cannot be cropped. Leave "
        "out the assistant, or `prompt_lookup_num_tokens`."
    )


class AttendingCache(Cache):
    """A cache whose layers compute attention: a model's call that carries one is compressed. Layers
    of the model that keep a state have transformers' own (`rotatek.bridge.state_layers`)."""

    attends: ClassVar = True

    @property
    def only_grows(self) -> bool:
        """Whether further text makes its layers' text grow, and does nothing else."""
        return False

    def meet(self, model: PreTrainedModel, given: Mapping[str, Any]) -> None:
        """See a call's model and its arguments before the model reads them."""

    def end(self) -> None:
        """Every layer of the language model has run."""

    def crop(self, *_: int) -> None:
        """Refused: dropped channels and tokens cannot come back, nor earlier states."""
        raise not_assisted()

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every sample."""
        self._select(lambda t: t.repeat_interleave(repeats, 0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some samples."""
        self._select(lambda t: t[indices.to(t.device)])

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Follow the beams."""
        self._select(lambda t: t.index_select(0, beam_idx.to(t.device)))

    def _select(self, how: Callable[[Tensor], Tensor]) -> None:
        for layer in key_layers(self):
            layer.select(how)
        for layer in state_layers(self):
            change(layer, how)


class RewindableCache(AttendingCache):
    """A cache of compressed layers whose text can keep its addresses and undo its additions."""

    def reserve(self, tokens: int) -> bool:
        """Make capacity for `tokens` more if little is free; whether no tensor had to move."""
        grown = False
        for layer in key_layers(self):
            text = layer.text
            text.static = False
            layer.follow(tokens)
            if 4 * (text.room - text.longest) < tokens:
                text.reserve(text.longest + tokens)
                grown = True
            text.static = True
        return grown

    def advance(self) -> None:
        """Count one token that a graph's replay has added."""
        for layer in key_layers(self):
            layer.logical += 1
            layer.text.longest += 1

    def counters(self) -> Any:
        """Per layer: host counts and a copy of the device's, and of states, for `rewind`."""
        return [(la.logical, la.text.mark()) for la in key_layers(self)], self.held_states()

    def held_states(self) -> list[Tensor]:
        """Copies of all states, which cannot be rewound."""
        return [tensor.clone() for layer in state_layers(self) for tensor in tensors_of(layer)]

    def rewind_states(self, states: list[Tensor]) -> None:
        """Undo what was done to states since `held_states`; their addresses stay."""
        own = (tensor for layer in state_layers(self) for tensor in tensors_of(layer))
        for mine, before in zip(own, states, strict=True):
            mine.copy_(before)

    @torch.inference_mode()  # as the prefill that made the lengths
    def rewind(self, counters: Any) -> None:
        """Forget the text added since `counters` were taken; buffers and addresses stay."""
        texts, states = counters
        for layer, (logical, mark) in zip(key_layers(self), texts, strict=True):
            layer.logical = logical
            layer.text.rewind(mark)
        self.rewind_states(states)
