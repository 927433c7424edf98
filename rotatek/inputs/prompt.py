"""Request -> token ids. The template's control tokens are real; what a visitor typed is text."""

from collections.abc import Container, Sequence
from typing import Final

from transformers import PreTrainedTokenizerBase

from rotatek.errors import ControlTokens, TextBeforePicture
from rotatek.inputs.request import Request

_MARK: Final = (
    "\ue000{}\ue001"  # private-use characters: `rotatek.inputs.request` lets none through
)


def encode_chat(
    tokenizer: PreTrainedTokenizerBase,
    request: Request,
    template: str | None,
    pictures: Sequence[str] = (),
    placeholder: str = "",
) -> list[int]:
    """Token ids of the whole conversation, ready for the answer.

    The template is rendered around marks, and each typed text is encoded on its own with special
    tokens split, so `<|im_end|>` in a question is seven characters and never a turn.

    Args:
        tokenizer: the model's.
        request: question and history, and which turns show pictures.
        template: a Jinja chat template; None for the tokenizer's own.
        pictures: what stands for each picture or clip, with one visual token for a run of them.
        placeholder: what the template says where a picture goes.

    Raises:
        ControlTokens: where the template leaves out a text or a picture.
    """
    turns = [*request.history, (request.question, None)]
    rendered, texts = _render(tokenizer, turns, template, request.shown or (len(pictures),))
    if placeholder:
        rendered = _place(rendered, placeholder, pictures)
    ids: list[int] = []
    for number, text in enumerate(texts):
        before, mark_, rendered = rendered.partition(_MARK.format(number))
        if not mark_:
            raise ControlTokens
        ids += _encode(tokenizer, before, split=False) + _encode(tokenizer, text, split=True)
    ids += _encode(tokenizer, rendered, split=False)
    return _first(tokenizer, ids) + ids


def _place(rendered: str, placeholder: str, pictures: Sequence[str]) -> str:
    """Put what stands for each picture where the template wants it."""
    parts = rendered.split(placeholder)
    if len(parts) != len(pictures) + 1:
        raise ControlTokens
    return "".join(part + picture for part, picture in zip(parts, [*pictures, ""], strict=True))


def _first(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[int]:
    """The token that begins every text of this tokenizer, where the template did not write it."""
    own = tokenizer("")["input_ids"][:1]
    return own if own == [tokenizer.bos_token_id] and own != list(ids[:1]) else []


def encode_follow_up(
    tokenizer: PreTrainedTokenizerBase,
    question: str,
    template: str | None,
    pictures: Sequence[str] = (),
    placeholder: str = "",
) -> list[int]:
    """Token ids that lead from the end of an answer to the next one: end of turn, question, cue.

    Args:
        tokenizer: the model's.
        question: clean text.
        template: a Jinja chat template; None for the tokenizer's own.
        pictures: what stands for each further picture, as for `encode_chat`.
        placeholder: what the template says where a picture goes.

    Raises:
        ControlTokens: where the template leaves out a text or a picture.
    """
    turns: list[tuple[str, str | None]] = [("", ""), (question, None)]
    rendered, _ = _render(tokenizer, turns, template, (0, len(pictures)))
    if pictures:
        rendered = _place(rendered, placeholder, pictures)
    _, answer, rest = rendered.partition(_MARK.format(1))
    before, asked, after = rest.partition(_MARK.format(2))
    if not answer or not asked:
        raise ControlTokens
    return [
        *_encode(tokenizer, before, split=False),
        *_encode(tokenizer, question, split=True),
        *_encode(tokenizer, after, split=False),
    ]


def encode_cut(
    tokenizer: PreTrainedTokenizerBase,
    question: str,
    template: str | None,
    pictures: Sequence[str],
    placeholder: str,
) -> tuple[list[int], list[int]]:
    """A chat of one question, cut behind its pictures: together, the ids of `encode_chat`.

    Args:
        tokenizer: the model's.
        question: clean text.
        template: a Jinja chat template; None for the tokenizer's own.
        pictures: what stands for each picture, as for `encode_chat`.
        placeholder: what the template says where a picture goes.

    Returns:
        token ids up to the question, which are the same for every question, and those from there on
        to where the answer begins.

    Raises:
        TextBeforePicture: where the template writes the question before a picture.
        ControlTokens: where the template leaves out the question or a picture.
    """
    rendered, _ = _render(tokenizer, [(question, None)], template, (len(pictures),))
    before, asked, after = rendered.partition(_MARK.format(0))
    if not asked:
        raise ControlTokens
    if placeholder in after:
        raise TextBeforePicture
    head = _encode(tokenizer, _place(before, placeholder, pictures), split=False)
    tail = _encode(tokenizer, question, split=True) + _encode(tokenizer, after, split=False)
    return _first(tokenizer, head or tail) + head, tail


def _render(
    tokenizer: PreTrainedTokenizerBase,
    turns: Sequence[tuple[str, str | None]],
    template: str | None,
    shown: Sequence[int],
) -> tuple[str, list[str]]:
    """The template around marks, ready for an answer; and the texts that the marks stand for.

    shown: pictures of each turn, as far as any have some.
    """
    texts: list[str] = []

    def mark(text: str) -> dict[str, str]:
        texts.append(text)
        return {"type": "text", "text": _MARK.format(len(texts) - 1)}

    messages = []
    for number, (question, answer) in enumerate(turns):
        pictures = [{"type": "image"}] * (shown[number] if number < len(shown) else 0)
        messages.append({"role": "user", "content": [*pictures, mark(question)]})
        if answer is not None:
            messages.append({"role": "assistant", "content": [mark(answer)]})
    rendered = tokenizer.apply_chat_template(
        messages, chat_template=template, tokenize=False, add_generation_prompt=True
    )
    return rendered, texts


def _encode(tokenizer: PreTrainedTokenizerBase, text: str, *, split: bool) -> list[int]:
    if not text:
        return []
    return tokenizer(text, add_special_tokens=False, split_special_tokens=split)["input_ids"]


def encode_text(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of typed text alone; special tokens in it are split."""
    return _encode(tokenizer, text, split=True)


def expand_images(ids: Sequence[int], visual: Container[int], runs: Sequence[int]) -> list[int]:
    """Repeat each visual token as often as its run is long.

    Args:
        ids: a conversation's token ids, one visual token a run.
        visual: ids that stand for visual tokens.
        runs: the length of each run, in order.

    Raises:
        ControlTokens: if the ids hold another number of visual tokens than there are runs.
    """
    if sum(token in visual for token in ids) != len(runs):
        raise ControlTokens
    wanted = iter(runs)
    return [t for i in ids for t in ([i] * next(wanted) if i in visual else [i])]
