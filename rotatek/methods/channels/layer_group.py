"""Layers of a prefill that wait for one another, and are computed together."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.store import Store

PENDING_BYTES = 256 << 20  # of full Keys and covariances that wait to be computed together
ALIGNED = 16  # bytes: a kernel is compiled again for a tensor that starts off them


@dataclass
class PendingStore(Store):
    """A store that is measured but not packed: `visual` still has full Keys and Values.

    pending: the layer's states; None once it is packed.
    """

    per_token: ClassVar[tuple[str, ...]] = Store.per_token

    pending: LayerStates | None = field(default=None)


@dataclass(frozen=True)
class LayerGroup:
    """Layers of one shape as a single one, whose samples are the first layer's, then the
    second's...

    Results are cached with the first layer's states, for every cache that is filled from them.
    """

    parts: Sequence[LayerStates]

    def cached(self, what: Hashable, make: Callable[[], Any]) -> Any:
        """`make()`, computed once for each `what` of these layers."""
        return self.parts[0].cached((tuple(part.layer for part in self.parts), what), make)

    def of(self, name: str) -> Tensor:
        """That field of all states, [L * B, ...]: joined on each call, so that it can be freed."""
        each = [getattr(part, name) for part in self.parts]
        return each[0] if len(each) == 1 else torch.cat(each)

    def spread(self, each: Sequence[Tensor]) -> Tensor:
        """One tensor of each layer, repeated for its samples, [L * B, ...]."""
        rows, stacked = len(self.parts[0].keys), torch.stack(list(each))
        return stacked if rows == 1 else stacked.repeat_interleave(rows, 0)

    def split(self, found: dict[str, Tensor]) -> Iterator[dict[str, Any]]:
        """Each layer's slice of a result; a copy where the slice is not aligned."""
        rows = len(self.parts[0].keys)
        each = [layered(tensor, rows) for tensor in found.values()]
        for parts in zip(*each, strict=True):
            yield dict(zip(found, parts, strict=True))


def layered(found: Tensor, rows: int) -> Sequence[Tensor]:
    """Slices of so many rows where they stay aligned, else copies."""
    parts = found.split(rows)
    aligned = parts[0].nbytes % ALIGNED == 0
    return parts if aligned else [part.clone() for part in parts]


def pending_bytes(states: LayerStates) -> int:
    """Bytes of a layer's full Keys and of their float32 covariances."""
    B, heads, _, d = states.keys.shape
    return states.keys.nbytes + 4 * B * heads * d * d


AnyPending = TypeVar("AnyPending", bound=PendingStore)


def ready(stores: Sequence[AnyPending], most: int, last: bool) -> list[list[AnyPending]]:
    """Pending layers that may be computed now, alike ones together.

    Args:
        stores: of a prefill so far; those that are packed are left out.
        most: bytes at which pending layers are computed before the last one has come.
        last: whether it has.
    """
    pending = [store for store in stores if store.pending is not None]
    if not last and sum(pending_bytes(held(store.pending)) for store in pending) < most:
        return []
    groups: dict[Hashable, list[AnyPending]] = {}
    for store in pending:  # FastV's first layers have more tokens than the others
        states = held(store.pending)
        keys, known = states.keys, states.value_metric is not None
        groups.setdefault((keys.device, keys.dtype, keys.shape, known), []).append(store)
    return list(groups.values())


def held(thing: Any) -> Any:
    """An optional value that this method always has."""
    assert thing is not None
    return thing
