"""Rows of one storage form in one layer, together in tensors with spare capacity.

Rows differ in length: visual tokens and text are padded to the longest, and the device has the real
lengths. Tensors whose size differs by head are in `rotatek.engine.pools`.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import torch
from torch import Tensor

from kernels.dispatch import attend
from kernels.reference import Narrow, Text, Visual
from rotatek.bridge.row_layout import TEXT_STEP
from rotatek.cache.sliding_window import WindowSchedule
from rotatek.cache.text_buffer import TextBuffer, write_tokens
from rotatek.engine.pools import (
    TEXT,
    TOKENS,
    WINDOW,
    Copy,
    LayerRow,
    Pools,
    Sections,
    launched_by,
    put_together,
    stepped,
)
from rotatek.engine.sequences import Sequence as Owner
from rotatek.errors import ModeUnsupported
from rotatek.methods.channels.base import Store

_SIZES: Final = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)  # capacities of a group in rows; then in 32s
COARSE_SIZES: Final = (4, 16, 32, 64)  # the same where each size is a captured graph
_COARSE: Final = 64  # visual tokens by which capacity grows there ...
_COARSE_TEXT: Final = 128  # ... and tokens of text, which differ from question to question


class Row(NamedTuple):
    """The host's record of one row: whose it is, its tokens less the steps that the batch had taken
    by then, and where it lies in each layer and in pools."""

    owner: Owner
    logical: int
    layers: list[LayerRow]
    sections: Sections


def room_for(rows: int, coarse: bool = False) -> int:
    """The least size of a group that holds so many rows."""
    sizes = COARSE_SIZES if coarse else _SIZES
    return next((size for size in sizes if size >= rows), stepped(rows, 32))


def _part(tensor: Tensor, rows: slice, tokens: int | None) -> Tensor:
    """Rows of a tensor, and so many tokens where it has an entry for each."""
    return tensor[rows] if tokens is None else tensor[rows, :, :tokens]


class RowGroupLayer:
    """Rows of one storage form in one layer, in which rows have the capacities of their group.

    first: a cache of the form, of which only the kind is used; rows: the group's: the row at each
    index, or None. width: rows that a step computes: those in use, or all where a graph has fixed
    them; size: capacity of rows; launched: the sizes of launches; grown: tokens that every row has
    added here. lengths, alive, visual_lengths: [size] int32 on the device: text tokens, 1 for rows
    in use, visual tokens; views of tensors that `RowGroup` writes for all layers at once.
    """

    def __init__(
        self, first: LayerRow, pools: Pools, layer: int, rows: Sequence[Row | None]
    ) -> None:
        self.pools, self.layer, self.rows = pools, layer, rows
        self.reach, self._per_token = first.reach, first.per_token
        tokened = (*TEXT, *first.per_token)
        self.tensors = {
            name: tensor[:0, :, :0] if name in tokened else tensor[:0]
            for name, tensor in first.stacked.items()
        }
        self._visual = [name for name in first.stacked if name not in (*TEXT, *WINDOW)]
        self.lengths, self.alive, self.visual_lengths = self.tensors[TEXT[0]].new_zeros(3, 0).int()
        self.pattern = None  # a store of the kind that holds nothing of any row
        if first.store is not None:
            named = {name: first.stacked[name] for name in self._visual}
            named |= first.tables | first.flat
            nothing = {name: tensor[:0].clone() for name, tensor in named.items()}
            self.pattern = put_together(first.store, nothing, {}, self.visual_lengths.cpu())
        self.width = self.size = self.grown = 0
        self.launched: Mapping[str, int] = {}
        self.static = False
        self._last = 0  # tokens that rows may have added before the longest text fills its room
        self._view: Store | None = None  # the visual tokens of the rows that a step computes

    @property
    def room(self) -> int:
        """Capacity of each row in text tokens."""
        return self.tensors[TEXT[0]].shape[TOKENS]

    @property
    def _tokens(self) -> int:
        """Capacity of each row in visual tokens, among tensors with an entry for each."""
        return max((self.tensors[name].shape[TOKENS] for name in self._per_token), default=0)

    @property
    def held(self) -> list[LayerRow]:
        """Of the rows in use."""
        return [row.layers[self.layer] for row in self.rows if row is not None]

    def _kept(self, tokens: int) -> int:
        """Of so many text tokens of a row, those that are stored at most."""
        return tokens if self.reach is None else min(tokens, self.reach)

    def _slots(self, tokens: int, text: int) -> dict[str, int]:
        """Of a row with so many visual and text tokens: entries of tensors that have one for each
        token."""
        return dict.fromkeys(self._per_token, tokens) | dict.fromkeys(TEXT, text)

    def fit(
        self,
        pieces: Sequence[LayerRow],
        text: int,
        rows: int,
        coarse: bool,
        launched: Mapping[str, int],
    ) -> bool:
        """Allocate capacity. Whether anything moved, or launches take other sizes.

        Args:
            pieces: the caches that will join.
            text: text tokens of a row, at least.
            rows: that will be in use then.
            coarse: allocate for others too, so that a graph need not be captured for each.
            launched: least sizes of launches, by name.
        """
        size = self.size if rows <= self.size else room_for(rows, coarse)
        step = _COARSE if coarse else 1
        tokens = stepped(max([self._tokens, *(piece.tokens for piece in pieces)]), step)
        numbers = [self.launched, *(piece.numbers for piece in pieces)]
        before, self.launched = self.launched, launched_by(numbers, step, launched)
        self._view = None
        room = max(self.room, self._kept(text))
        if room > self.room:
            room = stepped(room, _COARSE_TEXT if coarse else TEXT_STEP)
        return self._allocate(size, tokens, room) or self.launched != before

    def _allocate(self, size: int, tokens: int, room: int) -> bool:
        """Allocate every tensor anew, for so many rows, visual tokens and text tokens."""
        tokens = tokens if self._per_token else 0
        if (size, tokens, room) == (self.size, self._tokens, self.room):
            return False
        slots, rows = self._slots(tokens, room), slice(len(self.rows))
        for name, old in self.tensors.items():
            shape = [size, *old.shape[1:]]
            if name in slots:
                shape[TOKENS] = slots[name]
            if list(old.shape) != shape:
                new, least = old.new_zeros(shape), None
                if name in slots:
                    least = min(slots[name], old.shape[TOKENS])
                _part(new, rows, least).copy_(_part(old, rows, least))
                self.tensors[name] = new
        self.size, self._view = size, None
        return True

    def copies(self, piece: LayerRow, place: int) -> list[Copy]:
        """What puts one cache's tensors at an index, for which `fit` has allocated capacity:
        (to, from)."""
        slots = self._slots(piece.tokens, self._kept(piece.length))
        at, whole = slice(place, place + 1), slice(None)
        return [
            (_part(self.tensors[name], at, slots.get(name)), _part(own, whole, slots.get(name)))
            for name, own in piece.stacked.items()
            if own.numel()
        ]

    def shrink(self, size: int) -> None:
        """Free capacity that no row needs; the text keeps its capacity where a graph needs it."""
        held, room = self.held, self.room
        if not self.static:
            longest = max((row.length + self.grown for row in held), default=0)
            room = stepped(self._kept(longest), TEXT_STEP)
        self._allocate(size, max((row.tokens for row in held), default=0), room)
        self.launched = launched_by([row.numbers for row in held], 1)

    def marks(self, size: int) -> list[list[int]]:
        """Text tokens, use and visual tokens of the first `size` rows, for the device; a row that
        is not in use has one token, of zeros."""
        told = [(1, 0, 0)] * size
        for place, row in enumerate(self.rows):
            if row is not None:
                own = row.layers[self.layer]
                told[place] = own.length + self.grown, 1, own.seen
        return [list(each) for each in zip(*told, strict=True)]

    def mark(self, marks: Tensor, width: int, static: bool) -> None:
        """Take the device's numbers [3, size] of `marks`, and compute so many rows; where a graph
        asks for it, keep every address from here on."""
        self.lengths, self.alive, self.visual_lengths = marks
        self.width, self.static, self._view = width, static, None
        self._last = self._last_growth()

    def _last_growth(self) -> int:
        held = self.held
        if not held or (self.reach is not None and self.reach <= self.room):
            return sys.maxsize
        return self.room - max(row.length for row in held)

    def attend(self, query: Tensor, scale: float, *new: Tensor) -> Tensor:
        """Attention output [rows, Hq, 1, d]; new: Keys and Values of one token a row, which are
        appended first."""
        if new:
            self._append(*new)
        return attend(query, self.visual(), self._text(), scale)

    def _append(self, key: Tensor, value: Tensor) -> None:
        if self.grown >= self._last:
            if self.static:
                raise ModeUnsupported(
                    "The answer outgrew its reserved memory. Ask again with fewer new tokens."
                )
            room = self._kept(self.room + 2 * TEXT_STEP)
            self._allocate(self.size, self._tokens, stepped(room, TEXT_STEP))
            self._last = self._last_growth()
        lengths, moving = self.lengths[: self.width], self._moving
        slot = None if moving is None else moving.slot(lengths)
        write_tokens(self._text(), key, value, slot)
        lengths += self.alive[: self.width]
        self.grown += 1

    def _text(self) -> Text:
        """The text of the rows that a step computes."""
        held, moving = self.lengths[: self.width], self._moving
        keys, values = (self.tensors[name][: self.width] for name in TEXT)
        return Text(keys, values, held if moving is None else moving.held(held))

    @property
    def _moving(self) -> WindowSchedule | None:
        """The movement of the windows of a step's rows."""
        if self.reach is None:
            return None
        return WindowSchedule(*(self.tensors[name][: self.width] for name in WINDOW))

    def visual(self) -> Visual | None:
        """The visual tokens of the rows that a step computes, as far as they see them."""
        if self.pattern is None:
            return None
        if self._view is None:
            rows = {name: self.tensors[name][: self.width] for name in self._visual}
            rows |= self.pools.view(self.layer, self.width)
            lengths = self.visual_lengths[: self.width]
            self._view = put_together(self.pattern, rows, self.launched, lengths)
            visual = self._view.visual
            if isinstance(visual, Narrow) and self._clear():
                self._view = replace(self._view, visual=visual._replace(cleared=True))
        visual, moving = self._view.read(), self._moving
        if moving is None:
            return visual
        return visual._replace(lengths=moving.seen(self.lengths[: self.width]), fresh=True)

    @torch.inference_mode()
    def _clear(self) -> bool:
        """Set Values beyond each row's visual tokens to zero, once, where the reference would
        otherwise copy all of them at every step to do so. Whether that is done."""
        values = self.tensors.get("values")
        if values is None or self.static or self.reach is not None:
            return False  # rows come, or see fewer and fewer tokens
        if not values.is_floating_point() or values.device.type != "cpu":
            return False
        for values_of, row in zip(values, self.rows, strict=False):
            values_of[:, 0 if row is None else row.layers[self.layer].seen :] = 0
        return True

    def restored(self, row: Row, place: int) -> tuple[Store | None, TextBuffer]:
        """Copies of one row's visual tokens and text, for a cache of its own."""
        at, held = slice(place, place + 1), row.layers[self.layer]
        length = held.length + self.grown
        slots = self._slots(held.tokens, self._kept(length))

        def own(names: Sequence[str]) -> list[Tensor]:
            parts = (_part(self.tensors[name], at, slots.get(name)) for name in names)
            return [part.clone(memory_format=torch.contiguous_format) for part in parts]

        store = held.waits
        if store is None and self.pattern is not None:
            taken = self.pools.restored(self.layer, place, row.sections)
            taken |= dict(zip(self._visual, own(self._visual), strict=True))
            lengths = self.visual_lengths[at].clone()
            store = put_together(self.pattern, taken, held.numbers, lengths)
        tables = None if self.reach is None else WindowSchedule(*own(WINDOW))
        keys, values = own(TEXT)
        return store, TextBuffer(keys, values, self.lengths[at], False, length, tables)
