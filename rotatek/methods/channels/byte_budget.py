"""Axes and bits under a budget of bytes: bases that cost more than they save are left out."""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from rotatek.methods.channels.bit_allocation import allot_bytes, byte_value, cost_at, mixed
from rotatek.methods.channels.bit_bases import (
    BitBases,
    in_channels,
    ordered_axes,
    partly_turned,
    unit_energy,
)
from rotatek.methods.channels.layer_batch import Batch

MOST_NUMBERED: Final = 256  # channels that one byte tells apart
WIDE: Final = 256  # channels of a head whose rows are dear; at 64 SmolLM2 lost what was promised


def within(
    batches: Sequence[Batch], axes: Sequence[BitBases], smaller: float, place: torch.device
) -> tuple[list[BitBases], list[Tensor]]:
    """Axes and bits under a budget of bytes.

    Keys, and Values, of all layers are turned where that saves more than the rows of the bases
    cost; otherwise channels are stored as they are. (A choice for each layer would gain up to a
    third more, and give each prompt a storage form of its own, so that no two would share a step.)
    The price of a byte is what the last step bought with one, first where all is turned, then with
    the first choice.

    Args:
        batches: all layers.
        axes: of each, for turning.
        smaller: how many times fewer bytes.
        place: where the budget is divided.

    Returns:
        the axes of each batch, and groups of `allot_bytes`.
    """
    numbered = [found.numbers is not None for found in axes]
    energies = [found.energy for found in axes]
    given = list(zip(batches, energies, numbered, strict=True))
    claims = [batch.demand(one, batch.lengths, by, place) for batch, one, by in given]
    budget = torch.stack([batch.budget(smaller, by).to(place) for batch, _, by in given]).sum(0)
    widths = [batch.width for batch in batches]
    fit = min(widths) >= WIDE and max(widths) <= MOST_NUMBERED
    capped = any(one.shape[-1] < d for one, d in zip(energies, widths, strict=True))
    if any(numbered) or not fit or capped:
        return list(axes), allot_bytes(claims, budget)
    loose = [unit_energy(batch.sides) for batch in batches]
    others = [
        batch.demand(one, batch.lengths, True, place)
        for batch, one in zip(batches, loose, strict=True)
    ]
    chosen = claims
    for _ in range(2):
        level = byte_value(chosen, budget)
        costs = [
            torch.stack([cost_at(mine, level).sum(0), cost_at(own, level).sum(0)])
            for mine, own in zip(claims, others, strict=True)
        ]
        turned_, plain = torch.stack(costs).sum(0).tolist()
        unturned = turned_[0] > plain[0], turned_[1] > plain[1]
        if not any(unturned):
            return list(axes), allot_bytes(claims, budget)
        both = zip(claims, others, strict=True)
        chosen = [side for mine, own in both for side in mixed(mine, own, unturned)]
    numbers = torch.stack([batch.budget(smaller, True).to(place) for batch in batches])
    found = allot_bytes(chosen, numbers.sum(0))
    groups = [torch.stack(found[i : i + 2], 2) for i in range(0, len(found), 2)]
    each = zip(batches, axes, strict=True)
    return [_partly(batch, own, unturned) for batch, own in each], groups


def _partly(batch: Batch, turned_: BitBases, unturned: tuple[bool, bool]) -> BitBases:
    """Axes of which those of the Keys, of the Values, or of both are channels."""
    for store in (store for group in batch.groups for store in group.stores):
        store.unturned = "k" * unturned[0] + "v" * unturned[1]
    plain = ordered_axes(in_channels(batch.sides, len(batch.layers.parts)))
    return partly_turned(turned_, plain, unturned)
