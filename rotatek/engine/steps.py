"""One step of all rows: its pending results, and the tokens chosen from them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rotatek.cache.device_timing import Stopwatch
from rotatek.engine.sequences import SampledToken, Sequence
from rotatek.engine.token_choice import TokenChoice


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
    counters: Any
    watch: Stopwatch
    usual: bool


@torch.inference_mode()
def chosen(
    sequences: list[Sequence], places: list[int], logits: Tensor, choice: TokenChoice, ms: float
) -> list[SampledToken]:
    """The next token of each row, in one transfer to the host.

    Args:
        sequences: the rows.
        places: their indices in the logits.
        logits: [n, vocabulary].
        choice: how tokens are chosen.
        ms: of the step.
    """
    own = [(p, s.choice) for p, s in zip(places, sequences, strict=True) if s.choice is not None]
    best = choice.choose(logits, own)
    logs = logits.log_softmax(-1)
    found = [best.double(), logs.gather(-1, best[:, None])[:, 0].double().exp()]
    pairs = [(places[i], places[first]) for i, first in _pairs(sequences)]
    if pairs:
        mine, first = logs[torch.tensor(pairs, device=logits.device).T]
        found.append((first.exp() * (first - mine)).sum(-1).double())
    most = max(one.sampling.top_logprobs or 0 for one in sequences)
    if most:
        values, index = logs.topk(min(most, logs.shape[-1]))
        found += [values.double().flatten(), index.double().flatten()]
    told = torch.cat(found).tolist()
    count = len(logits)
    kls = dict(zip([place for place, _ in pairs], told[2 * count :], strict=False))
    tops = _tops(told[2 * count + len(pairs) :], count)
    return [
        SampledToken(
            int(told[i]), told[count + i], max(0.0, kls[i]) if i in kls else None, ms,
            tops[i][: one.sampling.top_logprobs] if one.sampling.top_logprobs else (),
        )
        for i, one in zip(places, sequences, strict=True)
    ]  # fmt: skip


def _tops(told: list[float], rows: int) -> list[tuple[tuple[int, float], ...]]:
    """Of each row, the likeliest tokens and their log probabilities, the best first."""
    half, each = len(told) // 2, len(told) // 2 // max(rows, 1)
    pairs = [(int(token), log) for log, token in zip(told[:half], told[half:], strict=True)]
    return [tuple(pairs[row * each : (row + 1) * each]) for row in range(rows)]


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
