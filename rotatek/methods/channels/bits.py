"""`smaller`: rotated channels, each stored with bits by its share of the error.

Keys are x = (K - mu) S R, S the queries' root mean square over sqrt(d): there the variance of a
channel is the variance of a logit's error, and decoding asks (q S^-1) R. Values are
(V - mu_v) S_o U in the output projection's metric, and U^T S_o^-1 turns the sum back. Tokens count
by the power `TOKEN_POWER` of the attention that the prompt's last queries give them, and heads by
what an error of theirs does to the output (`measured`): one budget serves Keys and Values.

Levels are symmetric and mid-rise, with one step a channel. A head's basis is stored as int8 rows
for the channels that got bits; a row's scale and its channel's step are one number.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

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
from kernels.reference import Packed, Text, Window
from rotatek.bridge.attention import pause
from rotatek.methods import rotation
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.bit_allocation import COLUMN_EXTRA, BitDemand, allot_bytes, joined

LEAST_TIMES: Final = 2  # smaller than 16 bits: what 8 bits a number come to
# Where nothing is chosen: the largest factor at which neither embedded model loses follow-up
# answers beyond chance and the KL of all three text models stays below .02.
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
    """Layers of one shape, at `places` of those compressed together, as a single one, whose samples
    are the first layer's, then the second's... Results are cached with the first one's states."""

    parts: Sequence[LayerStates]
    places: Sequence[int] = (0,)

    def cached(self, what: Hashable, make: Callable[[], Any]) -> Any:
        return self.parts[0].cached((tuple(part.layer for part in self.parts), what), make)

    def of(self, name: str) -> Any:
        """That field of all states, [L * B, ...], joined on each call, so that it can be freed; or
        None where a layer has none."""
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
    """Keys or Values of layers alike before their axes are found, n samples of all of them."""

    mean: Tensor  # [n, Hkv, d] in the model's type
    covariance: Tensor  # [n, Hkv, d, d]
    metric: tuple[Tensor, Tensor] | None  # into it and back, [n, Hkv, d] or [n, Hkv, d, d] each
    rate: Tensor  # [n, Hkv] what a unit of variance in the metric costs the output

    @property
    def in_metric(self) -> Tensor:
        if self.metric is None:
            return self.covariance
        into, _ = self.metric
        dense = into.dim() == self.covariance.dim()
        return into @ self.covariance @ into if dense else rotation.weighted(self.covariance, into)

    def turned(self, basis: Tensor) -> tuple[Tensor, Tensor]:
        """What turns states to the coordinates of orthonormal columns [..., d, c] in the metric, of
        the same shape, and back, [..., c, d]."""
        if self.metric is None:
            return basis, basis.mT
        into, back = self.metric
        if into.dim() == basis.dim():
            return into @ basis, basis.mT @ back
        return into[..., None] * basis, basis.mT * back[..., None, :]


class BitBases(NamedTuple):
    """The rotated channels of both sides, Keys first, c of them by falling energy."""

    forward: Sequence[Tensor]  # [n, Hkv, d, c] of each, x - mean to coordinates
    rows: Tensor  # [2, n, Hkv, c, d], coordinates back, int8 in units of scale
    scale: Tensor  # [2, n, Hkv, c]
    variance: Tensor  # [2, n, Hkv, c] of the coordinates in the metric


class Measured(NamedTuple):
    """Layers alike and their measurements."""

    layers: LayerGroup
    shares: Tensor  # [n, 1, N] of `token_shares`
    lengths: Tensor  # [layers, B] visual tokens
    sides: tuple[MomentStats, MomentStats]  # of Keys, of Values


def token_shares(mass: Tensor, lengths: Tensor) -> Tensor:
    """[B, 1, N] what every token counts for, of sum one; zero beyond lengths."""
    dead = ~rotation.token_mask(lengths, mass.shape[-1])
    mass = mass.masked_fill(dead, 0.0)
    least = TOKEN_FLOOR * mass.sum(-1, keepdim=True) / lengths.clamp(min=1)[:, None]
    weight = torch.maximum(mass, least.clamp(min=1e-30)).pow(TOKEN_POWER).masked_fill(dead, 0.0)
    return (weight / weight.sum(-1, keepdim=True).clamp(min=1e-30))[:, None]


def measured(layers: LayerGroup, weighting: str) -> Measured:
    """Moments and rates of layers alike, of Keys and of Values; nothing waits.

    The metric of Keys is the logits', unweighted if so `weighting`; that of Values the output
    projection's where it is known.

    A head's output is o = sum_n p_n v_n. To first order, an error e_n of token n's logit moves it
    by p_n e_n (v_n - o), and an error x_n of its Value by p_n x_n. Errors of different tokens are
    independent, so their squared sizes in the output projection's metric add up:
        logits of variance E:       E * sum_n p_n^2 |v_n - o|^2   (the Keys' rate a unit of E)
        Values of squared error X:  X * sum_n p_n^2               (the Values')
    Their quotient is the exchange rate between bits of Keys and bits of Values. The effect of such
    an error on later layers depends on the residual stream: both rates are divided by a power of
    its squared size there. Otherwise a model's first layers, where it is small, would get too few.
    Where a norm follows the output projection, as in Gemma, an error is as much
    larger or smaller as the output is behind it.
    """
    shares, keys, values = layers.cached("moments", lambda: _moments(layers))
    if weighting == "none":  # the same for all channels, so that heads stay comparable
        weights = keys.metric[0].square().mean(-1, keepdim=True).sqrt().expand_as(keys.mean)
        keys = keys._replace(metric=(weights, weights.reciprocal()))
    lengths = layers.of("lengths").view(len(layers.parts), -1)
    return Measured(layers, shares, lengths, (keys, values))


def _moments(layers: LayerGroup) -> tuple[Tensor, MomentStats, MomentStats]:
    of, metric = layers.of, None
    known = [part.value_metric for part in layers.parts if part.value_metric is not None]
    if known:  # S of the output projections and its inverse, [n, Hkv, d, d]
        root, inverse = (layers.spread(each) for each in zip(*known, strict=True))
        metric = root, inverse
    queries, alive, keys, values = (of(n) for n in ("queries", "window_alive", "keys", "values"))
    lengths, text = of("lengths"), _joined_text([part.text for part in layers.parts if part.text])
    seen = Window(queries, alive, keys, values, lengths, text, metric and metric[0])
    mass, spread, squares = window_attention(seen)
    heads, stream, gain = keys.shape[1], of("stream"), of("gain")
    real = alive.sum(1, keepdim=True).clamp(min=1)  # [B, 1]
    count = real * (queries.shape[1] // heads)
    over = count if gain is None else count / gain.clamp(min=1e-30)[:, None]
    if stream is not None:
        size = (stream.float().square().sum((2, 3)) / real).clamp(min=1e-30)
        over = over * size.pow(STREAM_POWER)
    shares = token_shares(mass / (heads * count), lengths)
    weights = rotation.logit_weights(queries, heads, alive)
    own, work = (weights, weights.reciprocal()), rotation.weighted_moments
    both = MomentStats(*work(keys, shares), own, spread / over)
    return shares, both, MomentStats(*work(values, shares), metric, squares / over)


def _joined_text(texts: Sequence[Text]) -> Text | None:
    """Layers' texts as one layer's: those with a window may hold fewer tokens."""
    if not texts:
        return None
    lengths = [text.lengths for text in texts if text.lengths is not None]
    M = max(text.keys.shape[2] for text in texts)
    states = zip(*((text.keys, text.values) for text in texts), strict=True)
    keys, values = (
        joined([pad(each, (0, 0, 0, M - each.shape[2])) for each in parts], 0) for parts in states
    )
    return Text(keys, values, joined(lengths, 0) if lengths else None)


def find_axes(sides: Sequence[MomentStats], capped: bool) -> BitBases:
    """The axes of Keys and Values, all from one solve; capped: no more than `CAP` of a head."""
    d = sides[0].mean.shape[-1]
    columns = min(d, max(CAP, int(WIDE_CAP * d))) if capped else d
    every = torch.cat([side.in_metric.flatten(0, 1) for side in sides])
    found = rotation.ordered_basis(every, columns)
    basis, variance = (part.unflatten(0, (2, *sides[0].rate.shape)) for part in found)
    turns = [side.turned(one) for one, side in zip(basis, sides, strict=True)]
    rows = torch.stack([back for _, back in turns])
    if rows.device.type == "cpu":  # a seventh of the time there, and one launch more elsewhere
        largest = rows.abs().amax(-1)
    else:
        largest = torch.linalg.vector_norm(rows, float("inf"), -1)
    scale = (largest / 127).clamp(min=1e-30)
    rows = (rows / scale[..., None]).round_().to(torch.int8)
    return BitBases([forward for forward, _ in turns], rows, scale, variance)


def compressed(layers: Sequence[LayerStates], smaller: float, weighting: str) -> list[Packed]:
    """The layers of a prompt, in order, whose heads may differ in width, and which may differ in
    tokens and device. Each sample's visual tokens, with all that is stored for them, are to take
    `smaller` times fewer bytes."""
    most = TOGETHER
    if not all(has_window_kernel(states.keys) for states in layers):
        # plain PyTorch writes scores in float32; a processor's cache holds less, uncopied
        most //= 256 if layers[0].keys.device.type == "cpu" else 8
    groups = []
    for alike in in_groups(layers, most):
        groups.append(measured(alike, weighting))
        pause()
    axes = [find_axes(group.sides, smaller >= CAPPED) for group in groups]
    levels = _allotted(groups, axes, smaller)
    counts = joined([each.flatten(0, 1) for each in levels], 0).cpu()  # the one wait
    tables = counts.split([each.shape[0] * each.shape[1] for each in levels])
    made: dict[int, Packed] = {}
    for group, found, own, table in zip(groups, axes, levels, tables, strict=True):
        pause()
        planes = _planes(group, found, own.to(group.shares.device), table)
        keys, values = planes[: len(planes) // 2], planes[len(planes) // 2 :]
        means = group.layers.split({"mean": group.sides[0].mean, "value_mean": group.sides[1].mean})
        every = zip(group.layers.places, group.layers.parts, keys, values, means, strict=True)
        for place, states, key, value, mean in every:
            made[place] = Packed(key, value, states.keys.shape[2], states.lengths, **mean)
    return [made[place] for place in range(len(layers))]


def _allotted(groups: Sequence[Measured], axes: Sequence[BitBases], smaller: float) -> list[Tensor]:
    """Channels of each group with a digit of each level, [2 n, Hkv, 4] int32, on one device. Every
    prompt has the bytes that it would have alone: it is not charged for tokens that fill it up, nor
    for a layer in which a window leaves it none."""
    device = groups[0].shares.device
    claims, whole, fixed = [], list[Tensor](), list[Tensor]()
    for group, found in zip(groups, axes, strict=True):
        keys, lengths = group.layers.parts[0].keys, group.lengths.to(device)
        heads, d, itemsize = keys.shape[1], keys.shape[3], keys.element_size()
        rate = torch.stack([side.rate for side in group.sides])
        loss = (found.variance * rate[..., None]).unflatten(1, lengths.shape)
        loss = loss.to(device).permute(1, 2, 0, 3, 4)  # [layers, B, 2, Hkv, c]
        claims.append(BitDemand(loss, lengths, COLUMN_EXTRA + d))
        whole.append(2 * heads * d * itemsize * lengths.sum(0, dtype=torch.float64))
        fixed.append((lengths > 0).sum(0) * (2 * heads * (d * itemsize + HEAD_BYTES) + 4))
    budget = torch.stack(whole).sum(0) / smaller - torch.stack(fixed).sum(0)
    depths = allot_bytes(claims, budget)
    depths = [each.permute(2, 0, 1, 3, 4).flatten(0, 2) for each in depths]
    return [GRANULE * counts_of(each) for each in depths]


def _planes(group: Measured, axes: BitBases, levels: Tensor, counts: Tensor) -> list[Planes]:
    """Every layer's Keys, then every layer's Values; levels: [2 n, Hkv, 4], as `Planes` counts, and
    the same on the CPU, [2 n * Hkv, 4]."""
    _, n, heads, c = axes.variance.shape
    parts, device = group.layers.parts, levels.device
    many, tiles = 2 * len(parts), -(-parts[0].keys.shape[2] // TILE)
    widths, granules = counts[:, 0].long(), counts.sum(-1).long() // GRANULE
    words = granules.view(many, -1) * tiles * GRANULE**2
    places = _starts(words.view(2, -1)), _starts(words), _starts(widths.view(many, -1))
    tables = to_device(torch.stack([each.flatten() for each in places]), device)
    tables = tables.view(3, 2 * n, heads)
    # kernels pass over what a head has not, and a slice would be copied
    w = c if levels.is_cuda else int(widths.max())
    data: list[Tensor] = []
    steps: list[Tensor] = []
    for which, side in enumerate(group.sides):
        own = slice(which * n, (which + 1) * n)
        along = axes.forward[which][..., :w], axes.variance[which][..., :w]
        sizes = words.view(2, len(parts), -1)[which].sum(1).tolist()
        channels = Channels(side.mean, *along, levels[own])
        found = _packed(group, which, channels, tables[0][own], sum(sizes))
        data += found[0].split(sizes)
        steps.append(found[1])
    row = torch.arange(int(widths.sum())) + torch.repeat_interleave(
        torch.arange(2 * n * heads) * c - _starts(widths), widths
    )
    row = to_device(row, device)
    scale = axes.scale * pad(torch.stack(steps), (0, c - w))
    sizes = widths.view(many, -1).sum(1).tolist()
    ranked: dict[str, Sequence[Tensor]] = {"data": data, "steps": scale.flatten()[row].split(sizes)}
    each = {"counts": levels, "offsets": tables[1].clone(), "starts": tables[2].int()}
    ranked["basis"] = axes.rows.flatten(0, 3)[row].split(sizes)
    ranked |= {name: layered(tensor, 2 * n // many) for name, tensor in each.items()}
    widest = granules.view(many, -1).amax(1).tolist()
    return [
        Planes(**{name: own[number] for name, own in ranked.items()}, widest=most)
        for number, most in enumerate(widest)
    ]


def _packed(
    group: Measured, which: int, channels: Channels, places: Tensor, words: int
) -> tuple[Tensor, Tensor]:
    """The digits of a group's Keys or Values, `words` of them with heads at `places`, and the steps
    of their channels [n, Hkv, w]."""
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
        done = pack(coordinates_of(states, channels), levels, steps, bool(which))[0]
    return done, steps


def _starts(sizes: Tensor) -> Tensor:
    return sizes.cumsum(-1) - sizes


def to_device(made: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device, without waiting: a pageable one is copied in step."""
    return (made.pin_memory() if device.type == "cuda" else made).to(device, non_blocking=True)
