"""The bits of RotateK: rotated channels, each stored at the depth that it earns.

Keys are x = (K - mu) S R, S the queries' root mean square over sqrt(d): there the variance of a
channel is the variance of a logit's error, and decoding asks (q S^-1) R. Values are
(V - mu_v) S_o U in the output projection's metric, and U^T S_o^-1 turns the sum back. Tokens count
by the power `TOKEN_POWER` of the attention that the prompt's last queries give them, and heads by
what an error of theirs does to the output (`looks`): one budget serves Keys and Values.

Levels are symmetric and mid-rise, with one step a channel. A head's basis is stored as int8 rows
for the channels that got bits; a row's scale and its channel's step are one number. With a
calibration the axes are the file's, in the order of the request's own variances: nothing is solved,
and a head holds the numbers of its axes in place of their rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, NamedTuple, Self

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
from rotatek.errors import CalibrationUnusable
from rotatek.rotation.bases import LayerAxes, SharedAxes, of_basis

AXIS_BYTES: Final = 1  # of the number of a calibration's axis
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

    mean: [n, Hkv, d] in the model's type; covariance: [n, Hkv, d, d]; metric: what turns into it
    and back, diagonals [n, Hkv, d] or matrices [n, Hkv, d, d], or None; rate: [n, Hkv] what a unit
    of variance in the metric costs the output; shared: each layer's axes of a calibration, or None.
    """

    mean: Tensor
    covariance: Tensor
    metric: tuple[Tensor, Tensor] | None
    rate: Tensor
    shared: Sequence[SharedAxes] | None = None


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
    """A store of planes that, until all layers are there, holds the states and their group.

    calibration: the digest of the file whose axes it shares, or nothing.
    """

    per_token: ClassVar[tuple[str, ...]] = Store.per_token

    waiting: LayerStates | None = None
    group: Group | None = None
    calibration: str = ""

    def without_shared(self) -> Self:
        """The same without the rows of a calibration."""
        return self._with_rows(lambda which, planes: planes.basis[:0]) if self.calibration else self

    def with_shared(self, axes: Tensor | LayerAxes | None) -> Self:
        """The same with them again.

        Raises:
            CalibrationUnusable: for the axes of another file, or none.
        """
        if not self.calibration:
            return self
        if not isinstance(axes, LayerAxes) or axes.digest != self.calibration:
            raise CalibrationUnusable(
                "The stored cache shares the axes of a calibration file. Give that very file, "
                "with --calibration or `calibration=`."
            )
        sides = axes.on(self.visual.keys.device)
        return self._with_rows(lambda which, _: sides[which].rows.flatten(0, 1))

    def _with_rows(self, rows: Callable[[int, Planes], Tensor]) -> Self:
        planes = held(self.visual.key_planes), held(self.visual.value_planes)
        keys, values = (one._replace(basis=rows(i, one)) for i, one in enumerate(planes))
        return replace(self, visual=self.visual._replace(key_planes=keys, value_planes=values))


def calibrated(states: LayerStates) -> LayerAxes | None:
    """The axes of a calibration that a layer was given, if any.

    Raises:
        CalibrationUnusable: where they are those of another model.
    """
    axes = states.basis
    if not isinstance(axes, LayerAxes):
        return None
    if axes.keys.scale.shape != (states.keys.shape[1], states.keys.shape[3]):
        raise CalibrationUnusable
    return axes


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


def moments(layers: LikeLayers, weighting: str = "paper") -> tuple[Side, Side]:
    """Means, covariances and rates of layers alike, of Keys and of Values; nothing waits.

    The metric of Keys is the logits', unweighted if so `weighting`; that of Values the output
    projection's where it is known.
    """
    seen = looks_of(layers)
    shares = shares_of(layers)
    mean, covariance = layers.once(
        "key moments", lambda: rotation.weighted_moments(layers.of("keys"), shares)
    )
    weights = rotation.logit_weights(layers.of("queries"), mean.shape[1], layers.of("window_alive"))
    if weighting == "none":  # the same for all channels, so that heads stay comparable
        weights = weights.square().mean(-1, keepdim=True).sqrt().expand_as(weights)
    keys = Side(mean, covariance, (weights, 1 / weights), seen.key_rate)
    mean, covariance = layers.once(
        "value moments", lambda: rotation.weighted_moments(layers.of("values"), shares)
    )
    root, inverse = _metric(layers, 0), _metric(layers, 1)
    metric = None if root is None or inverse is None else (root, inverse)
    return keys, Side(mean, covariance, metric, seen.value_rate)


def shares_of(layers: LikeLayers) -> Tensor:
    """`token_shares` of layers alike, worked out once."""
    return layers.once("shares", lambda: token_shares(looks_of(layers).mass, layers.of("lengths")))


def measure(stores: Sequence[BitStore], weighting: str) -> Group:
    """Moments and rates of layers alike, as `moments`, for `fill`."""
    layers = LikeLayers([held(store.waiting) for store in stores])
    sides = moments(layers, weighting)
    known = [calibrated(part) for part in layers.parts]
    given = [axes.on(sides[0].mean.device) for axes in known if axes is not None]
    if given:
        keys, values = zip(*given, strict=True)
        sides = sides[0]._replace(shared=keys), sides[1]._replace(shared=values)
    group = Group(stores, layers, shares_of(layers), sides)
    for store, axes in zip(stores, known, strict=True):
        store.group, store.calibration = group, "" if axes is None else axes.digest
    return group


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
            loss = (own.energy * side.rate[..., None]).unflatten(0, lengths.shape)
            column = COLUMN_EXTRA + (d if own.numbers is None else AXIS_BYTES)
            claims.append(Claim(loss.to(place), lengths.to(place), column))
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
    scale = torch.zeros_like(axes.scale)
    scale[..., :w] = axes.scale[..., :w] * steps
    sizes = widths.view(many, -1).sum(1).tolist()
    layers: dict[str, Sequence[Tensor]] = {
        "data": done[0].split(words.view(many, -1).sum(1).tolist()),
        "steps": scale.flatten()[row].split(sizes),
    }
    each = {"counts": levels, "offsets": own.clone(), "starts": starts.int()}
    if isinstance(axes.rows, Tensor):
        layers["basis"] = axes.rows.flatten(0, 2)[row].split(sizes)
    else:
        layers["basis"] = [one.flatten(0, 1) for one in axes.rows]
        layers["axes"] = held(axes.numbers).flatten()[row].to(torch.uint8).split(sizes)
        each["places"] = (torch.arange(heads, device=device).int() * c).expand(n, -1).contiguous()
    parts = group.layers.split(each)
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
