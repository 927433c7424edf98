"""Fills RotateK's layers, rotated together.

Prefill stores K~ = (K - mu) F and decoding asks q B with bias q . mu; F and B follow from the
weighting, as `rotatek.methods.channels.rotatek` says.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from rotatek.methods import rotation
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.rotation_options import RotationOptions
from rotatek.methods.channels.store import Store
from rotatek.methods.shares import channels_kept

PENDING_BYTES = 256 << 20  # of full Keys and covariances that wait to be rotated together
ROUNDING = 1e-6  # of the energy: lost to rounding by a basis of full energy
ALIGNED = 16  # bytes: a kernel is compiled again for a tensor that starts off them


@dataclass
class PendingStore(Store):
    """A store that is measured but not packed: `visual` still has full Keys and Values.

    pending: the layer's states; None once it is packed.
    """

    per_token: ClassVar[tuple[str, ...]] = Store.per_token

    pending: LayerStates | None = field(default=None)


@dataclass
class RotateKStore(PendingStore):
    """Rotated Keys of one layer."""

    per_token: ClassVar[tuple[str, ...]] = Store.per_token


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


def rotate(stores: Sequence[RotateKStore], how: RotationOptions) -> None:
    """Replace the Keys of layers alike by their leading coordinates."""
    layers = LayerGroup([held(store.pending) for store in stores])
    with torch.cuda.device_of(layers.parts[0].keys):
        found = _rotated_keys(layers, how)
    for store, own in zip(stores, layers.split(found), strict=True):
        store.pending = None
        store.visual = store.visual._replace(**own)


def _rotated_keys(layers: LayerGroup, how: RotationOptions) -> dict[str, Tensor]:
    """K~, what turns a query, and mu."""
    keys, lengths = layers.of("keys"), layers.of("lengths")
    mean, covariance = layers.cached(
        "covariance", lambda: rotation.centred_covariance(keys, lengths)
    )
    forward, back = _key_bases(layers, how, covariance)
    kept = rotation.project(keys, mean, forward, lengths)
    return {"keys": kept, "basis": back.to(keys.dtype), "mean": mean}


def _key_bases(
    layers: LayerGroup, how: RotationOptions, covariance: Tensor
) -> tuple[Tensor, Tensor]:
    """F and B [L * B, Hkv, d, k]."""
    d, sigma = covariance.shape[-1], _weights(layers, how)
    k = channels_kept(d, how.keep)
    mixes = sigma is not None and how.metric == "paper" and k < d
    if sigma is not None and mixes:
        few = layers.of("lengths") <= k + 1  # their centred Keys span no more than k directions
        sigma = sigma.masked_fill(few[:, None, None], 1.0)
    known = [part.basis for part in layers.parts if isinstance(part.basis, Tensor)]
    if known:
        basis = layers.spread([each[..., :k].to(covariance) for each in known])
    else:
        what = "keys" if sigma is not None else "keys as they are"
        if mixes and how.solver == "eigh" and bool(few.any()):
            what = f"keys for {k}"  # not another width's
        basis = _top_basis(layers, what, covariance, k, how, sigma)
        if sigma is not None and mixes and covariance.device.type == "cpu":
            whole = _holds_all(covariance, sigma, basis)
            if bool((whole & ~few[:, None]).any()):
                plain = sigma.masked_fill(whole[..., None], 1.0)
                basis = _top_basis(layers, f"whole keys for {k}", covariance, k, how, plain)
    if how.metric != "consistent" or sigma is None:
        return basis, basis
    return sigma[..., None] * basis, basis / sigma[..., None]


def _holds_all(covariance: Tensor, sigma: Tensor, basis: Tensor) -> Tensor:
    """[L * B, Hkv]: whether a basis of weighted Keys holds all of them.

    Then as many directions hold the Keys as they are, which the paper's weighted basis, applied to
    unweighted Keys, misses. On a GPU, where nothing may wait for the device, only lengths say so.
    """
    matrix = rotation.weighted(covariance, sigma)
    total = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    return total - ((matrix @ basis) * basis).sum((-2, -1)) <= ROUNDING * total


def _weights(layers: LayerGroup, how: RotationOptions) -> Tensor | None:
    """sigma [L * B, Hkv, d], of mean one so that half-precision Keys stay in range."""
    if how.weighting == "none":
        return None
    heads, work = layers.parts[0].keys.shape[1], rotation.query_weights
    return layers.cached(
        "weights", lambda: work(layers.of("queries"), heads, layers.of("window_alive"), True)
    )


def _top_basis(
    layers: LayerGroup,
    what: str,
    covariance: Tensor,
    k: int,
    how: RotationOptions,
    sigma: Tensor | None = None,
) -> Tensor:
    """The basis of k columns, found once; every k is a slice of one eigendecomposition."""
    d, solver = covariance.shape[-1], how.solver
    if solver == "eigh" or k >= d:
        vectors, _ = layers.cached((what, "eigh"), lambda: rotation.full_basis(covariance, sigma))
        return vectors[..., :k].contiguous()
    if solver == "paper":
        matrix = rotation.weighted(covariance, sigma)
        return layers.cached((what, k, solver), lambda: rotation.printed_basis(matrix, k))
    top = rotation.top_basis
    return layers.cached((what, k, solver), lambda: top(covariance, k, solver, sigma))


def held(thing: Any) -> Any:
    """An optional value that this method always has."""
    assert thing is not None
    return thing
