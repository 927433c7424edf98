"""A chat as messages of ordered parts, the forms that chat templates support, and clean text."""

import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Literal

from rotatek import errors

MAX_TEXT: Final = 400_000  # characters over all messages: more than any context holds
_REORDERING: Final = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"

Role = Literal["system", "user", "assistant", "tool"]


class Place(Enum):
    """A picture or another part that is no text, at its position in a message."""

    PICTURE = "picture"


PICTURE: Final = Place.PICTURE  # the next of the request's pictures
Part = str | Place


@dataclass(frozen=True)
class ToolCall:
    """A call that an assistant message made; arguments: JSON, as the client sent it."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Message:
    """Texts and pictures in order; calls: those of an assistant; name: of the tool that answers,
    if known."""

    role: Role
    parts: tuple[Part, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    name: str = ""

    @property
    def text(self) -> str:
        """All of its text."""
        return "\n".join(part for part in self.parts if isinstance(part, str))

    @property
    def pictures(self) -> int:
        """The number of its pictures."""
        return sum(part is PICTURE for part in self.parts)


@dataclass(frozen=True)
class Form:
    """The features that a chat template supports. system: system messages; tools: calls and
    results."""

    system: Literal["anywhere", "first", "nowhere"]
    tools: bool = False


FORMS: Final = (Form("anywhere", True), Form("anywhere"), Form("first"), Form("nowhere"))


def merged(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Neighbours of one role as one message, and neighbouring texts as one text of several lines.
    Two answers of tools stay separate; a message without parts is kept."""
    found: list[Message] = []
    for message in messages:
        last = found[-1] if found else None
        if last is not None and last.role == message.role != "tool" and not last.calls:
            found[-1] = replace(last, parts=last.parts + message.parts, calls=message.calls)
        else:
            found.append(message)
    return tuple(replace(message, parts=_joined(message.parts)) for message in found)


def _joined(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Neighbouring texts as one, a line break between them; empty ones are left out."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, str) and found and isinstance(found[-1], str):
            found[-1] = f"{found[-1]}\n{part}" if part else found[-1]
        elif part != "":
            found.append(part)
    return tuple(found)


def clean_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Messages with clean texts, neighbours of one role merged. Idempotent.

    Raises:
        RequestTooLong: where all texts together are longer than any context; blames the longest.
    """
    sizes = [len(one.text) + sum(len(call.arguments) for call in one.calls) for one in messages]
    if sum(sizes) > MAX_TEXT:
        longest = sizes.index(max(sizes))
        raise too_long(messages[longest].role, is_last=longest == len(sizes) - 1)
    return merged(
        replace(
            one,
            parts=_clean_parts(one.parts),
            calls=tuple(ToolCall(clean_text(c.name), clean_text(c.arguments)) for c in one.calls),
            name=clean_text(one.name),
        )
        for one in merged(messages)
    )


def too_long(role: Role, *, is_last: bool) -> errors.UserError:
    """The refusal that blames a message of this role; is_last: whether it is the question."""
    if role == "system":
        return errors.SystemDoesNotFit()
    return errors.QuestionDoesNotFit() if is_last else errors.HistoryDoesNotFit()


def _clean_parts(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Clean texts. White space between parts is kept; at both ends of a message it is removed."""
    clean = [_printable(part) if isinstance(part, str) else part for part in parts]
    if clean and isinstance(clean[0], str):
        clean[0] = clean[0].lstrip()
    if clean and isinstance(clean[-1], str):
        clean[-1] = clean[-1].rstrip()
    return tuple(part for part in clean if part != "")


def shaped(messages: Sequence[Message], form: Form) -> tuple[Message, ...]:
    """The same chat for a template that supports no more than `form`: calls become text of their
    own message, results and system messages that of the user's next one. A system message that ends
    the chat is the user's, too."""
    found: list[Message] = []
    for number, message in enumerate(messages):
        role, parts = message.role, message.parts
        if role == "system":
            leads = all(earlier.role == "system" for earlier in messages[:number])
            ends = all(later.role == "system" for later in messages[number:])
            kept = form.system == "anywhere" or (form.system == "first" and leads)
            if message.pictures or ends or not kept:
                role = "user"
        elif role == "tool" and (message.pictures or not form.tools):
            begin = f'<tool_response name="{message.name}">' if message.name else "<tool_response>"
            role, parts = "user", (begin, *parts, "</tool_response>")
        elif role == "assistant" and message.calls and not form.tools:
            for call in message.calls:
                called = json.dumps(call.name, ensure_ascii=False)
                said = f'{{"name": {called}, "arguments": {call.arguments or "{}"}}}'
                parts = (*parts, f"<tool_call>\n{said}\n</tool_call>")
            message = replace(message, calls=())
        name = message.name if role == "tool" else ""
        found.append(replace(message, role=role, parts=parts, name=name))
    return merged(found)


def clean_text(text: str) -> str:
    """Line ends as "\\n", nothing unprintable but newline and tab, NFC, no outer white space."""
    return _printable(text).strip()


def _printable(text: str) -> str:
    """Without controls, surrogates, private use (`rotatek.inputs.prompt` uses it for marks),
    separators of old terminals, and marks that reorder displayed text."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    hidden = ("Cc", "Cs", "Co", "Zl", "Zp")
    kept = (
        c for c in text
        if c in "\n\t" or not (unicodedata.category(c) in hidden or c in _REORDERING)
    )  # fmt: skip
    return unicodedata.normalize("NFC", "".join(kept))


def is_visible(c: str) -> bool:
    """Whether a character shows something by itself."""
    return not c.isspace() and unicodedata.category(c) not in ("Cf", "Mn", "Me")
