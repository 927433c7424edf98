"""What a program asks of `/v1/chat/completions`, checked: unknown words are refused, not ignored.

Messages become a `Request`: earlier turns as history, the last user message as the question, and
the pictures of all user messages, each with its turn. What a system message says leads the first
question.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rotatek import errors
from rotatek.inputs import request as inputs
from rotatek.inputs.request import MAX_IMAGES, MAX_SENT_BYTES, Request, make_request, open_images
from rotatek.limits import Limits
from rotatek.methods.settings import Settings

LENGTH: Final = Limits().kept_answer_tokens  # tokens of an answer where nothing is said
MOST_STOPS: Final = 4
LONGEST_STOP: Final = 100  # characters
LEADING: Final = ("system", "developer")
# What may be given although it changes nothing here, and the values that it may have.
IDLE: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "temperature": (lambda v: v == 0, "0 or left out: answers are greedy"),
    "top_p": (lambda v: v == 1, "1 or left out: answers are greedy"),
    "n": (lambda v: v == 1, "1: the same question has one answer"),
    "presence_penalty": (lambda v: v == 0, "0 or left out: answers are greedy"),
    "frequency_penalty": (lambda v: v == 0, "0 or left out: answers are greedy"),
    "logit_bias": (lambda v: not v, "left out"),
    "logprobs": (lambda v: v is False, "false or left out"),
    "tools": (lambda v: not v, "left out: there are no tools"),
    "tool_choice": (lambda v: v in ("none", "auto"), "none: there are no tools"),
    "response_format": (lambda v: v == {"type": "text"}, 'left out, or {"type": "text"}'),
    "modalities": (lambda v: v == ["text"], '["text"] or left out'),
    "store": (lambda v: v is False, "false: nothing is stored"),
    "seed": (lambda v: isinstance(v, int), "a whole number; it changes nothing"),
    "user": (lambda v: isinstance(v, str), "text; it changes nothing"),
    "metadata": (lambda v: isinstance(v, dict), "an object; it changes nothing"),
}
READ: Final = (
    "model", "messages", "max_tokens", "max_completion_tokens", "stop", "stream", "stream_options",
    "rotatek",
)  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One checked call.

    Args:
        model: by its name on offer.
        request: pictures, question, history and longest answer.
        settings: how its cache is compressed.
        stop: texts before which the answer ends.
        stream: whether it is told as it grows.
        with_usage: whether the last chunk of a stream says what it cost.
        pictures: for each turn, a digest of each of its pictures' bytes as they were sent.
    """

    model: str
    request: Request
    settings: Settings
    stop: tuple[str, ...] = ()
    stream: bool = False
    with_usage: bool = False
    pictures: tuple[tuple[bytes, ...], ...] = ()


def read_call(body: bytes, models: Sequence[str], usual: Settings) -> Call:
    """A call from a request's body. Takes as long as decoding its pictures.

    Args:
        body: JSON.
        models: the names on offer.
        usual: the settings where the call has none.

    Raises:
        UserError: in a sentence that says what to change.
    """
    given = _object_of(body)
    _check_words(given)
    if given.get("model") not in models:
        raise errors.ModelNotServed
    turns, question, files = read_messages(given.get("messages"))
    shown = [len(each) for each in files]
    images = open_images([file for each in files for file in each])
    request = make_request(images, question, _length_of(given), turns, shown)
    options = given.get("stream_options") or {}
    if not isinstance(options, dict):
        raise errors.SettingError("stream_options", "an object", options)
    return Call(
        model=given["model"],
        request=request,
        settings=settings_of(given.get("rotatek"), usual),
        stop=_stops_of(given.get("stop")),
        stream=_switch("stream", given.get("stream")),
        with_usage=_switch("stream_options.include_usage", options.get("include_usage")),
        pictures=tuple(tuple(hashlib.sha256(f).digest() for f in each) for each in files),
    )


def settings_of(given: Any, usual: Settings) -> Settings:
    """The call's settings by their flat names; with none, `usual`.

    A method that is named has its own defaults; of the others, the usual options stay.

    Raises:
        SettingError: for a name or a value that there is not, or that cannot be shared.
    """
    if given is None:
        return usual
    if not isinstance(given, dict):
        raise errors.SettingError("rotatek", "an object of settings by their flat names", given)
    return Settings.from_dict(given, usual, shared=True)


Turns = list[tuple[str, str]]


def read_messages(messages: Any) -> tuple[Turns, str, list[list[bytes]]]:
    """Earlier turns, the question, and the files of each turn's pictures, the question's last.

    Raises:
        UserError: where they are no chat, or a picture is no data.
    """
    if not isinstance(messages, list) or not messages:
        raise errors.MessagesUnreadable
    leading: list[str] = []
    said: list[str] = []
    files: list[list[bytes]] = []
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        text, pictures = _content_of(message.get("content")) if role else ("", [])
        if pictures and role in (*LEADING, "assistant"):
            raise errors.ImageOutOfPlace
        if role in LEADING and not said:
            leading.append(text)
        elif role == ("user", "assistant")[len(said) % 2]:
            said.append(text)
            files += [pictures] if role == "user" else []
        else:
            raise errors.MessagesUnreadable
    if len(said) % 2 == 0:
        raise errors.MessagesUnreadable
    if sum(map(len, files)) > MAX_IMAGES:
        raise errors.TooManyImages
    said[0] = "\n".join([*leading, said[0]])
    return list(zip(said[0:-1:2], said[1::2], strict=True)), said[-1], files


def _content_of(content: Any) -> tuple[str, list[bytes]]:
    """A message's text and pictures."""
    if isinstance(content, str):
        return content, []
    if not isinstance(content, list):
        raise errors.MessagesUnreadable
    texts, pictures = [], []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "image_url":
            pictures.append(_file_of(part.get("image_url")))
        else:
            raise errors.MessagesUnreadable
    return "\n".join(texts), pictures


def _file_of(given: Any) -> bytes:
    """The bytes of a data URI. Its media type is not believed: the one door looks at the bytes."""
    address = given.get("url") if isinstance(given, dict) else given
    if not isinstance(address, str) or not address[:5].lower() == "data:":
        raise errors.ImageNotData
    head, comma, data = address.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise errors.ImageNotData
    if len(data) > MAX_SENT_BYTES * 4 // 3 + 4:
        raise errors.ImageTooLarge
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise errors.ImageDamaged from error


def _object_of(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise errors.BodyUnreadable from error
    if not isinstance(given, dict):
        raise errors.BodyUnreadable
    return {name: value for name, value in given.items() if value is not None}


def _check_words(given: Mapping[str, Any]) -> None:
    """Refuse what this door would have to ignore."""
    for name, value in given.items():
        if name in IDLE:
            is_idle, allowed = IDLE[name]
            if not is_idle(value):
                raise errors.SettingError(name, allowed, value)
        elif name not in READ:
            raise errors.SettingUnknown(name, ", ".join((*READ, *IDLE)), "field")


def _length_of(given: Mapping[str, Any]) -> int:
    """The longest answer, by whichever of its two names."""
    names = [name for name in ("max_completion_tokens", "max_tokens") if name in given]
    if not names:
        return LENGTH
    try:
        return inputs.whole_tokens(given[names[0]])
    except errors.SettingError as error:
        raise errors.SettingError(names[0], error.allowed, given[names[0]]) from error


def _stops_of(given: Any) -> tuple[str, ...]:
    found = [] if given is None else [given] if isinstance(given, str) else given
    allowed = f"up to {MOST_STOPS} texts of 1 to {LONGEST_STOP} characters"
    if not isinstance(found, list) or len(found) > MOST_STOPS:
        raise errors.SettingError("stop", allowed, given)
    for text in found:
        if not isinstance(text, str) or not 1 <= len(text) <= LONGEST_STOP:
            raise errors.SettingError("stop", allowed, text)
    return tuple(found)


def _switch(name: str, given: Any) -> bool:
    if given not in (None, False, True):
        raise errors.SettingError(name, "true or false", given)
    return bool(given)
