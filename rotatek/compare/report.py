"""The record of one column: events in, plain numbers out.

The numbers are the fields of `--json`, of the API, and of exports.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from rotatek.engine.events import Event, Failed, Finished, Prefilled, Token
from rotatek.methods.channels import ChannelMethod
from rotatek.methods.settings import Settings
from rotatek.methods.tokens import TokenPruner

METRICS: Final = (
    "kv_bytes", "kv_bytes_full", "nominal_kv", "prefill_ms", "agreement", "first_divergence", "kl",
    "confidence", "stopped",
)  # fmt: skip


@dataclass
class Column:
    """One column's results so far; times in milliseconds, sizes in bytes."""

    title: str
    settings: Settings
    pieces: list[str] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)  # per piece: the baseline's token here
    kl: list[float | None] = field(default_factory=list)  # per piece, nats; None once diverged
    diverged_at: int | None = None  # index into `pieces`
    prefilled: Prefilled | None = None
    finished: Finished | None = None
    failure: str | None = None

    @property
    def method(self) -> ChannelMethod | TokenPruner:
        """The method whose colour the column has: the channel method; the pruner where every
        channel stays; the plain cache's method where nothing is compressed."""
        plain = self.settings.channels.stores_everything
        only_tokens = plain and self.settings.prunes_tokens
        return self.settings.tokens if only_tokens else self.settings.channels

    @property
    def answer(self) -> str:
        """Its answer so far."""
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
        """Fold one engine event into the column."""
        if isinstance(event, Prefilled):
            self.prefilled = event
        elif isinstance(event, Token):
            if event.divergent and self.diverged_at is None:
                self.diverged_at = len(self.pieces)
            self.pieces.append(event.text)
            self.same.append(not event.divergent)
            self.kl.append(event.kl)
        elif isinstance(event, Finished):
            self.finished = event
        elif isinstance(event, Failed):
            self.failure = event.message

    def report(self) -> dict[str, Any]:
        """The column as plain numbers; unknown ones are None.

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
            "decode_ms_per_token": None if done is None else done.decode_ms_per_token,
            "attention": None if filled is None else filled.attention,
            "settings": self.settings.as_dict(),
        }
