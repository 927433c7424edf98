"""Per-head widths under one budget: give every head the channels its spectrum earns."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from kernels.reference import MULTIPLE as STEP  # channels are handed out in so many at once


def allot(
    energies: Sequence[Tensor], budgets: Sequence[int], tokens: Sequence[Tensor] | None = None
) -> list[Tensor]:
    """Widths per layer, int32 [B, Hkv], from energies [B, Hkv, cap] in falling order.

    Groups of four channels of all heads of all layers compete: those of most energy for a byte win,
    until all layers' budgets, every token counted, are spent. Every head gets at least one group.

    Args:
        energies: of each layer, what a channel's loss costs a token, in one unit for all heads; cap
            may differ from layer to layer.
        budgets: channels of a head of each layer, on average.
        tokens: [B] of each layer, which a channel's bytes grow with; the same for all by default.
    """
    device, most = energies[0].device, max(e.shape[-1] for e in energies) // STEP
    sums = [e.to(device).unflatten(-1, (-1, STEP)).sum(-1) for e in energies]
    groups = torch.cat([pad(e, (0, most - e.shape[-1]), value=float("-inf")) for e in sums], 1)
    counts = [e.shape[1] for e in energies]
    if tokens is None:
        price = torch.ones(groups.shape[:2], device=device)
    else:
        each = zip(tokens, counts, strict=True)
        price = torch.cat([n.to(device).float()[:, None].expand(-1, count) for n, count in each], 1)
    gains = groups / price.clamp(min=1)[..., None]
    gains[..., 0] = float("inf")
    order = gains.flatten(1).argsort(dim=-1, descending=True, stable=True)
    cost = price[..., None].expand_as(groups).flatten(1).gather(1, order)
    shares = [budget / STEP for budget, n in zip(budgets, counts, strict=True) for _ in range(n)]
    whole = (torch.tensor(shares, device=device) * price).sum(1, keepdim=True)
    fits = cost.cumsum(1) <= whole + cost / 2
    fits &= gains.flatten(1).gather(1, order) > float("-inf")  # which a narrower head lacks
    fits |= torch.arange(fits.shape[1], device=device) < groups.shape[1]  # one for every head
    owned = torch.zeros_like(order, dtype=torch.int32).scatter_(1, order, STEP * fits.int())
    widths = owned.view_as(groups).sum(-1, dtype=torch.int32)
    parts = widths.split(counts, dim=1)
    return [part.contiguous().to(e.device) for part, e in zip(parts, energies, strict=True)]


def heads_of(spectra: Tensor) -> list[Tensor]:
    """Each layer's spectra [heads, d] from [layers, heads, d], which is negative where a layer has
    fewer heads or its heads fewer channels than another's."""
    there = spectra >= 0
    heads, widths = there[:, :, 0].sum(1).tolist(), there[:, 0].sum(1).tolist()
    return [own[:n, :d] for own, n, d in zip(spectra, heads, widths, strict=True)]


def beside(parts: Sequence[Tensor], like: Tensor) -> Tensor:
    """Each layer's numbers, [heads] or [heads, d], as one tensor, 0 where it has none; like: the
    spectra [layers, heads, d] of `heads_of`."""
    found = parts[0].new_zeros(like.shape[: parts[0].dim() + 1])
    for whole, part in zip(found, parts, strict=True):
        whole[tuple(slice(size) for size in part.shape)] = part
    return found


def narrow(states: Tensor, widths: Tensor) -> tuple[Tensor, Tensor]:
    """Cut states [B, Hkv, N, cap] to each head's width.

    Returns the 1-D concatenation of row-major [N, width] blocks and their offsets [B, Hkv] int64.

    Raises:
        ValueError: for a width that is no multiple of `STEP`, which kernels rely on.
    """
    wanted = widths.tolist()
    if any(width % STEP for row in wanted for width in row):
        raise ValueError(f"Widths of heads must be multiples of {STEP}: {wanted}.")
    sizes = widths.long() * states.shape[2]
    offsets = sizes.flatten().cumsum(0).view_as(sizes) - sizes
    blocks = [
        states[b, h, :, :width].reshape(-1)
        for b, row in enumerate(wanted)
        for h, width in enumerate(row)
    ]
    return torch.cat(blocks), offsets


def take_samples(
    flat: Tensor, widths: Tensor, tokens: int, samples: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """The blocks of some samples, from the blocks of all that `narrow` has made.

    Args:
        flat: 1-D, the blocks of every sample.
        widths: [B, Hkv] of every head.
        tokens: N, rows of each block.
        samples: their indices, in this order.

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
