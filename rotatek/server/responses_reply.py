"""An answer in the form of `/v1/responses`: one object, or the events that it grows by."""

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rotatek.inputs.text_files import as_json
from rotatek.server.reply import Reply, error_of
from rotatek.server.response_store import new_id
from rotatek.server.responses_request import ResponseCall

PLACE: Final = {"output_index": 0, "content_index": 0}


@dataclass
class ResponseReply:
    """One response as it unfolds.

    Args:
        asked: what is answered.
        keep: takes the complete response, the chat that it ends, and its bytes, for later calls.
        reply: its text as it grows.
        id: of the response.
        item: of its only message.
        created: seconds since 1970.
        sent: events so far.
    """

    asked: ResponseCall
    keep: Callable[[dict[str, Any], list[dict[str, Any]], int], None]
    reply: Reply
    id: str = field(default_factory=new_id)
    item: str = field(default_factory=lambda: f"msg_{secrets.token_hex(24)}")
    created: int = field(default_factory=lambda: int(time.time()))
    sent: int = 0

    def whole(self) -> dict[str, Any]:
        """The complete response, stored where the call asks for that."""
        reply, told = self.reply, self.reply.whole()
        is_whole = reply.finish_reason != "length"
        reason = None if is_whole else {"reason": "max_output_tokens"}
        status = "completed" if is_whole else "incomplete"
        body = self._body(status, [self._message(status, reply.text)]) | {
            "incomplete_details": reason,
            "completed_at": int(time.time()) if is_whole else None,
            "usage": usage_of(told["usage"]),
            "rotatek": told["rotatek"],
        }
        if self.asked.store:
            said = {"role": "assistant", "content": reply.text}
            size = self.asked.size + len(as_json(body))
            self.keep(body, [*self.asked.messages, said], size)
        return body

    def begin(self) -> Iterator[bytes]:
        """The events before any text."""
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=self._body("in_progress", []))
        item = self._message("in_progress", None)
        yield self._event("response.output_item.added", output_index=0, item=item)
        yield self._part("response.content_part.added", part=_text(""))

    def piece(self, text: str) -> bytes:
        """What a piece of text adds."""
        return self._part("response.output_text.delta", delta=text, logprobs=[])

    def end(self) -> Iterator[bytes]:
        """The events behind the last text."""
        body, reply = self.whole(), self.reply
        (item,) = body["output"]
        yield self._part("response.output_text.done", text=reply.text, logprobs=[])
        yield self._part("response.content_part.done", part=item["content"][0])
        yield self._event("response.output_item.done", output_index=0, item=item)
        yield self._event(f"response.{body['status']}", response=body)

    def broken(self, error: BaseException) -> tuple[int, bytes]:
        """A failure after the first event: a status for the meters, and the last event."""
        status, said = error_of(error)
        told = {name: said["error"][name] for name in ("code", "message", "param")}
        return status, self._event("error", **told, **said)

    def _event(self, kind: str, **told: Any) -> bytes:
        told = {"type": kind, "sequence_number": self.sent} | told
        self.sent += 1
        return f"event: {kind}\ndata: {as_json(told)}\n\n".encode()

    def _part(self, kind: str, **told: Any) -> bytes:
        return self._event(kind, item_id=self.item, **PLACE, **told)

    def _message(self, status: str, text: str | None) -> dict[str, Any]:
        return {
            "id": self.item,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [] if text is None else [_text(text)],
        }

    def _body(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        return self.asked.echoed | {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": None,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "model": self.asked.call.model,
            "output": output,
            "store": self.asked.store,
            "usage": None,
        }


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def usage_of(chat: dict[str, Any]) -> dict[str, Any]:
    """A chat's usage by the names of this API, our own figures among them."""
    own = {name: value for name, value in chat.items() if not name.endswith(("tokens", "details"))}
    read, said = chat["prompt_tokens_details"], chat["completion_tokens_details"]
    return own | {
        "input_tokens": chat["prompt_tokens"],
        "input_tokens_details": {name: read[name] for name in ("cached_tokens", "image_tokens")}
        | {"cache_write_tokens": 0},
        "output_tokens": chat["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": said["reasoning_tokens"]},
        "total_tokens": chat["total_tokens"],
        "visual_tokens": chat["visual_tokens"],
        "visual_tokens_kept": chat["visual_tokens_kept"],
    }
