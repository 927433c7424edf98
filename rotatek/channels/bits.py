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

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Final, Self

import torch
from torch import Tensor

from kernels.dispatch import solve
from kernels.planes import GRANULE, TILE, Channels, Planes, best_steps, counts_of, pack
from kernels.reference import Text, Visual
from rotatek import rotation
from rotatek.attention import pause
from rotatek.channels.base import LayerStates
from rotatek.channels.bit_axes import Axes, Side, find_axes
from rotatek.channels.looks import Looks, Seen, looks
from rotatek.channels.rotated import LikeLayers, held
from rotatek.channels.store import Store
from rotatek.channels.water_filling import COLUMN_EXTRA, Claim, allot_bits
from rotatek.errors import CalibrationUnusable
from rotatek.rotation.bases import LayerAxes

AXIS_BYTES: Final = 1  # of the number of a calibration's axis
DEEPEST: Final = 8  # bits of a stored channel, at most
LEAST_BITS: Final = 0.25  # a number, on average
PLAIN: Final = 16  # bits of a number as it is
TOKEN_POWER: Final = 0.75  # of a token's attention: what it counts for
TOKEN_FLOOR: Final = 0.05  # of the mean attention: a token not looked at may be read later
# Columns of a basis that are worked out where a number has half a bit or fewer. Few heads would use
# more there, and the solver takes longer with each; at .75 and 1 bit single heads miss the others.
CAP: Final = 96
CAPPED: Final = 0.5


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


def looks_of(layers: LikeLayers, states: tuple[Tensor, Tensor] | None = None) -> Looks:
    """`looks` of layers alike, worked out once; states: their joined Keys and Values."""

    def make() -> Looks:
        parts, of = layers.parts, layers.of
        texts = [part.text for part in parts if part.text is not None]
        rows = [entering(part) for part in parts]
        known = [row for row in rows if row is not None]
        return looks(
            Seen(
                *(states or (of("keys"), of("values"))),
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
    states = layers.of("keys"), layers.of("values")  # joined once
    seen = looks_of(layers, states)
    shares = shares_of(layers)
    mean, covariance = layers.once(
        "key moments", lambda: rotation.weighted_moments(states[0], shares)
    )
    weights = rotation.logit_weights(layers.of("queries"), mean.shape[1], layers.of("window_alive"))
    if weighting == "none":  # the same for all channels, so that heads stay comparable
        weights = weights.square().mean(-1, keepdim=True).sqrt().expand_as(weights)
    keys = Side(mean, covariance, (weights, 1 / weights), seen.key_rate)
    mean, covariance = layers.once(
        "value moments", lambda: rotation.weighted_moments(states[1], shares)
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


@dataclass(frozen=True)
class Batch:
    """Groups whose layers are taken together, n samples of all of them; tokens may differ."""

    groups: Sequence[Group]

    @cached_property
    def layers(self) -> LikeLayers:
        """All layers, of which only what has no tokens may be joined."""
        return LikeLayers([part for group in self.groups for part in group.layers.parts])

    @cached_property
    def sides(self) -> list[Side]:
        """Keys' and Values'."""
        return [Side.joined(each) for each in zip(*(g.sides for g in self.groups), strict=True)]

    @property
    def lengths(self) -> Tensor:
        """[layers, B] visual tokens."""
        return torch.cat([group.lengths for group in self.groups])

    def tiles(self) -> Tensor:
        """Tiles of tokens of every layer, on the CPU."""
        return torch.tensor([-(-part.keys.shape[2] // TILE) for part in self.layers.parts])

    def slices(self) -> Iterator[tuple[Group, slice]]:
        """Every group with its samples."""
        first = 0
        for group in self.groups:
            yield group, slice(first, first := first + len(group.shares))


def fill(groups: Sequence[Group], bits: float) -> None:
    """Allot the bits of all layers, then quantise and pack them group by group."""
    place = groups[0].shares.device
    d = groups[0].sides[0].mean.shape[-1]
    columns = min(d, CAP) if bits <= CAPPED else d
    alike: dict[Hashable, list[Group]] = {}
    for group in groups:
        alike.setdefault(tuple(side.form for side in group.sides), []).append(group)
    batches = [Batch(each) for each in alike.values()]
    axes = [find_axes(batch.sides, columns) for batch in batches]
    claims = []
    for batch, found in zip(batches, axes, strict=True):
        lengths = batch.lengths
        for side, own in zip(batch.sides, found, strict=True):
            loss = (own.energy * side.rate[..., None]).unflatten(0, lengths.shape)
            column = COLUMN_EXTRA + (d if own.numbers is None else AXIS_BYTES)
            claims.append(Claim(loss.to(place), lengths.to(place), column))
    levels = [counts_of(each.flatten(0, 1)) for each in allot_bits(claims, bits, d)]
    counts = torch.cat([each.flatten(0, 1) for each in levels]).cpu()  # the one wait
    tables = counts.split([each.shape[0] * each.shape[1] for each in levels])
    for number, (batch, found) in enumerate(zip(batches, axes, strict=True)):
        pause()
        keys, values = (
            _planes(
                batch, which, found[which], levels[at].to(batch.sides[0].mean.device), tables[at]
            )
            for which, at in enumerate((2 * number, 2 * number + 1))
        )
        _finish(batch, keys, values)


def _finish(batch: Batch, keys: Sequence[Planes], values: Sequence[Planes]) -> None:
    """Give the stores of a batch what they are to keep."""
    parts = batch.layers.split({"mean": batch.sides[0].mean, "value_mean": batch.sides[1].mean})
    stores = [store for group in batch.groups for store in group.stores]
    for store, own, key, value in zip(stores, parts, keys, values, strict=True):
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


def _planes(batch: Batch, which: int, axes: Axes, levels: Tensor, counts: Tensor) -> list[Planes]:
    """Every layer's Keys (`which` 0) or Values, with `levels` [n, Hkv, 4] as `Planes` counts them.

    counts: the same on the CPU, [n * Hkv, 4].
    """
    n, heads, c = axes.energy.shape
    layers, device = batch.layers, levels.device
    many = len(layers.parts)
    widths = counts[:, 0].long()
    words = counts.long().sum(-1).view(many, -1) // GRANULE * batch.tiles()[:, None] * GRANULE**2
    w = int(widths.max())
    places = torch.cat([_starts(words[rows].flatten()) for rows in _layer_rows(batch)])
    tables = torch.stack(
        [places, _starts(words).flatten(), _starts(widths.view(many, -1)).flatten()]
    )
    places, offsets, starts = tables.to(device, non_blocking=True).view(3, n, heads)
    channels = Channels(
        batch.sides[which].mean, axes.forward[..., :w], axes.variance[..., :w], levels
    )
    data: list[Tensor] = []
    steps: list[Tensor] = []
    for (group, rows), own in zip(batch.slices(), _layer_rows(batch), strict=True):
        found = _packed(
            group, which, Channels(*(part[rows] for part in channels)), places[rows],
            int(words[own].sum()),
        )  # fmt: skip
        data += found[0].split(words[own].sum(1).tolist())
        steps.append(found[1])
    row = torch.arange(int(widths.sum())) + torch.repeat_interleave(
        torch.arange(n * heads) * c - _starts(widths), widths
    )
    row = row.to(device, non_blocking=True)
    scale = torch.zeros_like(axes.scale)
    scale[..., :w] = axes.scale[..., :w] * torch.cat(steps)
    sizes = widths.view(many, -1).sum(1).tolist()
    ranked: dict[str, Sequence[Tensor]] = {"data": data, "steps": scale.flatten()[row].split(sizes)}
    each = {"counts": levels, "offsets": offsets.clone(), "starts": starts.int()}
    if isinstance(axes.rows, Tensor):
        ranked["basis"] = axes.rows.flatten(0, 2)[row].split(sizes)
    else:
        ranked["basis"] = [one.flatten(0, 1) for one in axes.rows]
        ranked["axes"] = held(axes.numbers).flatten()[row].to(torch.uint8).split(sizes)
        each["places"] = (torch.arange(heads, device=device).int() * c).expand(n, -1).contiguous()
    widest = (counts.sum(-1) // GRANULE).view(many, -1).amax(1).tolist()
    return [
        Planes(**part, **{name: own[number] for name, own in ranked.items()}, widest=most)
        for number, (part, most) in enumerate(zip(layers.split(each), widest, strict=True))
    ]


def _layer_rows(batch: Batch) -> Iterator[slice]:
    """Every group's layers among the batch's."""
    first = 0
    for group in batch.groups:
        yield slice(first, first := first + len(group.stores))


def _packed(
    group: Group, which: int, channels: Channels, places: Tensor, words: int
) -> tuple[Tensor, Tensor]:
    """A group's digits, `words` of them with heads at `places`, and the steps of its channels."""
    states = group.layers.of(("keys", "values")[which])
    given = (channels, group.shares[:, 0], group.lengths.flatten())
    steps = solve("steps_of", states, *given)
    if steps is None:
        steps = best_steps(states, *given)
    mean, forward, _, levels = channels
    done = solve("pack_states", states, mean, forward, levels, steps, bool(which), places, words)
    if done is None:
        coordinates = (states.float() - mean.float()[:, :, None]) @ forward
        done = pack(coordinates, levels, steps, bool(which))
    return done[0], steps


def _starts(sizes: Tensor) -> Tensor:
    """Where each of `sizes` [..., n] begins."""
    return sizes.cumsum(-1) - sizes
