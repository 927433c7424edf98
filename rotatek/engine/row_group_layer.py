"""Rows of one storage form in one layer, together in tensors with spare capacity.

Rows differ in length: visual tokens and text are padded to the longest, and the device has the real
lengths. Tensors whose size differs by head are stored in one pool shared by all layers
(`rotatek.engine.pools`).
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from kernels.dispatch import attend
from kernels.reference import Narrow, Text, Visual
from rotatek.bridge.row_layout import TEXT_STEP
from rotatek.cache.sliding_window import WindowPositions, WindowSchedule
from rotatek.cache.text_buffer import TextBuffer, write_tokens
from rotatek.engine.pools import (
    TOKENS,
    Copy,
    Pools,
    Sections,
    StoreTensors,
    emptied,
    launched_by,
    put_together,
    taken_apart,
)
from rotatek.engine.sequences import Sequence as Owner
from rotatek.errors import ModeUnsupported
from rotatek.methods.channels.base import Store

SIZES: Final = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)  # capacities of a group in rows; then in 32s
COARSE_SIZES: Final = (4, 16, 32, 64)  # the same where each size is a captured graph
COARSE: Final = 64  # visual tokens by which capacity grows there ...
COARSE_TEXT: Final = 128  # ... and tokens of text, which differ from question to question


class RowLengths(NamedTuple):
    """What the host knows of one row in one layer.

    text: tokens, less those that the group has grown by; tokens: visual ones that are stored; seen:
    those of them that are no padding; numbers: sizes of launches; waits: as of `LayerRow`.
    """

    text: int
    tokens: int
    seen: int
    numbers: dict[str, int]
    waits: Store | None


class Row(NamedTuple):
    """The host's record of one row: whose it is, its tokens less the steps that the batch had taken
    by then, and where it lies in each layer and in pools."""

    owner: Owner
    logical: int
    layers: list[RowLengths]
    sections: Sections


class LayerRow(NamedTuple):
    """One layer of a cache that joins a group.

    store: its visual tokens as attention reads them, or None; keys, values: text [1, Hkv, M, d];
    length: of the text; logical: tokens so far; parts: the store's tensors; tables: the window's
    movement, where the answer may go beyond it; waits: a store that cannot be stacked, which every
    step would rebuild: it is rebuilt once, and comes back when the row leaves.
    """

    store: Store | None
    keys: Tensor
    values: Tensor
    length: int
    logical: int
    parts: StoreTensors
    tables: WindowSchedule | None = None
    waits: Store | None = None

    @property
    def tokens(self) -> int:
        """Visual tokens that are stored."""
        return 0 if self.store is None else self.store.visual.tokens

    @property
    def reach(self) -> int | None:
        """Equal for texts whose rows can share tensors: slots of the tokens inside a window."""
        return None if self.tables is None else self.tables.width


def layer_row_of(held: Any, tokens: int) -> LayerRow:
    """One layer of a filled cache of one sample, compressed or plain.

    Args:
        held: of a `RotateKCache`, or of transformers' own, all of which counts as text.
        tokens: that it may add.
    """
    text: TextBuffer | None = getattr(held, "text", None)
    if text is None:
        length, logical = held.keys.shape[TOKENS], held.get_seq_length()
        outgrown = held.is_sliding and logical + tokens > held.sliding_window
        tables = _tables_of(held, length, logical) if outgrown else None
        nothing = taken_apart(None)
        return LayerRow(None, held.keys, held.values, length, logical, nothing, tables)
    held.follow(tokens)
    store, waits = held.store, None
    if store is not None and not store.per_token:
        store, waits = Store(store.read()._replace(fresh=False)), store
    return LayerRow(
        store, text.keys, text.values, text.longest, held.logical, taken_apart(store),
        text.tables, waits,
    )  # fmt: skip


def _tables_of(plain: Any, length: int, logical: int) -> WindowSchedule:
    """The window's movement in a layer of transformers' own: all of its tokens count as text."""
    device = plain.keys.device
    places = torch.arange(logical - length, logical, dtype=torch.int32, device=device)[None]
    count = torch.full((1,), logical, dtype=torch.int32, device=device)
    return WindowPositions(plain.sliding_window, places, places[:, :0], count).tables


def room_for(rows: int, coarse: bool = False) -> int:
    """The least size of a group that holds so many rows."""
    sizes = COARSE_SIZES if coarse else SIZES
    return next((size for size in sizes if size >= rows), _stepped(rows, 32))


def _stepped(count: int, step: int) -> int:
    return -(-count // step) * step


class RowGroupLayer:
    """Rows of one storage form in one layer.

    Args:
        first: a cache of the form; only its kind is used.
        pools: the group's pools of all layers.
        layer: index from 0.
        rows: the group's: the row at each index, or None.

    Attributes:
        width: rows that a step computes: those in use, or all where a graph has fixed them.
        size: capacity of rows.
        launched: the sizes of launches, by name.
        grown: tokens that every row has added here.
        lengths, alive, visual_lengths: [size] int32 on the device: text tokens, 1 for rows in use,
            visual tokens. Views of tensors that `RowGroup` writes for all layers at once.
    """

    def __init__(
        self, first: LayerRow, pools: Pools, layer: int, rows: Sequence[Row | None]
    ) -> None:
        self.pools, self.layer, self.rows = pools, layer, rows
        self.reach = first.reach
        self.pattern = None if first.store is None else emptied(first.store)
        self._per_token = () if self.pattern is None else self.pattern.per_token
        self._tensors: dict[str, Tensor] = {}
        for name, tensor in first.parts.stacked.items():
            self._tensors[name] = tensor[:0, :, :0] if name in self._per_token else tensor[:0]
        self.keys, self.values = first.keys[:0, :, :0], first.values[:0, :, :0]
        self.tables = (
            None if first.tables is None else WindowSchedule(*(t[:0] for t in first.tables))
        )
        self.lengths, self.alive, self.visual_lengths = first.keys.new_zeros(3, 0).int()
        self.width = self.size = self.grown = 0
        self.launched: Mapping[str, int] = {}
        self.static = False
        self._last = 0  # tokens that rows may have added before the longest text fills its room
        self._view: Store | None = None  # the visual tokens of the rows that a step computes

    @property
    def room(self) -> int:
        """Capacity of each row in text tokens."""
        return self.keys.shape[TOKENS]

    @property
    def _tokens(self) -> int:
        """Capacity of each row in visual tokens, among tensors with an entry for each."""
        return max(
            (t.shape[TOKENS] for n, t in self._tensors.items() if n in self._per_token), default=0
        )

    @property
    def _held(self) -> list[RowLengths]:
        """Of the rows in use."""
        return [row.layers[self.layer] for row in self.rows if row is not None]

    def _kept(self, tokens: int) -> int:
        """Of so many text tokens of a row, those that are stored at most."""
        return tokens if self.reach is None else min(tokens, self.reach)

    def fit(
        self,
        pieces: Sequence[LayerRow],
        text: int,
        rows: int,
        coarse: bool,
        launched: Mapping[str, int],
    ) -> bool:
        """Allocate capacity.

        Args:
            pieces: the caches that will join.
            text: text tokens of a row, at least.
            rows: that will be in use then.
            coarse: allocate for others too, so that a graph need not be captured for each.
            launched: least sizes of launches, by name.

        Returns:
            Whether anything moved, or launches take other sizes.
        """
        size = self.size if rows <= self.size else room_for(rows, coarse)
        step = COARSE if coarse else 1
        each = [piece.parts.numbers for piece in pieces]
        tokens = _stepped(max([self._tokens, *(piece.tokens for piece in pieces)]), step)
        numbers = launched_by([self.launched, *each], step, launched)
        changed = numbers != self.launched
        self.launched, self._view = numbers, None
        room = self._kept(text)
        room = (
            self.room if room <= self.room else _stepped(room, COARSE_TEXT if coarse else TEXT_STEP)
        )
        return self._allocate(size, tokens, room) or changed

    def _allocate(self, size: int, tokens: int, room: int) -> bool:
        """Allocate every tensor anew, for so many rows, visual tokens and text tokens."""
        tokens = tokens if any(name in self._per_token for name in self._tensors) else 0
        if (size, tokens, room) == (self.size, self._tokens, self.room):
            return False
        for name, old in self._tensors.items():
            self._tensors[name] = self._moved(
                old, size, tokens if name in self._per_token else None
            )
        self.keys, self.values = (self._moved(t, size, room) for t in (self.keys, self.values))
        if self.tables is not None:
            self.tables = WindowSchedule(*(self._moved(part, size) for part in self.tables))
        self.size, self._view = size, None
        return True

    def _moved(self, old: Tensor, size: int, tokens: int | None = None) -> Tensor:
        """A tensor for so many rows, and so many tokens where it has an entry for each."""
        shape = [size, *old.shape[1:]]
        if tokens is not None:
            shape[TOKENS] = tokens
        if list(old.shape) == shape:
            return old
        new, rows = old.new_zeros(shape), slice(len(self.rows))
        if tokens is None:
            new[rows] = old[rows]
        else:
            least = slice(min(tokens, old.shape[TOKENS]))
            new[rows, :, least] = old[rows, :, least]
        return new

    def copies(self, piece: LayerRow, place: int) -> list[Copy]:
        """What puts one cache's tensors at an index, for which `fit` has allocated capacity:
        (to, from)."""
        found = []
        for name, tensor in piece.parts.stacked.items():
            if tensor.numel():
                own = self._tensors[name][place : place + 1]
                found.append(
                    (own[:, :, : piece.tokens] if name in self._per_token else own, tensor)
                )
        for mine, new in zip(self.tables or (), piece.tables or (), strict=True):
            found.append((mine[place : place + 1], new))
        longest = self._kept(piece.length)
        for mine, new in ((self.keys, piece.keys), (self.values, piece.values)):
            found.append((mine[place : place + 1, :, :longest], new[:, :, :longest]))
        return found

    def rows_of(self) -> list[Tensor]:
        """All tensors [size, ...] but the pools and the device's lengths."""
        return [self.keys, self.values, *(self.tables or ()), *self._tensors.values()]

    def shrink(self, size: int) -> None:
        """Free capacity that no row needs; the text keeps its capacity where a graph needs it."""
        held, room = self._held, self.room
        if not self.static:
            longest = max((row.text + self.grown for row in held), default=0)
            room = _stepped(self._kept(longest), TEXT_STEP)
        self._allocate(size, max((row.tokens for row in held), default=0), room)
        self.launched = launched_by([row.numbers for row in held], 1)

    def marks(self, size: int) -> list[list[int]]:
        """Text tokens, use and visual tokens of the first `size` rows, for the device; a row that
        is not in use has one token, of zeros."""
        told = [
            (1, 0, 0) if row is None
            else (row.layers[self.layer].text + self.grown, 1, row.layers[self.layer].seen)
            for row in self.rows
        ]  # fmt: skip
        told += [(1, 0, 0)] * (size - len(told))
        return [list(each) for each in zip(*told, strict=True)]

    def mark(self, marks: Tensor, width: int, static: bool) -> None:
        """Take the device's numbers [3, size] of `marks`, and compute so many rows; where a graph
        asks for it, keep every address from here on."""
        self.lengths, self.alive, self.visual_lengths = marks
        self.width, self.static, self._view = width, static, None
        self._last = self._last_growth()

    def _last_growth(self) -> int:
        if not self._held or (self.reach is not None and self.reach <= self.room):
            return sys.maxsize
        return self.room - max(row.text for row in self._held)

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
            self._allocate(self.size, self._tokens, _stepped(room, TEXT_STEP))
            self._last = self._last_growth()
        alive, moving = self.alive[: self.width], self._moving
        slot = None if moving is None else moving.slot(self.lengths[: self.width])
        write_tokens(self._text(), key, value, slot)
        self.lengths[: self.width] += alive
        self.grown += 1

    def _text(self) -> Text:
        """The text of the rows that a step computes."""
        width = self.width
        held = self.lengths[:width]
        if self._moving is not None:
            held = self._moving.held(held)
        return Text(self.keys[:width], self.values[:width], held)

    @property
    def _moving(self) -> WindowSchedule | None:
        """The movement of the windows of a step's rows."""
        return (
            None if self.tables is None else WindowSchedule(*(t[: self.width] for t in self.tables))
        )

    def visual(self) -> Visual | None:
        """The visual tokens of the rows that a step computes, as far as they see them."""
        visual, moving = self._whole(), self._moving
        if visual is None or moving is None:
            return visual
        seen = moving.seen(self.lengths[: self.width])
        return visual._replace(lengths=seen, fresh=True)

    def _whole(self) -> Visual | None:
        if self.pattern is None:
            return None
        if self._view is None:
            rows = {name: tensor[: self.width] for name, tensor in self._tensors.items()}
            rows |= self.pools.view(self.layer, self.width)
            lengths = self.visual_lengths[: self.width]
            self._view = put_together(self.pattern, rows, self.launched, lengths)
            visual = self._view.visual
            if isinstance(visual, Narrow) and self._clear():
                self._view = replace(self._view, visual=visual._replace(cleared=True))
        return self._view.read()

    @torch.inference_mode()
    def _clear(self) -> bool:
        """Set Values beyond each row's visual tokens to zero, once, where the reference would
        otherwise copy all of them at every step to do so. Whether that is done."""
        values = self._tensors.get("values")
        moving = self.static or self.tables is not None  # rows come, or see fewer and fewer tokens
        if values is None or moving:
            return False
        if not values.is_floating_point() or values.device.type != "cpu":
            return False
        for values_of, row in zip(values, self.rows, strict=False):
            values_of[:, 0 if row is None else row.layers[self.layer].seen :] = 0
        return True

    def restored(self, row: Row, place: int) -> tuple[Store | None, TextBuffer]:
        """Copies of one row's visual tokens and text, for a cache of its own."""
        at = slice(place, place + 1)
        held = row.layers[self.layer]
        store = held.waits
        if store is None and self.pattern is not None:
            taken = self.pools.restored(self.layer, place, row.sections)
            for name, tensor in self._tensors.items():
                own = tensor[at, :, : held.tokens] if name in self._per_token else tensor[at]
                taken[name] = own.clone(memory_format=torch.contiguous_format)
            lengths = self.visual_lengths[at].clone()
            store = put_together(self.pattern, taken, held.numbers, lengths)
        length = held.text + self.grown
        keys, values = (t[at, :, : self._kept(length)].clone() for t in (self.keys, self.values))
        tables = (
            None if self.tables is None else WindowSchedule(*(t[at].clone() for t in self.tables))
        )
        return store, TextBuffer(keys, values, self.lengths[at], False, length, tables)

    def tensors(self) -> list[Tensor]:
        """All tensors but the pools."""
        waiting = (one.waits.tensors() for one in self._held if one.waits is not None)
        own = (tensor for tensors in waiting for _, tensor in tensors)
        return [*self.rows_of(), self.lengths, self.alive, self.visual_lengths, *own]
