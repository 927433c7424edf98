"""Bits by reverse water-filling: every group of channels gets the depth that its energy earns.

A channel of variance v stored at b bits is wrong by v D(b). All groups of all heads and layers,
Keys and Values alike, compete for one budget: the step that lowers the loss most for a byte comes
first, until the tokens' bits are spent. Bytes are those really held: a group's first bits also pay
for its columns of the basis. Source: Huang and Schultheiss 1963; Gersho and Gray 1992.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import torch
from torch import Tensor

from kernels.planes import DEPTHS, GRANULE, TILE

# Share of a Gaussian's variance that a uniform quantiser of so many bits leaves.
DISTORTION: Final = {0: 1.0, 2: 0.119, 4: 0.0115, 6: 0.001, 8: 1e-4}
COLUMN_EXTRA: Final = 4  # bytes of a column of the basis beside its d numbers: its scale


class BitDemand(NamedTuple):
    """What some layers' heads may gain. loss: [n, B, ..., c] weighted energy of channels, falling,
    of heads [...]; tokens: [n, B] that each sample has there; column: bytes of a channel whatever
    the tokens, those of its column of the basis."""

    loss: Tensor
    tokens: Tensor
    column: int


@lru_cache(maxsize=16)
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
    a step of no bits. Behind it the distortions are convex, and every depth is a step.

    Returns:
        bits gained, loss saved of one, bytes a channel: [..., 4] each.
    """
    (saves, weighs), steps = _quantisers(tokens.device)
    rows = ((tokens + (TILE - 1)) // TILE * TILE)[..., None]
    first = (saves / (rows * weighs + column).clamp(min=1e-9)).argmax(-1)
    rise, saved, opens = steps[first].unbind(-2)
    return rise, saved, rows * (rise / 8) + column * opens


def allot_bits(claims: Sequence[BitDemand], bits: float, width: int) -> list[Tensor]:
    """Bits of every channel of every claim, int32 [n, B, ..., c], falling; see `allot_groups`."""
    groups = allot_groups(claims, bits, width)
    return [found.repeat_interleave(GRANULE, -1) for found in groups]


def allot_groups(claims: Sequence[BitDemand], bits: float, width: int) -> list[Tensor]:
    """Bits of every group of `GRANULE` channels, int32 [n, B, ..., c / GRANULE], falling.

    Nothing waits for the device: all claims are on one.

    Args:
        claims: of all layers, Keys and Values.
        bits: mean bits of a number, over all `width` channels of all heads and tokens.
        width: d of a head.
    """
    gains: list[Tensor] = []
    costs: list[Tensor] = []
    rises: list[Tensor] = []
    budgets: list[Tensor] = []
    for claim in claims:
        energy = claim.loss.flatten(2, -2).unflatten(-1, (-1, GRANULE))
        energy = energy.sum(-1, dtype=torch.float64)[..., None]  # [n, B, heads, groups, 1]
        rise, saved, price = _hull(claim.tokens, claim.column)
        gain = energy * (saved / price.clamp(min=1e-9) * (price > 0))[:, :, None, None]
        cost = (rise * (GRANULE * claim.tokens)[..., None])[:, :, None, None].expand_as(gain)
        gains.append(gain.transpose(0, 1).flatten(1))  # [B, steps]
        costs.append(cost.transpose(0, 1).flatten(1))
        rises.append(rise.transpose(0, 1)[:, :, None, None])
        share = bits * width * energy.shape[2] * (1 + 1e-9)
        budgets.append(share * claim.tokens.sum(0).double())
    order = joined(gains, 1).argsort(dim=1, descending=True, stable=True)
    spent = joined(costs, 1).gather(1, order).cumsum(1)
    budget = budgets[0] if len(budgets) == 1 else torch.stack(budgets).sum(0)
    bought = torch.empty_like(order, dtype=torch.bool)
    bought.scatter_(1, order, spent <= budget[:, None])
    found = []
    parts = bought.split([gain.shape[1] for gain in gains], 1)
    for claim, own, rise in zip(claims, parts, rises, strict=True):
        n, B, *heads, c = claim.loss.shape
        got = (own.view(B, n, -1, c // GRANULE, len(DEPTHS)) * rise).sum(-1)
        found.append(got.transpose(0, 1).int().view(n, B, *heads, c // GRANULE))
    return found


def joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """The parts along a dimension; one alone is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim)
