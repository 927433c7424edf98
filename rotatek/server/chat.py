"""A call's messages: checked roles and parts of what clients send.

The files of pictures stay as they were sent; a `PICTURE` among the parts of a message marks each.
The pages of a PDF are pictures in place of the PDF.
"""

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from PIL.Image import Image

from rotatek import errors
from rotatek.inputs.messages import PICTURE, Message, Part, Role, ToolCall
from rotatek.inputs.pdf import is_pdf, pictures_of
from rotatek.server.fields import Ignored
from rotatek.server.files import document_of, file_of

ROLES: Final[dict[str, Role]] = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant",
    "tool": "tool", "function": "tool",
}  # fmt: skip
READ: Final = ("role", "content", "tool_calls", "function_call", "tool_call_id", "refusal")
SILENT: Final = ("annotations", "audio", "logprobs")  # of answers sent back, where empty
DETAILS: Final = ("low", "high", "auto")
TEXTS: Final = ("text", "refusal")
FIELDS: Final = {  # that are read of parts with pictures
    "image_url": ("url", "detail"),
    "file": ("file_data", "filename", "detail"),
}
MOST_PAGES: Final = 32  # of all PDF files of a call
DRAWN_S: Final = 60.0  # for them


@dataclass(frozen=True, eq=False)
class Shown:
    """A picture of a call.

    Args:
        image: its file; or a page of a PDF, drawn.
        digest: of the file, and which page it is.
        detail: asked for: "low", "high" or "auto".
        place: the field of the call that holds it.
    """

    image: bytes | Image
    digest: bytes
    detail: str
    place: str


@dataclass
class Chat:
    """What `read_messages` found.

    Args:
        messages: as sent, not yet cleaned.
        pictures: in order.
        until: when to begin no further page of a PDF, by `time.monotonic`.
    """

    messages: list[Message] = field(default_factory=list)
    pictures: list[Shown] = field(default_factory=list)
    until: float | None = None


def read_messages(messages: Any, ignored: Ignored | None = None) -> Chat:
    """The chat of a call.

    Args:
        messages: of the call's JSON.
        ignored: notes what changes nothing.

    Raises:
        UserError: where they are no chat, or a picture is no data; `param` says where.
    """
    ignored = Ignored() if ignored is None else ignored
    if not isinstance(messages, list) or not messages:
        raise errors.MessagesUnreadable
    chat = Chat(until=time.monotonic() + DRAWN_S)
    called = dict[str, str]()  # names of calls by their ids
    for number, message in enumerate(messages):
        place = f"messages[{number}]"
        with blaming(place):
            chat.messages.append(_message(message, chat, called, ignored, place))
    if chat.messages[-1].role == "assistant":
        raise errors.MessagesUnreadable
    return chat


@contextmanager
def blaming(place: str) -> Iterator[None]:
    """Errors raised inside name this field of the call, unless they name a more exact one."""
    try:
        yield
    except errors.UserError as error:
        if error.param in (None, "messages"):
            error.param = place
        raise


def _message(
    given: Any, chat: Chat, called: dict[str, str], ignored: Ignored, place: str
) -> Message:
    said = given.get("role") if isinstance(given, dict) else None
    if not isinstance(said, str) or said not in ROLES:
        raise errors.MessagesUnreadable
    role = ROLES[said]
    read = [*READ, *(name for name in SILENT if not given.get(name))]
    ignored.rest(given, [*read, "name"] if said == "function" else read, "messages", place)
    content = given.get("content")
    if content is None and role != "assistant":
        raise errors.MessagesUnreadable
    parts = _parts(content, role, chat, ignored, f"{place}.content")
    if role == "assistant":
        refusal = given.get("refusal")
        parts += [refusal] if isinstance(refusal, str) else []
        return Message(role, tuple(parts), tuple(_calls(given, called)))
    if role != "tool":
        return Message(role, tuple(parts))
    name = given.get("name") if said == "function" else called.get(str(given.get("tool_call_id")))
    return Message(role, tuple(parts), name=name if isinstance(name, str) else "")


def _parts(content: Any, role: Role, chat: Chat, ignored: Ignored, place: str) -> list[Part]:
    """A message's texts, and a `PICTURE` for each picture, whose file goes into the chat."""
    if content is None or isinstance(content, str):
        return [content or ""]
    if not isinstance(content, list):
        raise errors.MessagesUnreadable
    parts: list[Part] = []
    for number, part in enumerate(content):
        with blaming(f"{place}[{number}]"):
            kind = part.get("type") if isinstance(part, dict) else None
            if not isinstance(kind, str):
                raise errors.MessagesUnreadable
            if kind in TEXTS:
                if not isinstance(part.get(kind), str):
                    raise errors.MessagesUnreadable
                parts.append(part[kind])
                empty = [one for one in SILENT if not part.get(one)]
                ignored.rest(part, ("type", kind, *empty), "content", f"{place}[{number}]")
            elif kind in FIELDS:
                if role == "assistant":
                    raise errors.ImageOutOfPlace
                here = f"{place}[{number}].{kind}"
                parts += [PICTURE] * _add_pictures(part, kind, chat, ignored, here)
            else:
                raise errors.PartUnsupported
    return parts


def _add_pictures(part: dict[str, Any], kind: str, chat: Chat, ignored: Ignored, place: str) -> int:
    """Add a picture, or the pages of a PDF, to the chat; returns how many."""
    given = part.get(kind)
    ignored.rest(part, ("type", kind), "content", place.rpartition(".")[0])
    with blaming(place):
        fields = given if isinstance(given, dict) else {}
        ignored.rest(fields, FIELDS[kind], kind, place)
        detail = fields.get("detail")
        if detail not in (None, *DETAILS):
            raise errors.SettingError(f"{place}.detail", "low, high, auto or left out", detail)
        file = (file_of if kind == "image_url" else document_of)(given)
        whole, found = hashlib.sha256(file).digest(), list[tuple[bytes | Image, bytes]]()
        if is_pdf(file):
            for number, page in enumerate(pictures_of(file, chat.until)):
                found.append((page, whole + number.to_bytes(4, "big")))
        else:
            found.append((file, whole))
        chat.pictures += [Shown(image, digest, detail or "auto", place) for image, digest in found]
        if sum(not isinstance(one.image, bytes) for one in chat.pictures) > MOST_PAGES:
            raise errors.PdfsManyPages
    return len(found)


def _calls(given: dict[str, Any], called: dict[str, str]) -> Iterator[ToolCall]:
    """Calls of an assistant's message, by either of their names."""
    made = given.get("tool_calls") or []
    if given.get("function_call"):
        made = [{"function": given["function_call"]}]
    if not isinstance(made, list):
        raise errors.MessagesUnreadable
    for call in made:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(name := function.get("name"), str):
            raise errors.MessagesUnreadable
        called[str(call.get("id"))] = name
        arguments = function.get("arguments") or "{}"
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        yield ToolCall(name, arguments)
