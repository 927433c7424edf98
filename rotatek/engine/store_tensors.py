"""The tensors of a layer's store: those that are stacked over all rows, and those that differ in
size from row to row and are pooled (`rotatek.engine.pools`)."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
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


class RaggedTensor(NamedTuple):
    """A tensor [n, ...] of all heads, one behind the other.

    tensor: the data; table: name of the tensor of heads' offsets; bounds: the offset of each
    sample, and the end.
    """

    tensor: Tensor
    table: str
    bounds: list[int]

    def sizes(self) -> list[int]:
        """Of each sample's share."""
        return [end - start for start, end in zip(self.bounds, self.bounds[1:], strict=False)]


@dataclass(frozen=True)
class StoreTensors:
    """A store's tensors by name (those of planes as `keys.data`) and the host's numbers.

    stacked: [B, ...], of the same shape for all rows of a form but for the tokens of those in
    `per_token`; flat: pooled; tables: [B, Hkv], of the flat ones; numbers: sizes of launches, by
    name.
    """

    stacked: dict[str, Tensor]
    flat: dict[str, RaggedTensor]
    tables: dict[str, Tensor]
    numbers: dict[str, int]
    per_token: tuple[str, ...]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the stacked tensors, without samples."""
        return {name: tuple(tensor.shape[1:]) for name, tensor in self.stacked.items()}

    def form(self) -> Hashable:
        """Equal for stores whose rows can share tensors, up to the sizes of pools."""
        shapes = []
        for name, tensor in self.stacked.items():
            free = (0, TOKENS) if name in self.per_token else (0,)
            rest = [size for dim, size in enumerate(tensor.shape) if dim not in free]
            shapes.append((name, tensor.dtype, tuple(rest)))
        pooled = [(n, f.tensor.dtype, f.tensor.shape[1:]) for n, f in self.flat.items()]
        # Neighbours within a factor of two: there is less padding than data.
        stacked = [self.stacked[name] for name in ("keys", "values") if name in self.stacked]
        longest = max((tensor.shape[TOKENS] for tensor in stacked), default=0)
        return (*shapes, *pooled, longest.bit_length())


def taken_apart(store: Store | None) -> StoreTensors | None:
    """The tensors of a store whose rows may be stacked with others; None for a store that
    cannot."""
    if store is None or not store.per_token:
        return None
    named = store.visual._asdict() | store.beside
    planes = {side: part for side, part in named.items() if isinstance(part, Planes)}
    tensors = {n: t for n, t in named.items() if isinstance(t, Tensor) and n != "lengths"}
    found: dict[str, str] = {}
    numbers = {"tokens": store.visual.tokens} if isinstance(store.visual, Packed) else {}
    for side, each in planes.items():
        found |= _planes_apart(side, each, tensors)
        numbers[f"{side}.widest"] = each.widest
    heads = {name: tensors.pop(name) for name in dict.fromkeys(found.values())}
    flat = {n: _flat(tensors.pop(n), table, heads[table]) for n, table in found.items()}
    stacked = dict(sorted(tensors.items()))
    return StoreTensors(stacked, flat, heads, numbers, store.per_token)


def _planes_apart(side: str, planes: Planes, tensors: dict[str, Tensor]) -> dict[str, str]:
    """Add planes' own tensors to `tensors`: the table of each flat one."""
    own = {f"{side}.{n}": t for n, t in planes._asdict().items() if isinstance(t, Tensor)}
    tensors |= own
    return {f"{side}.{n}": f"{side}.{t}" for n, t in _OF_PLANES.items() if f"{side}.{n}" in own}


def _flat(tensor: Tensor, table: str, numbers: Tensor) -> RaggedTensor:
    """A flat tensor with its bounds, which wait for the device where there are many samples."""
    first = [0] if numbers.shape[0] == 1 else numbers[:, 0].tolist()
    return RaggedTensor(tensor, table, [*first, len(tensor)])


def emptied(store: Store) -> Store:
    """A store of the same kind that holds nothing of any row."""
    parts = taken_apart(store)
    assert parts is not None
    named = parts.stacked | parts.tables | {n: one.tensor for n, one in parts.flat.items()}
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


def corner(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The corner of that shape of every row."""
    return tensor[(slice(None), *(slice(size) for size in shape))]
