"""Prompt, text and generated tokens at full width, in buffers that grow."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels.reference import Text
from rotatek.errors import ModeUnsupported
from rotatek.layout import TEXT_STEP, Rows


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

    def state(self) -> dict[str, Any]:
        """What `TextBuffer(**state)` makes again, without the spare slots."""
        used = self.longest
        return {
            "keys": self.keys[:, :, :used],
            "values": self.values[:, :, :used],
            "lengths": self.lengths,
            "ragged": self.ragged,
            "longest": used,
        }

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

    def extend(self, keys: Tensor, values: Tensor, rows: Rows) -> None:
        """Add the real ones of some tokens [B, Hkv, n, d], gathered by `rows`."""
        if not (self.ragged or rows.ragged):
            self.append(keys[:, :, : rows.longest], values[:, :, : rows.longest])
            return
        lengths, self.ragged = self.lengths + rows.lengths, True
        self.append(keys[:, :, : rows.longest], values[:, :, : rows.longest])  # and some slots more
        self.lengths.copy_(lengths)
        self.longest = int(lengths.max())

    def read(self) -> Text:
        """What the attention reads."""
        return Text(self.keys, self.values, self.lengths)

    def select(self, change: Callable[[Tensor], Tensor]) -> None:
        """Apply a batch selection to every tensor."""
        self.keys, self.values = change(self.keys), change(self.values)
        self.lengths = change(self.lengths)
