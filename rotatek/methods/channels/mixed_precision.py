"""The bits of RotateK: rotated channels, each stored with bits by its share of the error.

Keys are x = (K - mu) S R, S the queries' root mean square over sqrt(d): there the variance of a
channel is the variance of a logit's error, and decoding asks (q S^-1) R. Values are
(V - mu_v) S_o U in the output projection's metric, and U^T S_o^-1 turns the sum back. Tokens count
by the power `TOKEN_POWER` of the attention that the prompt's last queries give them, and heads by
what an error of theirs does to the output (`importance`): one budget serves Keys and Values.

Levels are symmetric and mid-rise, with one step a channel. A head's basis is stored as int8 rows
for the channels that got bits; a row's scale and its channel's step are one number. With a
calibration the axes are the file's, in the order of the request's own variances: nothing is solved,
and a head holds the numbers of its axes in place of their rows. So it does where channels are
stored as they are: under a budget of bytes, where the rows would cost more than they save.
"""

from collections.abc import Hashable, Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from kernels.dispatch import solve
from kernels.packing_plain import pack_on_processor
from kernels.planes import (
    GRANULE,
    Channels,
    Planes,
    coordinates_of,
    counts_of,
    pack,
    steps_along,
)
from kernels.reference import Text, Visual
from kernels.window_attention_reference import Window
from rotatek.bridge.attention import pause
from rotatek.errors import CalibrationUnusable
from rotatek.methods import rotation
from rotatek.methods.channels.base import LayerStates, Rest
from rotatek.methods.channels.batched_rotation import LayerGroup, held, layered
from rotatek.methods.channels.bit_allocation import allot_groups, joined
from rotatek.methods.channels.bit_bases import BitBases, MomentStats, find_axes
from rotatek.methods.channels.byte_budget import within
from rotatek.methods.channels.host_copies import to_device, to_host
from rotatek.methods.channels.layer_batch import Batch, BitStore, LayersOfOneForm
from rotatek.methods.channels.token_importance import STREAM_POWER, Importance, importance
from rotatek.methods.rotation.stored_bases import LayerAxes

DEEPEST: Final = 8  # bits of a stored channel, at most
LEAST_BITS: Final = 0.25  # a number, on average
LEAST_TIMES: Final = 2  # smaller than 16 bits: what 8 bits a number come to
MOST_TIMES: Final = 64
PLAIN: Final = 16  # bits of a number as it is
TOKEN_POWER: Final = 0.75  # of a token's attention: what it counts for
TOKEN_FLOOR: Final = 0.05  # of the mean attention: later queries may read any token
# Columns of a basis that are worked out where a number has half a bit or fewer. Few heads would use
# more there, and the solver takes longer with each; at .75 and 1 bit single heads miss the others.
CAP: Final = 96
WIDE_CAP: Final = 3 / 8  # of the columns of heads so wide that this is more
CAPPED: Final = 0.5


def calibrated(states: LayerStates) -> LayerAxes | None:
    """The axes of a calibration that a layer was given, if any.

    Raises:
        CalibrationUnusable: where they are those of another model.
    """
    axes = states.basis
    if not isinstance(axes, LayerAxes):
        return None
    heads, d = states.keys.shape[1::2]
    shape = axes.keys.rows.shape
    if (shape[0], shape[2]) != (heads, d) or not (axes.offered or shape[1] == d):
        raise CalibrationUnusable
    return axes


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


def importance_of(layers: LayerGroup, window: Window | None = None) -> Importance:
    """`importance` of layers of one form, computed once; window: of these layers, if known."""

    def make() -> Importance:
        rows, gains = zip(*(residual(part) for part in layers.parts), strict=True)
        return importance(window or window_of(layers), _all(rows), _all(gains))

    return layers.cached("looks", make)


def _joined_text(texts: Sequence[Text]) -> Text:
    """Layers' texts as one layer's."""
    lengths = [text.lengths for text in texts if text.lengths is not None]
    keys, values = [text.keys for text in texts], [text.values for text in texts]
    return Text(joined(keys, 0), joined(values, 0), joined(lengths, 0) if lengths else None)


def residual(states: LayerStates) -> tuple[Tensor | None, Tensor | None]:
    """The window's rows before the layer, which may come from another device, and by how much a
    norm changes what the layer adds to them; called while the layer is filled."""

    def make() -> tuple[Tensor | None, Tensor | None]:
        found = [given and given() for given in (states.entering, states.gain)]
        rows, gain = (None if one is None else one.to(states.keys.device) for one in found)
        return rows, gain

    return states.cached("residual", make)


def _all(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Those of all layers joined; None where one is not known."""
    known = [part for part in parts if part is not None]
    return joined(known, 0) if len(known) == len(parts) else None


def metric_of(layers: LayerGroup) -> tuple[Tensor, Tensor] | None:
    """S of the output projections and its inverse, [n, Hkv, d, d]; None where not known."""
    known = [part.value_metric for part in layers.parts if part.value_metric is not None]
    if not known:
        return None
    root, inverse = zip(*known, strict=True)
    return layers.cached("metric", lambda: (layers.spread(root), layers.spread(inverse)))


def moments(
    layers: LayerGroup,
    weighting: str = "paper",
    window: Window | None = None,
    power: float = STREAM_POWER,
) -> tuple[MomentStats, MomentStats]:
    """Means, covariances and rates of layers alike, of Keys and of Values; nothing waits.

    The metric of Keys is the logits', unweighted if so `weighting`; that of Values the output
    projection's where it is known. window: `window_of` the layers, if the caller has it; power: of
    the residual stream's size that rates are relative to.
    """
    window = window or window_of(layers)
    seen, shares = importance_of(layers, window).over(power), shares_of(layers, window)
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


def measure(
    stores: Sequence[BitStore], weighting: str, power: float = STREAM_POWER
) -> LayersOfOneForm:
    """Moments and rates of layers alike, as `moments`, for `allotted`."""
    layers = LayerGroup([held(store.pending) for store in stores])
    window = window_of(layers)
    sides = moments(layers, weighting, window, power)
    known = [calibrated(part) for part in layers.parts]
    given = [axes.on(sides[0].mean.device) for axes in known if axes is not None]
    if given:
        keys, values = zip(*given, strict=True)
        if any(axes is not None and axes.offered for axes in known):
            sides = sides[0]._replace(offered=keys), sides[1]._replace(offered=values)
        else:
            sides = sides[0]._replace(shared=keys), sides[1]._replace(shared=values)
    group = LayersOfOneForm(stores, layers, shares_of(layers, window), sides)
    for store, axes in zip(stores, known, strict=True):
        replaced = axes is not None and not axes.offered
        store.group, store.calibration = group, axes.digest if axes and replaced else ""
    return group


def allotted(groups: Sequence[LayersOfOneForm], bits: float, smaller: float | None = None) -> Rest:
    """Allot the bits of layers, all together. Their numbers are on the way to the host then.

    Args:
        groups: those that share a budget.
        bits: a number, on average.
        smaller: how many times fewer bytes each sample's visual tokens are to take, with all that
            is stored for them; then `bits` is what that comes to before anything is counted.

    Returns:
        the rest: wait for these numbers, then quantise and pack the layers group by group.
    """
    place = groups[0].shares.device
    alike: dict[Hashable, list[LayersOfOneForm]] = {}
    for group in groups:
        alike.setdefault(tuple(side.form for side in group.sides), []).append(group)
    batches = [Batch(each) for each in alike.values()]
    axes = [find_axes(batch.sides, _columns(batch.width, bits)) for batch in batches]
    if smaller is None:
        claims = [
            batch.demand(found.energy, batch.lengths, found.numbers is not None, place)
            for batch, found in zip(batches, axes, strict=True)
        ]
        found_bits = allot_groups(claims, bits)
    else:
        axes, found_bits = within(batches, axes, smaller, place)
    depths = [found.permute(2, 0, 1, 3, 4) for found in found_bits]
    levels = [GRANULE * counts_of(each.flatten(0, 2)) for each in depths]  # [2 n, Hkv, 4]
    counts = to_host(joined([each.flatten(0, 1) for each in levels], 0))

    def rest() -> None:
        tables = counts().split([each.shape[0] * each.shape[1] for each in levels])  # the one wait
        for batch, found, own, table in zip(batches, axes, levels, tables, strict=True):
            pause()
            _finish(batch, _planes(batch, found, own.to(batch.sides[0].mean.device), table))

    return rest


def _columns(d: int, bits: float) -> int:
    """Columns of a basis that are worked out for so many bits a number."""
    return min(d, max(CAP, int(WIDE_CAP * d))) if bits <= CAPPED else d


def _finish(batch: Batch, planes: Sequence[Planes]) -> None:
    """Put the packed numbers into a batch's stores; planes: of all Keys, then of all Values."""
    parts = batch.layers.split({"mean": batch.sides[0].mean, "value_mean": batch.sides[1].mean})
    stores = [store for group in batch.groups for store in group.stores]
    keys, values = planes[: len(stores)], planes[len(stores) :]
    for store, own, key, value in zip(stores, parts, keys, values, strict=True):
        states = held(store.pending)
        none = *states.keys.shape[:2], 0, 0
        store.visual = Visual(
            states.keys.new_empty(none),
            states.keys.new_empty(none),
            states.lengths,
            tokens=states.keys.shape[2],
            key_planes=key,
            value_planes=value,
            **own,
        )
        store.pending = store.group = None


def _planes(batch: Batch, axes: BitBases, levels: Tensor, counts: Tensor) -> list[Planes]:
    """Every layer's Keys, then every layer's Values.

    Args:
        batch: of the layers.
        axes: their channels.
        levels: [2 n, Hkv, 4], as `Planes` counts.
        counts: the same on the CPU, [2 n * Hkv, 4].
    """
    _, n, heads, c = axes.energy.shape
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
    lent = axes.lent or [None] * many
    if axes.rows is not None:
        ranked["basis"] = _of_some(axes.rows.flatten(0, 3), row, sizes, [r is None for r in lent])
    if axes.numbers is not None:
        numbers = axes.numbers.flatten().to(torch.uint8)
        ranked["axes"] = _of_some(numbers, row, sizes, [r is not None for r in lent])
        wide = torch.tensor([c if own is None else own.shape[1] for own in lent])
        places = wide[:, None] * torch.arange(heads)
        each["places"] = places.repeat_interleave(2 * n // many, 0).int().to(device)
    samples = 2 * n // many
    ranked |= {name: layered(tensor, samples) for name, tensor in each.items()}
    widest = granules.view(many, -1).amax(1).tolist()
    found = []
    for number, most in enumerate(widest):
        parts = {name: own[number] for name, own in ranked.items()}
        if (rows := lent[number]) is not None:
            parts["basis"] = rows.flatten(0, 1)
        else:
            parts = {name: part for name, part in parts.items() if name not in ("axes", "places")}
        found.append(Planes(**parts, widest=most))
    return found


def _of_some(
    whole: Tensor, rows: Tensor, sizes: Sequence[int], which: Sequence[bool]
) -> Sequence[Tensor]:
    """Rows of `whole` for the layers that have them, in parts of `sizes`; else nothing."""
    if not all(which):
        parts = zip(rows.split(list(sizes)), which, strict=True)
        rows = torch.cat([rows[:0], *(part for part, has in parts if has)])
        sizes = [size if has else 0 for size, has in zip(sizes, which, strict=True)]
    return whole[rows].split(list(sizes))


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
        w = axes.energy.shape[-1]
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
    group: LayersOfOneForm, which: int, channels: Channels, places: Tensor, words: int
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
