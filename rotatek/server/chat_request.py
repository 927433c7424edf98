"""What a program asks of `/v1/chat/completions`, checked.

Messages become a `Request`, texts and pictures in the order given. A field that would change the
answer and is not supported is refused; a field without effect is noted for a header.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from typing import Any, Final

from PIL.Image import Image

from rotatek import errors
from rotatek.engine.engine import Engine
from rotatek.engine.grammar import compiled
from rotatek.inputs.images import MAX_PIXELS, check_header, open_image
from rotatek.inputs.request import (
    MAX_IMAGES,
    MAX_NEW_TOKENS,
    Limits,
    Request,
    make_chat,
    whole_tokens,
)
from rotatek.inputs.sampling import Sampling
from rotatek.inputs.token_grid import resized
from rotatek.methods.settings import Settings
from rotatek.server.chat import Ignored, Shown, blaming, ignore_rest, read_messages

MOST_STOPS: Final = 4
LONGEST_STOP: Final = 100  # characters
MOST_ANSWERS: Final = 16
MOST_PIXELS: Final = 4 * MAX_PIXELS  # of all pictures, as sent: bounds the work
DEEPEST: Final = 100  # levels of lists and objects in a field
LENGTHS: Final = ("max_completion_tokens", "max_tokens")  # two names of one thing
NUMBERS: Final = {one.name for one in fields(Sampling)} - {"top_logprobs", "grammar"}
FORMS: Final = '{"type": "text"}, {"type": "json_object"} or {"type": "json_schema", ...}'
BOOLEAN: Final = (False, True)
NOTHING: Final[Sequence[Any]] = (False, 0, "", [], {})
NO_BEAMS: Final = "there is no beam search"
RULES: Final[Mapping[str, tuple[Sequence[Any], str]]] = {  # values that a field may have, in words
    "stream": (BOOLEAN, "true or false"),
    "n": (range(1, MOST_ANSWERS + 1), f"a whole number from 1 to {MOST_ANSWERS}"),
    "logprobs": (BOOLEAN, "true, false or left out"),
    "tool_choice": (("none", "auto"), '"none", "auto" or left out'),
    **dict.fromkeys(("functions", "function_call"), (NOTHING, "left out: give tools")),
    # of those below another value would change the answer
    "best_of": ([1], "1 or left out: n is the number of answers"),
    "length_penalty": ([1], f"1 or left out: {NO_BEAMS}"),
    "use_beam_search": (NOTHING, f"false or left out: {NO_BEAMS}"),
    **dict.fromkeys(
        ("prompt_logprobs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
         "structured_outputs", "bad_words"), (NOTHING, "left out"),
    ),
    **dict.fromkeys(
        ("ignore_eos", "echo", "include_stop_str_in_output", "continue_final_message"),
        (NOTHING, "false or left out"),
    ),
    "modalities": ((["text"], []), '["text"] or left out'),
    "audio": (NOTHING, "left out: answers are text"),
    "min_tokens": ([0], "0 or left out"),
    "stop_token_ids": (NOTHING, "left out: give stop texts"),
    "add_generation_prompt": ([True], "true or left out"),
    "web_search_options": (NOTHING, "left out: nothing is fetched"),
}  # fmt: skip
READ: Final = (  # checked where they are read
    "model", "messages", *LENGTHS, "stop", "tools", "rotatek", "stream_options", *NUMBERS,
    "top_logprobs", "response_format", *RULES,
)  # fmt: skip


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
        low: of each picture, whether it is to be seen at low detail.
        least: pixels of a picture.
        most: pixels of a picture.
        pictures: for each picture, a digest of its bytes as they were sent, and of its size.
        ignored: names of fields that change nothing.
        answers: how many there are to be.
    """

    model: str
    request: Request
    settings: Settings
    stop: tuple[str, ...]
    stream: bool
    with_usage: bool
    low: tuple[bool, ...]
    least: int
    most: int
    pictures: tuple[bytes, ...]
    ignored: tuple[str, ...]
    answers: int

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
        for name, (allowed, words) in RULES.items():
            if name in given and given[name] not in allowed:
                raise errors.SettingError(name, words, given[name])
        ignore_rest(ignored, given, READ)
        if given.get("model") not in models:
            raise errors.ModelNotServed
        chat = read_messages(given.get("messages"), ignored)
        length, tools = _length_of(given), _tools_of(given, ignored)
        own, least, most = _pixels_of(given.get("rotatek", {}), len(chat.pictures))
        settings = settings_of(own, usual)
        if "rotatek" in given and not chat.pictures:
            ignored.setdefault("rotatek")
        sampling, stop = _sampling_of(given), _stops_of(given.get("stop", []))
        options = given.get("stream_options") or {}
        if not isinstance(options, dict) or options.get("include_usage") not in (None, *BOOLEAN):
            allowed = "an object, its include_usage true or false"
            raise errors.SettingError("stream_options", allowed, options)
        ignore_rest(ignored, options, ("include_usage",), "stream_options")
    except errors.SettingError as error:
        text = given.get(error.name)
        if not isinstance(text, str):
            raise
        raise errors.SettingError(error.name, error.allowed, f'"{text}"') from error  # no number
    with blaming("messages"):
        request = make_chat(
            _decoded(chat.pictures), chat.messages, length, cut=True, tools=tools, sampling=sampling
        )
    sizes = [repr((one.is_low, least, most)).encode() for one in chat.pictures]
    seen = zip(chat.pictures, sizes, strict=True)
    return Call(
        model=given["model"],
        request=request,
        settings=settings,
        stop=stop,
        stream=bool(given.get("stream")),
        with_usage=bool(options.get("include_usage")),
        low=tuple(one.is_low for one in chat.pictures),
        least=least,
        most=most,
        pictures=tuple(sha256(one.digest + size).digest() for one, size in seen),
        ignored=tuple(ignored),
        answers=int(given.get("n", 1)),
    )


def _object_of(body: bytes) -> dict[str, Any]:
    """The fields of a body that are not null."""
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
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_is_deeper(one, levels - 1) for one in inner)


def _length_of(given: Mapping[str, Any]) -> int:
    """The longest answer; a number beyond any context means as much as fits."""
    name = next((name for name in LENGTHS if name in given), None)
    if name is None:
        return Limits().kept_answer_tokens
    length = given[name]
    try:
        return whole_tokens(min(length, MAX_NEW_TOKENS) if isinstance(length, int) else length)
    except errors.SettingError as error:
        raise errors.SettingError(name, "a whole number of 1 or more", length) from error


def _tools_of(given: Mapping[str, Any], ignored: Ignored) -> str:
    """Tools that the model is to know of, as JSON; empty where there are none."""
    listed = given.get("tools") or []
    if not isinstance(listed, list):
        raise errors.SettingError("tools", "a list", listed)
    for tool in listed:
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise errors.SettingError("tools", "a list of functions, each with a name", tool)
    if listed and given.get("tool_choice") == "none":
        ignored.setdefault("tools")
        return ""
    told = [{"type": "function", "function": tool["function"]} for tool in listed]
    return json.dumps(told) if told else ""


def _pixels_of(given: Any, pictures: int) -> tuple[Any, int, int]:
    """The methods' settings among those of `rotatek`, and the least and the most pixels."""
    if not isinstance(given, dict):
        return given, 1, MAX_PIXELS
    own, bounds = dict(given), {"min_pixels": 1, "max_pixels": MAX_PIXELS}
    for name in bounds:
        if (value := own.pop(name, None)) is not None:
            if type(value) is not int or not 1 <= value <= MAX_PIXELS:
                allowed = f"a whole number of pixels, 1 to {MAX_PIXELS}"
                raise errors.SettingError(f"rotatek.{name}", allowed, value)
            bounds[name] = value
    least, most = bounds.values()
    if least > most:
        raise errors.SettingError("rotatek.min_pixels", "at most max_pixels", least)
    return own, min(least, MAX_PIXELS // max(1, pictures)), most


def settings_of(given: Any, usual: Settings) -> Settings:
    """The call's settings by their flat names.

    A named method has its own defaults; the other one keeps the usual options.

    Raises:
        SettingError: for a name or a value that there is not, or that cannot be shared.
    """
    if not isinstance(given, dict):
        raise errors.SettingError("rotatek", "an object of settings by their flat names", given)
    try:
        return Settings.from_dict(given, usual, shared=True)
    except errors.SettingError as error:
        error.param = f"rotatek.{error.name}"
        raise


def _sampling_of(given: Mapping[str, Any]) -> Sampling:
    """How answers are chosen, with a seed where they are drawn; what is left out is greedy."""
    top = given.get("top_logprobs", 0)
    if not given.get("logprobs"):
        if top != 0:
            raise errors.SettingError("top_logprobs", "left out, or beside logprobs: true", top)
        top = None  # no log probabilities are wanted
    own = {name: value for name, value in given.items() if name in NUMBERS}
    grammar = _grammar_of(given.get("response_format", {"type": "text"}))
    return Sampling(**own, top_logprobs=top, grammar=grammar).seeded()


def _grammar_of(form: Any) -> str:
    """The grammar of an answer's form; empty for any text."""
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "text":
        return ""
    if kind == "json_object":
        return compiled('{"type": "object"}')
    if kind != "json_schema":
        raise errors.SettingError("response_format", FORMS, form)
    named = form.get("json_schema")
    schema = named.get("schema") if isinstance(named, dict) else None
    if not isinstance(schema, dict):
        field = "response_format.json_schema.schema"
        raise errors.SettingError(field, "a JSON schema, which is an object", form)
    return compiled(json.dumps(schema), lenient=named.get("strict") is not True)


def _stops_of(given: Any) -> tuple[str, ...]:
    found = [given] if isinstance(given, str) else given
    right = isinstance(found, list) and len(found) <= MOST_STOPS
    if not right or not all(isinstance(one, str) and 0 < len(one) <= LONGEST_STOP for one in found):
        allowed = f"up to {MOST_STOPS} texts of 1 to {LONGEST_STOP} characters"
        raise errors.SettingError("stop", allowed, given)
    return tuple(found)


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


def fitted(call: Call, engine: Engine) -> Call:
    """The call with its pictures at the sizes that were asked for.

    A family with a fixed number of tokens for each picture gets it unchanged. Tools that the
    model's chat template has no place for are ignored.
    """
    request, ignored, low = call.request, call.ignored, engine.vlm.low_pixels
    if request.tools and not engine.vlm.takes_tools:
        request, ignored = replace(request, tools=""), (*ignored, "tools")
    images = []
    for image, is_low in zip(request.images, call.low, strict=True):
        if low is not None and (is_low or call.least > 1 or call.most < MAX_PIXELS):
            most = min(call.most, low) if is_low else call.most
            image = engine.vlm.within(image, min(call.least, most), most)  # noqa: PLW2901
        images.append(image)
    return replace(call, request=replace(request, images=tuple(images)), ignored=ignored)
