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

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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

HELD_BYTES = 8 << 20  # of a layer's full Keys, the most that wait to be solved with the others'
ADAPTIVE_CAP = 4  # a head may get up to this many times the mean width


@dataclass
class RotateKStore(Store):
    """A plain store that, until `finish`, also holds what is settled only there.

    Energies: the spectra that allot adaptive widths. waiting: the states whose full Keys `visual`
    still has, and their covariance and weights.
    """

    key_energy: Tensor | None = field(default=None)  # [B, Hkv, k] by falling energy
    value_energy: Tensor | None = field(default=None)
    waiting: tuple[Prefill, Tensor, Tensor | None] | None = field(default=None)


@dataclass(frozen=True)
class RotateK:
    """Rotation-aligned channel pruning."""

    name: str = "rotatek"
    label: str = "RotateK"
    summary: str = "Rotates each head's Keys so that few channels carry them all, and keeps those."

    def compress(self, prefill: Prefill, settings: Settings) -> Store:
        """Rotate one layer's visual Keys (and Values) and keep the leading channels."""
        keys = prefill.keys
        mean, covariance = prefill.once(
            "covariance", lambda: rotation.centred_covariance(keys, prefill.lengths)
        )
        sigma = _weights(prefill, settings)
        store = RotateKStore(full_visual(prefill)._replace(mean=mean))
        if settings.values == "rotate":
            _rotate_values(store, prefill, settings)
        if _asked(prefill, settings, covariance) is not None and keys.nbytes <= HELD_BYTES:
            # the Values are settled: of the full ones nothing needs to stay
            store.waiting = replace(prefill, values=store.visual.values), covariance, sigma
        else:
            _rotate_keys(store, prefill, settings, covariance, sigma)
        return store

    def finish(self, stores: Sequence[Store], settings: Settings) -> None:
        """Rotate the Keys that wait; with adaptive widths, share one budget among all heads."""
        chosen = [store for store in stores if isinstance(store, RotateKStore)]
        waiting = [store for store in chosen if store.waiting is not None]
        _solve_together(waiting, settings)
        for store in waiting:
            _rotate_waiting(store, settings)
        if settings.widths == "adaptive" and chosen:
            d = _held(chosen[0].visual.mean).shape[-1]
            budget = channels_kept(d, settings.keep_channels)
            for_keys = allot([_held(s.key_energy) for s in chosen], budget)
            for_values: list[Tensor | None] = [None] * len(chosen)
            if settings.values == "rotate":
                budget = channels_kept(d, settings.keep_values)
                for_values[:] = allot([_held(s.value_energy) for s in chosen], budget)
            for store, keys, values in zip(chosen, for_keys, for_values, strict=True):
                store.visual = _narrowed(store.visual, keys, values, settings.cache_dtype)
        for store in chosen:
            store.key_energy = store.value_energy = None


def _rotate_keys(
    store: RotateKStore,
    prefill: Prefill,
    settings: Settings,
    covariance: Tensor,
    sigma: Tensor | None,
) -> None:
    """Replace the store's Keys by their leading coordinates; in 8 bits where that is asked for."""
    forward, back, store.key_energy = _key_bases(prefill, settings, covariance, sigma)
    mean = _held(store.visual.mean)
    store.visual = store.visual._replace(
        keys=rotation.project(prefill.keys, mean, forward, prefill.lengths),
        basis=back.to(prefill.keys.dtype),
    )
    if settings.cache_dtype != "model" and settings.widths == "uniform":
        store.visual = store_in_eight_bits(store.visual, prefill.lengths, settings.cache_dtype)


def _asked(prefill: Prefill, settings: Settings, covariance: Tensor) -> tuple[Any, ...] | None:
    """What `_top_basis` will ask of these states, if it is a solver whose launch layers can share.

    Keys in 8 bits take many passes each, which are better made beside the model's next layer.
    """
    d = covariance.shape[-1]
    k = channels_kept(d, settings.keep_channels)
    alike = settings.widths == "uniform" and prefill.basis is None
    if not alike or settings.solver == "eigh" or settings.cache_dtype != "model" or k >= d:
        return None
    return "keys", settings.weighting == "none", k, settings.solver


def _solve_together(stores: Sequence[RotateKStore], settings: Settings) -> None:
    """Find the bases of waiting layers in one launch a device, but for those that are `made`."""
    alike: dict[Any, list[tuple[Prefill, Tensor, Tensor | None]]] = {}
    for prefill, covariance, sigma in (_held(store.waiting) for store in stores):
        if _asked(prefill, settings, covariance) not in prefill.made:
            group = covariance.device, covariance.shape[1:]
            alike.setdefault(group, []).append((prefill, covariance, sigma))
    for waiting in alike.values():
        _solve_alike(waiting, settings)


def _solve_alike(
    waiting: Sequence[tuple[Prefill, Tensor, Tensor | None]], settings: Settings
) -> None:
    """One launch for covariances of one device and shape; each layer's `made` gets its bases."""
    asked = [_held(_asked(prefill, settings, covariance)) for prefill, covariance, _ in waiting]
    covariances = torch.cat([covariance for _, covariance, _ in waiting])
    sigmas = [sigma for _, _, sigma in waiting if sigma is not None]
    weights = torch.cat(sigmas) if sigmas else None
    with torch.cuda.device_of(covariances):
        bases = rotation.top_basis(covariances, asked[0][2], settings.solver, weights)
    sizes = [len(covariance) for _, covariance, _ in waiting]
    for (prefill, _, _), name, basis in zip(waiting, asked, bases.split(sizes), strict=True):
        prefill.made[name] = basis


def _rotate_waiting(store: RotateKStore, settings: Settings) -> None:
    prefill, covariance, sigma = _held(store.waiting)
    store.waiting = None
    with torch.cuda.device_of(covariance):
        _rotate_keys(store, prefill, settings, covariance, sigma)


def _weights(prefill: Prefill, settings: Settings) -> Tensor | None:
    """sigma [B, Hkv, d], of mean one so that half-precision Keys stay in range."""
    if settings.weighting == "none":
        return None
    heads, asked = prefill.keys.shape[1], (prefill.queries, prefill.window_alive)
    return prefill.once("weights", lambda: rotation.query_weights(asked[0], heads, asked[1], True))


def _key_bases(
    prefill: Prefill, settings: Settings, covariance: Tensor, sigma: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """F and B [B, Hkv, d, k], and each column's energy where widths are adaptive."""
    d = covariance.shape[-1]
    k = channels_kept(d, settings.keep_channels)
    energy, asked = None, ("keys", settings.weighting == "none")
    if settings.widths == "adaptive":
        cap = min(d, ADAPTIVE_CAP * k)
        found = prefill.once((*asked, cap), lambda: rotation.nested_basis(covariance, cap, sigma))
        basis, energy = found
    elif prefill.basis is not None:
        basis = prefill.basis[..., :k].to(covariance).expand(*covariance.shape[:2], d, k)
    else:
        basis = _top_basis(prefill, asked, covariance, k, settings.solver, sigma)
    if settings.weighting != "consistent" or sigma is None:
        return basis, basis, energy
    return sigma[..., None] * basis, basis / sigma[..., None], energy


def _top_basis(
    prefill: Prefill,
    asked: tuple[Any, ...],
    covariance: Tensor,
    k: int,
    solver: str,
    sigma: Tensor | None = None,
) -> Tensor:
    """`rotation.top_basis`, found once; every k is a slice of one eigendecomposition."""
    if solver == "eigh" or k >= covariance.shape[-1]:
        vectors, _ = prefill.once((*asked, "eigh"), lambda: rotation.full_basis(covariance, sigma))
        return vectors[..., :k].contiguous()
    work = rotation.top_basis
    return prefill.once((*asked, k, solver), lambda: work(covariance, k, solver, sigma))


def _rotate_values(store: RotateKStore, prefill: Prefill, settings: Settings) -> None:
    """Replace the store's Values by their leading coordinates in the output metric."""
    values, dtype = prefill.values, prefill.values.dtype
    d = values.shape[-1]
    r = channels_kept(d, settings.keep_values)
    mean, covariance = prefill.once(
        "value covariance", lambda: rotation.centred_covariance(values, prefill.lengths)
    )
    root = inverse = torch.eye(d, device=values.device)
    if prefill.value_metric is not None:
        root, inverse = prefill.value_metric
    weighted, asked = root @ covariance @ root, ("values",)
    if settings.widths == "adaptive":
        cap = min(d, ADAPTIVE_CAP * r)
        found = prefill.once((*asked, cap), lambda: rotation.nested_basis(weighted, cap))
        basis, store.value_energy = found
    else:
        basis = _top_basis(prefill, asked, weighted, r, settings.solver)
    store.visual = store.visual._replace(
        values=rotation.project(values, mean, root @ basis, prefill.lengths),
        value_basis=(basis.transpose(-1, -2) @ inverse).to(dtype),
        value_mean=mean,
    )


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
