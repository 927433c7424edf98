"""`smaller`: rotated channels, each stored with bits by its share of the error.

Keys are x = (K - mu) S R, S the queries' root mean square over sqrt(d): there the variance of a
channel is the variance of a logit's error, and decoding asks (q S^-1) R. Values are
(V - mu_v) S_o U in the output projection's metric, and U^T S_o^-1 turns the sum back. Tokens count
by the power `TOKEN_POWER` of the attention that the prompt's last queries give them, and heads by
what an error of theirs does to the output (`importance`): one budget serves Keys and Values.

Levels are symmetric and mid-rise, with one step a channel. A head's basis is stored as int8 rows
for the channels that got bits; a row's scale and its channel's step are one number.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from kernels.dispatch import has_window_kernel, solve, window_attention
from kernels.packing_plain import pack_on_processor
from kernels.planes import (
    GRANULE,
    TILE,
    Channels,
    Planes,
    coordinates_of,
    counts_of,
    pack,
    steps_along,
)
from kernels.reference import Packed, Text
from kernels.window_attention_reference import Window
from rotatek.bridge.attention import pause
from rotatek.methods import rotation
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.bit_allocation import COLUMN_EXTRA, BitDemand, allot_bytes, joined

LEAST_TIMES: Final = 2  # smaller than 16 bits: what 8 bits a number come to
# Where nothing is chosen: the largest factor at which no split of either embedded model loses more
# than half a point of follow-up questions and the KL of all three text models stays below .02.
# Gemma 3 270M decides: its KL is .012 to .015 at 4 times, and .027 to .029 at 5.
DEFAULT_TIMES: Final = 4
MOST_TIMES: Final = 64
PLAIN: Final = 16  # bits of a number as it is
TOKEN_POWER: Final = 0.75  # of a token's attention: what it counts for
TOKEN_FLOOR: Final = 0.05  # of the mean attention: later queries may read any token
# Columns of a basis that are worked out from `CAPPED` times on. Few heads would use more there, and
# the solver takes longer with each; at 16 and 21 times single heads miss the others.
CAP: Final = 96
WIDE_CAP: Final = 3 / 8  # of the columns of heads so wide that this is more
CAPPED: Final = 32
STREAM_POWER: Final = 0.75  # of the residual stream's squared size: what an output's error is over
TOGETHER: Final = 256 << 20  # bytes of Keys and covariances that are computed together, at most
ALIGNED: Final = 16  # bytes: a kernel is compiled again for a tensor that starts off them
HEAD_BYTES: Final = 28  # of a head's Keys or Values beside the mean: `Planes` counts


@dataclass(frozen=True)
class LayerGroup:
    """Layers of one shape as a single one, whose samples are the first layer's, then the
    second's...

    Results are cached with the first layer's states, for every cache that is filled from them.
    places: of the layers among those that are compressed together.
    """

    parts: Sequence[LayerStates]
    places: Sequence[int] = (0,)

    def cached(self, what: Hashable, make: Callable[[], Any]) -> Any:
        """`make()`, computed once for each `what` of these layers."""
        return self.parts[0].cached((tuple(part.layer for part in self.parts), what), make)

    def of(self, name: str) -> Tensor:
        """That field of all states, [L * B, ...]: joined on each call, so that it can be freed."""
        return joined([getattr(part, name) for part in self.parts], 0)

    def known(self, name: str) -> Tensor | None:
        """The same; None where a layer has none."""
        each = [getattr(part, name) for part in self.parts]
        return None if any(one is None for one in each) else joined(each, 0)

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


def in_groups(layers: Sequence[LayerStates], most: int = TOGETHER) -> Iterator[LayerGroup]:
    """Layers alike, of as many in a row as first have `most` bytes of Keys and covariances."""
    waiting: dict[Hashable, list[int]] = {}
    size = 0
    for place, states in enumerate(layers):
        keys, known = states.keys, states.value_metric is not None
        B, heads, _, d = keys.shape
        # FastV's first layers have more tokens than the others
        waiting.setdefault((keys.device, keys.dtype, keys.shape, known), []).append(place)
        size += keys.nbytes + 4 * B * heads * d * d
        if size >= most or place == len(layers) - 1:
            for places in waiting.values():
                yield LayerGroup([layers[one] for one in places], places)
            waiting, size = {}, 0


class MomentStats(NamedTuple):
    """Keys or Values of layers alike before their axes are found, n samples of all of them.

    mean: [n, Hkv, d] in the model's type; covariance: [n, Hkv, d, d]; metric: what turns into it
    and back, diagonals [n, Hkv, d] or matrices [n, Hkv, d, d], or None; rate: [n, Hkv] what a unit
    of variance in the metric costs the output.
    """

    mean: Tensor
    covariance: Tensor
    metric: tuple[Tensor, Tensor] | None
    rate: Tensor

    @property
    def form(self) -> Hashable:
        """Equal for sides that can be joined."""
        return self.mean.device, self.mean.shape[1:], self.metric is None

    @classmethod
    def joined(cls, sides: Sequence[Self]) -> Self:
        """The samples of sides of one form, in order."""
        if len(sides) == 1:
            return sides[0]
        means, covariances, metrics, rates = zip(*sides, strict=True)
        metric = None
        if metrics[0] is not None:
            into, back = zip(*metrics, strict=True)
            metric = torch.cat(into), torch.cat(back)
        return cls(torch.cat(means), torch.cat(covariances), metric, torch.cat(rates))


class BitBases(NamedTuple):
    """The rotated channels of both sides, Keys first, c of them by falling energy.

    forward: [n, Hkv, d, c] of each, x - mean to coordinates; rows: [2, n, Hkv, c, d], coordinates
    back, int8 in units of scale [2, n, Hkv, c]; variance: [2, n, Hkv, c] of the coordinates in the
    metric.
    """

    forward: Sequence[Tensor]
    rows: Tensor
    scale: Tensor
    variance: Tensor


@dataclass(frozen=True)
class Measured:
    """Layers alike and their measurements.

    shares: [n, 1, N] of `token_shares`; sides: of Keys, of Values.
    """

    layers: LayerGroup
    shares: Tensor
    sides: tuple[MomentStats, MomentStats]

    @cached_property
    def lengths(self) -> Tensor:
        """[layers, B] visual tokens."""
        return self.layers.of("lengths").view(len(self.layers.parts), -1)


@dataclass(frozen=True)
class Batch:
    """Groups whose layers are taken together, n samples of all of them; tokens may differ, and the
    number and width of heads may not."""

    groups: Sequence[Measured]

    @property
    def width(self) -> int:
        """d of a head."""
        return self.sides[0].mean.shape[-1]

    @cached_property
    def layers(self) -> LayerGroup:
        """All layers, of which only what has no tokens may be joined."""
        each = [group.layers for group in self.groups]
        return LayerGroup(
            [p for one in each for p in one.parts], [p for one in each for p in one.places]
        )

    @cached_property
    def sides(self) -> list[MomentStats]:
        """Keys' and Values'."""
        return [
            MomentStats.joined(each) for each in zip(*(g.sides for g in self.groups), strict=True)
        ]

    @cached_property
    def lengths(self) -> Tensor:
        """[layers, B] visual tokens."""
        return joined([group.lengths for group in self.groups], 0)

    def demand(self, energy: Tensor, place: torch.device) -> BitDemand:
        """What the layers may gain, of channels' energy [2, n, Hkv, c], falling; place: where the
        budget is divided."""
        rate = torch.stack([side.rate for side in self.sides])
        loss = (energy * rate[..., None]).unflatten(1, self.lengths.shape)  # [2, layers, B, ...]
        loss = loss.to(place).permute(1, 2, 0, 3, 4)
        return BitDemand(loss, self.lengths.to(place), COLUMN_EXTRA + self.width)

    def tiles(self) -> Tensor:
        """Tiles of tokens of every layer, on the CPU."""
        return torch.tensor([-(-part.keys.shape[2] // TILE) for part in self.layers.parts])

    def budget(self, smaller: float) -> Tensor:
        """[B] bytes for digits and columns that make the visual tokens `smaller` times smaller.

        Every prompt has those that it would have alone: it is not charged for tokens that fill it
        up, nor for a layer in which a window leaves it none.
        """
        _, heads, _, d = self.layers.parts[0].keys.shape
        itemsize = self.layers.parts[0].keys.element_size()
        whole = 2 * heads * d * itemsize * self.lengths.sum(0, dtype=torch.float64)
        head = d * itemsize + HEAD_BYTES
        return whole / smaller - (self.lengths > 0).sum(0) * (2 * heads * head + 4)

    def slices(self) -> Iterator[tuple[Measured, slice]]:
        """Every group with its samples."""
        first = 0
        for group in self.groups:
            yield group, slice(first, first := first + len(group.shares))

    def rows(self) -> Iterator[slice]:
        """Every group's layers among the batch's."""
        first = 0
        for group in self.groups:
            yield slice(first, first := first + len(group.lengths))


class Importance(NamedTuple):
    """Importance in some layers, B of them all together.

    mass: [B, N] mean attention of the window's queries in all heads, at most one in all.
    key_rate, value_rate: [B, Hkv] squared error of the output, relative to the residual stream,
        for a unit of variance.
    """

    mass: Tensor
    key_rate: Tensor
    value_rate: Tensor


def importance_of(layers: LayerGroup, window: Window | None = None) -> Importance:
    """Importance in layers of one form, computed once.

    A head's output is o = sum_n p_n v_n. To first order, an error e_n of token n's logit moves it
    by p_n e_n (v_n - o), and an error x_n of its Value by p_n x_n. Errors of different tokens are
    independent, so their squared sizes in the output projection's metric add up:
        logits of variance E:       E * sum_n p_n^2 |v_n - o|^2   (`key_rate` a unit of variance)
        Values of squared error X:  X * sum_n p_n^2               (`value_rate`)
    Their quotient is the exchange rate between bits of Keys and bits of Values. The effect of such
    an error on later layers depends on the residual stream: both rates are divided by a power of
    its squared size there. Otherwise a model's first layers, where it is small, would get too few.
    Where a norm follows the output projection, as in Gemma, an error is as much
    larger or smaller as the output is behind it.

    window: the queries and what they attend to, of these layers, if known.
    """

    def make() -> Importance:
        seen, stream, gain = (
            window or window_of(layers),
            layers.known("stream"),
            layers.known("gain"),
        )
        heads = seen.keys.shape[1]
        mass, spread, squares = window_attention(seen)
        real = seen.alive.sum(1, keepdim=True).clamp(min=1)  # [B, 1]
        count = real * (seen.queries.shape[1] // heads)
        over = count if gain is None else count / gain.clamp(min=1e-30)[:, None]
        if stream is not None:
            size = (stream.float().square().sum((2, 3)) / real).clamp(min=1e-30)
            over = over * size.pow(STREAM_POWER)
        return Importance(mass / (heads * count), spread / over, squares / over)

    return layers.cached("looks", make)


def token_shares(mass: Tensor, lengths: Tensor) -> Tensor:
    """[B, 1, N] what every token counts for, of sum one; zero beyond lengths."""
    dead = ~rotation.token_mask(lengths, mass.shape[-1])
    mass = mass.masked_fill(dead, 0.0)
    least = TOKEN_FLOOR * mass.sum(-1, keepdim=True) / lengths.clamp(min=1)[:, None]
    weight = torch.maximum(mass, least.clamp(min=1e-30)).pow(TOKEN_POWER).masked_fill(dead, 0.0)
    return (weight / weight.sum(-1, keepdim=True).clamp(min=1e-30))[:, None]


def window_of(layers: LayerGroup) -> Window:
    """The last queries of layers alike and all that they see, joined."""
    of, texts = layers.of, [part.text for part in layers.parts if part.text is not None]
    metric = metric_of(layers)
    return Window(
        of("queries"),
        of("window_alive"),
        of("keys"),
        of("values"),
        of("lengths"),
        _joined_text(texts) if texts else None,
        None if metric is None else metric[0],
    )


def _joined_text(texts: Sequence[Text]) -> Text:
    """Layers' texts as one layer's: those with a window may hold fewer tokens."""
    lengths = [text.lengths for text in texts if text.lengths is not None]
    M = max(text.keys.shape[2] for text in texts)
    states = zip(*((text.keys, text.values) for text in texts), strict=True)
    keys, values = (
        joined([pad(each, (0, 0, 0, M - each.shape[2])) for each in parts], 0) for parts in states
    )
    return Text(keys, values, joined(lengths, 0) if lengths else None)


def metric_of(layers: LayerGroup) -> tuple[Tensor, Tensor] | None:
    """S of the output projections and its inverse, [n, Hkv, d, d]; None where not known."""
    known = [part.value_metric for part in layers.parts if part.value_metric is not None]
    if not known:
        return None
    root, inverse = zip(*known, strict=True)
    return layers.cached("metric", lambda: (layers.spread(root), layers.spread(inverse)))


def moments(
    layers: LayerGroup, weighting: str = "paper", window: Window | None = None
) -> tuple[MomentStats, MomentStats]:
    """Means, covariances and rates of layers alike, of Keys and of Values; nothing waits.

    The metric of Keys is the logits', unweighted if so `weighting`; that of Values the output
    projection's where it is known. window: `window_of` the layers, if the caller has it.
    """
    window = window or window_of(layers)
    seen, shares = importance_of(layers, window), shares_of(layers, window)
    heads, work = window.keys.shape[1], rotation.weighted_moments
    weights = rotation.logit_weights(window.queries, heads, window.alive)
    if weighting == "none":  # the same for all channels, so that heads stay comparable
        weights = weights.square().mean(-1, keepdim=True).sqrt().expand_as(weights)
    mean, covariance = layers.cached("key moments", lambda: work(window.keys, shares))
    keys = MomentStats(mean, covariance, (weights, weights.reciprocal()), seen.key_rate)
    mean, covariance = layers.cached("value moments", lambda: work(window.values, shares))
    return keys, MomentStats(mean, covariance, metric_of(layers), seen.value_rate)


def shares_of(layers: LayerGroup, window: Window | None = None) -> Tensor:
    """`token_shares` of layers alike, worked out once."""
    lengths = layers.of("lengths") if window is None else window.lengths
    return layers.cached(
        "shares", lambda: token_shares(importance_of(layers, window).mass, lengths)
    )


def in_metric(side: MomentStats) -> Tensor:
    """A side's covariance [n, Hkv, d, d] in its metric."""
    if side.metric is None:
        return side.covariance
    into, _ = side.metric
    dense = into.dim() == side.covariance.dim()
    return into @ side.covariance @ into if dense else rotation.weighted(side.covariance, into)


def find_axes(sides: Sequence[MomentStats], columns: int) -> BitBases:
    """The axes of Keys and Values, all from one solve.

    Args:
        sides: both, of one form.
        columns: c.
    """
    found = rotation.ordered_basis(
        torch.cat([in_metric(side).flatten(0, 1) for side in sides]), columns
    )
    grid = 2, *sides[0].rate.shape
    basis, variance = (part.unflatten(0, grid) for part in found)
    turns = [turned(one, side.metric) for one, side in zip(basis, sides, strict=True)]
    rows, scale = rounded(torch.stack([back for _, back in turns]))
    return BitBases([forward for forward, _ in turns], rows, scale, variance)


def turned(basis: Tensor, metric: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    """What turns states to the coordinates of a basis that was found in a metric, and back.

    Args:
        basis: orthonormal columns [..., d, c] in the metric.
        metric: into it and back, diagonals [..., d] or matrices [..., d, d]; None where states are
            in it as they are.

    Returns:
        forward [..., d, c], and back [..., c, d].
    """
    if metric is None:
        return basis, basis.mT
    into, back = metric
    if into.dim() == basis.dim():
        return into @ basis, basis.mT @ back
    return into[..., None] * basis, basis.mT * back[..., None, :]


def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [..., c, d] as int8 [..., c, d] in units of scale [..., c]."""
    if rows.device.type == "cpu":  # a seventh of the time there, and one launch more elsewhere
        largest = rows.abs().amax(-1)
    else:
        largest = torch.linalg.vector_norm(rows, float("inf"), -1)
    scale = (largest / 127).clamp(min=1e-30)
    return (rows / scale[..., None]).round_().to(torch.int8), scale


def compressed(layers: Sequence[LayerStates], smaller: float, weighting: str) -> list[Packed]:
    """The layers of a prompt, all under one budget.

    Args:
        layers: in order; heads may differ in width, and layers in tokens and device.
        smaller: how many times fewer bytes each sample's visual tokens are to take, with all that
            is stored for them.
        weighting: of `moments`.
    """
    most = TOGETHER
    if not all(has_window_kernel(states.keys) for states in layers):
        # plain PyTorch writes scores in float32; a processor's cache holds less, uncopied
        most //= 256 if layers[0].keys.device.type == "cpu" else 8
    groups = []
    for group in in_groups(layers, most):
        window = window_of(group)
        sides = moments(group, weighting, window)
        groups.append(Measured(group, shares_of(group, window), sides))
        pause()
    place = groups[0].shares.device
    alike: dict[Hashable, list[Measured]] = {}
    for one in groups:
        alike.setdefault(tuple(side.form for side in one.sides), []).append(one)
    batches = [Batch(each) for each in alike.values()]
    axes = [find_axes(batch.sides, _columns(batch.width, smaller)) for batch in batches]
    pairs = zip(batches, axes, strict=True)
    claims = [batch.demand(found.variance, place) for batch, found in pairs]
    budget = torch.stack([batch.budget(smaller).to(place) for batch in batches]).sum(0)
    depths = [found.permute(2, 0, 1, 3, 4) for found in allot_bytes(claims, budget)]
    levels = [GRANULE * counts_of(each.flatten(0, 2)) for each in depths]  # [2 n, Hkv, 4]
    counts = joined([each.flatten(0, 1) for each in levels], 0).cpu()  # the one wait
    tables = counts.split([each.shape[0] * each.shape[1] for each in levels])
    made: dict[int, Packed] = {}
    for batch, found, own, table in zip(batches, axes, levels, tables, strict=True):
        pause()
        planes = _planes(batch, found, own.to(batch.sides[0].mean.device), table)
        means = {"mean": batch.sides[0].mean, "value_mean": batch.sides[1].mean}
        parts = zip(batch.layers.places, batch.layers.parts, batch.layers.split(means), strict=True)
        for (number, states, mean), keys, values in zip(
            parts, planes[: len(planes) // 2], planes[len(planes) // 2 :], strict=True
        ):
            made[number] = Packed(keys, values, states.keys.shape[2], states.lengths, **mean)
    return [made[number] for number in range(len(layers))]


def _columns(d: int, smaller: float) -> int:
    """Columns of a basis that are worked out for so many times fewer bytes."""
    return min(d, max(CAP, int(WIDE_CAP * d))) if smaller >= CAPPED else d


def _planes(batch: Batch, axes: BitBases, levels: Tensor, counts: Tensor) -> list[Planes]:
    """Every layer's Keys, then every layer's Values.

    Args:
        batch: of the layers.
        axes: their channels.
        levels: [2 n, Hkv, 4], as `Planes` counts.
        counts: the same on the CPU, [2 n * Hkv, 4].
    """
    _, n, heads, c = axes.variance.shape
    device, many = levels.device, 2 * len(batch.layers.parts)
    widths, granules = counts[:, 0].long(), counts.sum(-1).long() // GRANULE
    words = granules.view(2, many // 2, -1) * batch.tiles()[:, None] * GRANULE**2
    first = joined([_starts(words[:, rows].flatten(1)) for rows in batch.rows()], 1)
    tables = torch.stack(
        [each.flatten() for each in (first, _starts(words), _starts(widths.view(many, -1)))]
    )
    tables = to_device(tables, device).view(3, 2 * n, heads)
    data, steps = _packed(batch, axes, levels, tables[0], words, int(widths.max()))
    row = torch.arange(int(widths.sum())) + torch.repeat_interleave(
        torch.arange(2 * n * heads) * c - _starts(widths), widths
    )
    row = to_device(row, device)
    scale, w = axes.scale, steps.shape[-1]
    scale = scale * steps if w == scale.shape[-1] else pad(scale[..., :w] * steps, (0, c - w))
    sizes = widths.view(many, -1).sum(1).tolist()
    ranked: dict[str, Sequence[Tensor]] = {"data": data, "steps": scale.flatten()[row].split(sizes)}
    each = {"counts": levels, "offsets": tables[1].clone(), "starts": tables[2].int()}
    ranked["basis"] = axes.rows.flatten(0, 3)[row].split(sizes)
    samples = 2 * n // many
    ranked |= {name: layered(tensor, samples) for name, tensor in each.items()}
    widest = granules.view(many, -1).amax(1).tolist()
    return [
        Planes(**{name: own[number] for name, own in ranked.items()}, widest=most)
        for number, most in enumerate(widest)
    ]


def _packed(
    batch: Batch, axes: BitBases, levels: Tensor, places: Tensor, words: Tensor, w: int
) -> tuple[list[Tensor], Tensor]:
    """Digits of every layer's Keys, then of its Values, and the steps of their channels.

    Args:
        batch: of which each group is packed by itself.
        axes: of the batch.
        levels: [2 n, Hkv, 4].
        places: [2 n, Hkv], where heads begin in the digits of their group.
        words: of every head, [2, layers, B * Hkv] on the CPU.
        w: channels of the widest head.

    Returns:
        data of each layer, and steps [2, n, Hkv, w].
    """
    if levels.is_cuda:  # kernels pass over what a head has not, and a slice would be copied
        w = axes.variance.shape[-1]
    data: list[Tensor] = []
    steps: list[Tensor] = []
    n = len(levels) // 2
    for which, side in enumerate(batch.sides):
        own = slice(which * n, (which + 1) * n)
        every = side.mean, axes.forward[which][..., :w], axes.variance[which][..., :w], levels[own]
        for (group, samples), rows in zip(batch.slices(), batch.rows(), strict=True):
            channels = Channels(*(part[samples] for part in every))
            sizes = words[which, rows].sum(1).tolist()
            found = _group_packed(group, which, channels, places[own][samples], sum(sizes))
            data += found[0].split(sizes)
            steps.append(found[1])
    return data, joined(steps, 0).unflatten(0, (2, n))


def _group_packed(
    group: Measured, which: int, channels: Channels, places: Tensor, words: int
) -> tuple[Tensor, Tensor]:
    """A group's digits, `words` of them with heads at `places`, and the steps of its channels."""
    states = group.layers.of(("keys", "values")[which])
    given = (channels, group.shares[:, 0], group.lengths.flatten())
    steps = solve("steps_of", states, *given)
    if steps is None and states.device.type == "cpu":
        return pack_on_processor(states, *given, bool(which))
    if steps is None:
        coordinates = coordinates_of(states, channels)
        steps = steps_along(coordinates, *given)
        return pack(coordinates, channels.counts, steps, bool(which))[0], steps
    mean, forward, _, levels = channels
    done = solve("pack_states", states, mean, forward, levels, steps, bool(which), places, words)
    if done is None:
        done = pack(coordinates_of(states, channels), levels, steps, bool(which))
    return done[0], steps


def _starts(sizes: Tensor) -> Tensor:
    """Where each of `sizes` [..., n] begins."""
    return sizes.cumsum(-1) - sizes


def to_device(made: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device, without waiting: a pageable one is copied in step."""
    return (made.pin_memory() if device.type == "cuda" else made).to(device, non_blocking=True)
