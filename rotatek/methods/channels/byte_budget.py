"""Axes and bits under a budget of bytes: bases that cost more than they save are left out.

In their place are axes that a model offers to all its prompts, or else the channels as they are.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from rotatek.methods.channels.batched_rotation import held
from rotatek.methods.channels.bit_allocation import allot_bytes, byte_value, cost_at, mixed
from rotatek.methods.channels.bit_bases import (
    BitBases,
    in_channels,
    offered_axes,
    ordered_axes,
    partly_turned,
    unit_energy,
)
from rotatek.methods.channels.layer_batch import Batch
from rotatek.methods.rotation.stored_bases import LayerAxes

MOST_NUMBERED: Final = 256  # channels that one byte tells apart
WIDE: Final = 256  # channels of a head whose rows are dear; at 64 SmolLM2 lost what was promised


def within(
    batches: Sequence[Batch], axes: Sequence[BitBases], smaller: float, place: torch.device
) -> tuple[list[BitBases], list[Tensor]]:
    """Axes and bits under a budget of bytes.

    Keys, and Values, of all layers are turned where that saves more than the rows of the bases
    cost; otherwise they take the axes that the model offers, or where it offers none, channels
    are stored as they are. (A choice for each layer would gain up to a
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
    offers = all(batch.sides[0].offered is not None for batch in batches)
    if any(numbered) or not (offers or (fit and not capped)):
        return list(axes), allot_bytes(claims, budget)
    found = zip(batches, energies, strict=True)
    offered = [offered_axes(batch.sides, own.shape[-1]) for batch, own in found] if offers else []
    loose = [one.energy for one, _ in offered] or [unit_energy(batch.sides) for batch in batches]
    others = [
        batch.demand(one, batch.lengths, True, place)
        for batch, one in zip(batches, loose, strict=True)
    ]
    lost = torch.zeros(2, dtype=torch.float64, device=place)  # whatever bits are given
    for batch, (_, left) in zip(batches, offered, strict=False):
        rate = torch.stack([side.rate for side in batch.sides])
        lost += (left * rate).sum((1, 2), dtype=torch.float64).to(place)
    chosen = claims
    for _ in range(2):
        level = byte_value(chosen, budget)
        costs = [
            torch.stack([cost_at(mine, level).sum(0), cost_at(own, level).sum(0)])
            for mine, own in zip(claims, others, strict=True)
        ]
        both_costs = torch.stack(costs).sum(0)
        both_costs[1] += lost
        turned_, plain = both_costs.tolist()
        unturned = turned_[0] > plain[0], turned_[1] > plain[1]
        if not any(unturned):
            return list(axes), allot_bytes(claims, budget)
        both = zip(claims, others, strict=True)
        chosen = [side for mine, own in both for side in mixed(mine, own, unturned)]
    numbers = torch.stack([batch.budget(smaller, True).to(place) for batch in batches])
    sides = allot_bytes(chosen, numbers.sum(0))
    groups = [torch.stack(sides[i : i + 2], 2) for i in range(0, len(sides), 2)]
    if offers:
        taken = zip(batches, axes, offered, strict=True)
        return [_borrowed(batch, own, lent, unturned) for batch, own, (lent, _) in taken], groups
    each = zip(batches, axes, strict=True)
    return [_partly(batch, own, unturned) for batch, own in each], groups


def _borrowed(batch: Batch, own: BitBases, lent: BitBases, which: tuple[bool, bool]) -> BitBases:
    """Axes of which those of the Keys, of the Values, or of both are the model's."""
    for store in (store for group in batch.groups for store in group.stores):
        axes = held(store.pending).basis
        assert isinstance(axes, LayerAxes)
        store.calibration, store.borrowed = axes.digest, "k" * which[0] + "v" * which[1]
    return partly_turned(own, lent, which)


def _partly(batch: Batch, turned_: BitBases, unturned: tuple[bool, bool]) -> BitBases:
    """Axes of which those of the Keys, of the Values, or of both are channels."""
    for store in (store for group in batch.groups for store in group.stores):
        store.unturned = "k" * unturned[0] + "v" * unturned[1]
    plain = ordered_axes(in_channels(batch.sides, len(batch.layers.parts)))
    return partly_turned(turned_, plain, unturned)
