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
from typing import Final

import torch
from torch import Tensor

from kernels.planes import GRANULE, Planes, counts_of, pack
from kernels.reference import Visual
from rotatek import rotation
from rotatek.channels.base import LayerStates
from rotatek.channels.looks import Looks, looks
from rotatek.channels.rotated import held
from rotatek.channels.store import Store
from rotatek.channels.water_filling import Claim, allot_bits

DEEPEST: Final = 8  # bits of a stored channel, at most
LEAST_BITS: Final = 0.25  # a number, on average
PLAIN: Final = 16  # bits of a number as it is
TOKEN_POWER: Final = 0.75  # of a token's attention: what it counts for
TOKEN_FLOOR: Final = 0.05  # of the mean attention: a token not looked at may be read later
SAMPLED: Final = 512  # tokens on which a channel's step is chosen
# Steps of a uniform quantiser of a Gaussian, in standard deviations, and what is tried of them.
STEPS: Final = {2: 0.996, 4: 0.335, 6: 0.104, 8: 0.031}
TRIED: Final = (0.6, 0.75, 0.9, 1.0, 1.15, 1.4)


@dataclass
class Side:
    """One layer's Keys or Values in their rotated channels, c of them by falling variance.

    mean: [B, Hkv, d] in the model's type; forward: [B, Hkv, d, c], x - mean to coordinates; rows:
    [B, Hkv, c, d], coordinates back; variance: [B, Hkv, c]; rate: [B, Hkv] what a unit of it costs
    the output.
    """

    mean: Tensor
    forward: Tensor
    rows: Tensor
    variance: Tensor
    rate: Tensor

    @property
    def loss(self) -> Tensor:
        """[B, Hkv, c]: squared error of the output where a channel is left out."""
        return self.variance * self.rate[..., None]


@dataclass
class BitStore(Store):
    """A store of planes that, until all layers are there, holds the states and their axes."""

    waiting: LayerStates | None = None
    keys: Side | None = None
    values: Side | None = None


def token_shares(mass: Tensor, lengths: Tensor) -> Tensor:
    """[B, 1, N] what every token counts for, of sum one; zero beyond lengths."""
    alive = rotation.token_mask(lengths, mass.shape[-1])
    mass = mass.masked_fill(~alive, 0.0)
    mean = mass.sum(-1, keepdim=True) / lengths.clamp(min=1)[:, None]
    weight = torch.maximum(mass, TOKEN_FLOOR * mean).clamp(min=1e-30).pow(TOKEN_POWER)
    weight = weight.masked_fill(~alive, 0.0)
    return (weight / weight.sum(-1, keepdim=True).clamp(min=1e-30))[:, None]


def shares_of(states: LayerStates) -> Tensor:
    """`token_shares` of one layer, worked out once."""
    return states.once("shares", lambda: token_shares(seen(states).mass, states.lengths))


def seen(states: LayerStates) -> Looks:
    """`looks` of one layer, worked out once."""
    return states.once("looks", lambda: looks(states))


def key_side(states: LayerStates, weighting: str) -> Side:
    """The Keys' axes of one layer, in the metric of the logits; unweighted if so `weighting`."""
    mean, covariance = states.once(
        "key moments", lambda: rotation.weighted_moments(states.keys, shares_of(states))
    )
    weights = rotation.logit_weights(states.queries, states.keys.shape[1], states.window_alive)
    if weighting == "none":  # the same for all channels, so that heads stay comparable
        weights = weights.square().mean(-1, keepdim=True).sqrt().expand_as(weights)
    basis, variance = states.once(
        ("key axes", weighting), lambda: rotation.full_basis(covariance, weights)
    )
    forward, rows = weights[..., None] * basis, (basis / weights[..., None]).mT
    return Side(mean, forward, rows, variance, seen(states).key_rate)


def value_side(states: LayerStates) -> Side:
    """The Values' axes of one layer, in the output projection's metric where that is known."""
    mean, covariance = states.once(
        "value moments", lambda: rotation.weighted_moments(states.values, shares_of(states))
    )
    metric = states.value_metric
    if metric is not None:
        covariance = metric[0] @ covariance @ metric[0]
    basis, variance = states.once("value axes", lambda: rotation.full_basis(covariance))
    forward, rows = basis, basis.mT
    if metric is not None:
        forward, rows = metric[0] @ basis, basis.mT @ metric[1]
    return Side(mean, forward, rows, variance, seen(states).value_rate)


def find_axes(store: BitStore, weighting: str) -> None:
    """Work out one layer's axes; its states wait for the other layers'."""
    states = held(store.waiting)
    store.keys, store.values = key_side(states, weighting), value_side(states)


def fill(stores: Sequence[BitStore], bits: float) -> None:
    """Allot the bits of all layers, then quantise and pack them one by one."""
    d = held(stores[0].keys).mean.shape[-1]
    sides = [held(side) for store in stores for side in (store.keys, store.values)]
    lengths = [store.visual.lengths for store in stores for _ in range(2)]
    claims = [Claim(side.loss, held(n), d) for side, n in zip(sides, lengths, strict=True)]
    depths = allot_bits(claims, bits, d)
    for number, store in enumerate(stores):
        states, nothing = held(store.waiting), store.visual.keys[:, :, :0, :0]
        own = [part.to(nothing.device) for part in depths[2 * number : 2 * number + 2]]
        keys, values = sides[2 * number : 2 * number + 2]
        store.visual = Visual(
            nothing.clone(),
            nothing.clone(),
            states.lengths,
            mean=keys.mean,
            value_mean=values.mean,
            tokens=states.keys.shape[2],
            key_planes=planes_of(states, keys, own[0]),
            value_planes=planes_of(states, values, own[1], values=True),
        )
        store.waiting = store.keys = store.values = None


def planes_of(states: LayerStates, side: Side, depths: Tensor, values: bool = False) -> Planes:
    """One layer's Keys, or its Values, at `depths` [B, Hkv, c] bits a channel."""
    used = depths > 0
    widths = used.sum(-1)
    w = int(widths.max())
    depths, used = depths[..., :w], used[..., :w]
    numbers = (states.values if values else states.keys).float() - side.mean.float()[:, :, None]
    coordinates = numbers @ side.forward[..., :w]
    steps = chosen_steps(
        coordinates, depths, side.variance[..., :w], shares_of(states), states.lengths
    )
    rows = side.rows[..., :w, :]
    scale = (rows.abs().amax(-1) / 127).clamp(min=1e-30)
    whole = (rows / scale[..., None]).round().to(torch.int8)
    counts = counts_of(depths)
    starts = widths.flatten().cumsum(0).view_as(widths) - widths
    data, offsets = pack(coordinates, counts, steps, values)
    return Planes(
        data=data,
        offsets=offsets,
        basis=whole[used],
        steps=(scale * steps)[used],
        starts=starts.int(),
        counts=counts,
        widest=int(counts.sum(-1).max()) // GRANULE,
    )


def chosen_steps(
    coordinates: Tensor, depths: Tensor, variance: Tensor, shares: Tensor, lengths: Tensor
) -> Tensor:
    """The step of every channel [B, Hkv, w]: the best of a few multiples of a Gaussian's.

    Errors are weighed by what tokens count for, over `SAMPLED` of them.
    """
    place = (torch.arange(SAMPLED, device=lengths.device) + 0.5) / SAMPLED
    index = (place * lengths[:, None]).long().clamp(max=coordinates.shape[2] - 1)  # [B, S]
    sample = coordinates.gather(
        2, index[:, None, :, None].expand(*depths.shape[:2], -1, depths.shape[2])
    )
    weight = shares.gather(2, index[:, None])[..., None]
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
