"""Fits a call to one model: its pictures' sizes, its tools, and the room for its answer."""

from dataclasses import replace

from PIL.Image import Image

from rotatek.engine.engine import Engine
from rotatek.inputs.request import MAX_PIXELS
from rotatek.server.chat_request import Call, Size, resized


def fitted(call: Call, engine: Engine) -> Call:
    """The call with its pictures at the sizes that were asked for.

    A family with a fixed number of tokens for each picture gets it unchanged. Tools that the
    model's chat template has no place for are ignored.

    Args:
        call: as it was read.
        engine: of its model.
    """
    request, ignored = call.request, call.ignored
    pairs = zip(request.images, call.sizes, strict=True)
    images = tuple(_sized(image, size, engine) for image, size in pairs)
    if request.tools and not engine.vlm.takes_tools:
        request, ignored = replace(request, tools=""), (*ignored, "tools")
    return replace(call, request=replace(request, images=images), ignored=ignored)


def room_of(engine: Engine) -> int:
    """Tokens of prompt and answer that an engine has room for."""
    limit = engine.limits.max_prompt_tokens
    return engine.vlm.context(limit) or limit


def _sized(image: Image, size: Size, engine: Engine) -> Image:
    low = engine.vlm.low_pixels
    if low is None or size == Size():
        return image
    most = min(size.most or MAX_PIXELS, low if size.low else MAX_PIXELS)
    least = min(size.least or 1, most)
    return resized(image, *engine.vlm.size_within(*image.size, least, most))
