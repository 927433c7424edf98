"""Events as the chat API's answers: the text as it grows, where it stops, and what it cost."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rotatek import errors
from rotatek.compare.report import report
from rotatek.engine.events import Event, Failed, Finished, Prefilled, Restarted, Token
from rotatek.engine.recovery import LEAST_TOKENS
from rotatek.server.chat_request import Call
from rotatek.textfiles import as_json

DONE: Final = b"data: [DONE]\n\n"


class StopText:
    """Lets text through until one of `stops` begins; what may be a beginning waits.

    Args:
        stops: texts that end the answer, and are no part of it.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = tuple(stops)
        self.held = ""
        self.hit = False

    def feed(self, text: str) -> str:
        """What of the text so far may be shown now."""
        if self.hit:
            return ""
        self.held += text
        found = [at for stop in self.stops if (at := self.held.find(stop)) >= 0]
        if found:
            self.hit = True
            shown, self.held = self.held[: min(found)], ""
            return shown
        wait = max((self._begun(stop) for stop in self.stops), default=0)
        ready = len(self.held) - wait
        shown, self.held = self.held[:ready], self.held[ready:]
        return shown

    def rest(self) -> str:
        """What waited for the rest of a stop that never came."""
        shown, self.held = self.held, ""
        return shown

    def _begun(self, stop: str) -> int:
        """How many characters at the end may be the beginning of `stop`."""
        longest = min(len(stop) - 1, len(self.held))
        return next((n for n in range(longest, 0, -1) if self.held.endswith(stop[:n])), 0)


@dataclass
class Reply:
    """One answer as it unfolds.

    Args:
        call: what is answered.
        token_bytes: of one token in an uncompressed cache; known once the model is there.
        is_warm: whether a follow-up went on from its own cache.
    """

    call: Call
    token_bytes: int = 1
    is_warm: bool = False
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))
    text: str = ""
    filled: Prefilled | None = None
    done: Finished | None = None

    def __post_init__(self) -> None:
        self.stops = StopText(self.call.stop)
        self.tokens = 0
        self.longest = self.call.request.max_new_tokens

    def take(self, event: Event) -> str:
        """Fold one event in; the text that it adds.

        Raises:
            UserError: where the answer failed, or began again after it had been told in part.
        """
        if isinstance(event, Failed):
            raise failure(event.message)
        if isinstance(event, Restarted):
            if self.text:
                raise errors.AnswerBroken
            self.tokens, self.stops = 0, StopText(self.call.stop)
            if event.message == errors.TIGHTER:
                self.longest = min(self.longest, max(LEAST_TOKENS, self.longest // 2))
            return ""
        added = ""
        if isinstance(event, Prefilled):
            self.filled = event
        elif isinstance(event, Token):
            self.tokens += 1
            added = self.stops.feed(event.text)
        elif isinstance(event, Finished):
            self.done = event
            added = self.stops.rest()
        added = added if self.text else added.lstrip()
        self.text += added
        return added

    @property
    def finish_reason(self) -> str:
        """Why it ended: "stop", or "length" where it may not have been complete."""
        return "length" if not self.stops.hit and self.tokens >= self.longest else "stop"

    @property
    def is_cut(self) -> bool:
        """Whether it was stopped, and not by a text that ends it."""
        if self.done is None:
            return True
        return bool(self.done.metrics["stopped"]) and not self.stops.hit

    @property
    def usage(self) -> dict[str, Any]:
        """Tokens as the chat API counts them; and visual tokens and live bytes of the cache."""
        assert self.filled is not None
        prompt = self.filled.kv_bytes_full // self.token_bytes
        metrics = {} if self.done is None else self.done.metrics
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self.tokens,
            "total_tokens": prompt + self.tokens,
            "visual_tokens": self.filled.visual_tokens,
            "visual_tokens_kept": self.filled.visual_kept,
            "kv_bytes": metrics.get("kv_bytes", self.filled.kv_bytes),
            "kv_bytes_full": metrics.get("kv_bytes_full", self.filled.kv_bytes_full),
        }

    def whole(self) -> dict[str, Any]:
        """The answer at once."""
        message = {"role": "assistant", "content": self.text, "refusal": None}
        choice = {
            "index": 0, "message": message, "logprobs": None, "finish_reason": self.finish_reason
        }  # fmt: skip
        figures = report(self.call.settings, self.filled, self.done) | {"answer": self.text}
        return self._head("chat.completion") | {
            "choices": [choice], "usage": self.usage, "rotatek": figures | {"warm": self.is_warm}
        }  # fmt: skip

    def chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        """One piece of a stream."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        more = {"usage": None} if self.call.with_usage else {}
        return sse(self._head("chat.completion.chunk") | {"choices": [choice]} | more)

    def usage_chunk(self) -> bytes:
        """The last piece of a stream that asked for it."""
        return sse(self._head("chat.completion.chunk") | {"choices": [], "usage": self.usage})

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.call.model,
            "system_fingerprint": None,
        }


def sse(data: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + as_json(data).encode() + b"\n\n"


# What is not a 400. A plain `UserError` is what the engine said of a failure of its own.
STATUS: Final[dict[type[errors.UserError], int]] = {
    errors.KeyUnknown: 401,
    errors.ModelNotServed: 404,
    errors.AddressUnknown: 404,
    errors.BodyTooSlow: 408,
    errors.BodyTooLarge: 413,
    errors.ImageTooLarge: 413,
    errors.QueueFull: 429,
    errors.UserError: 500,
    errors.AnswerBroken: 500,
    errors.GpuNotLent: 503,
    errors.ModelLoading: 503,
    errors.OutOfMemory: 503,
    errors.Restarting: 503,
    errors.StorageFull: 503,
}
KINDS: Final = {401: "authentication_error", 429: "rate_limit_error"}


def failure(message: str) -> errors.UserError:
    """The error whose sentence an event's message is; a plain one where there is none."""
    kinds = {kind.sentence: kind for kind in errors.UserError.__subclasses__()}
    kind = kinds.get(message)
    return errors.UserError(message) if kind is None else kind()


def error_of(error: BaseException) -> tuple[int, dict[str, Any]]:
    """Status and body of a refusal."""
    message = errors.public_message(error)
    known = error if isinstance(error, errors.UserError) else failure(message)
    status = STATUS.get(type(known), 400)
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return status, {
        "error": {
            "message": message,
            "type": KINDS.get(status, kind),
            "param": known.name if isinstance(known, errors.SettingError) else None,
            "code": "internal_error" if type(known) is errors.UserError else known.code,
        }
    }
