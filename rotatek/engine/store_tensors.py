"""The tensors of a layer's store: those that are stacked over all rows, and those that differ in
size from row to row and are pooled (`rotatek.engine.pools`)."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from kernels.planes import Planes
from kernels.reference import Packed
from rotatek.methods.channels.store import Store

TOKENS: Final = 2  # the dimension of tokens, wherever there is one
WIDEST: Final = (3, 4, 8, 16, 32)  # granules of the widest head: the sizes that kernels have
# Of planes: tensors of all heads, one behind the other, and the table of their offsets.
_OF_PLANES: Final = {"data": "offsets", "basis": "starts", "steps": "starts"}


class StoreTensors(NamedTuple):
    """The tensors of one sample's store by name (those of planes as `keys.data`).

    stacked: [1, ...], of one shape for all rows of a form, but for the tokens of those that are
    in `Store.per_token`; flat: [n, ...], of all heads, pooled; tables: [1, Hkv], the heads'
    offsets in them; numbers: the host's sizes of launches.
    """

    stacked: dict[str, Tensor]
    flat: dict[str, Tensor]
    tables: dict[str, Tensor]
    numbers: dict[str, int]

    def form(self, per_token: Sequence[str]) -> Hashable:
        """Equal for stores whose rows can share tensors, up to the sizes of pools."""
        shapes, longest = [], 0
        for name, tensor in self.stacked.items():
            shape = list(tensor.shape[1:])
            if name in per_token:
                longest = max(longest, shape.pop(TOKENS - 1))
            shapes.append((name, tensor.dtype, tuple(shape)))
        pooled = [(name, tensor.dtype, tensor.shape[1:]) for name, tensor in self.flat.items()]
        # Neighbours within a factor of two: there is less padding than data.
        return (*shapes, *pooled, longest.bit_length())


def table_of(name: str) -> str:
    """The table that has the offsets of the heads in a flat tensor."""
    side, _, part = name.partition(".")
    return f"{side}.{_OF_PLANES[part]}"


def taken_apart(store: Store | None) -> StoreTensors | None:
    """The tensors of a store whose rows may be stacked with others; None for a store that
    cannot."""
    if store is None or not store.per_token:
        return None
    named = store.visual._asdict() | store.beside
    planes = {side: part for side, part in named.items() if isinstance(part, Planes)}
    tensors = {n: part for n, part in named.items() if isinstance(part, Tensor) and n != "lengths"}
    numbers = {"tokens": store.visual.tokens} if isinstance(store.visual, Packed) else {}
    tensors |= {f"{side}.{n}": t for side, each in planes.items() for n, t in each.own.items()}
    numbers |= {f"{side}.widest": each.widest for side, each in planes.items()}
    flat = {name: tensors.pop(name) for side in planes for name in _flat_of(side)}
    tables = {name: tensors.pop(name) for name in dict.fromkeys(map(table_of, flat))}
    return StoreTensors(dict(sorted(tensors.items())), flat, tables, numbers)


def _flat_of(side: str) -> list[str]:
    return [f"{side}.{part}" for part in _OF_PLANES]


def emptied(store: Store) -> Store:
    """A store of the same kind that holds nothing of any row."""
    parts = taken_apart(store)
    assert parts is not None
    named = parts.stacked | parts.tables | parts.flat
    nothing = {name: tensor[:0].clone() for name, tensor in named.items()}
    return put_together(store, nothing, {}, torch.zeros(0, dtype=torch.int32))


def put_together(
    pattern: Store, tensors: Mapping[str, Tensor], numbers: Mapping[str, int], lengths: Tensor
) -> Store:
    """A store like `pattern` with other tensors and numbers, by their names in `StoreTensors`."""
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
        wider = next((size for size in WIDEST if size >= value), value)
        most[name] = -(-value // step) * step if name == "tokens" else wider
    return most
