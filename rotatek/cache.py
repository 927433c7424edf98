"""The compressed cache: what each layer holds, how long it is, and what it weighs.

A layer stores visual tokens as its channel method left them, and prompt, text and generated tokens
at full width in buffers that grow. Lengths are logical (positions come from them), never physical.
Compression happens inside the prefill's own calls (`rotatek.attention`), layer by layer; RotateK's
layers wait for each other, while they weigh little, and then share storages.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from kernels.reference import Text, Visual
from rotatek.budget import storage_bytes
from rotatek.config import TEXT_STEP
from rotatek.errors import ModeUnsupported

PARTS: Final = ("visual_keys", "visual_values", "text", "bases", "masks", "lengths")


@dataclass
class Store:
    """One layer's visual tokens as a channel method keeps them."""

    visual: Visual

    def read(self) -> Visual:
        """What the attention reads."""
        return self.visual

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """(part, tensor) of everything that is held."""
        parts = {
            "keys": "visual_keys", "key_scale": "visual_keys", "values": "visual_values",
            "value_scale": "visual_values", "value_top": "visual_values", "lengths": "lengths",
        }  # fmt: skip
        for name, value in self.visual._asdict().items():
            if isinstance(value, Tensor):
                part = "masks" if name == "index" else parts.get(name, "bases")
                yield part, value

    def select(self, change: Callable[[Tensor], Tensor]) -> None:
        """Apply a batch selection to every tensor (beam search, batch repetition)."""
        if self.visual.keys.dim() == 1 or self.visual.values.dim() == 1:
            raise ModeUnsupported("Beam search does not work with adaptive widths. Use greedy.")
        parts: Any = [change(p) if isinstance(p, Tensor) else p for p in self.visual]
        self.visual = Visual(*parts)


class TextBuffer:
    """Full-width Keys and Values [B, Hkv, M, d] with spare slots; lengths live on the device."""

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        lengths: Tensor,
        ragged: bool,
        longest: int | None = None,  # slots beyond it may hold anything
    ) -> None:
        self.longest = keys.shape[2] if longest is None else longest
        self.ragged = ragged
        self.lengths = lengths.clone()
        self.keys, self.values = keys.contiguous(), values.contiguous()
        self.static = False  # a captured graph writes here: addresses stay, slots come from lengths
        self.reserve(self.longest)

    def reserve(self, slots: int) -> None:
        """Make room for `slots` tokens in all."""
        capacity = -(-slots // TEXT_STEP) * TEXT_STEP
        if capacity <= self.keys.shape[2]:
            return
        if self.static:
            raise ModeUnsupported("The answer outgrew the room that was reserved for it.")
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = old.new_zeros(*old.shape[:2], capacity, old.shape[3])
            new[:, :, : old.shape[2]] = old
            setattr(self, name, new)

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Add T tokens [B, Hkv, T, d] behind each sample's own last one."""
        T = keys.shape[2]
        self.reserve(self.longest + T)
        if self.ragged or self.static:
            slots = self.lengths[:, None] + torch.arange(T, device=keys.device)
            index = slots.long()[:, None, :, None].expand_as(keys)
            self.keys.scatter_(2, index, keys)
            self.values.scatter_(2, index, values)
        else:
            self.keys[:, :, self.longest : self.longest + T] = keys
            self.values[:, :, self.longest : self.longest + T] = values
        self.longest += T
        self.lengths += T

    def read(self) -> Text:
        """What the attention reads."""
        return Text(self.keys, self.values, self.lengths)

    def select(self, change: Callable[[Tensor], Tensor]) -> None:
        """Apply a batch selection to every tensor."""
        self.keys, self.values = change(self.keys), change(self.values)
        self.lengths = change(self.lengths)


class CompressedLayer(CacheLayerMixin):
    """One layer of a `RotateKCache`. `absorb` fills it at prefill; `text.append` grows it."""

    is_compileable = False
    is_croppable = False
    is_sliding = False
    supports_early_init = False

    def __init__(self, index: int, rows: int) -> None:
        super().__init__()
        self.index = index
        self.rows = rows  # logical rows of the prefill, padding included
        self.logical = 0
        self.store: Store | None = None
        self.text: TextBuffer | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to allocate before prefill."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Count the tokens and pass the states on; the attention function stores them."""
        self.logical += key_states.shape[2] if self.is_filled else self.rows
        return key_states, value_states

    @property
    def is_filled(self) -> bool:
        """Whether the prefill has been absorbed."""
        return self.text is not None

    def get_seq_length(self) -> int:
        """Logical tokens seen, pruned ones included."""
        return self.logical

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Logical, like the padding mask `generate` carries; the layer masks for itself."""
        return self.logical + query_length, 0

    def get_max_length(self) -> int:
        """No maximum."""
        return -1

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """(part, tensor) of everything this layer holds."""
        if self.store is not None:
            yield from self.store.tensors()
        if self.text is not None:
            yield "text", self.text.keys
            yield "text", self.text.values
            yield "lengths", self.text.lengths

    def _select(self, change: Callable[[Tensor], Tensor]) -> None:
        for part in (self.store, self.text):
            if part is not None:
                part.select(change)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Follow the beams."""
        self._select(lambda t: t.index_select(0, beam_idx.to(t.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every sample."""
        self._select(lambda t: t.repeat_interleave(repeats, 0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some samples."""
        self._select(lambda t: t[indices.to(t.device)])

    def crop(self, *_: int) -> None:
        """Refused: dropped channels and tokens cannot come back."""
        raise ModeUnsupported(
            "Assisted decoding does not work with a compressed cache. Leave out the assistant."
        )

    def offload(self) -> None:
        """Refused: the layer is not a pair of tensors."""
        raise ModeUnsupported("A compressed cache cannot be offloaded. Turn offloading off.")

    def reset(self) -> None:
        """Forget everything; the layer can take a new prefill."""
        self.logical, self.store, self.text = 0, None, None


class RewindableCache(Cache):
    """A cache of compressed layers whose text can keep its addresses and forget what it added."""

    def make_static(self, tokens: int) -> None:
        """Reserve room for `tokens` more and keep every address: what a captured graph needs."""
        for layer in self.layers:
            layer.text.reserve(layer.text.longest + tokens)
            layer.text.static = True

    def counters(self) -> list[tuple[int, int, Tensor]]:
        """Per layer: host counts and a copy of the device's lengths, for `rewind`."""
        return [(la.logical, la.text.longest, la.text.lengths.clone()) for la in self.layers]

    @torch.inference_mode()  # as the prefill that made the lengths
    def rewind(self, counters: list[tuple[int, int, Tensor]]) -> None:
        """Forget the text added since `counters` were taken; buffers and addresses stay."""
        for layer, (logical, longest, lengths) in zip(self.layers, counters, strict=True):
            layer.logical, layer.text.longest = logical, longest
            layer.text.lengths.copy_(lengths)


@dataclass
class ByteCount:
    """Bytes of live storages by part; `total` counts every unique storage once."""

    parts: dict[str, int] = field(default_factory=dict)
    total: int = 0


def count_bytes(tensors: list[tuple[str, Tensor]]) -> ByteCount:
    """Weigh (part, tensor) pairs; a storage shared by two parts is counted in the first."""
    count = ByteCount(dict.fromkeys(PARTS, 0), storage_bytes(t for _, t in tensors))
    seen: set[tuple[str, int]] = set()
    for part, tensor in tensors:
        storage = tensor.untyped_storage()
        place = (str(tensor.device), storage.data_ptr())
        if place not in seen:
            seen.add(place)
            count.parts[part] += storage.nbytes()
    return count


def dynamic_bytes(cache: Cache) -> ByteCount:
    """Bytes of a plain transformers cache."""
    layers = [layer for layer in cache.layers if getattr(layer, "keys", None) is not None]
    return count_bytes([("text", t) for layer in layers for t in (layer.keys, layer.values)])
