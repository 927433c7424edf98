"""The engine's events, the answer that they are folded into, and the engine's state.

Plain numbers, strings and NumPy arrays, for page, API, commands and replicas. An answer's numbers
are the fields of `--json`, of the API, and of exports.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rotatek.errors import UserError
from rotatek.inputs.token_grid import Grid
from rotatek.inspect.answer_attention import AnswerAttention
from rotatek.inspect.trace import Trace
from rotatek.methods.channels import ChannelMethod
from rotatek.methods.settings import Settings
from rotatek.methods.tokens import TokenPruner

METRICS: Final = (
    "kv_bytes", "kv_bytes_full", "nominal_kv", "prefill_ms", "agreement", "first_divergence", "kl",
    "confidence", "stopped",
)  # fmt: skip
VISUAL: Final = ("visual_keys", "visual_values", "bases", "masks")  # parts of its bytes
NEAR: Final = 0.03  # of the bytes asked for: what is nearer has met them


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


def folded(events: Iterable[Event], settings: Mapping[str, Settings]) -> "dict[str, Answer]":
    """Every column's answer, once it is complete.

    Raises:
        UserError: in the engine's words, where it failed.
    """
    found = {name: Answer(name, own) for name, own in settings.items()}
    for event in events:
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Restarted):
            found = {name: Answer(name, own) for name, own in settings.items()}
        elif event.column is not None:
            found[event.column].take(event)
    return found


@dataclass
class Answer:
    """One column's answer so far; times in milliseconds, sizes in bytes. Of each token: pieces, its
    text; ids, its number; same, whether the first column has it here, too; kl; likely."""

    title: str
    settings: Settings
    tokens: list[Token] = field(default_factory=list)
    prefilled: Prefilled | None = None
    kv_bytes: int | None = None  # live, once its prompt is compressed; then at its end
    finished: Finished | None = None
    failure: str | None = None
    diverged_at: int | None = None  # the first token that differs from the first column's

    @property
    def pieces(self) -> list[str]:
        return [token.text for token in self.tokens]

    @property
    def ids(self) -> list[int]:
        return [token.token_id for token in self.tokens]

    @property
    def same(self) -> list[bool]:
        return [not token.divergent for token in self.tokens]

    @property
    def kl(self) -> list[float | None]:
        return [token.kl for token in self.tokens]

    @property
    def likely(self) -> list[tuple[Likely, ...]]:
        return [token.likely for token in self.tokens]

    @property
    def method(self) -> ChannelMethod | TokenPruner:
        """The method whose colour the column has: the channel method; the pruner where every
        channel stays; the plain cache's method where nothing is compressed."""
        plain = self.settings.channels.stores_everything
        only_tokens = plain and self.settings.prunes_tokens
        return self.settings.tokens if only_tokens else self.settings.channels

    @property
    def answer(self) -> str:
        """Its text so far."""
        return "".join(self.pieces)

    @property
    def kept(self) -> np.ndarray | None:
        """[visual tokens] bool, once the prefill has run."""
        if self.prefilled is None:
            return None
        if self.prefilled.kept is None:
            return np.ones(self.prefilled.visual_tokens, dtype=bool)
        return self.prefilled.kept

    def take(self, event: Event) -> None:
        """Fold one event of the column."""
        if isinstance(event, Prefilled):
            self.prefilled = event
        elif isinstance(event, Stored):
            self.kv_bytes = event.kv_bytes
        elif isinstance(event, Token):
            if event.divergent and self.diverged_at is None:
                self.diverged_at = len(self.tokens)
            self.tokens.append(event)
        elif isinstance(event, Finished):
            self.finished, self.kv_bytes = event, event.metrics.get("kv_bytes")
        elif isinstance(event, Failed):
            self.failure = event.message

    @property
    def times_smaller(self) -> float | None:
        """How many times fewer bytes the visual tokens took than uncompressed, those dropped and
        all that is stored for the others counted; None until the answer ends."""
        filled, done = self.prefilled, self.finished
        if filled is None or done is None or not filled.visual_tokens:
            return None
        parts = done.metrics.get("bytes") or {}
        live = sum(parts.get(name, 0) for name in VISUAL)
        full = filled.kv_bytes_full * filled.visual_tokens / filled.prompt_tokens
        return full / live if live else None

    @property
    def missed(self) -> str:
        """Where the visual tokens were to become so many times smaller and did not: a sentence."""
        asked, got = self.settings.channels.times_smaller, self.times_smaller
        if asked is None or got is None or self.settings.prunes_tokens:
            return ""
        if abs(got / asked - 1) <= NEAR:
            return ""
        return (
            f"The visual tokens became {got:.1f} times smaller, not {asked:g}: "
            f"{self.prefilled.visual_tokens if self.prefilled else 0} of them cannot come nearer."
        )

    def report(self) -> dict[str, Any]:
        """The answer as plain numbers; unknown ones are None. `METRICS` are those of
        `Engine.compare`."""
        filled, done = self.prefilled, self.finished
        metrics = {} if done is None else done.metrics
        return {
            "answer": self.answer if done is None else done.answer,
            "new_tokens": None if done is None else done.new_tokens,
            "visual_tokens": None if filled is None else filled.visual_tokens,
            "visual_tokens_kept": None if filled is None else filled.visual_kept,
            **{name: metrics.get(name) for name in METRICS},
            "nominal_kv": self.settings.nominal_kv,
            "kv_bytes_by_part": metrics.get("bytes"),
            "visual_times_smaller": self.times_smaller,
            "decode_ms_per_token": None if done is None else done.decode_ms_per_token,
            "attention": None if filled is None else filled.attention,
            "settings": self.settings.as_dict(),
            "sampling": metrics.get("sampling", {}),
        }


@dataclass(frozen=True)
class Health:
    """able: whether requests can be answered; attention: "triton" or "reference", and why."""

    able: bool
    device: str
    attention: str
    reason: str


@dataclass
class EngineState:
    """An engine's totals since its start, and its present work."""

    steps: int = 0
    tokens: int = 0
    shed: int = 0  # requests that ran out of memory
    failed: int = 0  # rows that did by themselves
    running: int = 0  # requests that are being answered, ...
    waiting: int = 0  # ... and that wait for memory
    rows: int = 0  # of the running batch
    live_bytes: int = 0  # of all caches, kept conversations included
    room_bytes: int = 0  # their limit
    picture_bytes: int = 0  # of pictures in memory
    picture_hits: int = 0  # that were found there
    picture_misses: int = 0
