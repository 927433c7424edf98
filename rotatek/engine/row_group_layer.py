"""Rows of one storage form in one layer, together in tensors with spare capacity.

A row is one sample of one visitor's cache. Rows differ in length: visual tokens and text are padded
to the longest, and the device has the real lengths. Tensors whose size differs by head are stored
in one pool shared by all layers (`rotatek.engine.pools`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from kernels.dispatch import attend
from kernels.reference import Narrow, Text, Visual
from rotatek.bridge.row_layout import TEXT_STEP
from rotatek.cache.sliding_window import WindowPositions, WindowSchedule
from rotatek.cache.text_buffer import TextBuffer, write_tokens
from rotatek.engine.pools import Copy, Pools, move_rows
from rotatek.engine.store_tensors import (
    TOKENS,
    StoreTensors,
    corner,
    emptied,
    launched_by,
    put_together,
    taken_apart,
)
from rotatek.errors import ModeUnsupported
from rotatek.methods.channels.store import Store

SIZES: Final = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)  # capacities of a group in rows; then in 32s
COARSE_SIZES: Final = (4, 16, 32, 64)  # the same where each size is a captured graph
COARSE: Final = 64  # visual tokens by which capacity grows there ...
COARSE_TEXT: Final = 128  # ... and tokens of text, which differ from question to question


class LayerRows(NamedTuple):
    """One layer of a cache that joins a group.

    store: its visual tokens, or None; keys, values: text [B, Hkv, M, d]; lengths: of each sample's
    text; logical: tokens so far; parts: the store's tensors, or None where there is none or it has
    a call of its own; tables: the window's movement, where the answer may go beyond it.
    """

    store: Store | None
    keys: Tensor
    values: Tensor
    lengths: list[int]
    logical: int
    parts: StoreTensors | None = None
    tables: WindowSchedule | None = None

    @property
    def apart(self) -> bool:
        """Whether its store cannot share tensors with others."""
        return self.store is not None and self.parts is None

    @property
    def reach(self) -> int | None:
        """Equal for texts whose rows can share tensors: slots of the tokens inside a window."""
        return None if self.tables is None else self.tables.width


def layer_rows_of(held: Any, tokens: int) -> LayerRows:
    """One layer of a filled cache, compressed or plain.

    Args:
        held: of a `RotateKCache`, or of transformers' own, all of which counts as text.
        tokens: that it may add.
    """
    text: TextBuffer | None = getattr(held, "text", None)
    if text is None:
        (B, _, length, _), logical = held.keys.shape, held.get_seq_length()
        tables = _tables_of(held, logical) if _outgrown(held, logical + tokens) else None
        return LayerRows(None, held.keys, held.values, [length] * B, logical, tables=tables)
    held.follow(tokens)
    lengths = [text.longest] if text.keys.shape[0] == 1 else text.lengths.tolist()
    store = held.store
    parts = taken_apart(store)
    return LayerRows(store, text.keys, text.values, lengths, held.logical, parts, text.tables)


def _outgrown(plain: Any, tokens: int) -> bool:
    """Whether a layer of transformers' own cache has a window shorter than so many tokens."""
    return plain.is_sliding and tokens > plain.sliding_window


def _tables_of(plain: Any, logical: int) -> WindowSchedule:
    """The window's movement in such a layer: all of its tokens count as text."""
    B, _, length, _ = plain.keys.shape
    places = torch.arange(logical - length, logical, dtype=torch.int32, device=plain.keys.device)
    count = torch.full((B,), logical, dtype=torch.int32, device=plain.keys.device)
    text = places.expand(B, -1).contiguous()
    return WindowPositions(plain.sliding_window, text, text[:, :0], count).tables


def room_for(rows: int, coarse: bool = False) -> int:
    """The least size of a group that holds so many rows."""
    sizes = COARSE_SIZES if coarse else SIZES
    return next((size for size in sizes if size >= rows), -(-rows // 32) * 32)


@dataclass(frozen=True)
class _Row:
    """The host's record of one row in one layer.

    text: tokens, less those that the group has grown by; seen: visual tokens without padding;
    shapes: of its own stacked tensors, by name; numbers: of its parts.
    """

    text: int
    seen: int
    shapes: dict[str, tuple[int, ...]]
    numbers: dict[str, int]


class RowGroupLayer:
    """Rows of one storage form in one layer.

    Args:
        first: a cache of the form; only its kind is used.
        pools: the group's pools of all layers.
        layer: index from 0.

    Attributes:
        width: rows that a step computes: those in use, or all where a graph has fixed them.
        size: capacity of rows.
        lengths, alive, visual_lengths: [size] int32 on the device: text tokens, 1 for rows in use,
            visual tokens. Views of tensors that `Group` writes for all layers at once.
    """

    def __init__(self, first: LayerRows, pools: Pools, layer: int) -> None:
        self.width = self.size = 0
        self.pools, self.layer = pools, layer
        self.own = first.store if first.apart else None  # a store with calls of its own
        stacked = first.store is not None and not first.apart
        self.pattern = emptied(first.store) if stacked and first.store is not None else None
        self.static = False
        parts = first.parts
        self._per_token = () if parts is None else parts.per_token
        self._tensors: dict[str, Tensor] = {}
        for name, tensor in {} if parts is None else parts.stacked.items():
            shape = list(tensor.shape)
            if name in self._per_token:
                shape[TOKENS] = 0
            self._tensors[name] = tensor.new_zeros(0, *shape[1:])
        self._numbers: dict[str, int] = {}
        self._rows: list[_Row] = []  # by index: the first ones; under a graph there may be holes
        self._grown = self._longest = 0
        self._view: Store | None = None  # the visual tokens of the rows that a step computes
        like = first.keys
        self.keys = like.new_zeros(0, like.shape[1], 0, like.shape[3])
        self.values, self.reach = self.keys.clone(), first.reach
        self.tables = (
            None if first.tables is None else WindowSchedule(*(t[:0] for t in first.tables))
        )
        nobody = torch.zeros(3, 0, dtype=torch.int32, device=like.device)
        self.lengths, self.alive, self.visual_lengths = nobody

    @property
    def texts(self) -> list[int]:
        """Text tokens of each row."""
        return [row.text + self._grown for row in self._rows]

    @property
    def launched(self) -> Mapping[str, int]:
        """The sizes of launches, by name."""
        return self._numbers

    @property
    def room(self) -> int:
        """Capacity of each row in text tokens."""
        return self.keys.shape[TOKENS]

    def _kept(self, tokens: int) -> int:
        """Of so many text tokens of a row, those that are stored at most."""
        return tokens if self.reach is None else min(tokens, self.reach)

    def fit(
        self,
        pieces: Sequence[LayerRows],
        room: int,
        *,
        rows: int = 0,
        coarse: bool = False,
        launched: Mapping[str, int] | None = None,
    ) -> bool:
        """Allocate capacity for more rows.

        Args:
            pieces: the caches that `add` will receive.
            room: text tokens of a row, at least.
            rows: rows that will be in use then.
            coarse: allocate for others too, so that a graph need not be captured for each.
            launched: least sizes of launches, by name.

        Returns:
            Whether anything moved, or launches take other sizes.
        """
        size = self.size if rows <= self.size else rows if self.own else room_for(rows, coarse)
        step = COARSE if coarse else 1
        parts = [piece.parts for piece in pieces if piece.parts is not None]
        shapes = {name: tuple(t.shape[1:]) for name, t in self._tensors.items()}
        own = [each.shapes for each in parts]
        shapes = self._rounded([shapes, *own], step)
        numbers = launched_by([self._numbers, *(each.numbers for each in parts)], step, launched)
        step, room = COARSE_TEXT if coarse else TEXT_STEP, self._kept(room)
        room = self.room if room <= self.room else -(-room // step) * step
        changed = numbers != self._numbers
        self._numbers, self._view = numbers, None
        return self._allocate(size, shapes, room) or changed

    def _rounded(
        self, shapes: Sequence[dict[str, tuple[int, ...]]], step: int
    ) -> dict[str, tuple[int, ...]]:
        """The least shapes that hold all of these; what varies is rounded up."""
        found = {}
        for name in self._tensors:
            most = [max(sizes) for sizes in zip(*(each[name] for each in shapes), strict=True)]
            if name in self._per_token:
                most[TOKENS - 1] = -(-most[TOKENS - 1] // step) * step
            found[name] = tuple(most)
        return found

    def _allocate(self, size: int, shapes: dict[str, tuple[int, ...]], room: int) -> bool:
        """Allocate every tensor anew, for so many rows of these shapes and so many text tokens."""
        same = all(tuple(t.shape[1:]) == shapes[name] for name, t in self._tensors.items())
        if same and (size, room) == (self.size, self.room):
            return False
        for name, old in self._tensors.items():
            self._tensors[name] = self._moved(old, size, shapes[name])
        heads, d = self.keys.shape[1::2]
        self.keys, self.values = (
            self._moved(t, size, (heads, room, d)) for t in (self.keys, self.values)
        )
        if self.tables is not None:
            tables = (self._moved(part, size, tuple(part.shape[1:])) for part in self.tables)
            self.tables = WindowSchedule(*tables)
        self.size, self._view = size, None
        return True

    def _moved(self, old: Tensor, size: int, shape: tuple[int, ...]) -> Tensor:
        if tuple(old.shape) == (size, *shape):
            return old
        new = old.new_zeros(size, *shape)
        least = tuple(map(min, shape, old.shape[1:]))
        corner(new[: len(self._rows)], least).copy_(corner(old[: len(self._rows)], least))
        return new

    def add(self, piece: LayerRows, start: int, seen: Sequence[int]) -> list[Copy]:
        """Give rows the indices from `start` on, for which `fit` has allocated capacity.

        Args:
            piece: of one cache.
            start: its first row's index.
            seen: visual tokens of each of its rows.

        Returns:
            (to, from): the pending copies.
        """
        rows, copies = slice(start, start + len(piece.lengths)), []
        shapes = {} if piece.parts is None else piece.parts.shapes
        numbers = {} if piece.parts is None else piece.parts.numbers
        for name, tensor in {}.items() if piece.parts is None else piece.parts.stacked.items():
            if tensor.numel():
                copies.append((corner(self._tensors[name][rows], shapes[name]), tensor))
        copies += [
            (mine[rows], new)
            for mine, new in zip(self.tables or (), piece.tables or (), strict=True)
        ]
        longest = self._kept(max(piece.lengths))
        copies.append((self.keys[rows, :, :longest], piece.keys[:, :, :longest]))
        copies.append((self.values[rows, :, :longest], piece.values[:, :, :longest]))
        self._rows += [self._nobody] * (rows.stop - len(self._rows))
        self._rows[rows] = [
            _Row(length - self._grown, visual, shapes, numbers)
            for length, visual in zip(piece.lengths, seen, strict=True)
        ]
        return copies

    @property
    def _nobody(self) -> _Row:
        return _Row(1 - self._grown, 0, {}, {})

    def forget(self, places: Sequence[int]) -> None:
        """Mark rows as no longer in use; nothing moves."""
        for place in places:
            self._rows[place] = self._nobody

    def keep(self, order: list[int]) -> None:
        """Leave only these rows, in this order; no row may move back."""
        moves = [(new, old) for new, old in enumerate(order) if new != old]
        if moves:
            text = [self.keys, self.values, *(self.tables or ())]
            move_rows([*text, *self._tensors.values()], moves)
        self._rows = [self._rows[old] for old in order]
        self._view = None

    def shrink(self, size: int) -> None:
        """Free capacity that no row needs; the text keeps its capacity where a graph needs it."""
        if self.own is not None:
            return
        room = self.room
        if not self.static:
            room = -(-self._kept(max(self.texts, default=0)) // TEXT_STEP) * TEXT_STEP
        fixed = {name: self._fixed(name) for name in self._tensors}
        shapes = [row.shapes for row in self._rows if row.shapes]
        self._allocate(size, self._rounded([fixed, *shapes], 1), room)
        self._numbers = launched_by([row.numbers for row in self._rows], 1)

    def _fixed(self, name: str) -> tuple[int, ...]:
        """A tensor's shape with nothing in what varies."""
        free, shape = name in self._per_token, self._tensors[name].shape
        return tuple(0 if free and dim == TOKENS else n for dim, n in enumerate(shape) if dim)

    def marks(self, used: Sequence[bool], size: int) -> list[list[int]]:
        """Text tokens, use and visual tokens of the first `size` rows, for the device; a
        row that is not in use has one token, of zeros."""
        free = size - len(used)
        text = [row.text + self._grown for row in self._rows]
        seen = [row.seen for row in self._rows]
        return [text + [1] * free, [int(use) for use in used] + [0] * free, seen + [0] * free]

    def mark(self, marks: Tensor, width: int, static: bool) -> None:
        """Take the device's numbers [3, size] of `marks`, and compute so many rows; where a graph
        asks for it, keep every address from here on."""
        self.lengths, self.alive, self.visual_lengths = marks
        self.width, self.static, self._view = width, static, None
        self._longest = max((row.text for row in self._rows), default=0)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attention output [rows, Hq, 1, d] of one new token a row, which is appended."""
        if self._kept(self._longest + self._grown + 1) > self.room:
            if self.static:
                raise ModeUnsupported(
                    "The answer outgrew its reserved memory. Ask again with fewer new tokens."
                )
            self.fit((), self.room + 2 * TEXT_STEP)
        self.append(key, value)
        return self.attend_again(query, scale)

    def attend_again(self, query: Tensor, scale: float) -> Tensor:
        """The same [rows, Hq, 1, d] over the tokens that are there."""
        return attend(query, self.visual(), self._text(), scale)

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

    def append(self, key: Tensor, value: Tensor) -> None:
        """Add one token [rows, Hkv, 1, d] behind each row's last one."""
        alive, moving = self.alive[: self.width], self._moving
        slot = None if moving is None else moving.slot(self.lengths[: self.width])
        write_tokens(self._text(), key, value, slot)
        self.lengths[: self.width] += alive
        self._grown += 1

    def visual(self) -> Visual | None:
        """The visual tokens of the rows that a step computes, as far as they see them."""
        visual, moving = self._whole(), self._moving
        if visual is None or moving is None:
            return visual
        seen = moving.seen(self.lengths[: self.width])
        return visual._replace(lengths=seen, fresh=True)

    def _whole(self) -> Visual | None:
        if self.own is not None:
            return self.own.read()
        if self.pattern is None:
            return None
        if self._view is None:
            rows = {name: tensor[: self.width] for name, tensor in self._tensors.items()}
            rows |= self.pools.view(self.layer, self.width)
            lengths = self.visual_lengths[: self.width]
            self._view = put_together(self.pattern, rows, self._numbers, lengths)
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
        for row, held in enumerate(self._rows[: self.width]):
            values[row, :, held.seen :] = 0
        return True

    def advance(self) -> None:
        """Count a token that a graph's replay has added."""
        self._grown += 1

    def grown(self) -> int:
        """For `rewind`."""
        return self._grown

    def rewind(self, grown: int) -> None:
        """Undo the tokens added since `grown()` was asked; `mark` updates the device."""
        self._grown = grown

    def restored(self, place: int) -> tuple[Store | None, TextBuffer]:
        """Copies of one row's visual tokens and text, for a cache of its own."""
        row, store, held = slice(place, place + 1), self.own, self._rows[place]
        if store is None and self.pattern is not None:
            taken = {
                name: corner(self._tensors[name][row], shape).clone(
                    memory_format=torch.contiguous_format
                )
                for name, shape in held.shapes.items()
            } | self.pools.restored(self.layer, place)
            lengths = self.visual_lengths[row].clone()
            store = put_together(self.pattern, taken, held.numbers, lengths)
        length = held.text + self._grown
        used = self._kept(length)
        keys, values = (t[row, :, :used].clone() for t in (self.keys, self.values))
        tables = (
            None if self.tables is None else WindowSchedule(*(t[row].clone() for t in self.tables))
        )
        return store, TextBuffer(keys, values, self.lengths[row], False, length, tables)

    def tensors(self) -> list[Tensor]:
        """All tensors but the pools."""
        own = [] if self.own is None else [tensor for _, tensor in self.own.tensors()]
        lengths = [self.lengths, self.alive, self.visual_lengths]
        text = [self.keys, self.values, *(self.tables or ())]
        return [*text, *lengths, *self._tensors.values(), *own]
