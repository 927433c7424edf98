"""A call's messages: checked roles and parts of what clients send.

The files of pictures stay as they were sent; a `PICTURE` among the parts of a message marks each.
The pages of a PDF are pictures in place of the PDF. Files are data URIs, recognised by their
content, not by their media type: white space, missing padding, the URL-safe alphabet, percent signs
and any media type are accepted; only bytes that cannot be base64 are refused.
"""

import base64
import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from PIL.Image import Image

from rotatek import errors
from rotatek.inputs.images import MAX_SENT_BYTES
from rotatek.inputs.messages import PICTURE, Message, Part, Role, ToolCall
from rotatek.inputs.pdf import is_pdf, pictures_of

ROLES: Final[dict[str, Role]] = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant",
    "tool": "tool",
}  # fmt: skip
READ: Final = ("role", "content", "tool_calls", "tool_call_id", "refusal")
SILENT: Final = ("annotations", "audio", "logprobs")  # of answers sent back, where empty
DETAILS: Final = (None, "low", "high", "auto")
TEXTS: Final = ("text", "refusal")
FIELDS: Final = {  # that are read of parts with pictures
    "image_url": ("url", "detail"),
    "file": ("file_data", "filename", "detail"),
}
MOST_PAGES: Final = 32  # of all PDF files of a call
DRAWN_S: Final = 60.0  # for them
SCHEME: Final = "data:"
FLAG: Final = re.compile(r"base64\s*$", re.IGNORECASE)
WHITE: Final = b" \t\r\n\x0b\x0c"
ALPHABET: Final = bytes.maketrans(b"-_", b"+/")
BROKEN: Final = "The picture's base64 cannot be read. Encode the file's bytes anew and try again."
# In names of fields where other APIs have pictures and files, which an answer must not miss.
PICTURED: Final = re.compile(
    r"(?:^|_|\b)(image|img|picture|photo|screenshot|attachment|file|document|media|video)s?(?:$|_)"
    r"|multi_?modal", re.IGNORECASE,
)  # fmt: skip
BRIEF: Final = 32  # characters of a text that is no file

Ignored = dict[str, None]  # names of a call's fields without effect, in order, each once


def ignore_rest(
    ignored: Ignored, given: Mapping[str, Any], read: Iterable[str], place: str = ""
) -> None:
    """Note the fields of an object that are neither read nor null; place: where it is in the call.

    Raises:
        SettingError: for one that may have a picture, as other APIs spell it.
    """
    inside = re.sub(r"\[\d+\]$", "", place).rpartition(".")[2]
    for name, value in given.items():
        if name in read or value is None:
            continue
        least = BRIEF if isinstance(value, str) else 0
        held = isinstance(value, str | dict | list) and len(value) > least
        if held and PICTURED.search(re.sub("([A-Z])", r"_\1", name)):
            allowed = "left out: pictures are read as parts of type image_url"
            raise errors.SettingError(".".join(filter(None, (place, name))), allowed, value)
        ignored.setdefault(".".join(filter(None, (inside, name))))


@dataclass(frozen=True, eq=False)
class Shown:
    """A picture of a call.

    Args:
        image: its file; or a page of a PDF, drawn.
        digest: of the file, and which page it is.
        is_low: whether little detail is asked for.
        place: the field of the call that holds it.
    """

    image: bytes | Image
    digest: bytes
    is_low: bool
    place: str


@dataclass
class Chat:
    """What `read_messages` found."""

    ignored: Ignored
    until: float  # by `time.monotonic`: then no further page of a PDF is begun
    messages: list[Message] = field(default_factory=list)  # as sent, not yet cleaned
    pictures: list[Shown] = field(default_factory=list)
    called: dict[str, str] = field(default_factory=dict)  # names of tools by the calls' ids


def read_messages(messages: Any, ignored: Ignored) -> Chat:
    """The chat of a call's JSON; adds to `ignored`.

    Raises:
        UserError: where the messages are no chat, or a picture is no data; `param` says where.
    """
    if not isinstance(messages, list) or not messages:
        raise errors.MessagesUnreadable
    chat = Chat(ignored, time.monotonic() + DRAWN_S)
    for number, message in enumerate(messages):
        place = f"messages[{number}]"
        with blaming(place):
            chat.messages += _message(message, chat, place)
    if messages[-1]["role"] == "assistant":
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


def _message(given: Any, chat: Chat, place: str) -> Iterator[Message]:
    """One message; none where an assistant only called a function of the API's former kind."""
    said = given.get("role") if isinstance(given, dict) else None
    if not isinstance(said, str):
        raise errors.MessagesUnreadable
    if said not in ROLES:
        raise errors.SettingError(f"{place}.role", "one of " + ", ".join(ROLES), said)
    role, content = ROLES[said], given.get("content")
    read = [*READ, *(name for name in SILENT if not given.get(name))]
    ignore_rest(chat.ignored, given, read, place)
    if content is None and role != "assistant":
        raise errors.MessagesUnreadable
    parts = _parts(content, role, chat, f"{place}.content")
    if role != "assistant":
        name = chat.called.get(str(given.get("tool_call_id")), "") if role == "tool" else ""
        yield Message(role, tuple(parts), name=name)
        return
    refusal, calls = given.get("refusal"), tuple(_calls(given, chat))
    parts += [refusal] if isinstance(refusal, str) else []
    if calls or any(parts) or not given.get("function_call"):
        yield Message(role, tuple(parts), calls)


def _parts(content: Any, role: Role, chat: Chat, place: str) -> list[Part]:
    """A message's texts, and a `PICTURE` for each picture, whose file goes into the chat."""
    if content is None or isinstance(content, str):
        return [content or ""]
    if not isinstance(content, list):
        raise errors.MessagesUnreadable
    parts: list[Part] = []
    for number, part in enumerate(content):
        here = f"{place}[{number}]"
        with blaming(here):
            kind = part.get("type") if isinstance(part, dict) else None
            if not isinstance(kind, str):
                raise errors.MessagesUnreadable
            if kind in TEXTS:
                if not isinstance(part.get(kind), str):
                    raise errors.MessagesUnreadable
                parts.append(part[kind])
                empty = [one for one in SILENT if not part.get(one)]
                ignore_rest(chat.ignored, part, ("type", kind, *empty), here)
            elif kind in FIELDS:
                if role == "assistant":
                    raise errors.ImageOutOfPlace
                ignore_rest(chat.ignored, part, ("type", kind), here)
                parts += [PICTURE] * _add_pictures(part.get(kind), kind, chat, f"{here}.{kind}")
            else:
                raise errors.PartUnsupported
    return parts


def _add_pictures(given: Any, kind: str, chat: Chat, place: str) -> int:
    """Add a picture, or the pages of a PDF, to the chat; returns how many."""
    with blaming(place):
        fields = given if isinstance(given, dict) else {}
        ignore_rest(chat.ignored, fields, FIELDS[kind], place)
        detail = fields.get("detail")
        if detail not in DETAILS:
            raise errors.SettingError(f"{place}.detail", "low, high, auto or left out", detail)
        file = file_of(given, kind)
        whole, found = hashlib.sha256(file).digest(), list[tuple[bytes | Image, bytes]]()
        if is_pdf(file):
            for number, page in enumerate(pictures_of(file, chat.until)):
                found.append((page, whole + number.to_bytes(4, "big")))
        else:
            found.append((file, whole))
        chat.pictures += [Shown(image, digest, detail == "low", place) for image, digest in found]
        if sum(not isinstance(one.image, bytes) for one in chat.pictures) > MOST_PAGES:
            raise errors.PdfsManyPages
    return len(found)


def _calls(given: dict[str, Any], chat: Chat) -> Iterator[ToolCall]:
    made = given.get("tool_calls") or []
    if not isinstance(made, list):
        raise errors.MessagesUnreadable
    for call in made:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(name := function.get("name"), str):
            raise errors.MessagesUnreadable
        chat.called[str(call.get("id"))] = name
        arguments = function.get("arguments") or "{}"
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        yield ToolCall(name, arguments)


def file_of(given: Any, kind: str = "image_url") -> bytes:
    """The bytes of a picture or a PDF: of base64 in either alphabet, with or without white space
    and padding, or percent-encoded.

    Args:
        given: an object with `url` or `file_data`, or an address alone.
        kind: "image_url", or "file", whose data may be base64 without any scheme.

    Raises:
        UserError: for an address that would have to be fetched, broken data, and too much of it.
    """
    missing = errors.ImageNotData if kind == "image_url" else errors.FileNotGiven
    if isinstance(given, dict):
        given = given.get("url") or given.get("file_data")
    if not isinstance(given, str):
        raise missing
    address = given.lstrip()
    if kind == "file" and address and ":" not in address[:9]:
        address = f"{SCHEME};base64,{address}"
    head, comma, data = address.partition(",")
    if head[: len(SCHEME)].lower() != SCHEME or not comma:
        raise missing
    sent = data.encode("utf-8", "surrogatepass")
    plain = unquote_to_bytes(sent) if b"%" in sent else sent
    digits = plain.translate(ALPHABET, WHITE).rstrip(b"=")
    if len(digits) > MAX_SENT_BYTES * 4 // 3 + 4:  # before it is decoded
        raise errors.ImageTooLarge
    try:
        file = base64.b64decode(digits + b"=" * (-len(digits) % 4), validate=True)
    except ValueError as error:
        if FLAG.search(head):
            raise errors.ImageDamaged(BROKEN) from error
        file = plain  # as data URIs without base64 have it
    if len(file) > MAX_SENT_BYTES:
        raise errors.ImageTooLarge
    return file
