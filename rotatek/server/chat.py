"""A call's messages: checked roles and parts of what clients send.

The files of pictures stay as they were sent; a `PICTURE` among the parts of a message marks each.
The pages of a PDF are pictures in place of the PDF. Files are data URIs, recognised by their
content, not by their media type: white space, missing padding, the URL-safe alphabet, percent signs
and any media type are accepted; only bytes that cannot be base64 are refused.
"""

import base64
import binascii
import hashlib
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from PIL.Image import Image

from rotatek import errors
from rotatek.inputs.images import MAX_SENT_BYTES
from rotatek.inputs.messages import PICTURE, Message, Part, Role, ToolCall
from rotatek.inputs.pdf import is_pdf, pictures_of
from rotatek.server.fields import Ignored

ROLES: Final[dict[str, Role]] = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant",
    "tool": "tool",
}  # fmt: skip
READ: Final = ("role", "content", "tool_calls", "tool_call_id", "refusal")
SILENT: Final = ("annotations", "audio", "logprobs")  # of answers sent back, where empty
DETAILS: Final = ("low", "high", "auto")
TEXTS: Final = ("text", "refusal")
FIELDS: Final = {  # that are read of parts with pictures
    "image_url": ("url", "detail"),
    "file": ("file_data", "filename", "detail"),
}
MOST_PAGES: Final = 32  # of all PDF files of a call
DRAWN_S: Final = 60.0  # for them
SCHEME: Final = "data:"
ADDRESSES: Final = ("url", "file_data")  # the fields that may be one
FLAG: Final = re.compile(r"base64\s*$", re.IGNORECASE)
WHITE: Final = b" \t\r\n\x0b\x0c"
ALPHABET: Final = bytes.maketrans(b"-_", b"+/")
BROKEN: Final = "The picture's base64 cannot be read. Encode the file's bytes anew and try again."


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


def read_messages(messages: Any, ignored: Ignored) -> Chat:
    """The chat of a call.

    Args:
        messages: of the call's JSON.
        ignored: notes what changes nothing.

    Raises:
        UserError: where they are no chat, or a picture is no data; `param` says where.
    """
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
    ignored.rest(given, read, "messages", place)
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
    return Message(role, tuple(parts), name=called.get(str(given.get("tool_call_id")), ""))


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
    """Calls of an assistant's message."""
    made = given.get("tool_calls") or []
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


def file_of(given: Any) -> bytes:
    """The bytes of a picture or a PDF, from any field of a part that may hold them.

    Args:
        given: `image_url` or `file` of a part: an object with `url` or `file_data`; or an address
            alone.

    Raises:
        UserError: for an address that would have to be fetched, and broken data.
    """
    address = given
    if isinstance(given, dict):
        address = next(filter(None, map(given.get, ADDRESSES)), None)
    if not isinstance(address, str):
        raise errors.ImageNotData
    address = address.lstrip()
    if address[: len(SCHEME)].lower() != SCHEME:
        raise errors.ImageNotData
    head, comma, data = address[len(SCHEME) :].partition(",")
    if not comma:
        raise errors.ImageNotData
    sent = data.encode("utf-8", "surrogatepass")
    plain = unquote_to_bytes(sent) if b"%" in sent else sent
    try:
        file = decoded(plain)
    except errors.ImageDamaged:
        if FLAG.search(head):
            raise
        file = plain  # percent-encoded bytes, as data URIs without base64 have them
    if len(file) > MAX_SENT_BYTES:
        raise errors.ImageTooLarge
    return file


def document_of(given: Any) -> bytes:
    """`file_of` of a `file` part, whose data may be base64 without any scheme.

    Raises:
        UserError: as of `file_of`; FileNotGiven.
    """
    data = given.get("file_data") if isinstance(given, dict) else None
    if isinstance(data, str) and data and ":" not in data[:9]:
        given = {"file_data": f"{SCHEME};base64,{data}"}
    try:
        return file_of(given)
    except errors.ImageNotData as error:
        raise errors.FileNotGiven from error


def decoded(text: bytes) -> bytes:
    """The bytes of base64, in either alphabet, with or without white space and padding.

    Raises:
        ImageTooLarge: before it is decoded.
        ImageDamaged: where it is no base64.
    """
    digits = text.translate(ALPHABET, WHITE).rstrip(b"=")
    if len(digits) > MAX_SENT_BYTES * 4 // 3 + 4:
        raise errors.ImageTooLarge
    try:
        return base64.b64decode(digits + b"=" * (-len(digits) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise errors.ImageDamaged(BROKEN) from error
