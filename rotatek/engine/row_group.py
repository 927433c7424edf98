"""Rows of one storage form in every layer of the running batch."""

import math
from collections.abc import Hashable, Sequence
from typing import Final

import torch
from torch import Tensor

from rotatek.engine.pools import Copy, Pools, Shift, size_class
from rotatek.engine.row_group_layer import COARSE_SIZES, SIZES, LayerRows, RowGroupLayer, room_for
from rotatek.engine.store_tensors import StoreTensors, launched_by

SPARSE: Final = 4  # a group a quarter full is allocated again


def key_of(pieces: Sequence[LayerRows]) -> Hashable:
    """Equal for caches whose rows are stored together in every layer."""
    if any(piece.apart for piece in pieces):
        return object()
    parts = [piece.parts for piece in pieces]
    forms = tuple(
        "text alone" if piece.store is None or piece.parts is None
        else (type(piece.store), piece.parts.form())
        for piece in pieces
    )  # fmt: skip
    return forms, size_class(parts), tuple(piece.reach for piece in pieces)


class RowGroup:
    """Rows of one storage form, layer by layer.

    Args:
        first: every layer's rows of a cache of the form.

    Attributes:
        places: the row at each index, or None.
        slots: by layer.
    """

    def __init__(self, first: Sequence[LayerRows]) -> None:
        self.places: list[int | None] = []
        self.pools = Pools([piece.parts for piece in first])
        self.slots = [RowGroupLayer(piece, self.pools, layer) for layer, piece in enumerate(first)]
        self._marks: Tensor | None = None  # [layers, 3, size] int32: see `RowGroupLayer.marks`

    @property
    def taken(self) -> bool:
        """Whether any row is in use."""
        return any(number is not None for number in self.places)

    @property
    def apart(self) -> bool:
        """Whether its one cache has tensors of its own."""
        return any(slots.own is not None for slots in self.slots)

    @property
    def size(self) -> int:
        """Capacity of rows in every layer."""
        return min(slots.size for slots in self.slots)

    def tensors(self) -> list[Tensor]:
        """All tensors."""
        return [*self.pools.tensors(), *(t for slots in self.slots for t in slots.tensors())]

    def fit(
        self, alike: Sequence[Sequence[LayerRows]], room: int, coarse: bool, growth: float = 1.0
    ) -> int:
        """Allocate capacity for caches.

        Args:
            alike: every layer's rows of each.
            room: tokens that each row may add.
            coarse: allocate for further rows, too.
            growth: how many times as many rows are expected soon. A growing group is made large
                enough for these, up to the largest named size: some of many will have left before
                the last ones come.

        Returns:
            How many layers' addresses have changed.
        """
        taken = list(self.places)
        for own in alike:
            start, count = first_free(taken, len(own[0].lengths)), len(own[0].lengths)
            taken[start : start + count] = [0] * count
        rows = len(taken)
        if rows > self.size:
            rows = max(rows, min(math.ceil(growth * rows), COARSE_SIZES[-1]))
        parts = [[piece.parts for piece in own] for own in alike]
        moved = int(self.pools.fit(parts, max(self.size, room_for(rows, coarse))))
        launched = self._launched(parts) if coarse else {}
        for index, slots in enumerate(self.slots):
            pieces = [own[index] for own in alike]
            text = max(max(piece.lengths) for piece in pieces) + room
            moved += slots.fit(pieces, text, rows=rows, coarse=coarse, launched=launched)
        return moved

    def _launched(self, caches: Sequence[Sequence[StoreTensors | None]]) -> dict[str, int]:
        """Launch sizes for every layer, where a graph is captured for all of them. The layer with
        the widest head differs from picture to picture, but that head's width hardly does."""
        each = [parts.numbers for own in caches for parts in own if parts is not None]
        return launched_by([*each, *(slots.launched for slots in self.slots)], 1)

    def add(
        self, own: Sequence[LayerRows], seen: Sequence[Sequence[int]], numbers: Sequence[int]
    ) -> tuple[list[Copy], list[Shift]]:
        """Give one cache's rows their indices.

        Args:
            own: every layer's rows.
            seen: visual tokens of each row, by layer.
            numbers: of its rows.

        Returns:
            the pending copies of its tensors, and the numbers to add to tables then.
        """
        count = len(numbers)
        start = first_free(self.places, count)
        self.places[start : start + count] = numbers
        copies, shifts = self.pools.add([piece.parts for piece in own], start, count)
        for slots, piece, lengths in zip(self.slots, own, seen, strict=True):
            copies += slots.add(piece, start, lengths)
        return copies, shifts

    def forget(self, gone: set[int]) -> None:
        """Mark rows as removed; their indices stay free, and nothing moves."""
        holes = [i for i, n in enumerate(self.places) if n is None or n in gone]
        self.places = [None if number in gone else number for number in self.places]
        self.pools.forget(holes)
        for slots in self.slots:
            slots.forget(holes)

    def drop_rows(self, gone: set[int]) -> int:
        """Remove rows, and move the last rows to their indices, so that no removed row is computed.

        Returns:
            How many layers' addresses have changed.
        """
        kept = [i for i, n in enumerate(self.places) if n is not None and n not in gone]
        order = _holes_filled(kept)
        self.places = [self.places[i] for i in order]
        self.pools.keep(order)
        for slots in self.slots:
            slots.keep(order)
        size = self.size
        if not order or size <= SIZES[2] or SPARSE * len(order) > size:
            return 0
        self.shrink()
        return 1

    def shrink(self) -> None:
        """Give back what no row needs."""
        if not self.apart:
            size = room_for(len(self.places))
            self.pools.shrink(size)
            for slots in self.slots:
                slots.shrink(size)

    def mark(self, static: bool) -> list[int | None]:
        """Send the lengths of all layers' rows to the device, in one transfer.

        Returns:
            each row's number, or None, as a step computes them.
        """
        size = self.size
        width = size if static else len(self.places)
        used = [number is not None for number in self.places]
        told = torch.tensor([slots.marks(used, size) for slots in self.slots], dtype=torch.int32)
        if self._marks is None or self._marks.shape != told.shape:
            self._marks = told.to(self.slots[0].keys.device)
        else:
            self._marks.copy_(told)
        for slots, marks in zip(self.slots, self._marks, strict=True):
            slots.mark(marks, width, static)
        return [*self.places, *[None] * (width - len(self.places))]


def first_free(places: Sequence[int | None], count: int) -> int:
    """The first of so many free indices in a row; at the latest behind all others."""
    for start in range(len(places) - count + 1):
        if all(number is None for number in places[start : start + count]):
            return start
    return len(places)


def _holes_filled(kept: list[int]) -> list[int]:
    """The remaining indices, moved as little as possible: the last rows fill the holes."""
    count = len(kept)
    movers = [place for place in kept if place >= count]
    there = set(kept)
    return [place if place in there else movers.pop() for place in range(count)]
