"""Request -> token ids. The template's control tokens are real; what a visitor typed is text."""

import json
import re
from collections.abc import Container, Sequence
from typing import Any, Final

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from rotatek import errors
from rotatek.inputs.messages import FORMS, PICTURE, Message, Part, clean_text, shaped, too_long
from rotatek.inputs.request import Asked, Request

# private-use characters: `rotatek.inputs.messages` lets none through
_MARK: Final = "\ue000{}\ue001"
_MARKS: Final = re.compile("\ue000(\\d+)\ue001")
_NAMES: Final = re.compile(r"[^\w./$-]")  # what a key of a tool's description does not have
_REFUSED: Final = (TemplateError, TypeError, ValueError, KeyError, errors.ControlTokens)


def encode_chat(
    tokenizer: PreTrainedTokenizerBase, request: Request, pictures: Sequence[str], placeholder: str
) -> list[int]:
    """Token ids of the complete conversation, up to the start of the answer.

    The template is rendered around marks, and each typed text is encoded separately with special
    tokens split, so `<|im_end|>` in a question is ten characters and never a turn. Messages that
    the template does not support become text (`rotatek.inputs.messages.shaped`).

    Args:
        tokenizer: the model's.
        request: messages, with their pictures.
        pictures: the text of each picture, with one visual token for a run of them.
        placeholder: the template's own text for a picture.

    Raises:
        ControlTokens: where the template leaves out a text or a picture.
    """
    rendered, texts = _rendered(tokenizer, request.messages, request.tools)
    ids = _ids(tokenizer, _insert_pictures(rendered, placeholder, pictures), texts)
    return _first(tokenizer, ids) + ids


def _insert_pictures(rendered: str, placeholder: str, pictures: Sequence[str]) -> str:
    parts = rendered.split(placeholder)
    if len(parts) != len(pictures) + 1:
        raise errors.ControlTokens
    return "".join(part + picture for part, picture in zip(parts, [*pictures, ""], strict=True))


def _first(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[int]:
    """The token that begins every text of this tokenizer, where the template did not write it."""
    own = tokenizer("")["input_ids"][:1]
    return own if own == [tokenizer.bos_token_id] and own != list(ids[:1]) else []


def encode_follow_up(tokenizer: PreTrainedTokenizerBase, question: Asked) -> list[int]:
    """Token ids that lead from the end of an answer to the next one: end of turn, the clean
    question, cue.

    Raises:
        ControlTokens: where the template leaves out a text.
    """
    asked = question if isinstance(question, tuple) else (question,)
    turns = [Message("user", (".",)), Message("assistant", (".",)), Message("user", asked)]
    rendered, texts = _rendered(tokenizer, turns)
    return _ids(tokenizer, rendered.partition(_MARK.format(1))[2], texts)


def _rendered(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], tools: str = ""
) -> tuple[str, list[str]]:
    """The template around marks, in the first form that it supports; and the marks' texts."""
    source = str(tokenizer.chat_template)
    tried: list[tuple[Message, ...]] = []
    for form in FORMS:
        chat = shaped(messages, form)
        if chat in tried or (form.tools and not re.search("[\"']tool[\"']", source)):
            continue
        tried.append(chat)
        try:
            if form.system != "nowhere" and not _knows_system(tokenizer, chat):
                continue
            return _render(tokenizer, chat, tools)
        except _REFUSED:
            continue
    raise errors.ControlTokens


def _knows_system(tokenizer: PreTrainedTokenizerBase, chat: Sequence[Message]) -> bool:
    """Whether a system message, if there is one, does not begin as an answer would."""
    if all(message.role != "system" for message in chat):
        return True
    asked = Message("user", (".",))
    led, _ = _render(tokenizer, [Message("system", (".",)), asked])
    try:
        answered, _ = _render(tokenizer, [Message("assistant", (".",)), asked])
    except _REFUSED:
        return True
    return led.partition(_MARK.format(0))[0] != answered.partition(_MARK.format(0))[0]


def encode_cut(
    tokenizer: PreTrainedTokenizerBase, question: str, pictures: Sequence[str], placeholder: str
) -> tuple[list[int], list[int]]:
    """A chat of one clean question, cut behind its pictures; pictures and placeholder as of
    `encode_chat`, whose ids these are together.

    Returns:
        token ids up to the question, which are the same for every question, and the others up to
        the start of the answer.

    Raises:
        TextBeforePicture: where the template writes the question before a picture.
        ControlTokens: where the template leaves out the question or a picture.
    """
    places: list[Part] = [PICTURE] * len(pictures)
    rendered, texts = _rendered(tokenizer, [Message("user", (*places, question))])
    before, asked, after = rendered.partition(_MARK.format(0))
    if placeholder in after:
        raise errors.TextBeforePicture
    head = _ids(tokenizer, _insert_pictures(before, placeholder, pictures), texts)
    tail = _ids(tokenizer, asked + after, texts)
    return _first(tokenizer, head or tail) + head, tail


def _render(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], tools: str = ""
) -> tuple[str, list[str]]:
    """The template around marks, ready for an answer, with every text once; and the texts."""
    texts: list[str] = []

    def mark(text: str) -> str:
        texts.append(text)
        return _MARK.format(len(texts) - 1)

    made = [_as_dict(message, mark) for message in messages]
    needed = len(texts)
    for message, one in zip(messages, made, strict=True):
        if message.role == "tool" and message.name:  # some templates say it, some do not
            one["name"] = mark(message.name)
    more = {"tools": [_tool(tool, mark) for tool in json.loads(tools)]} if tools else {}
    rendered = tokenizer.apply_chat_template(
        made, tokenize=False, add_generation_prompt=True, **more
    )
    said = [int(number) for number in _MARKS.findall(rendered)]
    if sorted(number for number in said if number < needed) != list(range(needed)):
        raise errors.ControlTokens
    return rendered, texts


def _as_dict(message: Message, mark: Any) -> dict[str, Any]:
    content = [
        {"type": "text", "text": mark(part)} if isinstance(part, str) else {"type": "image"}
        for part in message.parts or ("",)
    ]
    made: dict[str, Any] = {"role": message.role, "content": content}
    if message.calls:
        made["tool_calls"] = [
            {"type": "function", "function": {"name": mark(c.name), "arguments": mark(c.arguments)}}
            for c in message.calls
        ]
    return made


def _tool(described: Any, mark: Any) -> Any:
    """A tool's description, with control tokens in it as plain text."""
    if isinstance(described, dict):
        return {_NAMES.sub("_", str(k)): _tool(value, mark) for k, value in described.items()}
    if isinstance(described, list):
        return [_tool(value, mark) for value in described]
    if isinstance(described, str) and _NAMES.search(described):
        return mark(json.dumps(clean_text(described), ensure_ascii=False)[1:-1])
    return described


def _ids(tokenizer: PreTrainedTokenizerBase, rendered: str, texts: Sequence[str]) -> list[int]:
    ids: list[int] = []
    for number, piece in enumerate(_MARKS.split(rendered)):
        is_typed = number % 2 == 1
        ids += _encode(tokenizer, texts[int(piece)] if is_typed else piece, split=is_typed)
    return ids


def _encode(tokenizer: PreTrainedTokenizerBase, text: str, *, split: bool) -> list[int]:
    """Token ids of a text, whose special tokens are `split` where it was typed."""
    if not text:
        return []
    return tokenizer(text, add_special_tokens=False, split_special_tokens=split)["input_ids"]


def expand_images(ids: Sequence[int], visual: Container[int], runs: Sequence[int]) -> list[int]:
    """Repeat each visual token of a conversation's ids to the length of its run.

    Raises:
        ControlTokens: if the ids hold another number of visual tokens than there are runs.
    """
    if sum(token in visual for token in ids) != len(runs):
        raise errors.ControlTokens
    wanted = iter(runs)
    return [t for i in ids for t in ([i] * next(wanted) if i in visual else [i])]


def too_long_for(
    tokenizer: PreTrainedTokenizerBase, request: Request, visual: int, has_room: bool
) -> errors.UserError:
    """The cause of an overlong request of so many visual tokens: the answer, where one token of it
    would fit, or else what takes most of the prompt."""
    if has_room:
        return errors.AnswerDoesNotFit()
    tokens: dict[type[errors.UserError], int] = {errors.PicturesDoNotFit: visual}
    for message in request.messages:
        blame = type(too_long(message.role, is_last=message is request.messages[-1]))
        tokens[blame] = tokens.get(blame, 0) + len(_encode(tokenizer, message.text, split=True))
    return max(tokens, key=lambda kind: tokens[kind])()
