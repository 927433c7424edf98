"""Turns events into the chat API's answers: the text as it grows, where it stops, and its usage."""

import secrets
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from rotatek import errors
from rotatek.engine.events import Answer, Event, Failed, Finished, Prefilled, Restarted, Token
from rotatek.inputs.text_files import as_json
from rotatek.inspect.doubt import any_photo, doubt
from rotatek.server.chat_request import Call

DONE: Final = b"data: [DONE]\n\n"
KINDS: Final = {401: "authentication_error", 429: "rate_limit_error"}
FIGURES: Final = ("visual_tokens", "visual_tokens_kept", "kv_bytes", "kv_bytes_full")  # of usage


class StopText:
    """Passes text on until one of `stops` begins; text that may be its beginning is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = tuple(stops)
        self.held, self.hit = "", False

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
        begun = (stop[:n] for stop in self.stops for n in range(1, len(stop)))
        wait = max((len(one) for one in begun if self.held.endswith(one)), default=0)
        ready = len(self.held) - wait
        shown, self.held = self.held[:ready], self.held[ready:]
        return shown

    def rest(self) -> str:
        """The text held back for a stop that did not come."""
        shown, self.held = self.held, ""
        return shown


class Choice:
    """One of a call's answers, as it unfolds.

    Attributes:
        column: what the engine has told of it.
        text: what of it may be shown.
        made: its tokens, and one more where that tells whether it is complete.
        doubt: why it is to be doubted, in a sentence, once it is complete.
    """

    def __init__(self, call: Call, index: int) -> None:
        self.call, self.index = call, index
        self.column = Answer("answer", call.settings)
        self.stops, self.text, self.made = StopText(call.stop), "", 0
        self.doubt: str | None = None
        self._said = self._shown = 0  # characters of the model's text
        self._logs: list[tuple[int, dict[str, Any]]] = []  # where a token's text begins

    def take(self, event: Event, most: int) -> str:
        """Add one event about it; returns the text that it adds. most: tokens of the answer."""
        self.column.take(event)
        added = ""
        if isinstance(event, Token) and not self.stops.hit:
            self.made += 1
            if self.made <= most:
                if event.likely:
                    own, *best = [
                        {"token": one.text, "logprob": one.logprob, "bytes": list(one.code)}
                        for one in event.likely
                    ]
                    self._logs.append((self._said, own | {"top_logprobs": best}))
                self._said += len(event.text)
                added = self.stops.feed(event.text)
        elif isinstance(event, Finished):
            added = self.stops.rest()
        self._shown += len(added)
        added = added if self.text else added.lstrip()
        self.text += added
        return added

    def logprobs(self, *, whole: bool) -> dict[str, Any] | None:
        """Of tokens whose text has begun to be shown, each once; whole: the answer is complete, and
        tokens without text have theirs, too."""
        rest = whole and not self.stops.hit
        ready = [entry for start, entry in self._logs if rest or start < self._shown]
        self._logs = self._logs[len(ready) :]
        return {"content": ready, "refusal": None} if ready else None

    def judge(self) -> None:
        """Find the doubt; takes as long as counting a photograph's colours."""
        done, pictures = self.column.finished, self.call.request.images
        assert done is not None
        sure = float(done.metrics["confidence"]) if self.made else None
        seen = partial(any_photo, pictures)
        self.doubt = doubt(self.call.model, done.answer, sure, seen, shown=bool(pictures)) or None


class Reply:
    """A call's answers.

    Args:
        call: what is answered.
        room: tokens of prompt and answer together, at most.
        lookahead: tokens past the limit that tell whether an answer is complete.

    Attributes:
        choices: the answers.
        is_warm: whether a follow-up went on from its own cache.
        cached: tokens of the prompt that the cache held.
    """

    def __init__(self, call: Call, room: int, lookahead: int) -> None:
        self.call, self.room, self.left = call, room, room
        self.longest = call.length + lookahead
        self.choices = [Choice(call, index) for index in range(call.answers)]
        self.is_warm, self.cached, self._has_begun = False, 0, False
        self._head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": call.model,
            "system_fingerprint": None,
        }

    def take(self, event: Event) -> bytes:
        """Add one event; returns what it adds to a stream, where the call asks for one.

        Raises:
            UserError: where the answer failed, or began again after it had been sent in part.
        """
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Restarted):
            if any(one.text for one in self.choices):
                raise errors.AnswerBroken
            self.choices = [Choice(self.call, one.index) for one in self.choices]
            self.longest = min(self.longest, event.max_new_tokens or self.longest)
        if event.column is None:
            return b""
        if isinstance(event, Prefilled):
            self.left = self.room - event.prompt_tokens
        choice = self.choices[self.call.columns.index(event.column)]
        added = choice.take(event, self._most)
        if not self.call.stream:
            return b""
        told = self._chunk(choice, {"content": added}) if added else b""
        if self._has_begun or not (added or isinstance(event, Prefilled)):
            return told
        self._has_begun = True
        begun = [self._chunk(one, {"role": "assistant", "content": ""}) for one in self.choices]
        return b"".join([*begun, told])

    @property
    def _most(self) -> int:
        """Tokens of an answer."""
        return min(self.call.length, self.left)

    def _is_full(self, choice: Choice) -> bool:
        """Whether an answer was cut because there was no room for more."""
        return choice.made >= min(self.longest, self.left) and not choice.stops.hit

    @property
    def is_said(self) -> bool:
        """Whether no answer will grow any further, and a stop text has ended one."""
        hits = [one.stops.hit for one in self.choices]
        return any(hits) and all(one.stops.hit or one.column.finished for one in self.choices)

    @property
    def is_cut(self) -> bool:
        """Whether one was stopped for a reason other than a stop text or a lack of room."""
        for one in self.choices:
            done = one.column.finished
            ended = one.stops.hit or self._is_full(one)
            if done is None or (done.metrics["stopped"] and not ended):
                return True
        return False

    @property
    def usage(self) -> dict[str, Any]:
        """Tokens as the chat API counts them; and visual tokens and live bytes of the cache.

        `cached_tokens` are those that a follow-up did not read anew; in another chat, those of
        pictures that the vision tower had seen.
        """
        column = self.choices[0].column
        filled, figures = column.prefilled, column.report()
        assert filled is not None
        cached = self.cached or (filled.visual_tokens if filled.reused else 0)
        said = sum(min(one.made, self._most) for one in self.choices)
        return {
            "prompt_tokens": filled.prompt_tokens,
            "completion_tokens": said,
            "total_tokens": filled.prompt_tokens + said,
            "prompt_tokens_details": {
                "cached_tokens": min(cached, filled.prompt_tokens),
                "image_tokens": filled.visual_tokens,
            },
            **{name: figures[name] for name in FIGURES},
        }

    def whole(self) -> dict[str, Any]:
        """The answers at once."""
        first = self.choices[0]
        wanted = self.call.request.sampling.top_logprobs is not None
        nothing: dict[str, Any] | None = {"content": [], "refusal": None} if wanted else None
        choices = [
            {
                "index": one.index,
                "message": {"role": "assistant", "content": one.text, "refusal": None},
                "logprobs": one.logprobs(whole=True) or nothing,
                "finish_reason": "length" if self._is_full(one) else "stop",
            }
            for one in self.choices
        ]
        figures = first.column.report() | {"answer": first.text, "warm": self.is_warm}
        figures |= {"new_tokens": min(first.made, self._most), "doubt": first.doubt}
        said = {"choices": choices, "usage": self.usage, "rotatek": figures}
        return self._head | {"object": "chat.completion"} | said

    def end(self) -> bytes:
        """A stream's events behind the last text."""
        told = [
            self._chunk(one, {}, "length" if self._is_full(one) else "stop") for one in self.choices
        ]
        if self.call.with_usage:
            doubt = {"doubt": self.choices[0].doubt}
            told.append(self._event({"choices": [], "usage": self.usage, "rotatek": doubt}))
        return b"".join([*told, DONE])

    def _chunk(self, one: Choice, delta: dict[str, Any], reason: str | None = None) -> bytes:
        """One piece of a stream; reason: why it is the answer's last."""
        choice = {
            "index": one.index, "delta": delta, "finish_reason": reason,
            "logprobs": one.logprobs(whole=reason is not None),
        }  # fmt: skip
        more: dict[str, Any] = {"usage": None} if self.call.with_usage else {}
        if reason is not None:
            more["rotatek"] = {"doubt": one.doubt}
        return self._event({"choices": [choice]} | more)

    def _event(self, said: dict[str, Any]) -> bytes:
        return sse(self._head | {"object": "chat.completion.chunk"} | said)


def sse(data: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + as_json(data).encode() + b"\n\n"


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
