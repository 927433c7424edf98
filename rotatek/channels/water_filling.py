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


class Claim(NamedTuple):
    """What some layers' Keys or Values may gain. loss: [n, B, Hkv, c] weighted energy of channels,
    falling; tokens: [n, B] that each sample has there; column: bytes of a channel whatever the
    tokens, those of its column of the basis."""

    loss: Tensor
    tokens: Tensor
    column: int


@lru_cache(maxsize=16)
def _quantisers(device: torch.device) -> tuple[Tensor, Tensor]:
    """Depths, from none on, and the share that each leaves; constants, copied to a device once."""
    depths = (0, *DEPTHS)
    left = [DISTORTION[depth] for depth in depths]
    double = torch.float64
    return torch.tensor(depths, dtype=double).to(device), torch.tensor(left, dtype=double).to(
        device
    )


def _hull(tokens: Tensor, column: int) -> tuple[Tensor, Tensor, Tensor]:
    """Steps of falling gain per byte, one for each of `DEPTHS`, from tokens [...].

    The first step may pass over depths, since it alone pays for the column; a depth passed over has
    a step of no bits. Behind it the distortions are convex, and every depth is a step.

    Returns:
        bits gained, loss saved of one, bytes a channel: [..., 4] each.
    """
    depths, left = _quantisers(tokens.device)
    rows = (-(-tokens // TILE) * TILE).double()[..., None]
    slopes = (1 - left[1:]) / (rows * depths[1:] / 8 + column).clamp(min=1e-9)
    first = slopes.argmax(-1, keepdim=True)
    place = torch.arange(len(DEPTHS), device=tokens.device)
    below = torch.where(place == first, 0, place)  # the depth that a step begins at, by its number
    rise = torch.where(place < first, 0.0, depths[1:] - depths[below])
    saved = torch.where(place < first, 0.0, left[below] - left[1:])
    return rise, saved, rows * rise / 8 + column * (place == first)


def allot_bits(claims: Sequence[Claim], bits: float, width: int) -> list[Tensor]:
    """Bits of every channel of every claim, int32 [n, B, Hkv, c], falling.

    Nothing waits for the device: all claims are on one.

    Args:
        claims: the Keys' and the Values' of every layer.
        bits: mean bits of a number, over all `width` channels of all heads and tokens.
        width: d of a head.
    """
    gains: list[Tensor] = []
    costs: list[Tensor] = []
    rises: list[Tensor] = []
    budgets: list[Tensor] = []
    for claim in claims:
        energy = claim.loss.unflatten(-1, (-1, GRANULE)).sum(-1).double()[..., None]
        rise, saved, price = (part[:, :, None, None] for part in _hull(claim.tokens, claim.column))
        gain = energy * torch.where(price > 0, saved / price.clamp(min=1e-9), 0.0)
        cost = (rise * GRANULE * claim.tokens[..., None, None, None]).expand_as(gain)
        for found, part in ((gains, gain), (costs, cost), (rises, rise.expand_as(gain))):
            found.append(part.transpose(0, 1).flatten(1))  # [B, steps]
        budgets.append(bits * width * energy.shape[2] * claim.tokens.sum(0).double())
    budget = torch.stack(budgets).sum(0)[:, None] * (1 + 1e-9)
    order = torch.cat(gains, 1).argsort(dim=1, descending=True, stable=True)
    spent = torch.cat(costs, 1).gather(1, order).cumsum(1)
    bought = torch.zeros_like(order, dtype=torch.bool).scatter_(1, order, spent <= budget)
    depths = []
    parts = bought.split([gain.shape[1] for gain in gains], 1)
    for claim, own, rise in zip(claims, parts, rises, strict=True):
        n, B, heads, c = claim.loss.shape
        got = (own * rise).view(B, n, heads, c // GRANULE, len(DEPTHS)).sum(-1).int()
        depths.append(got.transpose(0, 1).repeat_interleave(GRANULE, -1))
    return depths
