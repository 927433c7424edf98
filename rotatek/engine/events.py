"""The engine's events, and its state. Plain numbers, strings and NumPy arrays."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rotatek.errors import UserError
from rotatek.inputs.token_grid import Grid
from rotatek.inspect.answer_attention import AnswerAttention
from rotatek.inspect.trace import Trace


@dataclass(frozen=True)
class Queued:
    """The request waits until others have freed enough memory for its caches. place: 1 for the one
    that is admitted next. Sent at least once a second, and whenever the place changes."""

    place: int
    column: None = None


@dataclass(frozen=True)
class Prefilled:
    """A column's prompt is read. nominal_kv: share of the visual cache as the paper counts it;
    prompt_tokens: all that the cache has read; kv_bytes_full: an uncompressed cache of these;
    kept: [visual_tokens] bool in reading order, or None where every token stayed;
    grids: rows and columns of each image's visual tokens, empty if unknown;
    attention: "triton" or "reference";
    reused: whether the vision tower's cached output was used."""

    column: str
    prefill_ms: float
    visual_tokens: int
    visual_kept: int
    prompt_tokens: int
    nominal_kv: float
    kv_bytes_full: int
    kept: NDArray[np.bool_] | None
    grids: tuple[Grid, ...]
    attention: str
    reused: bool = False


@dataclass(frozen=True)
class Stored:
    """A column's cache is compressed, which no first token waits for. kv_bytes: live storages."""

    column: str
    kv_bytes: int


@dataclass(frozen=True)
class Likely:
    """A token and how likely the model held it. text: what it says; code: its bytes, which may be a
    part of a character; logprob: in nats."""

    text: str
    code: bytes
    logprob: float


@dataclass(frozen=True)
class Token:
    """One new token. text: its addition to the answer (may be empty inside a character);
    divergent: differs from the first column's token at this index; agrees: whether all tokens of
    this column so far equal the first column's; kl: KL(first column || this) in nats while they
    agree, else None; ms: the forward pass that produced it (0 for the prefill's own token);
    probability: the model's own of this token, whatever it was drawn from; likely: this token and
    the likeliest ones, the best first, where the request asks for log probabilities."""

    column: str
    index: int
    token_id: int
    text: str
    ms: float
    divergent: bool
    kl: float | None = None
    probability: float = 1.0
    likely: tuple[Likely, ...] = ()


@dataclass(frozen=True)
class Finished:
    """A column is done. metrics: see `Engine.compare`; trace: of the column that was recorded;
    attention: where this column attended during its answer, if that was recorded."""

    column: str
    answer: str
    new_tokens: int
    decode_ms_per_token: float
    metrics: dict[str, Any] = field(default_factory=dict)
    trace: Trace | None = None
    attention: AnswerAttention | None = None


@dataclass(frozen=True)
class Restarted:
    """Every column starts again. Earlier events of the answer are void; message is the reason and
    may be shown. max_new_tokens: the new limit where memory ran out, else None."""

    message: str
    max_new_tokens: int | None = None
    column: None = None


@dataclass(frozen=True)
class Failed:
    """The request could not be answered. error: why; its message may be shown."""

    error: UserError
    column: None = None

    @property
    def message(self) -> str:
        """The error's sentence."""
        return self.error.message


Event = Queued | Prefilled | Stored | Token | Finished | Restarted | Failed


@dataclass(frozen=True)
class Health:
    """able: whether requests can be answered; attention: "triton" or "reference", and why."""

    able: bool
    device: str
    attention: str
    reason: str


@dataclass
class Counters:
    """An engine's totals since its start.

    prefills: rows; steps; tokens; shed: requests that ran out of memory; failed: rows that did by
    themselves.
    """

    prefills: int = 0
    steps: int = 0
    tokens: int = 0
    shed: int = 0
    failed: int = 0


@dataclass
class EngineState(Counters):
    """An engine's totals, and its present work.

    running, waiting: requests that are being answered, and that wait for memory; rows: of the
    running batch; live_bytes: of all caches, kept conversations included, and room_bytes: their
    limit; picture_*: bytes of pictures in memory, and how many were found there or not.
    """

    running: int = 0
    waiting: int = 0
    rows: int = 0
    live_bytes: int = 0
    room_bytes: int = 0
    picture_bytes: int = 0
    picture_hits: int = 0
    picture_misses: int = 0
