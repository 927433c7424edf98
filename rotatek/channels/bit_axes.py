"""The axes along which channels get bits: a prompt's own, or a calibration's in its order."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from rotatek import rotation
from rotatek.rotation.bases import SharedAxes, of_basis


class Side(NamedTuple):
    """Keys or Values of layers alike before their axes are found, n samples of all of them.

    mean: [n, Hkv, d] in the model's type; covariance: [n, Hkv, d, d]; metric: what turns into it
    and back, diagonals [n, Hkv, d] or matrices [n, Hkv, d, d], or None; rate: [n, Hkv] what a unit
    of variance in the metric costs the output; shared: each layer's axes of a calibration, or None.
    """

    mean: Tensor
    covariance: Tensor
    metric: tuple[Tensor, Tensor] | None
    rate: Tensor
    shared: Sequence[SharedAxes] | None = None

    @property
    def form(self) -> tuple[torch.device, bool, bool]:
        """Equal for sides that can be joined."""
        return self.mean.device, self.metric is None, self.shared is None

    @classmethod
    def joined(cls, sides: Sequence[Self]) -> Self:
        """The samples of sides of one form, in order."""
        if len(sides) == 1:
            return sides[0]
        means, covariances, metrics, rates, shared = zip(*sides, strict=True)
        metric = [torch.cat(parts) for parts in zip(*metrics, strict=True)] if metrics[0] else None
        return cls(
            torch.cat(means),
            torch.cat(covariances),
            None if metric is None else (metric[0], metric[1]),
            torch.cat(rates),
            None if shared[0] is None else [axes for each in shared for axes in each],
        )


class Axes(NamedTuple):
    """The rotated channels of a `Side`, c of them by falling energy.

    forward: [n, Hkv, d, c], x - mean to coordinates; rows: [n, Hkv, c, d], coordinates back, int8
    in units of scale [n, Hkv, c]; variance: [n, Hkv, c] of the coordinates; energy: [n, Hkv, c],
    that in the metric; numbers: [n, Hkv, c] which axes of a calibration they are, `rows` then being
    each layer's own [Hkv, d, d]; else None.
    """

    forward: Tensor
    rows: Tensor | Sequence[Tensor]
    scale: Tensor
    variance: Tensor
    energy: Tensor
    numbers: Tensor | None = None


def in_metric(side: Side) -> Tensor:
    """A side's covariance [n, Hkv, d, d] in its metric."""
    if side.metric is None:
        return side.covariance
    into, _ = side.metric
    dense = into.dim() == side.covariance.dim()
    return into @ side.covariance @ into if dense else rotation.weighted(side.covariance, into)


def find_axes(sides: Sequence[Side], columns: int) -> list[Axes]:
    """The axes of all sides: those of a calibration in order, and all others from one solve."""
    found: dict[int, Axes] = {}
    own = [number for number, side in enumerate(sides) if side.shared is None]
    if own:
        joined = torch.cat([in_metric(sides[number]).flatten(0, 1) for number in own])
        bases, variances = rotation.ordered_basis(joined, columns)
        sizes = [sides[number].rate.numel() for number in own]
        for number, basis, variance in zip(
            own, bases.split(sizes), variances.split(sizes), strict=True
        ):
            side = sides[number]
            grid = side.rate.shape
            basis, variance = basis.unflatten(0, grid), variance.unflatten(0, grid)
            found[number] = Axes(*of_basis(basis, side.metric), variance, variance)
    return [found[i] if i in found else ordered_axes(side) for i, side in enumerate(sides)]


def ordered_axes(side: Side) -> Axes:
    """A calibration's axes by the energy that a request's own states have along them.

    The energy of a Key's axis is the variance of its coordinates times what the request's own
    queries, channel by channel, ask along it; the output projection's metric is the file's.
    """
    each = side.shared or ()
    many = len(side.mean) // len(each)
    forward, rows, scale = (
        torch.stack(list(part)).repeat_interleave(many, 0) for part in zip(*each, strict=True)
    )
    variance = ((side.covariance @ forward) * forward).sum(-2).clamp(min=0)
    energy = variance
    if side.metric is not None and side.metric[0].dim() == 3:
        asked = (rows.float().square() @ side.metric[0].square()[..., None])[..., 0]
        energy = variance * asked * scale.square()
    order = energy.argsort(-1, descending=True)
    variance, energy, scale = (part.gather(-1, order) for part in (variance, energy, scale))
    forward = forward.gather(-1, order[..., None, :].expand_as(forward))
    return Axes(forward, [one.rows for one in each], scale, variance, energy, order)
