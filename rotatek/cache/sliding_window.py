"""The tokens inside a layer's sliding window: their indices, and which one leaves next.

A query with index p attends to the indices above p - W. Each new token pushes one out. A text
token's slot is reused; visual tokens are stored newest first, so the list gets shorter by one. So
the tokens inside the window are always the first slots of both lists, and kernels need no window.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from rotatek.bridge.row_layout import NOWHERE, Rows


class WindowSchedule(NamedTuple):
    """The movement of a window, by the number of tokens added to a text of `first` [B] tokens.

    slots: [B, W] slot of each added token; text, visual: [B, W + 1] tokens of each inside the
    window. All int32. After W tokens the slots repeat, and only added tokens are inside.
    """

    first: Tensor
    slots: Tensor
    text: Tensor
    visual: Tensor

    @property
    def width(self) -> int:
        """W."""
        return self.slots.shape[1]

    def slot(self, lengths: Tensor) -> Tensor:
        """[B] the slot of the token behind `lengths` [B]."""
        return _entry(self.slots, (lengths - self.first) % self.width)

    def held(self, lengths: Tensor) -> Tensor:
        """[B] slots that texts of `lengths` [B] tokens take; one at least, for rows not in use."""
        return _entry(self.text, (lengths - self.first).clamp(0, self.width)).clamp(min=1)

    def seen(self, lengths: Tensor) -> Tensor:
        """[B] visual tokens that the newest of `lengths` [B] text tokens sees."""
        return _entry(self.visual, (lengths - self.first).clamp(0, self.width))

    def numbers(self, lengths: Tensor, slots: int) -> Tensor:
        """[B, slots]: which of its text's tokens each slot holds, -1 where it holds none."""
        slot = torch.arange(slots, device=lengths.device).expand(len(lengths), -1)
        found = torch.where(slot < self.first[:, None], slot, -1).long()
        added = lengths - self.first
        back = torch.arange(self.width, device=lengths.device)
        which = (added[:, None] - self.width).clamp(min=0) + back  # the last W of those added
        real = which < added[:, None]
        place = self.slots.long().gather(1, which.long() % self.width)
        place = torch.where(real, place, slots)  # padding gets a slot of its own
        spare = torch.cat([found, found.new_zeros(len(found), 1)], 1)
        return spare.scatter(1, place, which.long() + self.first[:, None])[:, :slots]


def _entry(table: Tensor, index: Tensor) -> Tensor:
    return table.gather(1, index.long()[:, None])[:, 0]


@dataclass(frozen=True)
class WindowPositions:
    """The indices of a layer's tokens when its text was last put in order, all int32.

    width: W, tokens that a query attends to, its own included; text: [B, n] rising, of the token in
    each slot, then `NOWHERE`; visual: [B, N] falling, of the stored ones, then -1; count: [B] of
    all tokens.
    """

    width: int
    text: Tensor
    visual: Tensor
    count: Tensor

    @cached_property
    def tables(self) -> WindowSchedule:
        """The window's movement from here."""
        step = torch.arange(self.width + 1, device=self.text.device, dtype=torch.int32)
        first = (self.text < NOWHERE).sum(1, dtype=torch.int32)
        leaving = (self.count[:, None] + step - self.width)[:, :-1].contiguous()
        at = torch.searchsorted(self.text, leaving)
        known = torch.cat([self.text, torch.full_like(self.text[:, :1], NOWHERE)], 1)
        text_leaves = known.gather(1, at) == leaving
        fresh = (~text_leaves).cumsum(1, dtype=torch.int32)
        slots = torch.where(text_leaves, at.int(), first[:, None] + fresh - 1)
        held = torch.cat([first[:, None], first[:, None] + fresh], 1)
        below = self.count[:, None] + step - 1 - self.width  # the last index outside the window
        seen = torch.searchsorted((-self.visual).contiguous(), -below.clamp(min=-1).contiguous())
        return WindowSchedule(first, slots, held, seen.int())

    def now(self, lengths: Tensor, slots: int) -> "WindowPositions":
        """The same for texts that have grown to `lengths` [B] tokens, none of which has left."""
        first = (self.text < NOWHERE).sum(1, dtype=torch.int32)[:, None]
        slot = torch.arange(slots, device=lengths.device, dtype=torch.int32)
        known = pad(self.text, (0, slots - self.text.shape[1]), value=NOWHERE)
        places = torch.where(slot < first, known, self.count[:, None] + slot - first)
        places = places.masked_fill(slot >= lengths[:, None], NOWHERE)
        return replace(self, text=places, count=self.count + lengths - first[:, 0])

    def changed(self, change: Callable[[Tensor], Tensor]) -> "WindowPositions":
        """The same for other samples."""
        parts: Any = {name: change(getattr(self, name)) for name in ("text", "visual", "count")}
        return replace(self, **parts)

    def to(self, device: torch.device) -> "WindowPositions":
        """The same on another device."""
        return self if self.count.device == device else self.changed(lambda part: part.to(device))


WindowView = tuple[Rows, Rows, WindowPositions]  # rows of text in order, of visual ones falling


def window_view_of(width: int, text: Tensor, visual: Tensor, count: Tensor) -> WindowView:
    """The tokens inside the window of the next query, or of the one before it, by the indices of
    text tokens [B, n] and of visual tokens [B, N], `NOWHERE` for none; count: [B] tokens so far."""
    last = (count[:, None] - 1 - width).clamp(min=-1)
    rows = Rows.where((text > last) & (text < NOWHERE), text)
    newest = Rows.where((visual > last) & (visual < NOWHERE), -visual)
    places = text.gather(1, rows.index).masked_fill(~rows.alive, NOWHERE)
    seen = visual.gather(1, newest.index).masked_fill(~newest.alive, -1)
    return rows, newest, WindowPositions(width, places.int(), seen.int(), count.int())
