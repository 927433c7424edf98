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
    """What one layer's Keys or Values may gain. loss: [B, Hkv, c] weighted energy of its channels,
    falling; tokens: [B] that each sample has here; d: numbers of a column of its basis, or 0
    where the basis costs nothing."""

    loss: Tensor
    tokens: Tensor
    d: int


@lru_cache(maxsize=1024)
def _hull(tokens: int, d: int) -> tuple[tuple[int, int, float, float], ...]:
    """Steps (from bits, to bits, loss saved of one, bytes a channel) of falling gain per byte."""
    column = d + COLUMN_EXTRA if d else 0
    rows = -(-tokens // TILE) * TILE
    points = [(b, DISTORTION[b], rows * b / 8 + (column if b else 0)) for b in (0, *sorted(DEPTHS))]
    steps, at = [], 0
    while at < len(points) - 1:
        here, rest = points[at], points[at + 1 :]
        slopes = [(here[1] - p[1]) / max(p[2] - here[2], 1e-9) for p in rest]
        best = max(range(len(rest)), key=slopes.__getitem__)
        after = rest[best]
        steps.append((here[0], after[0], here[1] - after[1], after[2] - here[2]))
        at += 1 + best
    return tuple(steps)


def allot_bits(claims: Sequence[Claim], bits: float, width: int) -> list[Tensor]:
    """Bits of every channel of every claim, int32 [B, Hkv, c], falling, on the CPU.

    Args:
        claims: the Keys' and the Values' of every layer.
        bits: mean bits of a number, over all `width` channels of all heads and tokens.
        width: d of a head.
    """
    groups = [claim.loss.unflatten(-1, (-1, GRANULE)).sum(-1).double().cpu() for claim in claims]
    tokens = [claim.tokens.tolist() for claim in claims]
    each = []
    for sample in range(len(tokens[0])):
        own = [g[sample] for g in groups]
        steps = [_hull(int(n[sample]), c.d) for n, c in zip(tokens, claims, strict=True)]
        budget = bits * width * sum(n[sample] * len(g) for n, g in zip(tokens, own, strict=True))
        each.append(_spend(own, steps, [n[sample] for n in tokens], budget))
    return [torch.stack(same).repeat_interleave(GRANULE, -1) for same in zip(*each, strict=True)]


def _spend(
    groups: Sequence[Tensor],
    steps: Sequence[Sequence[tuple[int, int, float, float]]],
    tokens: Sequence[int],
    budget: float,
) -> list[Tensor]:
    """The depth of every group of every claim [Hkv, groups], for `budget` bits of tokens."""
    gains, costs = [], []
    for energy, own, count in zip(groups, steps, tokens, strict=True):
        saved = torch.tensor([step[2] / step[3] if step[3] else 0.0 for step in own])
        rise = torch.tensor([float((step[1] - step[0]) * GRANULE * count) for step in own])
        gains.append((energy[..., None] * saved).flatten())
        costs.append(rise.double().expand(*energy.shape, len(own)).flatten())
    order = torch.cat(gains).argsort(descending=True, stable=True)
    spent = torch.cat(costs)[order].cumsum(0)
    bought = torch.zeros(len(order), dtype=torch.bool)
    bought[order] = spent <= budget * (1 + 1e-9)
    depths = []
    for energy, own, part in zip(
        groups, steps, bought.split([g.numel() for g in gains]), strict=True
    ):
        rises = torch.tensor([step[1] - step[0] for step in own], dtype=torch.int32)
        depths.append((part.view(*energy.shape, len(own)) * rises).sum(-1, dtype=torch.int32))
    return depths
