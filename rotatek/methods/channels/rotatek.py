"""RotateK: rotate each head's visual Keys onto their query-weighted principal axes, keep k of them.

Prefill stores K~ = (K - mu) R_k and decoding asks q R_k with bias q . mu. R_k is the top basis:
  weighting="paper":    of the covariance weighted by sigma sigma^T;
  weighting="none":     of the plain covariance;
  weighting="general":  as "paper", by the queries of a few general questions, too: an engine
      reads them behind the prompt and forgets them.
The paper stores K R_k with bias q . (I - R_k R_k^T) mu: the same, with more rounding error.

Beyond the paper, smaller=t rotates Keys and Values in full and gives channels bits (`bits.py`).
Source: arXiv 2605.19218, algorithms 1 and 2.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Self

import torch
from torch import Tensor

from kernels.planes import GRANULE, TILE
from rotatek.bridge.attention import pause
from rotatek.errors import ModeUnsupported
from rotatek.methods import rotation
from rotatek.methods.channels import bits
from rotatek.methods.channels.base import (
    Axes,
    ChannelMethod,
    HeadStates,
    LayerStates,
    Store,
    full_visual,
    keep_option,
)
from rotatek.methods.channels.bit_allocation import BitDemand, Ladder
from rotatek.methods.channels.bits import LEAST_TIMES, MOST_TIMES, PLAIN, LayerGroup
from rotatek.methods.options import channels_kept, option, options_of

ROUNDING: Final = 1e-6  # of the energy: lost to rounding by a basis of full energy
REPLACED: Final = ("keep", "solver", "calibration")  # by `smaller`


@dataclass(frozen=True)
class RotateK(ChannelMethod):
    """Rotation-aligned channel pruning."""

    name, label = "rotatek", "RotateK"
    summary = "Rotates each head's Keys so that few channels carry them all, and keeps those."
    title = "RotateK: one straight cut"
    reading = (
        "RotateK rotates first, so the same few channels serve every token and the cut is one "
        "straight line."
    )
    rotates = True
    colour = "#0ca38a"

    keep: float = keep_option("share of each head's rotated Key channels that stays, in (0, 1]")
    weighting: str = option(
        "paper",
        "How RotateK weighs channels",
        "by the queries as in the paper, not at all, or by those of a few general questions, too, "
        "for questions to come",
        choices=[
            ("paper", "by the queries, as in the paper"),
            ("none", "none"),
            ("general", "by the queries and general questions (beyond the paper)"),
        ],
    )
    solver: str = option(
        "subspace",
        "How RotateK finds the rotation",
        "five steps of subspace iteration, all eigenvectors, or the paper's loop as it is printed",
        choices=[
            ("subspace", "subspace iteration"),
            ("eigh", "all eigenvectors"),
            ("paper", "as printed"),
        ],
        place="hidden",
    )
    calibration: str | None = option(
        None,
        "Calibration file",
        "bases made by `rotatek calibrate`; replaces those of each prompt",
        kind="path",
        place="hidden",
    )
    smaller: float | None = option(
        None,
        "Times smaller",
        "how many times fewer bytes the visual tokens of each prompt are to take, with all that "
        "is stored for them, 2 to 64, or 0: off; replaces dropped channels (beyond the paper)",
        kind="number",
        low=LEAST_TIMES,
        high=MOST_TIMES,
        place="hidden",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.smaller is not None:
            for one in options_of(self):  # so that settings which store the same are equal
                if one.name in REPLACED:
                    object.__setattr__(self, one.name, one.default)

    @property
    def asks_generally(self) -> bool:
        return self.weighting == "general"

    def check(self, states: LayerStates) -> None:
        width = states.keys.shape[-1]
        if self.smaller is not None and width % GRANULE:
            raise ModeUnsupported(
                f"Bits are given to {GRANULE} channels at a time, and this model's heads have "
                f"{width}. Choose `keep_channels` in place of `smaller`."
            )

    def compress(self, states: LayerStates) -> Store:
        return self.compress_together([states])[0]

    @property
    def together(self) -> int | None:
        """The solver takes as long for one layer's eight heads as for sixteen layers'; with
        `smaller` all layers share one budget."""
        return bits.TOGETHER if self.smaller is None else None

    def compress_together(self, layers: Sequence[LayerStates]) -> Sequence[Store]:
        """Rotate layers alike together, and keep k channels or as many bits as `smaller` allows."""
        if self.smaller is not None:
            return [Store(one) for one in bits.compressed(layers, self.smaller, self.weighting)]
        found: dict[int, Store] = {}
        for group in bits.in_groups(layers):
            with torch.cuda.device_of(group.parts[0].keys):
                keys, lengths = group.of("keys"), group.of("lengths")
                work = partial(rotation.centred_covariance, keys, lengths)
                mean, covariance = group.cached("covariance", work)
                basis = _key_bases(group, self, covariance)
                kept = rotation.project(keys, mean, basis, lengths)
            rotated = {"keys": kept, "basis": basis.to(keys.dtype), "mean": mean}
            parts = zip(group.places, group.parts, group.split(rotated), strict=True)
            for place, states, own in parts:
                found[place] = Store(full_visual(states)._replace(**own))
            pause()
        return [found[place] for place in range(len(layers))]

    def bases(self, layers: int) -> Sequence[Tensor] | None:
        path = self.calibration
        return None if path is None else rotation.load_bases(path, layers)

    @property
    def key_share(self) -> float:
        return self.keep if self.smaller is None else 1 / self.smaller

    @property
    def nominal_share(self) -> float:
        return super().nominal_share if self.smaller is None else 1 / self.smaller

    def with_keep(self, keep: float) -> Self:
        if self.smaller is None:
            return replace(self, keep=keep)
        times = 1 / keep if keep > 0 else MOST_TIMES
        return replace(self, smaller=max(LEAST_TIMES, min(MOST_TIMES, times)))

    def with_share(self, share: float) -> Self:
        return super().with_share(share) if self.smaller is None else self.with_keep(share)

    @property
    def form(self) -> str:
        return "" if self.smaller is None else f"{self.smaller:g} times smaller"

    def of_paper(self) -> Self:
        return replace(self, smaller=None)

    def yielding_to(self, chosen: Collection[str]) -> Self:
        """Without `smaller` where an option is chosen that it replaces."""
        replaced = {one.key for one in options_of(self) if one.name in REPLACED}
        return self if replaced.isdisjoint(chosen) else replace(self, smaller=None)

    def for_figures(self) -> Self:
        """From these very states, by eigenvectors."""
        return replace(self.of_paper(), calibration=None, solver="eigh")

    def axes(self, head: HeadStates) -> Axes:
        """The head's full basis, in the metric of the options; its spectrum is that of logits."""
        raw, sigma = rotation.logit_weights(head.queries[None], 1)[0, 0], None
        mean = raw.norm() / len(raw) ** 0.5
        if self.weighting != "none":
            mean, queries = raw.mean(), head.queries[None]
            sigma = rotation.query_weights(queries, 1, mean_one=True)[0, 0]
        basis, spectrum = rotation.full_basis(head.covariance, sigma)
        return Axes(basis, spectrum * mean**2)

    def key_widths(self, spectra: Tensor) -> Tensor:
        """The same share of all heads; with `smaller`, channels that get any bits."""
        depths = self.key_bits(spectra)
        return super().key_widths(spectra) if depths is None else (depths > 0).sum(-1).int()

    def key_bits(self, spectra: Tensor) -> Tensor | None:
        """Bits of every rotated channel with `smaller`, int32 [layers, heads, d], by its spectrum
        alone; spectra: as in `key_widths`."""
        if self.smaller is None:
            return None
        there, some, claims = spectra >= 0, torch.full((1, 1), TILE), []
        shapes = zip(there[:, :, 0].sum(1).tolist(), there[:, 0].sum(1).tolist(), strict=True)
        for own, (heads, width) in zip(spectra, shapes, strict=True):
            claims.append(BitDemand(own[None, None, :heads, :width], some, 0))
        whole = TILE * int(there.sum()) * PLAIN / 8
        ladder = Ladder.of(claims)  # no step behind the level fills what is left of the budget
        bought = ladder.first_steps(torch.tensor([whole / self.smaller]).double())
        found = torch.zeros_like(spectra, dtype=torch.int32)
        for own, groups in zip(found, ladder.bits(bought, claims), strict=True):
            depths = groups[0, 0].repeat_interleave(GRANULE, -1)
            own[: len(depths), : depths.shape[1]] = depths
        return found

    def water_level(self, spectra: Tensor) -> float | None:
        """Between the weakest granule of any head that gets bits and the strongest that gets none:
        their geometric mean, in energy a channel; None where all get bits, or none does."""
        depths = self.key_bits(spectra)
        if depths is None:
            return None
        energy = spectra.unflatten(-1, (-1, GRANULE)).mean(-1)
        there = energy >= 0
        filled, energy = depths[..., ::GRANULE][there] > 0, energy[there]
        if bool(filled.all()) or not bool(filled.any()):
            return None
        return float((energy[filled].min() * energy[~filled].max()).sqrt())


def _key_bases(layers: LayerGroup, how: RotateK, covariance: Tensor) -> Tensor:
    """R_k, F and B at once: [L * B, Hkv, d, k]."""
    k = channels_kept(covariance.shape[-1], how.keep)
    known = [part.basis for part in layers.parts if isinstance(part.basis, Tensor)]
    if known:
        return layers.spread([each[..., :k].to(covariance) for each in known])
    if how.weighting == "none":
        return _top_basis(layers, "keys as they are", covariance, k, how)
    of, heads, work = layers.of, covariance.shape[1], rotation.query_weights
    # of mean one, so that half-precision Keys stay in range: [L * B, Hkv, d]
    sigma = layers.cached("weights", lambda: work(of("queries"), heads, of("window_alive"), True))
    what = "keys"
    if k == covariance.shape[-1]:
        return _top_basis(layers, what, covariance, k, how, sigma)
    few = layers.of("lengths") <= k + 1  # their centred Keys span no more than k directions
    sigma = sigma.masked_fill(few[:, None, None], 1.0)
    if how.solver == "eigh" and bool(few.any()):
        what = f"keys for {k}"  # not another width's
    basis = _top_basis(layers, what, covariance, k, how, sigma)
    if covariance.device.type == "cpu":
        whole = _holds_all(covariance, sigma, basis)
        if bool((whole & ~few[:, None]).any()):
            plain = sigma.masked_fill(whole[..., None], 1.0)
            basis = _top_basis(layers, f"whole keys for {k}", covariance, k, how, plain)
    return basis


def _holds_all(covariance: Tensor, sigma: Tensor, basis: Tensor) -> Tensor:
    """[L * B, Hkv]: whether a basis of weighted Keys holds all of them.

    Then as many directions hold the Keys as they are, which the paper's weighted basis, applied to
    unweighted Keys, misses. On a GPU, where nothing may wait for the device, only lengths say so.
    """
    matrix = rotation.weighted(covariance, sigma)
    total = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
    return total - ((matrix @ basis) * basis).sum((-2, -1)) <= ROUNDING * total


def _top_basis(
    layers: LayerGroup, what: str, covariance: Tensor, k: int, how: RotateK,
    sigma: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The basis of k columns, found once; every k is a slice of one eigendecomposition."""
    d, solver = covariance.shape[-1], how.solver
    if solver == "eigh" or k >= d:
        vectors, _ = layers.cached((what, "eigh"), lambda: rotation.full_basis(covariance, sigma))
        return vectors[..., :k].contiguous()
    if solver == "paper":
        matrix = rotation.weighted(covariance, sigma)
        return layers.cached((what, k, solver), lambda: rotation.printed_basis(matrix, k))
    top = rotation.top_basis
    return layers.cached((what, k, solver), lambda: top(covariance, k, sigma))
