"""Who is being answered: rows on their way through the scheduler, their tokens, and counts."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor
from transformers.cache_utils import Cache

from rotatek.bridge.attention import Flag
from rotatek.engine.batch import Watcher


@dataclass(frozen=True)
class SampledToken:
    """One chosen token.

    probability: the model's own of it; kl: KL(first column || this) of the distributions it was
    chosen from, in nats, or None; ms: of the step, which all its rows share.
    """

    token: int
    probability: float
    kl: float | None
    ms: float


@dataclass(eq=False)
class Seat:
    """One row's way through the scheduler, from its prefill's logits to its last token.

    Args:
        cache: filled; empty while the row is in the batch, and whole again once it has left.
        position: of the first new token.
        logits: [1, vocabulary] behind the prompt; let go of once the row has joined.
        limit: new tokens, at most.
        stop: ends the answer early once it is set.
        request: equal for the rows of one request; a larger number is a later one.
        first: the row that this one is compared with.
        watchers: see its queries.

    Attributes:
        blind: whether a failure elsewhere has cost the watchers a step.
    """

    cache: Cache
    position: int
    logits: Tensor
    limit: int
    stop: Flag | None = None
    request: int = 0
    first: "Seat | None" = None
    watchers: Sequence[Watcher] = ()
    blind: bool = False
    picks: deque[SampledToken] = field(default_factory=deque)
    made: int = 0
    token: int = -1
    row: int | None = None  # in the batch
    ended: bool = False
    failure: Exception | None = None


@dataclass
class Counters:
    """What a scheduler has done since it was made."""

    prefills: int = 0
    steps: int = 0
    tokens: int = 0
    shed: int = 0  # requests that left the batch because memory ran out
    failed: int = 0  # rows that failed by themselves
    captures: int = 0  # steps captured as CUDA graphs
