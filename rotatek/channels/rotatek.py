"""RotateK: rotate each head's visual Keys onto their query-weighted principal axes, keep k of them.

Prefill stores K~ = (K - mu) F and decoding asks q B with bias q . mu, where (R_k: the top basis)
  weighting="paper":      F = B = R_k of the covariance weighted by sigma sigma^T;
  weighting="none":       F = B = R_k of the plain covariance;
  weighting="consistent": F = S R_k and B = S^-1 R_k, S = diag sigma: the same weighted basis in the
      metric it was found in.
Subtracting mu first is the paper's K R_k with bias q . (I - P) mu, with less rounding error.

Beyond the paper: values="rotate" stores V~ = (V - mu_v) S_o U_r, the centred PCA of the Values in
the output projection's metric S_o, rotated back once per head after the softmax; widths="adaptive"
gives each head the channels its spectrum earns under one budget for the whole model;
cache_dtype="fp8" or "int8" stores what is left in 8 bits.
Source: arXiv 2605.19218, algorithms 1 and 2.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kernels.reference import Visual
from rotatek import rotation
from rotatek.cache import Store
from rotatek.channels.base import Prefill, full_visual
from rotatek.channels.eight_bits import store_in_eight_bits
from rotatek.channels.widths import allot, head_mask, narrow
from rotatek.config import Settings, channels_kept

HELD_BYTES = 256 << 20  # of full Keys and their covariances, what waits to be rotated together
ADAPTIVE_CAP = 4  # a head may get up to this many times the mean width
ALIGNED = 16  # bytes: a kernel is compiled again for a tensor that starts off them


@dataclass
class RotateKStore(Store):
    """A plain store that, until it is settled, also holds what is settled with other layers'.

    waiting: the states, whose full Keys and Values `visual` still has. Energies: the spectra that
    allot adaptive widths.
    """

    waiting: Prefill | None = field(default=None)
    key_energy: Tensor | None = field(default=None)  # [B, Hkv, k] by falling energy
    value_energy: Tensor | None = field(default=None)


@dataclass(frozen=True)
class Layers:
    """Layers alike, taken as one whose samples are the first one's, then the second's, ...

    What follows from them is kept with the first one's states, for every cache they fill.
    """

    parts: Sequence[Prefill]

    def once(self, what: Hashable, make: Callable[[], Any]) -> Any:
        """`make()`, called by the first who asks for `what` of these layers."""
        return self.parts[0].once((tuple(part.layer for part in self.parts), what), make)

    def of(self, name: str) -> Tensor:
        """That field of all states, [L * B, ...]: joined anew, so that it goes when it was used."""
        each = [getattr(part, name) for part in self.parts]
        return each[0] if len(each) == 1 else torch.cat(each)

    def spread(self, each: Sequence[Tensor]) -> Tensor:
        """What every layer has one of, as [L * B, ...]."""
        return torch.stack(list(each)).repeat_interleave(len(self.parts[0].keys), 0)

    def split(self, found: dict[str, Tensor]) -> Iterator[dict[str, Any]]:
        """Each layer's own part of what was found: a slice where it stays aligned, else a copy."""
        rows = len(self.parts[0].keys)
        for first in range(0, rows * len(self.parts), rows):
            parts = {name: tensor[first : first + rows] for name, tensor in found.items()}
            yield {
                name: part.clone() if part.nbytes % ALIGNED else part
                for name, part in parts.items()
            }


@dataclass(frozen=True)
class RotateK:
    """Rotation-aligned channel pruning."""

    name: str = "rotatek"
    label: str = "RotateK"
    summary: str = "Rotates each head's Keys so that few channels carry them all, and keeps those."

    def compress(self, prefill: Prefill, settings: Settings) -> Store:
        """Hold one layer's states, to be rotated with other layers'."""
        return RotateKStore(full_visual(prefill), prefill)

    def settle(self, stores: Sequence[Store], settings: Settings, last: bool) -> None:
        """Rotate the layers that wait once they weigh `HELD_BYTES`, and in the end.

        The solver takes as long for one layer's eight heads as for sixteen layers'. What waits is
        held in full, and copied once while it is joined. With adaptive widths all heads share one
        budget when all layers are there.
        """
        chosen = [store for store in stores if isinstance(store, RotateKStore)]
        waiting = [store for store in chosen if store.waiting is not None]
        # 8 bits are rounded from float32: twice the full Keys and Values, several times over
        most = HELD_BYTES if settings.cache_dtype == "model" else HELD_BYTES // 8
        if last or sum(_held_bytes(_held(store.waiting)) for store in waiting) >= most:
            for alike in _grouped(waiting):
                _rotate(alike, settings)
        if last and chosen and settings.widths == "adaptive":
            _adapt(chosen, settings)


def _held_bytes(prefill: Prefill) -> int:
    """Bytes of a layer's full Keys and of their float32 covariances."""
    B, heads, _, d = prefill.keys.shape
    return prefill.keys.nbytes + 4 * B * heads * d * d


def _grouped(stores: Sequence[RotateKStore]) -> list[list[RotateKStore]]:
    """Layers alike together: FastV's first ones have more tokens than the others."""
    groups: dict[Hashable, list[RotateKStore]] = {}
    for store in stores:
        states = _held(store.waiting)
        keys, known = states.keys, states.value_metric is not None
        groups.setdefault((keys.device, keys.dtype, keys.shape, known), []).append(store)
    return list(groups.values())


def _rotate(stores: Sequence[RotateKStore], settings: Settings) -> None:
    """Replace the Keys (and Values) of layers alike by their leading coordinates."""
    layers = Layers([_held(store.waiting) for store in stores])
    with torch.cuda.device_of(layers.parts[0].keys):
        found = _rotated_keys(layers, settings)
        if settings.values == "rotate":
            found |= _rotated_values(layers, settings)
        if settings.cache_dtype != "model" and settings.widths == "uniform":
            found |= _in_eight_bits(layers, found, settings.cache_dtype)
    for store, own in zip(stores, layers.split(found), strict=True):
        store.waiting = None
        store.key_energy = own.pop("key_energy", None)
        store.value_energy = own.pop("value_energy", None)
        store.visual = store.visual._replace(**own)


def _adapt(stores: Sequence[RotateKStore], settings: Settings) -> None:
    """Trim every head of every layer to the widths that one budget allots."""
    d = _held(stores[0].visual.mean).shape[-1]
    budget = channels_kept(d, settings.keep_channels)
    for_keys = allot([_held(store.key_energy) for store in stores], budget)
    for_values: list[Tensor | None] = [None] * len(stores)
    if settings.values == "rotate":
        budget = channels_kept(d, settings.keep_values)
        for_values[:] = allot([_held(store.value_energy) for store in stores], budget)
    for store, keys, values in zip(stores, for_keys, for_values, strict=True):
        store.visual = _narrowed(store.visual, keys, values, settings.cache_dtype)
        store.key_energy = store.value_energy = None


def _rotated_keys(layers: Layers, settings: Settings) -> dict[str, Tensor]:
    """K~, what turns a query, mu, and each column's energy where widths are adaptive."""
    keys, lengths = layers.of("keys"), layers.of("lengths")
    mean, covariance = layers.once("covariance", lambda: rotation.centred_covariance(keys, lengths))
    forward, back, energy = _key_bases(layers, settings, covariance)
    kept = rotation.project(keys, mean, forward, lengths)
    found = {"keys": kept, "basis": back.to(keys.dtype), "mean": mean}
    return found if energy is None else found | {"key_energy": energy}


def _rotated_values(layers: Layers, settings: Settings) -> dict[str, Tensor]:
    """V~ in the output metric, what turns it back, mu_v, and energies where widths are adaptive."""
    values, lengths = layers.of("values"), layers.of("lengths")
    d = values.shape[-1]
    r = channels_kept(d, settings.keep_values)
    mean, covariance = layers.once(
        "value covariance", lambda: rotation.centred_covariance(values, lengths)
    )
    root = inverse = torch.eye(d, device=values.device)
    metrics = [part.value_metric for part in layers.parts if part.value_metric is not None]
    if metrics:
        root, inverse = (layers.spread(each) for each in zip(*metrics, strict=True))
    weighted = root @ covariance @ root
    basis, energy = _top_basis(layers, "values", weighted, r, settings)
    found = {
        "values": rotation.project(values, mean, root @ basis, lengths),
        "value_basis": (basis.transpose(-1, -2) @ inverse).to(values.dtype),
        "value_mean": mean,
    }
    return found if energy is None else found | {"value_energy": energy}


def _in_eight_bits(layers: Layers, found: dict[str, Tensor], kind: str) -> dict[str, Tensor]:
    """Keys and Values as `kind`, with their scales."""
    values = found["values"] if "values" in found else layers.of("values")
    visual = store_in_eight_bits(Visual(found["keys"], values), layers.of("lengths"), kind)
    return {name: t for name, t in visual._asdict().items() if isinstance(t, Tensor)}


def _key_bases(
    layers: Layers, settings: Settings, covariance: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """F and B [L * B, Hkv, d, k], and each column's energy where widths are adaptive."""
    d, sigma = covariance.shape[-1], _weights(layers, settings)
    k = channels_kept(d, settings.keep_channels)
    known = [part.basis for part in layers.parts if part.basis is not None]
    if known and settings.widths == "uniform":
        basis, energy = layers.spread([each[..., :k].to(covariance) for each in known]), None
    else:
        what = "keys" if sigma is not None else "keys as they are"
        basis, energy = _top_basis(layers, what, covariance, k, settings, sigma)
    if settings.weighting != "consistent" or sigma is None:
        return basis, basis, energy
    return sigma[..., None] * basis, basis / sigma[..., None], energy


def _weights(layers: Layers, settings: Settings) -> Tensor | None:
    """sigma [L * B, Hkv, d], of mean one so that half-precision Keys stay in range."""
    if settings.weighting == "none":
        return None
    heads, work = layers.parts[0].keys.shape[1], rotation.query_weights
    return layers.once(
        "weights", lambda: work(layers.of("queries"), heads, layers.of("window_alive"), True)
    )


def _top_basis(
    layers: Layers,
    what: str,
    covariance: Tensor,
    k: int,
    settings: Settings,
    sigma: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The basis of k columns, or of all that adaptive widths may take with their energies.

    Found once; every k is a slice of one eigendecomposition.
    """
    d, solver = covariance.shape[-1], settings.solver
    if settings.widths == "adaptive":
        cap, nested = min(d, ADAPTIVE_CAP * k), rotation.nested_basis
        return layers.once((what, cap), lambda: nested(covariance, cap, sigma))
    if solver == "eigh" or k >= d:
        vectors, _ = layers.once((what, "eigh"), lambda: rotation.full_basis(covariance, sigma))
        return vectors[..., :k].contiguous(), None
    top = rotation.top_basis
    return layers.once((what, k, solver), lambda: top(covariance, k, solver, sigma)), None


def _narrowed(visual: Visual, keys: Tensor, values: Tensor | None, kind: str) -> Visual:
    """Trim heads to `keys` and `values` channels each [B, Hkv], then store them as `kind`."""
    if kind != "model":
        if values is not None:  # a token's scale must not count what is trimmed
            kept = head_mask(values, visual.values.shape[-1])[:, :, None]
            visual = visual._replace(values=visual.values.masked_fill(~kept, 0.0))
        visual = store_in_eight_bits(visual, _held(visual.lengths), kind)
    mask = head_mask(keys)
    widest = mask.shape[-1]
    trimmed, offsets = narrow(visual.keys, keys)
    scale = None if visual.key_scale is None else visual.key_scale[..., :widest].contiguous()
    visual = visual._replace(
        keys=trimmed, key_widths=keys, key_offsets=offsets, key_scale=scale,
        basis=_held(visual.basis)[..., :widest] * mask[:, :, None], tokens=visual.keys.shape[2],
    )  # fmt: skip
    if values is None:
        return visual
    mask = head_mask(values)
    trimmed, offsets = narrow(visual.values, values)
    return visual._replace(
        values=trimmed, value_widths=values, value_offsets=offsets,
        value_basis=_held(visual.value_basis)[:, :, : mask.shape[-1]] * mask[..., None],
    )  # fmt: skip


def _held(thing: Any) -> Any:
    """What this method always stores."""
    assert thing is not None
    return thing
