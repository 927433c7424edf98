"""What a program asks of `/v1/chat/completions`, checked.

Messages become a `Request`, texts and pictures in the order given. A field that would change the
answer and is not supported is refused; a field without effect is noted for a header (`fields`).
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

from PIL.Image import Image, Resampling

from rotatek import errors
from rotatek.engine.engine import Engine
from rotatek.inputs.images import MAX_PIXELS, MIN_SIDE, check_header, open_image
from rotatek.inputs.request import (
    MAX_IMAGES,
    MAX_NEW_TOKENS,
    Limits,
    Request,
    make_chat,
    whole_tokens,
)
from rotatek.methods.settings import Settings
from rotatek.server.chat import Shown, blaming, read_messages
from rotatek.server.fields import BOOLEAN, Ignored, check_fields, sampling_of

LENGTH: Final = Limits().kept_answer_tokens  # tokens of an answer where nothing is said
MOST_STOPS: Final = 4
LONGEST_STOP: Final = 100  # characters
MOST_PIXELS: Final = 4 * MAX_PIXELS  # of all pictures, as sent: bounds the work
BICUBIC: Final = Resampling.BICUBIC
DEEPEST: Final = 100  # levels of lists and objects in a field
SIZES: Final = ("min_pixels", "max_pixels")  # of `rotatek`, and no method's


@dataclass(frozen=True)
class Size:
    """How large a picture is to be seen, in pixels. low: at low detail."""

    low: bool = False
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True)
class Call:
    """One checked call.

    Args:
        model: by its name on offer.
        request: the chat, its pictures, and the longest answer.
        settings: how its cache is compressed.
        stop: texts before which the answer ends.
        stream: whether it is sent as it grows.
        with_usage: whether the last chunk of a stream says what it cost.
        sizes: of each picture.
        pictures: for each picture, a digest of its bytes as they were sent, and of its size.
        ignored: names of fields that change nothing.
        answers: how many there are to be.
    """

    model: str
    request: Request
    settings: Settings
    stop: tuple[str, ...] = ()
    stream: bool = False
    with_usage: bool = False
    sizes: tuple[Size, ...] = ()
    pictures: tuple[bytes, ...] = ()
    ignored: tuple[str, ...] = ()
    answers: int = 1

    @property
    def length(self) -> int:
        """The longest answer, in tokens."""
        return self.request.max_new_tokens

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of its answers in an engine's events."""
        return ("answer", *(f"answer {number}" for number in range(2, self.answers + 1)))


def read_call(body: bytes, models: Sequence[str], usual: Settings) -> Call:
    """A call from a request's body. Takes as long as decoding its pictures.

    Args:
        body: JSON.
        models: the names on offer.
        usual: the settings where the call has none.

    Raises:
        UserError: in a sentence that says what to change; `param` names the field.
    """
    given, ignored = _object_of(body), Ignored()
    try:
        check_fields(given, ignored)
        if given.get("model") not in models:
            raise errors.ModelNotServed
        chat = read_messages(given.get("messages"), ignored)
        length, tools = _length_of(given), _tools_of(given, ignored)
        own, least, most = _sizes_of(given.get("rotatek"), len(chat.pictures))
        settings = settings_of(own, usual)
        ignored.add("rotatek", None if chat.pictures else given.get("rotatek"))
        sampling, stop = sampling_of(given), _stops_of(given.get("stop"))
        with_usage = _with_usage(given.get("stream_options") or {}, ignored)
    except errors.SettingError as error:
        text = given.get(error.name)
        if not isinstance(text, str):
            raise
        raise errors.SettingError(error.name, error.allowed, f'"{text}"') from error  # no number
    with blaming("messages"):
        request = make_chat(
            _decoded(chat.pictures), chat.messages, length, cut=True, tools=tools, sampling=sampling
        )
    sizes = tuple(Size(one.detail == "low", least, most) for one in chat.pictures)
    seen = zip(chat.pictures, sizes, strict=True)
    return Call(
        model=given["model"],
        request=request,
        settings=settings,
        stop=stop,
        stream=bool(given.get("stream")),
        with_usage=with_usage,
        sizes=sizes,
        pictures=tuple(sha256(one.digest + repr(size).encode()).digest() for one, size in seen),
        ignored=tuple(ignored.names),
        answers=int(given.get("n", 1)),
    )


def _with_usage(options: Any, ignored: Ignored) -> bool:
    """Whether the last chunk of a stream says what it cost."""
    wanted = isinstance(options, dict) and (options.get("include_usage") or False)
    if not isinstance(options, dict) or wanted not in BOOLEAN:
        allowed = "an object, its include_usage true or false"
        raise errors.SettingError("stream_options", allowed, options)
    ignored.rest(options, ("include_usage",), "stream_options")
    return bool(wanted)


def settings_of(given: Any, usual: Settings) -> Settings:
    """The call's settings by their flat names; with none, `usual`.

    A named method has its own defaults; the other one keeps the usual options.

    Raises:
        SettingError: for a name or a value that there is not, or that cannot be shared.
    """
    if given is None:
        return usual
    if not isinstance(given, dict):
        raise errors.SettingError("rotatek", "an object of settings by their flat names", given)
    try:
        return Settings.from_dict(given, usual, shared=True)
    except errors.SettingError as error:
        error.param = f"rotatek.{error.name}"
        raise


def _sizes_of(given: Any, pictures: int) -> tuple[Any, int | None, int | None]:
    """The methods' settings among those of `rotatek`, and the least and the most pixels.

    Raises:
        SettingError: for no number of pixels, and for more at least than at most.
    """
    if not isinstance(given, dict):
        return given, None, None
    found: dict[str, int | None] = {}
    for name in SIZES:
        value = given.get(name)
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_whole and 1 <= value <= MAX_PIXELS):
            allowed = f"a whole number of pixels, 1 to {MAX_PIXELS}"
            raise errors.SettingError(f"rotatek.{name}", allowed, value)
        found[name] = value
    least, most = found["min_pixels"], found["max_pixels"]
    if least is not None and most is not None and least > most:
        raise errors.SettingError("rotatek.min_pixels", "at most max_pixels", least)
    if least is not None:
        least = min(least, MAX_PIXELS // max(1, pictures))
    own = {name: value for name, value in given.items() if name not in SIZES}
    return own or None, least, most


def _decoded(pictures: Sequence[Shown]) -> list[Image]:
    """The pictures, whose headers are added up before any is decoded.

    Where they have more pixels together than the bound of memory, each is scaled down as soon as it
    is decoded: no context holds so many.
    """
    if len(pictures) > MAX_IMAGES:
        raise errors.TooManyImages
    pixels = 0
    for one in pictures:
        with blaming(one.place):
            found = one.image
            width, height = check_header(found) if isinstance(found, bytes) else found.size
        pixels += width * height
        if pixels > MOST_PIXELS:
            raise errors.ImageTooManyPixels(
                "The pictures have more than 200 million pixels together. Scale them down and try "
                "again."
            )
    factor = min(1.0, math.sqrt(MAX_PIXELS / max(1, pixels)))
    images = []
    for one in pictures:
        with blaming(one.place):
            image = open_image(one.image) if isinstance(one.image, bytes) else one.image
        images.append(resized(image, *(round(factor * side) for side in image.size)))
    return images


def resized(image: Image, width: int, height: int) -> Image:
    """A picture at another size; no side is shorter than a picture's may be."""
    size = max(MIN_SIDE, width), max(MIN_SIDE, height)
    return image if image.size == size else image.resize(size, BICUBIC)


def _tools_of(given: Mapping[str, Any], ignored: Ignored) -> str:
    """Tools that the model is to know of, as JSON; empty where there are none.

    Raises:
        SettingError: for no list of functions.
    """
    listed = given.get("tools") or []
    if not isinstance(listed, list):
        raise errors.SettingError("tools", "a list", listed)
    for tool in listed:
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise errors.SettingError("tools", "a list of functions, each with a name", tool)
    if listed and given.get("tool_choice") == "none":
        ignored.add("tools")
        return ""
    told = [{"type": "function", "function": tool["function"]} for tool in listed]
    return json.dumps(told) if told else ""


def _object_of(body: bytes) -> dict[str, Any]:
    """The fields of a body that are not null.

    Raises:
        BodyUnreadable: where it is no JSON object.
        SettingError: for a field that is nested too deeply.
    """
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise errors.BodyUnreadable from error
    if not isinstance(given, dict):
        raise errors.BodyUnreadable
    for name, value in given.items():
        if _is_deeper(value, DEEPEST):  # whatever follows one into another would fail
            raise errors.SettingError(name, f"nested at most {DEEPEST} levels deep", value)
    return {name: value for name, value in given.items() if value is not None}


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects are nested so many levels and more."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_is_deeper(one, levels - 1) for one in inner)


def _length_of(given: Mapping[str, Any]) -> int:
    """The longest answer, by either of its two names; a number beyond any context means as much as
    fits."""
    names = [name for name in ("max_completion_tokens", "max_tokens") if name in given]
    if not names:
        return LENGTH
    length = given[names[0]]
    if isinstance(length, int) and not isinstance(length, bool):
        length = min(length, MAX_NEW_TOKENS)
    try:
        return whole_tokens(length)
    except errors.SettingError as error:
        raise errors.SettingError(names[0], "a whole number of 1 or more", length) from error


def _stops_of(given: Any) -> tuple[str, ...]:
    found = [] if given is None else [given] if isinstance(given, str) else given
    allowed = f"up to {MOST_STOPS} texts of 1 to {LONGEST_STOP} characters"
    if not isinstance(found, list) or len(found) > MOST_STOPS:
        raise errors.SettingError("stop", allowed, given)
    for text in found:
        if not isinstance(text, str) or not 1 <= len(text) <= LONGEST_STOP:
            raise errors.SettingError("stop", allowed, text)
    return tuple(found)


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


def _sized(image: Image, size: Size, engine: Engine) -> Image:
    low = engine.vlm.low_pixels
    if low is None or size == Size():
        return image
    most = min(size.most or MAX_PIXELS, low if size.low else MAX_PIXELS)
    least = min(size.least or 1, most)
    return resized(image, *engine.vlm.size_within(*image.size, least, most))
