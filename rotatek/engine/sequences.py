"""One row of the running batch: its cache, its tokens, and how the next one is chosen."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from rotatek.bridge.attention import StopFlag
from rotatek.engine.token_choice import RowChoice, TokenChoice
from rotatek.inputs.sampling import GREEDY, Sampling

Watcher = Callable[[int, Tensor], None]  # (layer, query [1, Hq, 1, d]) of one row


class SampledToken(NamedTuple):
    """One chosen token.

    probability: the model's own of it; kl: KL(first column || this) of the distributions it was
    chosen from, in nats, or None; ms: of the step, which all its rows share; top: the likeliest
    tokens and their log probabilities, where they are asked for.
    """

    token: int
    probability: float
    kl: float | None
    ms: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(eq=False)
class Sequence:
    """One answer to one question, from its first token to its last.

    Args:
        cache: that has read the question; empty while the row is in the batch, and complete again
            once it has left.
        logits: [1, vocabulary] behind the question, until the row has joined the batch.
        start: position of the answer's first token.
        limit: new tokens, at most.
        stop: ends the answer early once it is set.
        sampling: how its tokens are chosen; choice: what chooses them, None where the likeliest
            ones are.
        request: equal for the rows of one request; a larger number is a later one.
        first: the row that this one is compared with.
        watcher: records its queries.
        needed: whether its cache is read once the answer has ended; otherwise it stays empty.

    Attributes:
        missed: whether the watcher has missed a step, which would shift its figures.
        picks: its tokens so far; taken: how many of them the caller has.
        joined: whether it is in the batch; ended: nothing more comes.
    """

    cache: Cache
    logits: Tensor | None
    start: int
    limit: int
    stop: StopFlag | None = None
    sampling: Sampling = GREEDY
    choice: RowChoice | None = None
    request: int = 0
    first: "Sequence | None" = None
    watcher: Watcher | None = None
    needed: bool = True
    missed: bool = False
    picks: list[SampledToken] = field(default_factory=list)
    taken: int = 0
    joined: bool = False
    ended: bool = False
    failure: Exception | None = None

    @property
    def fed(self) -> tuple[int, int]:
        """The latest token and its position: what the next step reads."""
        return self.picks[-1].token, self.start + len(self.picks) - 1

    def end(self) -> None:
        """Nothing more comes, and what has not been taken is forgotten."""
        self.ended = True
        del self.picks[self.taken :]


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
        if one.first is not None
        and id(one.first) in places
        and len(one.first.picks) == len(one.picks)
    ]
