"""Bits by reverse water-filling: every group of channels gets the depth that its energy earns.

A channel of variance v stored at b bits is wrong by v D(b). All groups of all heads and layers,
Keys and Values alike, compete for one budget: the step that lowers the loss most for a byte comes
first, until the budget is spent. Bytes are those really held: a group's first bits also pay
for its columns of the basis. Source: Huang and Schultheiss 1963; Gersho and Gray 1992.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from kernels.planes import DEPTHS, GRANULE, TILE

# Share of a Gaussian's variance that a uniform quantiser of so many bits leaves.
DISTORTION: Final = {0: 1.0, 2: 0.119, 4: 0.0115, 6: 0.001, 8: 1e-4}
COLUMN_EXTRA: Final = 4  # bytes of a column of the basis beside its d numbers: its scale
FILLING: Final = 12  # smaller steps that may follow the first one that a budget of bytes cannot pay


class BitDemand(NamedTuple):
    """What some layers' heads may gain."""

    loss: Tensor  # [n, B, ..., c] weighted energy of channels, falling, of heads [...]
    tokens: Tensor  # [n, B] that each sample has there
    column: int  # bytes of a channel's column of the basis, whatever the tokens


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # a tensor for every later call
def _quantisers(device: torch.device) -> tuple[Tensor, Tensor]:
    """Constants, copied to a device once: what each of `DEPTHS` saves of a channel's loss, beside
    its bytes a token; and by the number of the depth that the first step goes to, [4, 3, 4], every
    step's rise in bits, its part of what is saved, and whether it is the first."""
    depths = torch.tensor((0, *DEPTHS), dtype=torch.float64)
    left = torch.tensor([DISTORTION[int(depth)] for depth in depths], dtype=torch.float64)
    steps = torch.zeros(len(DEPTHS), 3, len(DEPTHS), dtype=torch.float64)
    for first in range(len(DEPTHS)):
        for place in range(first, len(DEPTHS)):
            below = 0 if place == first else place
            steps[first, 0, place] = depths[place + 1] - depths[below]
            steps[first, 1, place] = left[below] - left[place + 1]
            steps[first, 2, place] = place == first
    return torch.stack([1 - left[1:], depths[1:] / 8]).to(device), steps.to(device)


def _hull(tokens: Tensor, column: int) -> tuple[Tensor, Tensor, Tensor]:
    """Steps of falling gain per byte, one for each of `DEPTHS`, from tokens [...].

    The first step may pass over depths, since it alone pays for the column; a depth passed over has
    a step of no bits. Behind it the distortions are convex, and every depth is a step. Where there
    are no tokens all steps have no bits and no bytes. Bits gained, loss saved of one, bytes a
    channel: [..., 4] each.
    """
    (saves, weighs), steps = _quantisers(tokens.device)
    rows = ((tokens + (TILE - 1)) // TILE * TILE)[..., None]
    first = (saves / (rows * weighs + column).clamp(min=1e-9)).argmax(-1)
    rise, saved, opens = (steps[first] * (tokens > 0)[..., None, None]).unbind(-2)
    return rise, saved, rows * (rise / 8) + column * opens


def allot_bytes(claims: Sequence[BitDemand], budget: Tensor) -> list[Tensor]:
    """Bits of every group of `GRANULE` channels, int32 [n, B, ..., c / GRANULE], falling.

    A sample's digits and columns are to take `budget` bytes, [B]. Nothing waits for the device: all
    claims, of layers, Keys and Values, are on one; heads of several widths are in claims of their
    own. The steps that gain most for a byte come first. The next one may be too large for what is
    left: then smaller ones fill it, as long as the total comes nearer to the budget.
    """
    ladder = Ladder.of(claims)
    bought = ladder.first_steps(budget.double())
    for _ in range(FILLING):
        bought = ladder.one_more(bought, budget.double())
    return ladder.bits(bought, claims)


class Ladder(NamedTuple):
    """Every step that some group of channels may take, [B, rows, groups, 4] each: a row is a head
    of a layer, and a group's steps follow one another. Groups that a narrower head has not have
    steps of no bits."""

    gain: Tensor  # loss saved a byte
    price: Tensor  # bytes
    up: Tensor  # bits that a channel rises by

    @classmethod
    def of(cls, claims: Sequence[BitDemand]) -> "Ladder":
        found, most = [], max(claim.loss.shape[-1] for claim in claims) // GRANULE
        for claim in claims:
            energy = claim.loss.flatten(2, -2).unflatten(-1, (-1, GRANULE))
            energy = energy.sum(-1, dtype=torch.float64)[..., None]  # [n, B, heads, groups, 1]
            up, saved, price = _hull(claim.tokens, claim.column)
            gain = energy * (saved / price.clamp(min=1e-9) * (price > 0))[:, :, None, None]
            parts = gain, *(each[:, :, None, None] for each in (GRANULE * price, up))
            rows = [each.expand_as(gain).transpose(0, 1).flatten(1, 2) for each in parts]
            lacking = 0, 0, 0, most - gain.shape[-2]
            found.append([pad(each, lacking) for each in rows] if lacking[-1] else rows)
        return cls(*(joined(parts, 1) for parts in zip(*found, strict=True)))

    def first_steps(self, budget: Tensor) -> Tensor:
        """Bool: the steps of most gain that together cost no more than budget [B]."""
        order = self.gain.flatten(1).argsort(dim=1, descending=True, stable=True)
        spent = self.price.flatten(1).gather(1, order).cumsum(1)
        bought = torch.empty_like(order, dtype=torch.bool)
        bought.scatter_(1, order, spent <= budget[:, None])
        return bought.view_as(self.gain)

    def one_more(self, bought: Tensor, budget: Tensor) -> Tensor:
        """`bought` and one step: of those that budget [B] bytes can pay, that of most gain; where
        it can pay none, the cheapest, if that brings the total nearer. It is a group's next one,
        and lifts no group above the stronger one before it."""
        left = (budget - (bought * self.price).sum((1, 2, 3)))[:, None, None, None]
        has = (bought * self.up).sum(-1)
        before = pad(has[..., :-1], (1, 0), value=DEPTHS[-1])
        open_ = ~bought & (self.price > 0)
        able = open_ & (open_.cumsum(-1) == 1) & (has[..., None] + self.up <= before[..., None])
        worth = torch.where(self.price <= left, self.gain, -self.price)
        worth = torch.where(able & (self.price < 2 * left), worth, float("-inf"))
        best = worth.flatten(1).max(1)
        chosen = torch.zeros_like(bought).flatten(1)
        chosen.scatter_(1, best.indices[:, None], best.values.isfinite()[:, None])
        return bought | chosen.view_as(bought)

    def bits(self, bought: Tensor, claims: Sequence[BitDemand]) -> list[Tensor]:
        sizes = [claim.loss[:, 0, ..., 0].numel() for claim in claims]
        found = []
        for claim, own in zip(claims, (bought * self.up).sum(-1).split(sizes, 1), strict=True):
            n, B, *heads, c = claim.loss.shape
            got = own.unflatten(1, (n, -1)).transpose(0, 1)
            found.append(got[..., : c // GRANULE].int().reshape(n, B, *heads, c // GRANULE))
        return found


def joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """The parts along a dimension; one alone is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim)
