"""One step of all rows: its pending results, and the tokens chosen from them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rotatek.cache.device_timing import Stopwatch
from rotatek.engine.sequences import SampledToken, Sequence


@dataclass(frozen=True)
class PendingStep:
    """A step that has been launched.

    sequences: its rows; places: their indices in the logits [rows, vocabulary];
    counters: for `RunningBatch.rewind`; watch: its timer; usual: whether steps mostly take as
    long, unlike one that is launched kernel by kernel or captured where others are replayed.
    """

    sequences: list[Sequence]
    places: list[int]
    logits: Tensor
    counters: list[Any]
    watch: Stopwatch
    usual: bool


@torch.inference_mode()
def chosen(
    sequences: list[Sequence], places: list[int], logits: Tensor, banned: Tensor, ms: float
) -> list[SampledToken]:
    """The likeliest token of each row that is not banned, in one transfer to the host.

    Args:
        sequences: the rows.
        places: their indices in the logits.
        logits: [n, vocabulary].
        banned: tokens that are never chosen.
        ms: of the step.
    """
    best = logits.index_fill(-1, banned, float("-inf")).argmax(-1)
    logs = logits.log_softmax(-1)
    found = [best.double(), logs.gather(-1, best[:, None])[:, 0].double().exp()]
    pairs = [(places[i], places[first]) for i, first in _pairs(sequences)]
    if pairs:
        own, first = logs[torch.tensor(pairs, device=logs.device).T]
        found.append((first.exp() * (first - own)).sum(-1).double())
    told = torch.cat(found).tolist()
    count = len(logits)
    kls = dict(zip([place for place, _ in pairs], told[2 * count :], strict=True))
    return [
        SampledToken(int(told[i]), told[count + i], max(0.0, kls[i]) if i in kls else None, ms)
        for i in places
    ]


def _pairs(sequences: list[Sequence]) -> list[tuple[int, int]]:
    """(row, the row it is compared with) where both are at the same token."""
    compared = [one for one in sequences if one.first is not None]
    if not compared:
        return []
    places = {id(one): place for place, one in enumerate(sequences)}
    return [
        (places[id(one)], places[id(one.first)])
        for one in compared
        if one.first is not None and id(one.first) in places and one.first.made == one.made
    ]
