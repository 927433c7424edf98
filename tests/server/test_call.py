"""Valid requests, and the message for each invalid one."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from rotatek import errors
from rotatek.inputs.messages import Message
from rotatek.inputs.request import MAX_IMAGES
from rotatek.inputs.sampling import Sampling
from rotatek.methods.settings import BASELINE, Settings
from rotatek.server.api_keys import Keys
from rotatek.server.chat_request import MOST_STOPS, read_call
from rotatek.server.reply import StopText
from rotatek.server.sampling_fields import MOST_ANSWERS
from tests.server.conftest import asked, uri

PICTURE = uri(Image.new("RGB", (64, 48), "white"))
SECOND = uri(Image.new("RGB", (48, 64), "white"))
CHAT = asked(PICTURE)
LARGE = uri(Image.new("1", (3000, 3000)))
USUAL = Settings.of(tokens="fastv", keep_tokens=0.6, keep_channels=0.5)


def body(**given: Any) -> bytes:
    return json.dumps({"model": "tiny", "messages": CHAT} | given).encode()


def formed(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A `response_format` with a schema."""
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema} | more}


def parts(*given: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(given)}]


def test_a_call_is_read() -> None:
    call = read_call(
        body(
            max_tokens=7, stop="\n", stream=True, stream_options={"include_usage": True},
            temperature=0, user="me", rotatek={"keep_channels": 0.25, "solver": "eigh"},
        ),
        ["tiny"],
        USUAL,
    )  # fmt: skip
    assert call.request.question == "What is it?" and call.request.max_new_tokens == 7
    assert call.request.images[0].size == (64, 48)
    assert call.settings == USUAL.with_options(keep_channels=0.25, solver="eigh")
    assert (call.stop, call.stream, call.with_usage) == (("\n",), True, True)
    plain = read_call(body(), ["tiny"], USUAL)
    assert plain.settings == USUAL and not plain.stream and plain.request.max_new_tokens == 256


def test_a_method_that_is_named_has_its_own_defaults() -> None:
    given = {"tokens": "none", "channels": "full"}
    assert read_call(body(rotatek=given), ["tiny"], USUAL).settings == BASELINE
    call = read_call(body(rotatek={"channels": "think"}), ["tiny"], USUAL)
    assert call.settings == Settings.of(channels="think", tokens="fastv", keep_tokens=0.6)


def test_how_tokens_are_chosen() -> None:
    """What clients send is taken; without a temperature answers stay greedy."""
    plain = read_call(body(seed=3, top_p=0.5, response_format={"type": "text"}), ["tiny"], USUAL)
    assert plain.request.sampling.is_plain and plain.answers == 1
    call = read_call(
        body(
            temperature=0.7, top_p=0.9, top_k=40, min_p=0.1, seed=5, presence_penalty=1,
            frequency_penalty=-1, repetition_penalty=1.1, logit_bias={"7": -100}, n=3,
            logprobs=True, top_logprobs=2,
        ), ["tiny"], USUAL,
    )  # fmt: skip
    assert call.request.sampling == Sampling(
        0.7, 0.9, 40, 0.1, 5, 1, -1, 1.1, ((7, -100.0),), top_logprobs=2
    )
    assert call.answers == 3 == len(call.columns) and not call.ignored
    drawn = read_call(body(temperature=1), ["tiny"], USUAL).request.sampling
    other = read_call(body(temperature=1, seed=-1), ["tiny"], USUAL).request.sampling
    assert other.seed not in (-1, None, drawn.seed)
    assert drawn.seed is not None, "a seed that can be reported"
    loose = read_call(body(response_format=formed({"not": {"type": "string"}})), ["tiny"], USUAL)
    assert loose.request.sampling.grammar


def test_turns_are_history_and_a_system_message_has_its_own_role() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        *asked(PICTURE, "One?"),
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": [{"type": "text", "text": "Two?"}]},
    ]
    request = read_call(body(messages=messages), ["tiny"], USUAL).request
    assert request.messages[0] == Message("system", ("Be brief.",))
    assert request.history == (("One?", "1"),) and request.question == "Two?"
    assert request.shown == (1, 0)


def test_pictures_belong_to_their_turns() -> None:
    said = {"role": "assistant", "content": "1"}
    third = [{"role": "user", "content": "Three?"}]
    call = read_call(
        body(messages=[*CHAT, said, *asked(SECOND, "Two?"), said, *third]), ["tiny"], USUAL
    )
    assert [image.size for image in call.request.images] == [(64, 48), (48, 64)]
    assert call.request.shown == (1, 1, 0) and len(call.pictures) == 2
    late = read_call(body(messages=[*third, said, *CHAT]), ["tiny"], USUAL)
    assert late.request.shown == (0, 1)


REFUSED: dict[str, tuple[bytes, type[errors.UserError]]] = {
    "nothing": (b"", errors.BodyUnreadable),
    "no object": (b"[1]", errors.BodyUnreadable),
    "no text": (b"\xff\xfe\x00", errors.BodyUnreadable),
    "deep": (b"[" * 100_000, errors.BodyUnreadable),
    "no model": (body(model=None), errors.ModelNotServed),
    "another model": (body(model="gpt-4o"), errors.ModelNotServed),
    "a list as model": (body(model=["tiny"]), errors.ModelNotServed),
    "no messages": (body(messages=[]), errors.MessagesUnreadable),
    "messages as text": (body(messages="hello"), errors.MessagesUnreadable),
    "a message as text": (body(messages=["hello"]), errors.MessagesUnreadable),
    "the last is ours": (
        body(messages=[*CHAT, {"role": "assistant", "content": "x"}]), errors.MessagesUnreadable
    ),
    "a role that there is not": (
        body(messages=[*CHAT, {"role": "critic", "content": "x"}]), errors.MessagesUnreadable
    ),
    "no content": (body(messages=[*CHAT, {"role": "user"}]), errors.MessagesUnreadable),
    "a call without a name": (
        body(messages=[{"role": "assistant", "tool_calls": [{}]}, *CHAT]),
        errors.MessagesUnreadable,
    ),
    "sound": (body(messages=parts({"type": "input_audio"})), errors.PartUnsupported),
    "a film": (body(messages=parts({"type": "video_url"})), errors.PartUnsupported),
    "no document": (body(messages=parts({"type": "file"})), errors.FileNotGiven),
    "no text in a part": (body(messages=parts({"type": "text"})), errors.MessagesUnreadable),
    "no question": (body(messages=asked(PICTURE, " ")), errors.QuestionEmpty),
    "a question that no context has room for": (
        body(messages=asked(PICTURE, "x" * 400_001)), errors.QuestionDoesNotFit
    ),
    "a system message that no context has room for": (
        body(messages=[{"role": "system", "content": "x" * 400_001}, *CHAT]),
        errors.SystemDoesNotFit,
    ),
    "a history that no context has room for": (
        body(messages=[*CHAT, {"role": "assistant", "content": "x" * 400_001}, *CHAT]),
        errors.HistoryDoesNotFit,
    ),
    "an address": (body(messages=asked("https://example.org/a.png")), errors.ImageNotData),
    "an address inside": (body(messages=asked("http://127.0.0.1/")), errors.ImageNotData),
    "a file": (body(messages=asked("file:///etc/passwd")), errors.ImageNotData),
    "a path": (body(messages=asked("assets/a.png")), errors.ImageNotData),
    "plain data": (body(messages=asked("data:image/png,abc")), errors.NotAnImage),
    "no base64": (body(messages=asked("data:image/png;base64,!!")), errors.ImageDamaged),
    "no bytes": (body(messages=asked("data:image/png;base64,")), errors.ImageMissing),
    "text as picture": (body(messages=asked("data:image/png;base64,aGVsbG8=")), errors.NotAnImage),
    "half a picture": (body(messages=asked(PICTURE[:-60])), errors.ImageDamaged),
    "a large picture": (
        body(messages=asked("data:image/png;base64," + "A" * 42_000_000)), errors.ImageTooLarge
    ),
    "a picture of ours": (
        body(messages=[*CHAT, CHAT[0] | {"role": "assistant"}, *CHAT]), errors.ImageOutOfPlace
    ),
    "a detail that there is not": (
        body(messages=parts(CHAT[0]["content"][1] | {
            "image_url": {"url": PICTURE, "detail": "banana"}
        })), errors.SettingError,
    ),
    "a thousand pictures": (
        body(messages=parts(*[CHAT[0]["content"][1]] * (MAX_IMAGES + 1))), errors.TooManyImages
    ),
    "pictures too large together": (
        body(messages=parts(*[asked(LARGE)[0]["content"][1]] * 23)), errors.ImageTooManyPixels
    ),
    "too warm": (body(temperature=2.5), errors.SettingError),
    "text as temperature": (body(temperature="warm"), errors.SettingError),
    "no share": (body(top_p=0), errors.SettingError),
    "half a seed": (body(seed=0.5), errors.SettingError),
    "a penalty out of range": (body(presence_penalty=3), errors.SettingError),
    "a bias on a word": (body(logit_bias={"yes": 1}), errors.SettingError),
    "no answers": (body(n=0), errors.SettingError),
    "many answers": (body(n=MOST_ANSWERS + 1), errors.SettingError),
    "log probabilities as a number": (body(logprobs=5), errors.SettingError),
    "likely tokens without their probabilities": (body(top_logprobs=5), errors.SettingError),
    "many likely tokens": (body(logprobs=True, top_logprobs=21), errors.SettingError),
    "tools without names": (body(tools=[{"type": "function"}]), errors.SettingError),
    "tools as text": (body(tools="find"), errors.SettingError),
    "a call that has to be made": (body(tool_choice="required"), errors.SettingError),
    "a call of one tool": (
        body(tool_choice={"type": "function", "function": {"name": "f"}}), errors.SettingError
    ),
    "a form that there is not": (body(response_format={"type": "xml"}), errors.SettingError),
    "a schema without one": (
        body(response_format={"type": "json_schema", "json_schema": {"name": "x"}}),
        errors.SettingError,
    ),
    "a schema that is none": (body(response_format=formed({"type": "x"})), errors.SchemaUnusable),
    "a schema that nothing satisfies": (
        body(response_format=formed({"enum": []})), errors.SchemaUnusable
    ),
    "a schema from elsewhere": (
        body(response_format=formed({"$ref": "http://127.0.0.1/x"})), errors.SchemaUnusable
    ),
    "a strict schema that cannot be enforced": (
        body(response_format=formed({"not": {"type": "string"}}, strict=True)),
        errors.SchemaUnusable,
    ),
    "a long schema": (
        body(response_format=formed({"enum": ["x" * 100_000]})), errors.SchemaUnusable
    ),
    "two answers by another name": (body(best_of=2), errors.SettingError),
    "an answer of sound": (body(modalities=["text", "audio"]), errors.SettingError),
    "no length": (body(max_completion_tokens=0), errors.SettingError),
    "text as length": (body(max_tokens="7"), errors.SettingError),
    "many stops": (body(stop=["x"] * (MOST_STOPS + 1)), errors.SettingError),
    "an empty stop": (body(stop=""), errors.SettingError),
    "a number as stop": (body(stop=[1]), errors.SettingError),
    "text as switch": (body(stream="yes"), errors.SettingError),
    "text as stream options": (body(stream_options="x"), errors.SettingError),
    "settings as text": (body(rotatek="think"), errors.SettingError),
    "an unknown setting": (body(rotatek={"speed": 1}), errors.SettingError),
    "an unknown method": (body(rotatek={"channels": "magic"}), errors.SettingError),
    "a setting out of range": (body(rotatek={"keep_channels": 2}), errors.SettingError),
    "half a pixel": (body(rotatek={"max_pixels": 0.5}), errors.SettingError),
    "more pixels at least than at most": (
        body(rotatek={"min_pixels": 9000, "max_pixels": 8000}), errors.SettingError
    ),
    "a path of ours": (body(rotatek={"calibration": "/etc/passwd"}), errors.SettingError),
}  # fmt: skip


BLAMED = {  # the field that the refusal names
    "another model": "model", "no messages": "messages", "too warm": "temperature",
    "a form that there is not": "response_format", "a schema that is none": "response_format",
    "a call that has to be made": "tool_choice", "no length": "max_completion_tokens",
    "a setting out of range": "rotatek.keep_channels", "half a pixel": "rotatek.max_pixels",
    "an address": "messages[0].content[1].image_url", "sound": "messages[0].content[0]",
    "half a picture": "messages[0].content[1].image_url", "a role that there is not": "messages[1]",
    "a detail that there is not": "messages[0].content[0].image_url.detail",
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    sent, kind = REFUSED[name]
    with pytest.raises(kind) as refused:
        read_call(sent, ["tiny"], Settings())
    assert "passwd" not in refused.value.message
    assert refused.value.param == BLAMED.get(name, refused.value.param)


@pytest.mark.parametrize(
    ("stops", "pieces", "shown"),
    [
        ([], ["ab", "c"], ["ab", "c"]),
        (["c"], ["ab", "cd", "e"], ["ab", "", ""]),
        (["END"], ["a E", "N", "D b"], ["a ", "", ""]),
        (["END"], ["a E", "N", "x"], ["a ", "", "ENx"]),
        (["aab"], ["a", "a", "a", "b"], ["", "", "a", ""]),
        (["xy", "b"], ["ax", "by"], ["a", "x"]),
    ],
)
def test_text_up_to_a_stop(stops: list[str], pieces: list[str], shown: list[str]) -> None:
    text = StopText(stops)
    assert [text.feed(piece) for piece in pieces] == shown
    assert text.hit == any(stop in "".join(pieces) for stop in stops)


def test_what_waited_is_shown_at_the_end() -> None:
    text = StopText(["END"])
    assert text.feed("the EN") == "the " and text.rest() == "EN" and not text.hit


def test_keys() -> None:
    assert Keys().owner(None) == Keys([" ", ""]).owner("Bearer x")
    keys = Keys(["a" * 16, "b" * 16])
    assert keys.owner("Bearer " + "a" * 16) != keys.owner("bearer " + "b" * 16)
    refused: list[Callable[[], Any]] = [
        lambda: keys.owner(None),
        lambda: keys.owner("Bearer "),
        lambda: keys.owner("a" * 16),
        lambda: keys.owner("Basic " + "a" * 16),
        lambda: keys.owner("Bearer " + "a" * 15),
        lambda: keys.owner("Bearer \udce9"),
    ]
    for ask in refused:
        with pytest.raises(errors.KeyUnknown):
            ask()
    with pytest.raises(errors.SettingError):
        Keys(["short"])
