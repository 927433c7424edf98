"""Input checks: bytes and a question become a checked `Request`, or a `UserError` is raised. No
name, extension or header field is trusted, and no URL is followed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, overload

from PIL import Image

from rotatek import errors
from rotatek.inputs.images import open_image
from rotatek.inputs.messages import (
    PICTURE,
    Message,
    Part,
    Place,
    clean_messages,
    clean_text,
    is_visible,
)
from rotatek.inputs.sampling import GREEDY, Sampling


@dataclass(frozen=True)
class Limits:
    """Bounds of one request, and of what all hold; see `rotatek.inputs.images` for pictures."""

    max_new_tokens: int = 1024
    max_prompt_tokens: int = 16384
    trace_tokens: int = 512  # tokens a trace keeps per head
    kept_answer_tokens: int = 256  # default length of an answer: a form or a short page
    cache_bytes: int | None = None  # of all visitors' caches; None: a share of the free memory
    warm_bytes: int = 256_000_000  # of what the vision tower saw of the latest pictures
    turns: int = 8  # questions that one conversation answers


MAX_IMAGES: Final = 1_000  # bounds the work on what no context has room for
MAX_QUESTION: Final = 2_000  # characters after cleaning, of a question that comes alone
MAX_NEW_TOKENS: Final = Limits().max_prompt_tokens


@dataclass(frozen=True, eq=False)
class Request:
    """One checked chat about images, or of texts alone, whose last message is answered.

    images: RGB, upright, without metadata, in the order in which the messages show them; messages:
    clean, neighbours of one role merged; max_new_tokens: 1 to `MAX_NEW_TOKENS`; cut: whether the
    answer may be cut short where the context is full; tools: for the model's prompt, as JSON;
    scope: a digest of an API key, whose pictures may be reused.
    """

    images: tuple[Image.Image, ...]
    messages: tuple[Message, ...]
    max_new_tokens: int = 64
    cut: bool = False
    tools: str = ""
    scope: str = ""
    sampling: Sampling = GREEDY

    @property
    def question(self) -> str:
        """The text of the last message."""
        return self.messages[-1].text


Asked = str | tuple[Part, ...]


def make_request(
    images: Image.Image | Sequence[Image.Image],
    question: Asked,
    max_new_tokens: int = 64,
    *,
    sampling: Sampling = GREEDY,
) -> Request:
    """Check everything once. Images pass through `open_image` again, which costs one copy.

    A question is a text, before which its pictures are shown, or a tuple of texts and `PICTURE`
    marks: `make_request([a, b], ("First:", PICTURE, "Second:", PICTURE, "Which is larger?"))`.

    max_new_tokens: 1 to `MAX_NEW_TOKENS`. Raises a `UserError` that says what to change.
    """
    given = [images] if isinstance(images, Image.Image) else list(images or ())
    if not given or any(image is None for image in given):
        raise errors.ImageMissing
    if len(given) > MAX_IMAGES:
        raise errors.TooManyImages
    pictures = tuple(open_image(image) for image in given)
    asked = clean_question(question)
    parts = asked if isinstance(asked, tuple) else (PICTURE,) * len(pictures) + (asked,)
    return make_chat(pictures, [Message("user", parts)], max_new_tokens, sampling=sampling)


def make_chat(
    images: Sequence[Image.Image],
    messages: Sequence[Message],
    max_new_tokens: int = 64,
    *,
    cut: bool = False,
    tools: str = "",
    sampling: Sampling = GREEDY,
) -> Request:
    """A request of any chat, whose last message is to be answered; everything as of `Request`.

    images: of `open_image`, in the order of their positions in the chat. Raises a `UserError`.
    """
    clean = clean_messages(messages)
    if len(images) > MAX_IMAGES:
        raise errors.TooManyImages
    if not clean or clean[-1].role == "assistant":
        raise errors.MessagesUnreadable
    if sum(one.pictures for one in clean) != len(images):
        raise errors.PlacesUnequal
    if not any(is_visible(c) for one in clean if one.role != "assistant" for c in one.text):
        raise errors.QuestionEmpty
    length = whole_tokens(max_new_tokens)
    return Request(tuple(images), clean, length, cut, tools, sampling=sampling)


def whole_tokens(max_new_tokens: float) -> int:
    """The longest answer, 1 to `MAX_NEW_TOKENS` (a web slider sends 64.0). Raises a `UserError`."""
    number = isinstance(max_new_tokens, int | float) and not isinstance(max_new_tokens, bool)
    if not number or not 1 <= max_new_tokens <= MAX_NEW_TOKENS or max_new_tokens % 1:
        allowed = f"a whole number from 1 to {MAX_NEW_TOKENS}"
        raise errors.SettingError("max_new_tokens", allowed, max_new_tokens)
    return int(max_new_tokens)


@overload
def clean_question(text: str) -> str: ...
@overload
def clean_question(text: tuple[Part, ...]) -> tuple[Part, ...]: ...
def clean_question(text: Asked) -> Asked:
    """One question as of `clean_text`, 1 to 2,000 characters. Idempotent. A tuple of texts and
    `PICTURE` marks is bounded by the model's context only. Raises a `UserError`."""
    if text is None:
        raise errors.QuestionEmpty
    if isinstance(text, tuple):
        if not all(isinstance(part, str | Place) for part in text):
            raise errors.QuestionNotText
        (message,) = clean_messages([Message("user", text)])
        if not any(map(is_visible, message.text)):
            raise errors.QuestionEmpty
        return message.parts
    if not isinstance(text, str):
        raise errors.QuestionNotText
    if len(text) > 8 * MAX_QUESTION:  # bounds the work on what will be refused anyway
        raise errors.QuestionTooLong
    text = clean_text(text)
    if not any(is_visible(c) for c in text):
        raise errors.QuestionEmpty
    if len(text) > MAX_QUESTION:
        raise errors.QuestionTooLong
    return text
