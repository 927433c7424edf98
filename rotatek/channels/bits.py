"""The bits of RotateK: rotated channels, each stored at the depth that it earns.

Keys are x = (K - mu) S R, S the queries' root mean square over sqrt(d): there the variance of a
channel is the variance of a logit's error, and decoding asks (q S^-1) R. Values are
(V - mu_v) S_o U in the output projection's metric, and U^T S_o^-1 turns the sum back. Tokens count
by the power `TOKEN_POWER` of the attention that the prompt's last queries give them, and heads by
what an error of theirs does to the output (`looks`): one budget serves Keys and Values.

Levels are symmetric and mid-rise, with one step a channel. A head's basis is stored as int8 rows
for the channels that got bits; a row's scale and its channel's step are one number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch import Tensor

from kernels.dispatch import solve
from kernels.planes import GRANULE, TILE, Planes, counts_of, pack
from kernels.reference import Text, Visual
from rotatek import rotation
from rotatek.channels.base import LayerStates
from rotatek.channels.looks import Looks, Seen, looks
from rotatek.channels.rotated import LikeLayers, held
from rotatek.channels.store import Store
from rotatek.channels.water_filling import COLUMN_EXTRA, Claim, allot_bits

DEEPEST: Final = 8  # bits of a stored channel, at most
LEAST_BITS: Final = 0.25  # a number, on average
PLAIN: Final = 16  # bits of a number as it is
TOKEN_POWER: Final = 0.75  # of a token's attention: what it counts for
TOKEN_FLOOR: Final = 0.05  # of the mean attention: a token not looked at may be read later
SAMPLED: Final = 512  # tokens on which a channel's step is chosen
# Steps of a uniform quantiser of a Gaussian, in standard deviations, and what is tried of them.
STEPS: Final = {2: 0.996, 4: 0.335, 6: 0.104, 8: 0.031}
TRIED: Final = (0.6, 0.75, 0.9, 1.0, 1.15, 1.4)
# Columns of a basis that are worked out where a number has half a bit or fewer. Few heads would use
# more there, and the solver takes longer with each; at .75 and 1 bit single heads miss the others.
CAP: Final = 96
CAPPED: Final = 0.5


class Side(NamedTuple):
    """Keys or Values of layers alike before their axes are found, n samples of all of them.

    mean: [n, Hkv, d] in the model's type; covariance: [n, Hkv, d, d] in the metric; metric: what
    turns into it and back, diagonals [n, Hkv, d] or matrices [n, Hkv, d, d], or None; rate:
    [n, Hkv] what a unit of variance costs the output.
    """

    mean: Tensor
    covariance: Tensor
    metric: tuple[Tensor, Tensor] | None
    rate: Tensor


class Axes(NamedTuple):
    """The rotated channels of a `Side`, c of them by falling variance.

    forward: [n, Hkv, d, c], x - mean to coordinates; rows: [n, Hkv, c, d], coordinates back, int8
    in units of scale [n, Hkv, c]; variance: [n, Hkv, c].
    """

    forward: Tensor
    rows: Tensor
    scale: Tensor
    variance: Tensor


@dataclass
class Group:
    """Layers alike that wait for the others, and what was measured of them."""

    stores: Sequence["BitStore"]
    layers: LikeLayers
    shares: Tensor  # [n, 1, N] of `token_shares`
    sides: tuple[Side, Side]  # of Keys, of Values

    @property
    def lengths(self) -> Tensor:
        """[layers, B] visual tokens."""
        return self.layers.of("lengths").view(len(self.stores), -1)


@dataclass
class BitStore(Store):
    """A store of planes that, until all layers are there, holds the states and their group."""

    waiting: LayerStates | None = None
    group: Group | None = None


def token_shares(mass: Tensor, lengths: Tensor) -> Tensor:
    """[B, 1, N] what every token counts for, of sum one; zero beyond lengths."""
    alive = rotation.token_mask(lengths, mass.shape[-1])
    mass = mass.masked_fill(~alive, 0.0)
    mean = mass.sum(-1, keepdim=True) / lengths.clamp(min=1)[:, None]
    weight = torch.maximum(mass, TOKEN_FLOOR * mean).clamp(min=1e-30).pow(TOKEN_POWER)
    weight = weight.masked_fill(~alive, 0.0)
    return (weight / weight.sum(-1, keepdim=True).clamp(min=1e-30))[:, None]


def looks_of(layers: LikeLayers) -> Looks:
    """`looks` of layers alike, worked out once."""

    def make() -> Looks:
        parts, of = layers.parts, layers.of
        texts = [part.text for part in parts if part.text is not None]
        rows = [entering(part) for part in parts]
        known = [row for row in rows if row is not None]
        return looks(
            Seen(
                of("keys"),
                of("values"),
                of("lengths"),
                of("queries"),
                of("window_alive"),
                metric=_metric(layers, 0),
                text=_joined_text(texts) if texts else None,
                stream=torch.cat(known) if len(known) == len(parts) else None,
            )
        )

    return layers.once("looks", make)


def _joined_text(texts: Sequence[Text]) -> Text:
    """Layers' texts as one layer's."""
    lengths = [text.lengths for text in texts if text.lengths is not None]
    keys, values = torch.cat([text.keys for text in texts]), [text.values for text in texts]
    return Text(keys, torch.cat(values), torch.cat(lengths) if lengths else None)


def entering(states: LayerStates) -> Tensor | None:
    """The window's rows before the layer; to be asked for while it is filled."""
    return states.once("entering", lambda: states.entering and states.entering())


def _metric(layers: LikeLayers, which: int) -> Tensor | None:
    """S of the output projections, or (1) its inverse, [n, Hkv, d, d]; None where not known."""
    known = [part.value_metric[which] for part in layers.parts if part.value_metric is not None]
    return layers.spread(known) if known else None


def measure(stores: Sequence[BitStore], weighting: str) -> Group:
    """Moments and rates of layers alike; nothing waits for the device.

    Keys are in the metric of the logits, unweighted if so `weighting`; Values in the output
    projection's where that is known.
    """
    layers = LikeLayers([held(store.waiting) for store in stores])
    seen = looks_of(layers)
    shares = layers.once("shares", lambda: token_shares(seen.mass, layers.of("lengths")))
    mean, covariance = layers.once(
        "key moments", lambda: rotation.weighted_moments(layers.of("keys"), shares)
    )
    weights = rotation.logit_weights(layers.of("queries"), mean.shape[1], layers.of("window_alive"))
    if weighting == "none":  # the same for all channels, so that heads stay comparable
        weights = weights.square().mean(-1, keepdim=True).sqrt().expand_as(weights)
    turned = rotation.weighted(covariance, weights)
    keys = Side(mean, turned, (weights, 1 / weights), seen.key_rate)
    mean, covariance = layers.once(
        "value moments", lambda: rotation.weighted_moments(layers.of("values"), shares)
    )
    root, inverse = _metric(layers, 0), _metric(layers, 1)
    metric = None if root is None or inverse is None else (root, inverse)
    if root is not None:
        covariance = root @ covariance @ root
    values = Side(mean, covariance, metric, seen.value_rate)
    group = Group(stores, layers, shares, (keys, values))
    for store in stores:
        store.group = group
    return group


def find_axes(sides: Sequence[Side], columns: int) -> list[Axes]:
    """The axes of all sides, from one solve."""
    joined = torch.cat([side.covariance.flatten(0, 1) for side in sides])
    bases, variances = rotation.nested_basis(joined, columns)
    found, first = [], 0
    for side in sides:
        grid = side.rate.shape
        own = slice(first, first + side.rate.numel())
        first = own.stop
        basis, variance = bases[own].unflatten(0, grid), variances[own].unflatten(0, grid)
        forward, rows = basis, basis.mT
        if side.metric is not None:
            into, back = side.metric
            dense = into.dim() == 4
            forward = into @ basis if dense else into[..., None] * basis
            rows = rows @ back if dense else rows * back[:, :, None]
        scale = (rows.abs().amax(-1) / 127).clamp(min=1e-30)
        whole = (rows / scale[..., None]).round().to(torch.int8)
        found.append(Axes(forward, whole, scale, variance))
    return found


def fill(groups: Sequence[Group], bits: float) -> None:
    """Allot the bits of all layers, then quantise and pack them group by group."""
    place = groups[0].shares.device
    d = groups[0].sides[0].mean.shape[-1]
    columns = min(d, CAP) if bits <= CAPPED else d
    axes: dict[int, tuple[Axes, Axes]] = {}
    for device in dict.fromkeys(group.shares.device for group in groups):
        here = [number for number, group in enumerate(groups) if group.shares.device == device]
        found = find_axes([side for number in here for side in groups[number].sides], columns)
        pairs = zip(found[::2], found[1::2], strict=True)
        axes |= dict(zip(here, pairs, strict=True))
    claims = []
    for number, group in enumerate(groups):
        lengths = group.lengths
        for side, own in zip(group.sides, axes[number], strict=True):
            loss = (own.variance * side.rate[..., None]).unflatten(0, lengths.shape)
            claims.append(Claim(loss.to(place), lengths.to(place), d + COLUMN_EXTRA))
    depths = [each.flatten(0, 1) for each in allot_bits(claims, bits, d)]
    counts = torch.cat([counts_of(each).flatten(0, 1) for each in depths]).cpu()  # the one wait
    tables = counts.split([each.shape[0] * each.shape[1] for each in depths])
    for number, group in enumerate(groups):
        both = slice(2 * number, 2 * number + 2)
        keys, values = (
            _planes(group, which, axes[number][which], depth.to(group.shares.device), table)
            for which, (depth, table) in enumerate(zip(depths[both], tables[both], strict=True))
        )
        _finish(group, keys, values)


def _finish(group: Group, keys: Sequence[Planes], values: Sequence[Planes]) -> None:
    """Give the stores of a group what they are to keep."""
    parts = group.layers.split({"mean": group.sides[0].mean, "value_mean": group.sides[1].mean})
    for store, own, key, value in zip(group.stores, parts, keys, values, strict=True):
        states, nothing = held(store.waiting), store.visual.keys[:, :, :0, :0]
        store.visual = Visual(
            nothing.clone(),
            nothing.clone(),
            states.lengths,
            tokens=states.keys.shape[2],
            key_planes=key,
            value_planes=value,
            **own,
        )
        store.waiting = store.group = None


def _planes(group: Group, which: int, axes: Axes, depths: Tensor, counts: Tensor) -> list[Planes]:
    """Every layer's Keys (`which` 0) or Values, at `depths` [n, Hkv, c] bits a channel.

    counts: [n * Hkv, 4] channels of each level, on the CPU.
    """
    n, heads, c = depths.shape
    many, device = len(group.stores), depths.device
    states = group.layers.of(("keys", "values")[which])
    widths = counts[:, 0].long()
    words = counts.long().sum(-1) // GRANULE * (-(-states.shape[2] // TILE) * GRANULE**2)
    w = int(widths.max())
    depths = depths[..., :w]
    steps = chosen_steps(states, group, which, axes, depths)
    offsets = _starts(words)
    tables = torch.stack([offsets, _starts(words.view(many, -1)).flatten()])
    tables = torch.cat([tables, _starts(widths.view(many, -1)).flatten()[None]])
    offsets, own, starts = tables.to(device, non_blocking=True).view(3, n, heads)
    levels = counts_of(depths)
    mean, forward = group.sides[which].mean, axes.forward[..., :w].contiguous()
    done = solve(
        "pack_states", states, mean, forward, levels, steps, bool(which), offsets, int(words.sum())
    )
    if done is None:
        coordinates = (states.float() - mean.float()[:, :, None]) @ forward
        done = pack(coordinates, levels, steps, bool(which))
    row = torch.arange(int(widths.sum())) + torch.repeat_interleave(
        torch.arange(n * heads) * c - _starts(widths), widths
    )
    row = row.to(device, non_blocking=True)
    basis = axes.rows.flatten(0, 2)[row]
    scale = torch.zeros_like(axes.scale)
    scale[..., :w] = axes.scale[..., :w] * steps
    layers = {
        "data": done[0].split(words.view(many, -1).sum(1).tolist()),
        "basis": basis.split(widths.view(many, -1).sum(1).tolist()),
        "steps": scale.flatten()[row].split(widths.view(many, -1).sum(1).tolist()),
    }
    parts = group.layers.split({"counts": levels, "offsets": own.clone(), "starts": starts.int()})
    widest = (counts.sum(-1) // GRANULE).view(many, -1).amax(1).tolist()
    return [
        Planes(**part, **{name: each[number] for name, each in layers.items()}, widest=most)
        for number, (part, most) in enumerate(zip(parts, widest, strict=True))
    ]


def _starts(sizes: Tensor) -> Tensor:
    """Where each of `sizes` [..., n] begins."""
    return sizes.cumsum(-1) - sizes


def chosen_steps(states: Tensor, group: Group, which: int, axes: Axes, depths: Tensor) -> Tensor:
    """The step of every channel [n, Hkv, w]: the best of a few multiples of a Gaussian's.

    Errors are weighed by what tokens count for, over `SAMPLED` of them.
    """
    lengths, mean, w = group.lengths.flatten(), group.sides[which].mean, depths.shape[-1]
    variance = axes.variance[..., :w]
    place = (torch.arange(SAMPLED, device=lengths.device) + 0.5) / SAMPLED
    index = (place * lengths[:, None]).long().clamp(max=states.shape[2] - 1)  # [n, S]
    heads, d = states.shape[1], states.shape[3]
    rows = states.gather(2, index[:, None, :, None].expand(-1, heads, -1, d))
    sample = (rows.float() - mean.float()[:, :, None]) @ axes.forward[..., :w]
    weight = group.shares.gather(2, index[:, None])[..., None]
    usual = torch.zeros_like(variance)
    for bits, step in STEPS.items():
        usual = torch.where(depths == bits, step, usual)
    usual = (usual * variance.sqrt()).clamp(min=1e-30)
    best, least = usual, torch.full_like(usual, float("inf"))
    for multiple in TRIED:
        steps = usual * multiple
        error = ((quantised(sample, steps, depths) - sample).square() * weight).sum(2)
        best = torch.where(error < least, steps, best)
        least = torch.minimum(error, least)
    return best


def quantised(coordinates: Tensor, steps: Tensor, depths: Tensor) -> Tensor:
    """What coordinates [B, Hkv, N, w] become at `depths` bits: whole levels times steps."""
    half = 2.0 ** (depths.float() - 1)[:, :, None]
    level = (coordinates / steps[:, :, None]).floor().clamp(-half, half - 1) + 0.5
    return level * steps[:, :, None] * (depths > 0)[:, :, None]
