"""Rows of one storage form in every layer of the running batch. A row is one visitor's cache of one
sample."""

import math
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from rotatek.engine.pools import Copy, LayerRow, Pools, Shift, launched_by, stepped
from rotatek.engine.row_group_layer import COARSE_SIZES, Row, RowGroupLayer, room_for
from rotatek.engine.sequences import Sequence as Owner


class RowGroup:
    """Rows of one storage form, layer by layer.

    first: every layer of a cache of the form; rows: the row at each index, or None; slots: by
    layer.
    """

    def __init__(self, first: Sequence[LayerRow]) -> None:
        self.rows: list[Row | None] = []
        self.pools = Pools(first)
        self.slots = [
            RowGroupLayer(piece, self.pools, layer, self.rows) for layer, piece in enumerate(first)
        ]
        self._marks: Tensor | None = None  # [layers, 3, size] int32: see `RowGroupLayer.marks`

    @property
    def owners(self) -> list[Owner | None]:
        """Whose row is at each index."""
        return [None if row is None else row.owner for row in self.rows]

    @property
    def size(self) -> int:
        """Capacity of rows in every layer."""
        return min(slots.size for slots in self.slots)

    def tensors(self) -> list[Tensor]:
        """All tensors; the device's lengths are those of all layers."""
        waiting = [held.waits for slots in self.slots for held in slots.held]
        own = [t for store in waiting if store is not None for _, t in store.tensors()]
        marks = [] if self._marks is None else [self._marks]
        return [*self._stored(), *marks, *own]

    def _stored(self) -> list[Tensor]:
        """All tensors of rows, [size, ...]."""
        return [*self.pools.tensors(), *(t for one in self.slots for t in one.tensors.values())]

    def fit(
        self, alike: Sequence[Sequence[LayerRow]], room: int, coarse: bool, growth: float
    ) -> int:
        """Allocate capacity for caches. How many layers' addresses have changed.

        Args:
            alike: every layer of each.
            room: tokens that each row may add.
            coarse: allocate for further rows, too.
            growth: how many times as many rows are expected soon. A growing group is made large
                enough for these, up to the largest named size: some of many will have left before
                the last ones come.
        """
        rows = max(len(self.rows), sum(row is not None for row in self.rows) + len(alike))
        if rows > self.size:
            rows = max(rows, min(math.ceil(growth * rows), COARSE_SIZES[-1]))
        moved = int(self.pools.fit(alike, len(self.rows), max(self.size, room_for(rows, coarse))))
        launched: dict[str, int] = {}
        if coarse:  # a graph is captured for all layers. The one with the widest head differs from
            # picture to picture, but that head's width hardly does.
            each = [one.numbers for own in alike for one in own]
            launched = launched_by([*each, *(slots.launched for slots in self.slots)], 1)
        for index, slots in enumerate(self.slots):
            pieces = [own[index] for own in alike]
            text = max(piece.length for piece in pieces) + room
            moved += slots.fit(pieces, text, rows, coarse, launched)
        return moved

    def add(
        self, own: Sequence[LayerRow], owner: Owner, steps: int
    ) -> tuple[list[Copy], list[Shift]]:
        """Give every layer of a cache the first free index, after so many steps of the batch: the
        pending copies of its tensors, and the numbers to add to tables then."""
        if None not in self.rows:
            self.rows.append(None)
        place = self.rows.index(None)
        sections, copies, shifts = self.pools.add(own, place)
        layers, nothing = [], dict[str, Tensor]()
        for slots, piece in zip(self.slots, own, strict=True):
            copies += slots.copies(piece, place)
            layers.append(piece._replace(
                store=None, stacked=nothing, flat=nothing, tables=nothing, lengths=None,
                length=piece.length - slots.grown,
            ))  # fmt: skip
        self.rows[place] = Row(owner, own[0].logical - steps, layers, sections)
        return copies, shifts

    def leave(self, gone: Collection[Owner], static: bool) -> None:
        """Remove rows, and move the last rows to their indices, so that no removed row is computed.
        The group keeps its memory until its last row leaves. Where a graph has fixed the rows,
        their indices stay free, and nothing moves."""
        if static:
            self.rows[:] = [None if row is None or row.owner in gone else row for row in self.rows]
            return
        kept = [i for i, row in enumerate(self.rows) if row and row.owner not in gone]
        movers = [place for place in kept if place >= len(kept)]  # the last rows fill the holes
        order = [place if place in kept else movers.pop() for place in range(len(kept))]
        moves = [(new, old) for new, old in enumerate(order) if new != old]
        if moves:
            to, source = torch.tensor(moves).T
            for tensor in self._stored():
                to, source = to.to(tensor.device), source.to(tensor.device)
                # PyTorch cannot move rows of 8-bit floating point, but those of bytes
                as_bytes = tensor.itemsize == 1 and tensor.numel()
                rows = tensor.view(torch.uint8) if as_bytes else tensor
                rows.index_copy_(0, to, rows.index_select(0, source))
            self.pools.shift(moves)
        self.rows[:] = [self.rows[old] for old in order]

    def shrink(self) -> None:
        """Give back what no row needs, where there was no memory for more."""
        size = room_for(len(self.rows))
        self.pools.shrink([{} if row is None else row.sections for row in self.rows], size)
        for slots in self.slots:
            slots.shrink(size)

    def mark(self, static: bool) -> list[Owner | None]:
        """Send the lengths of all layers' rows to the device, in one transfer. Whose each row is,
        or None, as a step computes them."""
        size = self.size
        width = size if static else len(self.rows)
        aligned = stepped(size, 4)  # to 16 bytes: for other addresses Triton compiles again
        told = torch.tensor([slots.marks(aligned) for slots in self.slots], dtype=torch.int32)
        if self._marks is None or self._marks.shape != told.shape:
            self._marks = told.to(self.slots[0].lengths.device)
        else:
            self._marks.copy_(told)
        for slots, marks in zip(self.slots, self._marks, strict=True):
            slots.mark(marks, width, static)
        return [*self.owners, *[None] * (width - len(self.rows))]
