"""A layer of a cache as tensors: those that are stacked over all rows, and pools for those that
differ in size from row to row: planes, bases, heads of many widths."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from kernels.planes import GRANULE, Planes
from kernels.reference import Packed
from rotatek.cache.sliding_window import WindowPositions, WindowSchedule
from rotatek.methods.channels.base import Store

TOKENS: Final = 2  # the dimension of tokens, wherever there is one
TEXT: Final = ("text.keys", "text.values")
WINDOW: Final = tuple(f"window.{part}" for part in WindowSchedule._fields)  # its movement
_WIDEST: Final = (3, 4, 8, 16, 32)  # granules of the widest head: the sizes that kernels have
# Of planes: tensors of all heads, one behind the other, and the table of their offsets.
_OF_PLANES: Final = {"data": "offsets", "basis": "starts", "steps": "starts"}
_FINEST: Final = GRANULE * GRANULE  # least growth of a section: kernels rely on it for planes
_SHARE_BITS: Final = 4  # else by a sixteenth to an eighth of itself

Copy = tuple[Tensor, Tensor]  # to, from
Shift = tuple[Tensor, int]  # a tensor and the number to add to it
Block = tuple[int, str]  # a layer and the name of a tensor in it
Sections = dict[Block, tuple[int, int]]  # of one row: (start, count) of each flat tensor


class LayerRow(NamedTuple):
    """One layer of a cache that joins a group; without tensors, the host's record of it there.

    store: its visual tokens as attention reads them, or None; waits: a store that cannot be
    stacked, which every step would rebuild: it is rebuilt once, and comes back when the row leaves;
    stacked: [1, ...] by name, of one shape for all rows of a form but for the tokens of `TEXT` and
    of per_token; flat: [n, ...], of all heads, pooled; tables: [1, Hkv], the heads' offsets in
    them; numbers: the host's sizes of launches; per_token: names of what has an entry for each
    visual token; tokens: visual ones that are stored; seen: those of them that are no padding,
    where lengths, on the device, have been read;
    length: of the text, once the row is in a group less what that has grown by; logical: tokens so
    far; reach: slots of the tokens inside a window, where the answer may go beyond it.
    """

    store: Store | None
    waits: Store | None
    stacked: dict[str, Tensor]
    flat: dict[str, Tensor]
    tables: dict[str, Tensor]
    numbers: dict[str, int]
    per_token: tuple[str, ...]
    tokens: int
    seen: int
    lengths: Tensor | None
    length: int
    logical: int
    reach: int | None


def layer_row_of(held: Any, tokens: int) -> LayerRow:
    """One layer of a filled cache of one sample, which may add so many tokens: of a `RotateKCache`,
    or of transformers' own, all of which counts as text."""
    text, store, waits = getattr(held, "text", None), None, None
    if text is None:
        keys, values, schedule = held.keys, held.values, None
        length, logical = keys.shape[TOKENS], held.get_seq_length()
        if held.is_sliding and logical + tokens > held.sliding_window:
            device = keys.device
            places = torch.arange(logical - length, logical, dtype=torch.int32, device=device)[None]
            count = torch.full((1,), logical, dtype=torch.int32, device=device)
            schedule = WindowPositions(held.sliding_window, places, places[:, :0], count).tables
    else:
        held.follow(tokens)
        keys, values, schedule, store = text.keys, text.values, text.tables, held.store
        length, logical = text.longest, held.logical
        if store is not None and not store.per_token:
            store, waits = Store(store.read()._replace(fresh=False)), store
    named = {} if store is None else store.visual._asdict() | store.beside
    planes = {side: part for side, part in named.items() if isinstance(part, Planes)}
    tensors = {n: part for n, part in named.items() if isinstance(part, Tensor) and n != "lengths"}
    tensors |= {f"{side}.{n}": t for side, each in planes.items() for n, t in each.own.items()}
    flat = {n: tensors.pop(n) for n in [f"{side}.{part}" for side in planes for part in _OF_PLANES]}
    tables = {name: tensors.pop(name) for name in dict.fromkeys(map(table_of, flat))}
    per_token = () if store is None else tuple(n for n in store.per_token if n in tensors)
    stored = 0 if store is None else store.visual.tokens
    numbers = {"tokens": stored} if store is not None and isinstance(store.visual, Packed) else {}
    numbers |= {f"{side}.widest": each.widest for side, each in planes.items()}
    tensors = dict(sorted(tensors.items())) | dict(zip(TEXT, (keys, values), strict=True))
    reach = None
    if schedule is not None:
        tensors |= dict(zip(WINDOW, schedule, strict=True))
        reach = schedule.width
    lengths = None if store is None else store.visual.lengths
    return LayerRow(
        store, waits, tensors, flat, tables, numbers, per_token, stored, stored, lengths, length,
        logical, reach,
    )  # fmt: skip


def key_of(own: Sequence[LayerRow]) -> Hashable:
    """Equal for caches whose rows are stored together in every layer: their tensors have one shape,
    up to the sizes of pools, which are about as large."""
    forms: list[Hashable] = []
    for one in own:
        shapes, longest = [], 0
        for name, tensor in one.stacked.items():
            shape = list(tensor.shape[1:])
            if name in (*TEXT, *one.per_token):
                tokens = shape.pop(TOKENS - 1)
                longest = longest if name in TEXT else max(longest, tokens)
            shapes.append((name, tensor.dtype, tuple(shape)))
        pooled = [(name, tensor.dtype, tensor.shape[1:]) for name, tensor in one.flat.items()]
        # Neighbours within a factor of two: there is less padding than data.
        forms.append((type(one.store), *shapes, *pooled, longest.bit_length()))
    return tuple(forms), tuple(size.bit_length() for size in _needed(own).values())


def table_of(name: str) -> str:
    """The table that has the offsets of the heads in a flat tensor."""
    side, _, part = name.partition(".")
    return f"{side}.{_OF_PLANES[part]}"


def put_together(
    pattern: Store, tensors: Mapping[str, Tensor], numbers: Mapping[str, int], lengths: Tensor
) -> Store:
    """A store like `pattern` with other tensors and numbers, by their names in `LayerRow`."""
    given: dict[str, Any] = dict(tensors) | dict(numbers)
    beside = {name: given.pop(name) for name in pattern.beside}
    for side, planes in pattern.visual._asdict().items():
        if isinstance(planes, Planes):
            of_it = {n: given.pop(n) for n in list(given) if n.startswith(f"{side}.")}
            given[side] = planes._replace(**{n.partition(".")[2]: p for n, p in of_it.items()})
    visual = pattern.visual._replace(**given, lengths=lengths)
    return replace(pattern, visual=visual, beside=beside)


def launched_by(
    numbers: Sequence[Mapping[str, int]], step: int, least: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Sizes of launches for rows of all these numbers, `least` at least."""
    names = {name: None for each in numbers for name in each}
    most = {name: max(each.get(name, 0) for each in (*numbers, least or {})) for name in names}
    for name, value in most.items():
        wider = next((size for size in _WIDEST if size >= value), value)
        most[name] = stepped(value, step) if name == "tokens" else wider
    return most


def stepped(count: int, step: int) -> int:
    """The least multiple of `step` that is no less."""
    return -(-count // step) * step


def _coarse(size: int) -> int:
    """A section size for `size`, up to an eighth larger: rows of similar sizes fit it, too."""
    step = max(_FINEST, 1 << max(0, size.bit_length() - _SHARE_BITS))
    return stepped(size, step)


class Pools:
    """Tensors in which every row has one section, for its tensors of all layers.

    A budget of bits or widths is that of all layers together: the shares of layers and heads vary
    from prompt to prompt, their sum hardly. So one section for all layers needs little padding:
    the sizes of rows of one group are within a factor of two of each other (`key_of`), and the
    section has the size of the largest, rounded up by an eighth at most. `kernels` find a head by
    its offset in a table, which is rewritten in place as rows come, go and move: addresses stay.

    pools: [rows, section, ...]; a section is counted in elements, or in rows of a basis. tables:
    [rows, Hkv] by layer and name; their numbers count a pool's first two dimensions. pool_of: the
    pool of each flat tensor, and that of each table: all that one table addresses has sections of
    one size.
    """

    def __init__(self, first: Sequence[LayerRow]) -> None:
        self.pools: dict[Hashable, Tensor] = {}
        self.tables: dict[Block, Tensor] = {}
        self.pool_of: dict[Block, Hashable] = {}
        for layer, parts in enumerate(first):
            for name, flat in parts.flat.items():
                pool, table = _pool_of(name, parts), table_of(name)
                self.pool_of[layer, name] = self.pool_of[layer, table] = pool
                self.pools[pool] = flat.new_zeros(0, 0, *flat.shape[1:])
                self.tables[layer, table] = parts.tables[table][:0].clone()

    def fit(self, caches: Sequence[Sequence[LayerRow]], rows: int, size: int) -> bool:
        """Allocate sections for `size` rows, the given caches' and the first `rows` included.
        Whether tensors moved."""
        rooms = {pool: tensor.shape[1] for pool, tensor in self.pools.items()}
        for own in caches:
            for pool, wanted in _needed(own).items():
                rooms[pool] = max(rooms[pool], _coarse(wanted))
        return self._allocate(rows, size, rooms)

    def shrink(self, rows: Sequence[Sections], size: int) -> None:
        """Give back what none of the rows needs."""
        rooms = dict.fromkeys(self.pools, 0)
        for row in rows:
            for block, (start, count) in row.items():
                pool = self.pool_of[block]
                rooms[pool] = max(rooms[pool], _coarse(start + count))
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

    def add(self, own: Sequence[LayerRow], place: int) -> tuple[Sections, list[Copy], list[Shift]]:
        """Put a cache's tensors at an index, for which `fit` has allocated a section: where they
        are, the pending copies, and the numbers to add to tables then."""
        sections: Sections = {}
        copies: list[Copy] = []
        shifts: list[Shift] = []
        ends = dict.fromkeys(self.pools, 0)
        for layer, parts in enumerate(own):
            moved: dict[str, int] = {}
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

    def tensors(self) -> list[Tensor]:
        """All tensors."""
        return [*self.pools.values(), *self.tables.values()]


def _needed(own: Sequence[LayerRow]) -> dict[Hashable, int]:
    """Section sizes that a cache needs in each pool, for all layers together."""
    sums: dict[Hashable, int] = {}
    for parts in own:
        for name, flat in parts.flat.items():
            pool = _pool_of(name, parts)
            sums[pool] = sums.get(pool, 0) + len(flat)
    return sums


def _pool_of(name: str, parts: LayerRow) -> Hashable:
    """Equal for tensors that share a pool: those of Keys and Values do, and of all layers whose
    heads are as wide. What one table addresses has sections of one size, so a pool is that of all
    tensors of its table: steps beside a basis of narrower heads have one of their own."""
    tensor, table = parts.flat[name], table_of(name)
    beside = tuple(flat.shape[1:] for other, flat in parts.flat.items() if table_of(other) == table)
    return name.partition(".")[2], tensor.dtype, beside, tensor.device
