"""What Prometheus reads at `/metrics`."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rotatek.engine.events import Event, Prefilled, Stored, Token

SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0)


class Metrics:
    """Counters of one server; they contain nothing about single visitors."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self.registry, "namespace": "rotatek"}
        self.requests = Counter("requests", "Requests by HTTP status; 499: gone", ["status"], **own)
        self.tokens = Counter("tokens", "Tokens by kind", ["kind"], **own)
        self.chats = Counter("chats", "Answers by whether their cache was warm", ["cache"], **own)
        self.running = Gauge("running", "Answers being computed", **own)
        self.waiting = Gauge("waiting", "Answers waiting for their turn", **own)
        self.kv = Gauge("kv_bytes", "Live bytes of caches", ["of"], **own)
        scale: dict[str, Any] = {"buckets": SECONDS, **own}
        self.first = Histogram("first_token_seconds", "Until the first token", **scale)
        self.between = Histogram("token_seconds", "Between two tokens", **scale)
        self.whole = Histogram("answer_seconds", "Until the end of an answer", **scale)
        self.live = self.kv.labels("answering")

    def gauge(self, name: str, help: str, read: Callable[[], float]) -> None:
        """Another figure, read when it is asked for."""
        Gauge(name, help, registry=self.registry, namespace="rotatek").set_function(read)


@dataclass
class RequestMetrics:
    """The metrics of one answer."""

    meters: Metrics
    started: float = field(default_factory=time.monotonic)
    latest: float | None = None
    kv_bytes: int = 0

    def see(self, event: Event) -> None:
        """Count one event; of a call's further answers their tokens only."""
        if event.column not in (None, "answer"):
            self.meters.tokens.labels("completion").inc(isinstance(event, Token))
        elif isinstance(event, Prefilled):
            self.meters.tokens.labels("visual").inc(event.visual_tokens)
        elif isinstance(event, Stored):
            self._hold(event.kv_bytes)
        elif isinstance(event, Token):
            now = time.monotonic()
            if self.latest is None:
                self.meters.first.observe(now - self.started)
            else:
                self.meters.between.observe(now - self.latest)
            self.latest = now
            self.meters.tokens.labels("completion").inc()

    def end(self) -> None:
        """The answer is over, however it ended."""
        self._hold(0)
        self.meters.whole.observe(time.monotonic() - self.started)

    def _hold(self, kv_bytes: int) -> None:
        self.meters.live.inc(kv_bytes - self.kv_bytes)
        self.kv_bytes = kv_bytes
