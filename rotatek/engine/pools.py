"""Pools for tensors that differ in size from row to row: planes, bases, heads of many widths."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

import torch
from torch import Tensor

from kernels.planes import GRANULE
from rotatek.engine.store_tensors import StoreTensors, table_of

FINEST: Final = GRANULE * GRANULE  # least growth of a section: kernels rely on it for planes
SHARE_BITS: Final = 4  # else by a sixteenth to an eighth of itself

Copy = tuple[Tensor, Tensor]  # to, from
Shift = tuple[Tensor, int]  # a tensor and the number to add to it
Block = tuple[int, str]  # a layer and the name of a tensor in it
Sections = dict[Block, tuple[int, int]]  # of one row: (start, count) of each flat tensor


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
        pools: [rows, section, ...]; a section is counted in elements, or in rows of a basis.
        tables: [rows, Hkv] by layer and name; their numbers count a pool's first two dimensions.
        pool_of: the pool of each flat tensor, and that of each table: all that one table addresses
            has sections of one size.
    """

    def __init__(self, first: Sequence[StoreTensors | None]) -> None:
        self.pools: dict[Hashable, Tensor] = {}
        self.tables: dict[Block, Tensor] = {}
        self.pool_of: dict[Block, Hashable] = {}
        for layer, parts in enumerate(first):
            if parts is None:
                continue
            for name, flat in parts.flat.items():
                pool, table = _pool_of(name, parts), table_of(name)
                self.pool_of[layer, name] = self.pool_of[layer, table] = pool
                self.pools[pool] = flat.new_zeros(0, 0, *flat.shape[1:])
                self.tables[layer, table] = parts.tables[table][:0].clone()

    def fit(self, caches: Sequence[Sequence[StoreTensors | None]], rows: int, size: int) -> bool:
        """Allocate sections for `size` rows, the given caches' and the first `rows` included.
        Whether tensors moved."""
        rooms = {pool: tensor.shape[1] for pool, tensor in self.pools.items()}
        for own in caches:
            for pool, wanted in needed(own).items():
                rooms[pool] = max(rooms[pool], coarse(wanted))
        return self._allocate(rows, size, rooms)

    def shrink(self, rows: Sequence[Sections], size: int) -> None:
        """Give back what none of the rows needs."""
        rooms = dict.fromkeys(self.pools, 0)
        for row in rows:
            for block, (start, count) in row.items():
                pool = self.pool_of[block]
                rooms[pool] = max(rooms[pool], coarse(start + count))
        self._allocate(len(rows), size, rooms)

    def _allocate(self, rows: int, size: int, rooms: dict[Hashable, int]) -> bool:
        """Allocate every pool anew, for so many rows with sections of these sizes."""
        old = self.pools
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
            grown = rooms[self.pool_of[block]] - old[self.pool_of[block]].shape[1]
            if grown and rows:
                place = torch.arange(rows, device=table.device, dtype=table.dtype)
                new[:rows] += grown * place[:, None]
            self.tables[block] = new
        self.pools = made
        return True

    def add(
        self, own: Sequence[StoreTensors | None], place: int
    ) -> tuple[Sections, list[Copy], list[Shift]]:
        """Put a cache's tensors at an index, for which `fit` has allocated a section.

        Returns:
            where they are, the pending copies, and the numbers to add to tables then.
        """
        sections: Sections = {}
        copies: list[Copy] = []
        shifts: list[Shift] = []
        ends = dict.fromkeys(self.pools, 0)
        for layer, parts in enumerate(own):
            moved: dict[str, int] = {}
            if parts is None:
                continue
            for name, flat in parts.flat.items():
                pool = self.pool_of[layer, name]
                at, room = ends[pool], self.pools[pool].shape[1]
                ends[pool] = end = at + len(flat)
                sections[layer, name] = at, len(flat)
                copies.append((self.pools[pool][place, at:end], flat))
                moved[table_of(name)] = place * room + at
            for table, by in moved.items():
                numbers = self.tables[layer, table][place]
                copies.append((numbers, parts.tables[table][0]))
                shifts.append((numbers, by))
        return sections, copies, shifts

    def shift(self, moves: Sequence[tuple[int, int]]) -> None:
        """Correct the tables of rows that have moved; moves: (to, from)."""
        for block, table in self.tables.items():
            room = self.pools[self.pool_of[block]].shape[1]
            for new, old in moves:
                table[new] += (new - old) * room

    def view(self, layer: int, rows: int) -> dict[str, Tensor]:
        """The first rows' tensors of one layer, by name, as kernels read them."""
        found = {}
        for (here, name), pool in self.pool_of.items():
            if here == layer:
                table = self.tables.get((here, name))
                found[name] = (
                    self.pools[pool][:rows].flatten(0, 1) if table is None else table[:rows]
                )
        return found

    def restored(self, layer: int, place: int, sections: Sections) -> dict[str, Tensor]:
        """Copies of one row's tensors of one layer, for a cache of its own."""
        found: dict[str, Tensor] = {}
        for (here, name), (start, count) in sections.items():
            if here == layer:
                pool, table = self.pools[self.pool_of[here, name]], table_of(name)
                found[name] = pool[place, start : start + count].clone()
                first = place * pool.shape[1] + start
                found[table] = self.tables[here, table][place : place + 1] - first
        return found

    def tensors(self) -> Iterator[Tensor]:
        """All tensors."""
        yield from self.pools.values()
        yield from self.tables.values()


def needed(own: Sequence[StoreTensors | None]) -> dict[Hashable, int]:
    """Section sizes that a cache needs in each pool, for all layers together."""
    sums: dict[Hashable, int] = {}
    for parts in filter(None, own):
        for name, flat in parts.flat.items():
            pool = _pool_of(name, parts)
            sums[pool] = sums.get(pool, 0) + len(flat)
    return sums


def size_class(own: Sequence[StoreTensors | None]) -> Hashable:
    """Equal for caches that hold about as much in each pool."""
    return tuple(size.bit_length() for size in needed(own).values())


def _pool_of(name: str, parts: StoreTensors) -> Hashable:
    """Equal for tensors that share a pool: those of Keys and Values do, and of all layers whose
    heads are as wide. What one table addresses has sections of one size, so a pool is that of all
    tensors of its table: steps beside a basis of narrower heads have one of their own."""
    tensor, table = parts.flat[name], table_of(name)
    beside = tuple(flat.shape[1:] for other, flat in parts.flat.items() if table_of(other) == table)
    return name.partition(".")[2], tensor.dtype, beside, tensor.device
