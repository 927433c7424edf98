"""Pools for tensors that differ in size from row to row: planes, bases, heads of many widths."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

import torch
from torch import Tensor

from kernels.planes import GRANULE
from rotatek.engine.store_tensors import StoreTensors

FINEST: Final = GRANULE * GRANULE  # least growth of a section: kernels rely on it for planes
SHARE_BITS: Final = 4  # else by a sixteenth to an eighth of itself

Copy = tuple[Tensor, Tensor]  # to, from
Shift = tuple[Tensor, int]  # a tensor and the number to add to it
Block = tuple[int, str]  # a layer and the name of a flat tensor in it


def coarse(size: int) -> int:
    """A section size for `size`, up to an eighth larger: rows of similar sizes fit it, too."""
    step = max(FINEST, 1 << max(0, size.bit_length() - SHARE_BITS))
    return -(-size // step) * step


class Pools:
    """Tensors in which every row has one section, for its tensors of all layers.

    A budget of bits or widths is that of all layers together: the shares of layers and heads vary
    from prompt to prompt, their sum hardly. So one section for all layers needs little padding:
    the sizes of rows of one group are within a factor of two of each other (`size_class`), and the
    section has the size of the largest, rounded up by an eighth at most. `kernels` find a head by
    its offset in a table, which is rewritten in place as rows come, go and move: addresses stay.

    Args:
        first: every layer's tensors of a cache of the form, None where a layer pools none.

    Attributes:
        rooms: size of a row's section in each pool, in elements, or in rows of a basis.
    """

    def __init__(self, first: Sequence[StoreTensors | None]) -> None:
        self.blocks: dict[Block, tuple[Hashable, str]] = {}  # its pool and its table
        self.tables: dict[Block, Tensor] = {}  # [size, Hkv]; numbers count a pool's first two dims
        self._pools: dict[Hashable, Tensor] = {}  # [rows, section, ...]
        self._rows: list[dict[Block, tuple[int, int]]] = []  # by row: (start, count) in its section
        for layer, parts in enumerate(first):
            if parts is None:
                continue
            for name, flat in parts.flat.items():
                pool, tensor = _pool_of(name, parts), flat.tensor
                self.blocks[layer, name] = pool, flat.table
                self._pools[pool] = tensor.new_zeros(0, 0, *tensor.shape[1:])
            for name, table in parts.tables.items():
                self.tables[layer, name] = table[:0].clone()

    @property
    def rooms(self) -> dict[Hashable, int]:
        """Elements, or rows of a basis, that a row has in each pool."""
        return {pool: tensor.shape[1] for pool, tensor in self._pools.items()}

    def fit(self, caches: Sequence[Sequence[StoreTensors | None]], size: int) -> bool:
        """Allocate sections for `size` rows, the given caches' included. Whether tensors moved."""
        rooms = self.rooms
        for own in caches:
            for pool, wanted in needed(own).items():
                rooms[pool] = max(rooms[pool], coarse(wanted))
        return self._allocate(size, rooms)

    def shrink(self, size: int) -> None:
        """Give back what no row needs."""
        rooms = dict.fromkeys(self._pools, 0)
        for row in self._rows:
            ends = dict.fromkeys(self._pools, 0)
            for block, (start, count) in row.items():
                pool = self.blocks[block][0]
                ends[pool] = max(ends[pool], start + count)
            rooms = {pool: max(room, coarse(ends[pool])) for pool, room in rooms.items()}
        self._allocate(size, rooms)

    def _allocate(self, size: int, rooms: dict[Hashable, int]) -> bool:
        """Allocate every pool anew, for so many rows with sections of these sizes."""
        old, rows = self._pools, len(self._rows)
        if all(t.shape[:2] == (size, rooms[pool]) for pool, t in old.items()):
            return False
        made = {}
        for pool, tensor in old.items():
            made[pool] = tensor.new_zeros(size, rooms[pool], *tensor.shape[2:])
            least = min(rooms[pool], tensor.shape[1])
            made[pool][:rows, :least] = tensor[:rows, :least]
        for block, table in self.tables.items():
            new = table.new_zeros(size, *table.shape[1:])
            new[:rows] = table[:rows]
            pool = self._addressed(block)
            grown = rooms[pool] - old[pool].shape[1]
            if grown and rows:
                place = torch.arange(rows, device=table.device, dtype=table.dtype)
                new[:rows] += grown * place[:, None]
            self.tables[block] = new
        self._pools = made
        return True

    def _addressed(self, table: Block) -> Hashable:
        """A pool whose offsets are in a table: all of them have sections of one size."""
        layer, name = table
        return next(p for (la, _), (p, t) in self.blocks.items() if (la, t) == (layer, name))

    def add(
        self, own: Sequence[StoreTensors | None], start: int, count: int
    ) -> tuple[list[Copy], list[Shift]]:
        """Give a cache's rows the indices from `start` on, for which `fit` has allocated sections.

        Returns:
            the pending copies, and the numbers to add to tables then.
        """
        self._rows += [{} for _ in range(start + count - len(self._rows))]
        copies: list[Copy] = []
        shifts: list[Shift] = []
        for sample in range(count if self.blocks else 0):
            place = start + sample
            self._rows[place] = {}
            ends = dict.fromkeys(self._pools, 0)
            for layer, parts in enumerate(own):
                if parts is not None:
                    moved = self._add_layer(layer, parts, sample, place, ends, copies)
                    for table, by in moved.items():
                        numbers = self.tables[layer, table][place]
                        copies.append((numbers, parts.tables[table][sample]))
                        shifts.append((numbers, by))
        return copies, shifts

    def _add_layer(
        self,
        layer: int,
        parts: StoreTensors,
        sample: int,
        place: int,
        ends: dict[Hashable, int],
        copies: list[Copy],
    ) -> dict[str, int]:
        """One row's share of one layer, behind `ends`: by how much its tables' numbers grow."""
        moved: dict[str, int] = {}
        for name, flat in parts.flat.items():
            pool, table = self.blocks[layer, name]
            first, last = flat.bounds[sample : sample + 2]
            at = ends[pool]
            ends[pool] = end = at + last - first
            self._rows[place][layer, name] = at, last - first
            copies.append((self._pools[pool][place, at:end], flat.tensor[first:last]))
            moved[table] = place * self._pools[pool].shape[1] + at - first
        return moved

    def forget(self, places: Sequence[int]) -> None:
        """Free the sections of removed rows; the others do not move."""
        for place in places:
            self._rows[place] = {}

    def keep(self, order: Sequence[int]) -> None:
        """Leave only these rows, in this order."""
        self._rows = [self._rows[old] for old in order]
        moves = [(new, old) for new, old in enumerate(order) if new != old]
        if not moves or not self.blocks:
            return
        move_rows([*self._pools.values(), *self.tables.values()], moves)
        for block, table in self.tables.items():
            room = self._pools[self._addressed(block)].shape[1]
            for new, old in moves:
                table[new] += (new - old) * room

    def view(self, layer: int, rows: int) -> dict[str, Tensor]:
        """The first rows' tensors of one layer, by name, as kernels read them."""
        found = {
            name: self._pools[pool][:rows].flatten(0, 1)
            for (here, name), (pool, _) in self.blocks.items()
            if here == layer
        }
        return found | {n: t[:rows] for (here, n), t in self.tables.items() if here == layer}

    def restored(self, layer: int, place: int) -> dict[str, Tensor]:
        """Copies of one row's tensors of one layer, for a cache of its own."""
        found: dict[str, Tensor] = {}
        for (here, name), (pool, table) in self.blocks.items():
            if here == layer:
                start, count = self._rows[place][here, name]
                found[name] = self._pools[pool][place, start : start + count].clone()
                first = place * self._pools[pool].shape[1] + start
                found[table] = self.tables[here, table][place : place + 1] - first
        return found

    def tensors(self) -> Iterator[Tensor]:
        """All tensors."""
        yield from self._pools.values()
        yield from self.tables.values()


def move_rows(tensors: Sequence[Tensor], moves: Sequence[tuple[int, int]]) -> None:
    """Copy rows of tensors; moves: (to, from)."""
    to, source = torch.tensor(moves, device=tensors[0].device).T
    for tensor in tensors:
        to, source = to.to(tensor.device), source.to(tensor.device)
        # PyTorch cannot move rows of 8-bit floating point, but those of bytes
        rows = tensor.view(torch.uint8) if tensor.itemsize == 1 and tensor.numel() else tensor
        rows.index_copy_(0, to, rows.index_select(0, source))


def needed(own: Sequence[StoreTensors | None]) -> dict[Hashable, int]:
    """Section sizes that the largest row of a cache needs in each pool, for all layers together."""
    sums: dict[Hashable, list[int]] = {}
    for parts in filter(None, own):
        for name, flat in parts.flat.items():
            pool, sizes = _pool_of(name, parts), flat.sizes()
            so_far = sums.get(pool, [0] * len(sizes))
            sums[pool] = [a + b for a, b in zip(so_far, sizes, strict=True)]
    return {pool: max(sizes) for pool, sizes in sums.items()}


def size_class(own: Sequence[StoreTensors | None]) -> Hashable:
    """Equal for caches that hold about as much in each pool."""
    return tuple(size.bit_length() for size in needed(own).values())


def _pool_of(name: str, parts: StoreTensors) -> Hashable:
    """Equal for tensors that share a pool: those of Keys and Values do, and of all layers whose
    heads are as wide. What one table addresses has sections of one size, so a pool is that of all
    tensors of its table: steps beside a basis of narrower heads have one of their own."""
    tensor, table = parts.flat[name].tensor, parts.flat[name].table
    beside = tuple(each.tensor.shape[1:] for each in parts.flat.values() if each.table == table)
    return name.partition(".")[2], tensor.dtype, beside, tensor.device
