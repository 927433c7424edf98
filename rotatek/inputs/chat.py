"""Requests of complete chats: messages in any order, and pictures among their texts."""

from collections.abc import Sequence

from PIL import Image

from rotatek import errors
from rotatek.inputs.messages import Message, clean_messages
from rotatek.inputs.request import MAX_IMAGES, Request, whole_tokens
from rotatek.inputs.sampling import GREEDY, Sampling
from rotatek.inputs.text import is_visible


def make_chat(
    images: Sequence[Image.Image],
    messages: Sequence[Message],
    max_new_tokens: int = 64,
    *,
    cut: bool = False,
    tools: str = "",
    sampling: Sampling = GREEDY,
) -> Request:
    """A request of any chat.

    Args:
        images: of `open_image`, in the order of their positions in the chat; none in a
            chat of texts alone.
        messages: the last one is to be answered.
        max_new_tokens: the longest answer, 1 to `rotatek.inputs.request.MAX_NEW_TOKENS`.
        cut: as of `Request`.
        tools: as of `Request`.
        sampling: as of `Request`.

    Raises:
        UserError: in a sentence that says what to change.
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
