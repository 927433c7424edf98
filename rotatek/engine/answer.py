"""One answer, folded from the engine's events: for the engine itself, page, API and commands.

Its numbers are the fields of `--json`, of the API, and of exports.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from rotatek.engine.events import (
    Event,
    Failed,
    Finished,
    Likely,
    Prefilled,
    Restarted,
    Stored,
    Token,
)
from rotatek.methods.channels import ChannelMethod
from rotatek.methods.settings import Settings
from rotatek.methods.tokens import TokenPruner

METRICS: Final = (
    "kv_bytes", "kv_bytes_full", "nominal_kv", "prefill_ms", "agreement", "first_divergence", "kl",
    "confidence", "stopped",
)  # fmt: skip
VISUAL: Final = ("visual_keys", "visual_values", "bases", "masks")  # parts of its bytes
NEAR: Final = 0.03  # of the bytes asked for: what is nearer has met them


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
    """One column's answer so far; times in milliseconds, sizes in bytes."""

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
        """The text of each token."""
        return [token.text for token in self.tokens]

    @property
    def ids(self) -> list[int]:
        """The number of each token."""
        return [token.token_id for token in self.tokens]

    @property
    def same(self) -> list[bool]:
        """Of each token, whether the first column has it here, too."""
        return [not token.divergent for token in self.tokens]

    @property
    def kl(self) -> list[float | None]:
        """Of each token, nats; None once the answer has diverged from the first column's."""
        return [token.kl for token in self.tokens]

    @property
    def likely(self) -> list[tuple[Likely, ...]]:
        """Of each token, as `Token.likely`."""
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
        """The answer as plain numbers; unknown ones are None.

        Bytes are live when the answer ends, times are milliseconds; `METRICS` are those of
        `Engine.compare`.
        """
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
