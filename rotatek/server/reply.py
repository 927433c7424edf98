"""Turns events into the chat API's answers: the text as it grows, where it stops, and its usage."""

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rotatek import errors
from rotatek.engine.column import Column
from rotatek.engine.events import Event, Failed, Finished, Likely, Prefilled, Restarted, Token
from rotatek.inputs.request import MAX_NEW_TOKENS
from rotatek.inputs.text_files import as_json
from rotatek.inspect.doubt import any_photo, doubt
from rotatek.server.chat_request import Call

DONE: Final = b"data: [DONE]\n\n"


class StopText:
    """Passes text on until one of `stops` begins; text that may be its beginning is held back.

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
        """The text held back for a stop that did not come."""
        shown, self.held = self.held, ""
        return shown

    def _begun(self, stop: str) -> int:
        """How many characters at the end may be the beginning of `stop`."""
        longest = min(len(stop) - 1, len(self.held))
        return next((n for n in range(longest, 0, -1) if self.held.endswith(stop[:n])), 0)


class TokenLogs:
    """Log probabilities of one answer's tokens in the chat API's form, each once its text is
    shown."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, dict[str, Any]]] = []  # where the token's text begins
        self._length = 0

    def add(self, event: Token) -> None:
        """A token of the answer; nothing where no log probabilities are wanted."""
        if event.likely:
            own, *best = event.likely
            entry = _entry(own) | {"top_logprobs": [_entry(one) for one in best]}
            self._waiting.append((self._length, entry))
        self._length += len(event.text)

    def take(self, shown: int, *, rest: bool = False) -> list[dict[str, Any]]:
        """New entries: of tokens whose text has begun to be shown.

        Args:
            shown: characters of the answer, as the model said it.
            rest: whether the answer is complete; then entries of tokens without text come, too.
        """
        ready = [entry for start, entry in self._waiting if rest or start < shown]
        self._waiting = [(s, entry) for s, entry in self._waiting if not (rest or s < shown)]
        return ready


def _entry(one: Likely) -> dict[str, Any]:
    return {"token": one.text, "logprob": one.logprob, "bytes": list(one.code)}


@dataclass
class Reply:
    """One answer as it unfolds.

    Args:
        call: what is answered.
        room: tokens of prompt and answer together, at most.
        lookahead: tokens past the limit that tell whether the answer is complete.
        is_warm: whether a follow-up went on from its own cache.
        cached: tokens of the prompt that the cache held.
        doubt: why the answer is to be doubted, in a sentence, once it is complete.
        index: which of the call's answers it is; the first one has the others.

    Attributes:
        latest: the answer that the latest event was about.
        has_begun: whether a stream of them has.
        shown: characters of the text, as the model said it, that may be shown.
    """

    call: Call
    room: int = MAX_NEW_TOKENS
    lookahead: int = 1
    is_warm: bool = False
    cached: int = 0
    doubt: str | None = None
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))
    text: str = ""
    index: int = 0

    def __post_init__(self) -> None:
        further = range(1, self.call.answers) if self.index == 0 else ()
        self.others = [replace(self, index=number) for number in further]
        self.latest, self.has_begun = self, False
        self.longest, self.left = self.call.length + self.lookahead, self.room
        self._begin()

    def _begin(self) -> None:
        self.made = 0  # tokens, and one more where that tells whether the answer is complete
        self.stops, self.logs, self.shown = StopText(self.call.stop), TokenLogs(), 0
        self.column = Column("answer", self.call.settings)

    def take(self, event: Event) -> str:
        """Add one event; returns the text that it adds.

        Raises:
            UserError: where the answer failed, or began again after it had been sent in part.
        """
        names = self.call.columns[1:]
        self.latest = self.others[names.index(event.column)] if event.column in names else self
        if isinstance(event, Restarted):
            for other in self.others:
                other._fold(event)
        return self.latest._fold(event)

    def _fold(self, event: Event) -> str:
        """`take`, of an event about this answer."""
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Restarted):
            if self.text:
                raise errors.AnswerBroken
            self._begin()
            self.longest = min(self.longest, event.max_new_tokens or self.longest)
            return ""
        self.column.take(event)
        added = ""
        if isinstance(event, Prefilled):
            self.left = self.room - event.prompt_tokens
        elif isinstance(event, Token):
            self.made += not self.stops.hit
            if self.made <= min(self.call.length, self.left) and not self.stops.hit:
                self.logs.add(event)
                added = self.stops.feed(event.text)
        elif isinstance(event, Finished):
            added = self.stops.rest()
        self.shown += len(added)
        added = added if self.text else added.lstrip()
        self.text += added
        return added

    @property
    def answers(self) -> "list[Reply]":
        """All of the call's, this one first."""
        return [self, *self.others]

    @property
    def is_said(self) -> bool:
        """Whether no answer will grow any further, and a stop text has ended one."""
        over = [one.stops.hit or one.column.finished is not None for one in self.answers]
        return all(over) and any(one.stops.hit for one in self.answers)

    @property
    def tokens(self) -> int:
        """Tokens of the answer."""
        return min(self.made, self.call.length, self.left)

    @property
    def is_full(self) -> bool:
        """Whether it was cut because there was no room for more."""
        return self.made >= min(self.longest, self.left) and not self.stops.hit

    @property
    def finish_reason(self) -> str:
        """Why it ended: "length" where it is not complete, "stop" otherwise."""
        return "length" if self.is_full else "stop"

    @property
    def is_cut(self) -> bool:
        """Whether it was stopped for a reason other than a stop text or a lack of room."""
        if any(other.is_cut for other in self.others):
            return True
        done = self.column.finished
        if done is None:
            return True
        return bool(done.metrics["stopped"]) and not self.stops.hit and not self.is_full

    @property
    def usage(self) -> dict[str, Any]:
        """Tokens as the chat API counts them; and visual tokens and live bytes of the cache.

        `cached_tokens` are those that a follow-up did not read anew; in another chat, those of
        pictures that the vision tower had seen.
        """
        filled, done = self.column.prefilled, self.column.finished
        assert filled is not None
        metrics = {} if done is None else done.metrics
        cached = self.cached or (filled.visual_tokens if filled.reused else 0)
        said = sum(one.tokens for one in self.answers)
        return {
            "prompt_tokens": filled.prompt_tokens,
            "completion_tokens": said,
            "total_tokens": filled.prompt_tokens + said,
            "prompt_tokens_details": {
                "cached_tokens": min(cached, filled.prompt_tokens),
                "image_tokens": filled.visual_tokens,
            },
            "visual_tokens": filled.visual_tokens,
            "visual_tokens_kept": filled.visual_kept,
            "kv_bytes": metrics.get("kv_bytes", filled.kv_bytes),
            "kv_bytes_full": metrics.get("kv_bytes_full", filled.kv_bytes_full),
        }

    def whole(self) -> dict[str, Any]:
        """The answer at once."""
        choices = [one.choice() for one in self.answers]
        figures = self.column.report() | {"answer": self.text, "new_tokens": self.tokens}
        figures |= {"warm": self.is_warm, "doubt": self.doubt}
        return self._head("chat.completion") | {
            "choices": choices, "usage": self.usage, "rotatek": figures
        }  # fmt: skip

    def choice(self) -> dict[str, Any]:
        """This answer among the others."""
        message = {"role": "assistant", "content": self.text, "refusal": None}
        logprobs = self._logprobs(rest=True)
        if logprobs is None and self.call.request.sampling.top_logprobs is not None:
            logprobs = {"content": [], "refusal": None}
        return {
            "index": self.index, "message": message, "logprobs": logprobs,
            "finish_reason": self.finish_reason,
        }  # fmt: skip

    def _logprobs(self, rest: bool) -> dict[str, Any] | None:
        """Of tokens that are shown now, where there are any; rest: the answer is complete."""
        entries = self.logs.take(self.shown, rest=rest and not self.stops.hit)
        return {"content": entries, "refusal": None} if entries else None

    def chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        """One piece of a stream."""
        choice = {
            "index": self.index, "delta": delta, "finish_reason": finish_reason,
            "logprobs": self._logprobs(finish_reason is not None),
        }  # fmt: skip
        more: dict[str, Any] = {"usage": None} if self.call.with_usage else {}
        if finish_reason is not None:
            more["rotatek"] = {"doubt": self.doubt}
        return sse(self._head("chat.completion.chunk") | {"choices": [choice]} | more)

    def piece(self, text: str) -> Iterator[bytes]:
        """The events of a piece of text; before the first one, those that begin the answers."""
        for one in () if self.has_begun else self.answers:
            yield one.chunk({"role": "assistant", "content": ""})
        self.has_begun = True
        if text:
            yield self.latest.chunk({"content": text})

    def end(self) -> Iterator[bytes]:
        """The events behind the last text."""
        for one in self.answers:
            yield one.chunk({}, one.finish_reason)
        if self.call.with_usage:
            told = {"choices": [], "usage": self.usage, "rotatek": {"doubt": self.doubt}}
            yield sse(self._head("chat.completion.chunk") | told)
        yield DONE

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.call.model,
            "system_fingerprint": None,
        }


def doubt_of(reply: Reply) -> str | None:
    """Why a complete answer is to be doubted; takes as long as counting a photograph's colours."""
    done = reply.column.finished
    sure = None if done is None or not reply.tokens else float(done.metrics["confidence"])
    pictures = reply.call.request.images
    answer = "" if done is None else done.answer
    said = doubt(reply.call.model, answer, sure, lambda: any_photo(pictures), shown=bool(pictures))
    return said or None


def sse(data: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + as_json(data).encode() + b"\n\n"


KINDS: Final = {401: "authentication_error", 429: "rate_limit_error"}


def error_of(error: BaseException) -> tuple[int, dict[str, Any]]:
    """Status and body of a refusal."""
    known = errors.public_error(error)
    ours = type(known) is errors.UserError  # the engine's words on a failure of its own
    status = 500 if ours else known.status
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return status, {
        "error": {
            "message": known.message,
            "type": KINDS.get(status, kind),
            "param": known.param,
            "code": "internal_error" if ours else known.code,
        }
    }
