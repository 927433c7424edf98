"""Per-head widths under one budget: give every head the channels its spectrum earns."""

from collections.abc import Sequence

import torch
from torch import Tensor

STEP = 4  # channels are handed out in fours, so that rows stay aligned for the kernels


def allot(energies: Sequence[Tensor], budget: int) -> list[Tensor]:
    """Widths per layer, int32 [B, Hkv], from energies [B, Hkv, cap] in falling order.

    The largest eigenvalues of all heads of all layers win, in groups of four, until a mean of
    `budget` channels a head is spent; every head gets at least one group.
    """
    device = energies[0].device
    groups = torch.cat([e.to(device).unflatten(-1, (-1, STEP)).sum(-1) for e in energies], 1)
    heads, per_head = groups.shape[1:]
    groups[..., 0] = float("inf")
    share = min(max(heads, round(budget * heads / STEP)), heads * per_head)
    best = groups.flatten(1).topk(share, dim=-1).indices
    owned = torch.zeros_like(groups.flatten(1), dtype=torch.int32).scatter_(1, best, STEP)
    widths = owned.view_as(groups).sum(-1, dtype=torch.int32)
    parts = widths.split([e.shape[1] for e in energies], dim=1)
    return [part.contiguous().to(e.device) for part, e in zip(parts, energies, strict=True)]


def narrow(states: Tensor, widths: Tensor) -> tuple[Tensor, Tensor]:
    """Cut states [B, Hkv, N, cap] to each head's width.

    Returns the 1-D concatenation of row-major [N, width] blocks and their offsets [B, Hkv] int64.
    """
    sizes = widths.long() * states.shape[2]
    offsets = sizes.flatten().cumsum(0).view_as(sizes) - sizes
    blocks = [
        states[b, h, :, :width].reshape(-1)
        for b, row in enumerate(widths.tolist())
        for h, width in enumerate(row)
    ]
    return torch.cat(blocks), offsets


def take_samples(
    flat: Tensor, widths: Tensor, tokens: int, samples: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """What `narrow` made of some samples, from what it made of all.

    Args:
        flat: 1-D, the blocks of every sample.
        widths: [B, Hkv] of every head.
        tokens: N, rows of each block.
        samples: which to take, in this order.

    Returns:
        Their blocks, 1-D, and the blocks' offsets [samples, Hkv] int64.
    """
    ends = (widths.long().sum(1) * tokens).cumsum(0).tolist()
    sizes = widths[list(samples)].long() * tokens
    offsets = sizes.flatten().cumsum(0).view_as(sizes) - sizes
    return torch.cat([flat[(ends[b - 1] if b else 0) : ends[b]] for b in samples]), offsets


def head_mask(widths: Tensor, width: int | None = None) -> Tensor:
    """[B, Hkv, width] bool: the directions each head keeps; `width` is the widest's by default."""
    width = int(widths.max()) if width is None else width
    return torch.arange(width, device=widths.device) < widths[..., None]
