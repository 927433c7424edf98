"""One answer in progress: its cache, its row in the running batch, and its tokens."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from torch import Tensor
from transformers.cache_utils import Cache

from rotatek.bridge.attention import StopFlag
from rotatek.cache.bytes import ByteCount
from rotatek.cache.rotatek_cache import RotateKCache, cache_bytes, release
from rotatek.cache.token_plan import TokenPlan
from rotatek.engine.batch import Watcher
from rotatek.engine.token_choice import RowChoice, TokenChoice
from rotatek.inputs.sampling import GREEDY, Sampling
from rotatek.inspect.answer_attention import AnswerAttentionRecorder
from rotatek.inspect.trace import TraceRecorder
from rotatek.methods.settings import Settings
from rotatek.models import Embedded


@dataclass(frozen=True)
class SampledToken:
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
    """One setting's answer, from its prefill to its last token, and over further questions.

    Args:
        name: of its column.
        settings: how its cache is compressed.
        cache: filled by the prefill; empty while the row is in the batch, and complete again once
            it has left.
        plan: the prompt's token plan.
        embedded: the prompt.
        recorder: records its Keys, for figures.
        attention: records its queries, for the overlay and figures.
        prefill_ms: at first the vision tower's share.
        draw: which of several answers under equal settings it is.
        needed: whether its cache is read once the answer has ended; otherwise it stays empty.

    Attributes:
        sampling: how its tokens are chosen; choice: what chooses them, None where the likeliest
            ones are; earlier: tokens of later turns and of the answers before.
        parted: whether an earlier answer differed from the first column's.
        tokens: since the last question; read: of them, whose text has been delivered.
        log_probability: of all tokens, in nats.
        logits: [1, vocabulary] behind the prompt, until the row has joined the batch.
        position: of the next token; limit: new tokens, at most.
        stop: ends the answer early once it is set.
        request: equal for the rows of one request; a larger number is a later one.
        first: the sequence that this one is compared with.
        sampled: tokens that wait to be taken; made: their number so far; token: the last one.
        row: in the batch; ended: nothing more comes.
    """

    name: str
    settings: Settings
    cache: Cache
    plan: TokenPlan
    embedded: Embedded
    recorder: TraceRecorder | None = None
    attention: AnswerAttentionRecorder | None = None
    prefill_ms: float = 0.0
    draw: int = 0
    needed: bool = True
    sampling: Sampling = GREEDY
    choice: RowChoice | None = None
    earlier: list[int] = field(default_factory=list)
    parted: bool = False
    tokens: list[int] = field(default_factory=list)
    read: int = 0
    step_ms: list[float] = field(default_factory=list)
    kl: list[float] = field(default_factory=list)
    log_probability: float = 0.0
    logits: Tensor | None = None
    position: int = 0
    limit: int = 0
    stop: StopFlag | None = None
    request: int = 0
    first: "Sequence | None" = None
    watcher: Watcher | None = None
    sampled: deque[SampledToken] = field(default_factory=deque)
    made: int = 0
    token: int = -1
    row: int | None = None
    ended: bool = True
    failure: Exception | None = None

    def __post_init__(self) -> None:
        self.rows = self.embedded.embeds.shape[1]  # an encoder-stage pruner leaves fewer
        self.asked = self.rows  # logical length of the cache when the last question had been fed
        self.first_position = self.embedded.next_position

    def choose_by(self, choice: TokenChoice, sampling: Sampling, prompt: Tensor) -> None:
        """How the next answer's tokens are chosen; prompt: [1, tokens], the first one."""
        read: Iterable[int] = ()
        if sampling.repetition_penalty != 1:
            read = {*prompt.unique().tolist(), *self.earlier}
        self.sampling, self.choice = sampling, choice.row(sampling, self.draw, read)

    def start(
        self, logits: Tensor, limit: int, stop: StopFlag | None = None, *, watched: bool = True
    ) -> None:
        """Be ready to join the batch: a question has been fed, and left `logits`."""
        self.logits, self.limit, self.stop = logits, limit, stop
        self.position = int(self.embedded.next_position[0])
        self.made, self.ended, self.failure = 0, False, None
        self.sampled.clear()
        self.watcher = self.attention.see if watched and self.attention is not None else None

    def bytes(self) -> ByteCount:
        """Live bytes of this column's cache."""
        return cache_bytes(self.cache)

    @property
    def grown(self) -> int:
        """Tokens in the cache since the first prompt."""
        return int(self.cache.get_seq_length()) - self.rows

    def begin(self, prefill_ms: float) -> None:
        """Forget the answer: another question has been fed, in `prefill_ms`."""
        self.prefill_ms, self.asked = prefill_ms, int(self.cache.get_seq_length())
        self.tokens, self.read, self.step_ms, self.kl = [], 0, [], []
        self.log_probability = 0.0

    def rest(self) -> None:
        """Keep the cache and what a follow-up question needs; let the prompt's tensors go."""
        self.recorder = self.watcher = self.first = None
        if isinstance(self.cache, RotateKCache):
            self.cache.make_growing()
        whole = self.embedded
        self.embedded = replace(
            whole,
            embeds=whole.embeds[:, :0].clone(),
            positions=whole.positions[..., :0].clone(),
            visual=whole.visual[:, :0].clone(),
            valid=whole.valid[:, :0].clone(),
            deeper=None,
        )

    def stop_watching(self) -> None:
        """Drop recorders that have missed a step: their figures would be shifted."""
        self.recorder = self.attention = self.watcher = None

    def close(self) -> None:
        """Let go of every tensor."""
        self.logits = None
        release(self.cache)


@dataclass
class Counters:
    """A scheduler's totals."""

    prefills: int = 0
    steps: int = 0
    tokens: int = 0
    shed: int = 0  # requests that left the batch because memory ran out
    failed: int = 0  # rows that failed by themselves
