"""The axes along which channels get bits: a prompt's own, or a calibration's in its order."""

from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from rotatek.methods import rotation
from rotatek.methods.channels.batched_rotation import held
from rotatek.methods.rotation.stored_bases import SharedAxes, rounded, turned, unit_axes

RIDGE: Final = 1e-6  # of a row's weight, so that rows nearly alike stay distinct


class MomentStats(NamedTuple):
    """Keys or Values of layers alike before their axes are found, n samples of all of them.

    mean: [n, Hkv, d] in the model's type; covariance: [n, Hkv, d, d]; metric: what turns into it
    and back, diagonals [n, Hkv, d] or matrices [n, Hkv, d, d], or None; rate: [n, Hkv] what a unit
    of variance in the metric costs the output; shared: each layer's axes of a calibration, or None;
    offered: those that a budget of bytes may take instead of a prompt's own, or None.
    """

    mean: Tensor
    covariance: Tensor
    metric: tuple[Tensor, Tensor] | None
    rate: Tensor
    shared: Sequence[SharedAxes] | None = None
    offered: Sequence[SharedAxes] | None = None

    @property
    def form(self) -> Hashable:
        """Equal for sides that can be joined."""
        known = [each is None for each in (self.metric, self.shared, self.offered)]
        return self.mean.device, self.mean.shape[1:], *known

    @classmethod
    def joined(cls, sides: Sequence[Self]) -> Self:
        """The samples of sides of one form, in order."""
        if len(sides) == 1:
            return sides[0]
        means, covariances, metrics, rates, shared, offered = zip(*sides, strict=True)
        metric = [torch.cat(parts) for parts in zip(*metrics, strict=True)] if metrics[0] else None
        return cls(
            torch.cat(means),
            torch.cat(covariances),
            None if metric is None else (metric[0], metric[1]),
            torch.cat(rates),
            None if shared[0] is None else [axes for each in shared for axes in each],
            None if offered[0] is None else [axes for each in offered for axes in each],
        )


class BitBases(NamedTuple):
    """The rotated channels of both sides, Keys first, c of them by falling energy.

    forward: [n, Hkv, d, c] of each, x - mean to coordinates; rows: [2, n, Hkv, c, d], coordinates
    back, int8 in units of scale [2, n, Hkv, c]; variance: [2, n, Hkv, c] of the coordinates;
    energy: [2, n, Hkv, c], that in the metric; numbers: [2, n, Hkv, c] which axes of a calibration
    they are, or which channels; else None; lent: rows [Hkv, d, d] of all Keys' layers, then of all
    Values', that `numbers` count, or None for a layer whose own `rows` are stored.
    """

    forward: Sequence[Tensor]
    rows: Tensor | None
    scale: Tensor
    variance: Tensor
    energy: Tensor
    numbers: Tensor | None = None
    lent: Sequence[Tensor | None] | None = None


def in_metric(side: MomentStats) -> Tensor:
    """A side's covariance [n, Hkv, d, d] in its metric."""
    if side.metric is None:
        return side.covariance
    into, _ = side.metric
    dense = into.dim() == side.covariance.dim()
    return into @ side.covariance @ into if dense else rotation.weighted(side.covariance, into)


def find_axes(sides: Sequence[MomentStats], columns: int) -> BitBases:
    """The axes of Keys and Values: those of a calibration in order, or all others from one solve.

    Args:
        sides: both, of one form.
        columns: c.
    """
    if sides[0].shared is not None:
        return ordered_axes(sides)
    found = rotation.ordered_basis(
        torch.cat([in_metric(side).flatten(0, 1) for side in sides]), columns
    )
    grid = 2, *sides[0].rate.shape
    basis, variance = (part.unflatten(0, grid) for part in found)
    turns = [turned(one, side.metric) for one, side in zip(basis, sides, strict=True)]
    rows, scale = rounded(torch.stack([back for _, back in turns]))
    return BitBases([forward for forward, _ in turns], rows, scale, variance, variance)


def unit_energy(sides: Sequence[MomentStats]) -> Tensor:
    """Energy [2, n, Hkv, d] of the channels as they are, in the metric, falling."""
    found = []
    for side in sides:
        own = side.covariance.diagonal(dim1=-2, dim2=-1)
        found.append(own * _weight(side).square())
    return torch.stack(found).sort(-1, descending=True).values


def in_channels(sides: Sequence[MomentStats], layers: int) -> list[MomentStats]:
    """Sides of so many layers whose channels are stored as they are: nothing is turned."""
    return [
        side._replace(shared=[unit_axes(one) for one in _axis_weight(which, side, layers)])
        for which, side in enumerate(sides)
    ]


def _axis_weight(which: int, side: MomentStats, layers: int) -> Tensor:
    """[layers, Hkv, d] what a coordinate is of a channel: of Values, which are the same for all
    samples of a layer, in the metric; a Key's own metric is asked along its axis."""
    weight = _weight(side)[:: len(side.mean) // layers]
    return weight if which else torch.ones_like(weight)


def _weight(side: MomentStats) -> Tensor:
    """[n, Hkv, d] what an error of a channel counts for, by its root."""
    if side.metric is None:
        return torch.ones_like(side.mean, dtype=torch.float32)
    into, _ = side.metric
    return into if into.dim() == side.mean.dim() else into.square().sum(-1).sqrt()


def ordered_axes(sides: Sequence[MomentStats]) -> BitBases:
    """A calibration's axes by the energy that a request's own states have along them.

    The energy of a Key's axis is the variance of its coordinates times what the request's own
    queries, channel by channel, ask along it; the output projection's metric is the file's.
    """
    each = [axes for side in sides for axes in side.shared or ()]
    many = 2 * len(sides[0].mean) // len(each)
    grid = 2, *sides[0].rate.shape
    forward, rows, scale = (
        torch.stack(part).repeat_interleave(many, 0) if many > 1 else torch.stack(part)
        for part in zip(*each, strict=True)
    )
    covariance = torch.cat([side.covariance for side in sides])
    variance = ((covariance @ forward) * forward).sum(-2).clamp(min=0)
    energy, metric = variance, sides[0].metric
    if metric is not None and metric[0].dim() == 3:
        n = len(metric[0])
        asked = (rows[:n].float().square() @ metric[0].square()[..., None])[..., 0]
        energy = torch.cat([variance[:n] * asked * scale[:n].square(), variance[n:]])
    energy, order = energy.sort(-1, descending=True)
    variance, scale = variance.gather(-1, order), scale.gather(-1, order)
    forward = forward.gather(-1, order[..., None, :].expand_as(forward))
    scale, variance, energy, order = (
        part.unflatten(0, grid[:2]) for part in (scale, variance, energy, order)
    )
    lent = [one.rows for one in each]
    return BitBases(forward.chunk(2), None, scale, variance, energy, order, lent)


def offered_axes(sides: Sequence[MomentStats], columns: int) -> tuple[BitBases, Tensor]:
    """The axes that are offered, by the energy that a request's own states have along them.

    Coordinates are those of the nearest state that the rows make, in the request's own metric.

    Args:
        sides: both, with `offered`.
        columns: c; where fewer are offered, the others have no energy.

    Returns:
        the axes, and the energy [2, n, Hkv] that they leave out.
    """
    found, left = [], []
    for side in sides:
        axes = held(side.offered)
        many = len(side.mean) // len(axes)
        rows = torch.stack([one.rows for one in axes]).repeat_interleave(many, 0)
        scale = torch.stack([one.scale for one in axes]).repeat_interleave(many, 0)
        back = rows * scale[..., None]
        weighed = back.mT
        if side.metric is not None:
            into = side.metric[0]
            dense = into.dim() == side.covariance.dim()
            weighed = into @ (into @ weighed) if dense else into.square()[..., None] * weighed
        gram = back @ weighed
        asked = gram.diagonal(dim1=-2, dim2=-1)
        ridge = torch.diag_embed(asked * RIDGE + 1e-30)
        forward = torch.linalg.solve_ex(gram + ridge, weighed.mT).result.mT
        variance = ((side.covariance @ forward) * forward).sum(-2).clamp(min=0)
        energy, order = (variance * asked).sort(-1, descending=True)
        forward = forward.gather(-1, order[..., None, :].expand_as(forward))
        parts = forward, scale.gather(-1, order), variance.gather(-1, order), energy, order
        lacking = columns - energy.shape[-1]
        found.append([pad(part, (0, lacking)) for part in parts])
        whole = in_metric(side).diagonal(dim1=-2, dim2=-1).sum(-1)
        left.append((whole - energy.sum(-1)).clamp(min=0))
    forwards, *others = zip(*found, strict=True)
    scales, variances, energies, numbers = (torch.stack(part) for part in others)
    lent = [one.rows for side in sides for one in held(side.offered)]
    taken = BitBases(forwards, None, scales, variances, energies, numbers, lent)
    return taken, torch.stack(left)


def partly_turned(turned_: BitBases, plain: BitBases, which: Sequence[bool]) -> BitBases:
    """Axes of `plain` for the Keys, and for the Values, where `which` says so, else `turned_`."""
    each = [plain if chosen else turned_ for chosen in which]
    scale, variance, energy = (
        torch.stack([getattr(axes, name)[side] for side, axes in enumerate(each)])
        for name in ("scale", "variance", "energy")
    )
    rows = list(plain.lent or ())
    half = len(rows) // 2
    keys, values = (
        own if chosen else [None] * half
        for own, chosen in zip((rows[:half], rows[half:]), which, strict=True)
    )
    forward = [axes.forward[side] for side, axes in enumerate(each)]
    lent = [*keys, *values]
    return BitBases(forward, turned_.rows, scale, variance, energy, plain.numbers, lent)
