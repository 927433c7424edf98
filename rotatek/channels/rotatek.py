"""RotateK: rotate each head's visual Keys onto their query-weighted principal axes, keep k of them.

Prefill stores K~ = (K - mu) F and decoding asks q B with bias q . mu, where (R_k: the top basis)
  weighting="paper":      F = B = R_k of the covariance weighted by sigma sigma^T;
  weighting="none":       F = B = R_k of the plain covariance;
  weighting="consistent": F = S R_k and B = S^-1 R_k, S = diag sigma: the same weighted basis in the
      metric it was found in.
Subtracting mu first is the paper's K R_k with bias q . (I - P) mu, with less rounding error.

Beyond the paper: values="rotate" stores V~ = (V - mu_v) S_o U_r, the centred PCA of the Values in
the output projection's metric S_o, rotated back once per head after the softmax; widths="adaptive"
gives each head the channels its spectrum earns under one budget for the whole model.
Source: arXiv 2605.19218, algorithms 1 and 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rotatek import rotation
from rotatek.cache import Store
from rotatek.channels.base import Prefill, full_visual
from rotatek.channels.widths import allot, head_mask, narrow
from rotatek.config import Settings, channels_kept

ADAPTIVE_CAP = 4  # a head may get up to this many times the mean width


@dataclass
class RotateKStore(Store):
    """A plain store that, until `finish`, also holds the spectra that allot adaptive widths."""

    key_energy: Tensor | None = field(default=None)  # [B, Hkv, k] by falling energy
    value_energy: Tensor | None = field(default=None)


@dataclass(frozen=True)
class RotateK:
    """Rotation-aligned channel pruning."""

    name: str = "rotatek"
    label: str = "RotateK"
    summary: str = "Rotates each head's Keys so that few channels carry them all, and keeps those."

    def compress(self, prefill: Prefill, settings: Settings) -> Store:
        """Rotate one layer's visual Keys (and Values) and keep the leading channels."""
        keys, dtype = prefill.keys, prefill.keys.dtype
        mean, covariance = rotation.centred_covariance(keys, prefill.lengths)
        sigma = _weights(prefill, settings)
        forward, back, energy = _key_bases(prefill, settings, covariance, sigma)
        visual = full_visual(prefill)._replace(
            keys=rotation.project(keys, mean, forward, prefill.lengths),
            basis=back.to(dtype),
            mean=mean,
        )
        store = RotateKStore(visual, key_energy=energy)
        if settings.values == "rotate":
            _rotate_values(store, prefill, settings)
        return store

    def finish(self, stores: Sequence[Store], settings: Settings) -> None:
        """With adaptive widths: share one budget among all heads of all layers, and trim."""
        chosen = [store for store in stores if isinstance(store, RotateKStore)]
        if settings.widths == "adaptive" and chosen:
            d = _held(chosen[0].visual.mean).shape[-1]
            budget = channels_kept(d, settings.keep_channels)
            widths = allot([_held(s.key_energy) for s in chosen], budget)
            for store, width in zip(chosen, widths, strict=True):
                visual, mask = store.visual, head_mask(width)
                keys, offsets = narrow(visual.keys, width)
                basis = _held(visual.basis)[..., : mask.shape[-1]] * mask[:, :, None]
                store.visual = visual._replace(
                    keys=keys, key_widths=width, key_offsets=offsets, basis=basis,
                    tokens=visual.keys.shape[2],
                )  # fmt: skip
            if settings.values == "rotate":
                _narrow_values(chosen, channels_kept(d, settings.keep_values))
        for store in chosen:
            store.key_energy = store.value_energy = None


def _weights(prefill: Prefill, settings: Settings) -> Tensor:
    """sigma [B, Hkv, d], of mean one so that half-precision Keys stay in range."""
    kv_heads, d = prefill.keys.shape[1], prefill.keys.shape[3]
    if settings.weighting == "none":
        return torch.ones(prefill.keys.shape[0], kv_heads, d, device=prefill.keys.device)
    sigma = rotation.query_weights(prefill.queries, kv_heads, prefill.window_alive)
    return sigma / sigma.mean(-1, keepdim=True)


def _key_bases(
    prefill: Prefill, settings: Settings, covariance: Tensor, sigma: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """F and B [B, Hkv, d, k], and each column's energy where widths are adaptive."""
    d = covariance.shape[-1]
    k = channels_kept(d, settings.keep_channels)
    weighted = rotation.weighted(covariance, sigma)
    energy = None
    if settings.widths == "adaptive":
        basis, energy = rotation.nested_basis(weighted, min(d, ADAPTIVE_CAP * k))
    elif prefill.basis is not None:
        basis = prefill.basis[..., :k].to(covariance).expand(*covariance.shape[:2], d, k)
    else:
        basis = rotation.top_basis(weighted, k, settings.solver)
    if settings.weighting != "consistent":
        return basis, basis, energy
    return sigma[..., None] * basis, basis / sigma[..., None], energy


def _rotate_values(store: RotateKStore, prefill: Prefill, settings: Settings) -> None:
    """Replace the store's Values by their leading coordinates in the output metric."""
    values, dtype = prefill.values, prefill.values.dtype
    d = values.shape[-1]
    r = channels_kept(d, settings.keep_values)
    mean, covariance = rotation.centred_covariance(values, prefill.lengths)
    root = inverse = torch.eye(d, device=values.device)
    if prefill.value_metric is not None:
        root, inverse = prefill.value_metric
    if settings.widths == "adaptive":
        cap = min(d, ADAPTIVE_CAP * r)
        basis, store.value_energy = rotation.nested_basis(root @ covariance @ root, cap)
    else:
        basis = rotation.top_basis(root @ covariance @ root, r, settings.solver)
    store.visual = store.visual._replace(
        values=rotation.project(values, mean, root @ basis, prefill.lengths),
        value_basis=(basis.transpose(-1, -2) @ inverse).to(dtype),
        value_mean=mean,
    )


def _narrow_values(stores: Sequence[RotateKStore], budget: int) -> None:
    """Trim each head's Values to its share of `budget` channels on average."""
    widths = allot([_held(store.value_energy) for store in stores], budget)
    for store, width in zip(stores, widths, strict=True):
        visual, mask = store.visual, head_mask(width)
        values, offsets = narrow(visual.values, width)
        basis = _held(visual.value_basis)[:, :, : mask.shape[-1]] * mask[..., None]
        store.visual = visual._replace(
            values=values, value_widths=width, value_offsets=offsets, value_basis=basis
        )


def _held(tensor: Tensor | None) -> Tensor:
    """A tensor that this method always stores."""
    assert tensor is not None
    return tensor
