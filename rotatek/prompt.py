"""Request -> token ids. The template's control tokens are real; what a visitor typed is text."""

from collections.abc import Sequence
from typing import Final

from transformers import PreTrainedTokenizerBase

from rotatek.errors import ControlTokens
from rotatek.inputs import Request

_MARK: Final = "\ue000{}\ue001"  # private-use characters: `rotatek.inputs` lets none through


def encode_chat(
    tokenizer: PreTrainedTokenizerBase, request: Request, template: str | None
) -> list[int]:
    """Token ids of the whole conversation, ready for the answer; one image token an image.

    The template is rendered around marks, and each typed text is encoded on its own with special
    tokens split, so `<|im_end|>` in a question is seven characters and never a turn.
    """
    texts: list[str] = []

    def mark(text: str) -> str:
        texts.append(text)
        return _MARK.format(len(texts) - 1)

    messages = []
    turns = [*request.history, (request.question, None)]
    for number, (question, answer) in enumerate(turns):
        images = [{"type": "image"} for _ in request.images] if number == 0 else []
        content = [*images, {"type": "text", "text": mark(question)}]
        messages.append({"role": "user", "content": content})
        if answer is not None:
            said = [{"type": "text", "text": mark(answer)}]
            messages.append({"role": "assistant", "content": said})
    rendered = tokenizer.apply_chat_template(
        messages, chat_template=template, tokenize=False, add_generation_prompt=True
    )
    ids: list[int] = []
    for number, text in enumerate(texts):
        before, mark_, rendered = rendered.partition(_MARK.format(number))
        if not mark_:
            raise ControlTokens
        ids += _encode(tokenizer, before, split=False) + _encode(tokenizer, text, split=True)
    return ids + _encode(tokenizer, rendered, split=False)


def _encode(tokenizer: PreTrainedTokenizerBase, text: str, *, split: bool) -> list[int]:
    if not text:
        return []
    return tokenizer(text, add_special_tokens=False, split_special_tokens=split)["input_ids"]


def expand_images(ids: Sequence[int], image_token: int, counts: Sequence[int]) -> list[int]:
    """Repeat each image token as often as its image has visual tokens.

    Raises:
        ControlTokens: if the ids hold another number of image tokens than there are images.
    """
    if sum(token == image_token for token in ids) != len(counts):
        raise ControlTokens
    wanted = iter(counts)
    return [t for i in ids for t in ([i] * next(wanted) if i == image_token else [i])]
