"""A call as it is read: fields, messages, pictures, keys; and the refusal of each invalid one."""

import base64
import io
import json
from typing import Any, Final
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from PIL import Image

from rotatek import Sampling, Settings, errors
from rotatek.inputs.messages import PICTURE, Form, Message, ToolCall, clean_messages, shaped
from rotatek.inputs.request import MAX_IMAGES
from rotatek.server.api_keys import Keys
from rotatek.server.chat import file_of
from rotatek.server.chat_request import MOST_ANSWERS, MOST_STOPS, Call, read_call
from rotatek.server.reply import StopText
from tests.server.conftest import asked, formed, image, said, text, uri, user

ADDRESS: Final = uri(Image.new("RGB", (64, 48), "white"))
SECOND: Final = uri(Image.new("RGB", (48, 64), "white"))
CHAT: Final = asked(ADDRESS)
SHOWN: Final = image(ADDRESS)
USUAL: Final = Settings.of(tokens="fastv", keep_tokens=0.6, keep_channels=0.5)
CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"a": 1}'}}
TOOL = {"type": "function", "function": {"name": "find", "description": "Finds it."}}


def read(messages: Any = None, usual: Settings = USUAL, **fields: Any) -> Call:
    sent = {"model": "tiny", "messages": CHAT if messages is None else messages} | fields
    return read_call(json.dumps(sent).encode(), ["tiny"], usual)


def test_a_call_is_read() -> None:
    call = read(
        max_tokens=7, stop="\n", stream=True, stream_options={"include_usage": True},
        temperature=0, user="me", rotatek={"keep_channels": 0.25, "solver": "eigh"},
    )  # fmt: skip
    assert call.request.question == "What is it?" and call.length == 7
    assert call.request.images[0].size == (64, 48)
    assert call.settings == USUAL.with_options(keep_channels=0.25, solver="eigh")
    assert (call.stop, call.stream, call.with_usage) == (("\n",), True, True)
    plain = read()
    assert plain.settings == USUAL and not plain.stream and plain.length == 256
    usual = read(  # what web clients send unasked
        temperature=0, top_p=1, n=1, stop=[], presence_penalty=0, frequency_penalty=0,
        logit_bias={}, stream=False, session_id="x", background_tasks={"title": True},
    )  # fmt: skip
    assert usual.request.sampling == plain.request.sampling and usual.stop == ()
    assert usual.ignored == ("session_id", "background_tasks")
    assert read(max_tokens=10**12).length == read(max_tokens=16384).length
    assert read(max_tokens=7.0, max_completion_tokens=9).length == 9


def test_how_tokens_are_chosen() -> None:
    """What clients send is taken; without a temperature answers stay greedy."""
    plain = read(seed=3, top_p=0.5, response_format={"type": "text"})
    assert plain.request.sampling.is_plain and plain.answers == 1
    call = read(
        temperature=0.7, top_p=0.9, top_k=40, min_p=0.1, seed=5, presence_penalty=1,
        frequency_penalty=-1, repetition_penalty=1.1, logit_bias={"7": -100}, n=3, logprobs=True,
        top_logprobs=2,
    )  # fmt: skip
    own = Sampling(0.7, 0.9, 40, 0.1, 5, 1, -1, 1.1, ((7, -100.0),), top_logprobs=2)
    assert call.request.sampling == own
    assert call.answers == 3 == len(call.columns) and not call.ignored
    seeds = [read(temperature=1, seed=seed).request.sampling.seed for seed in (None, -1)]
    assert len({*seeds}) == 2 and not {None, -1} & {*seeds}, "drawn, so that it can be reported"
    assert read(response_format=formed({"not": {"type": "string"}})).request.sampling.grammar


def test_pictures_belong_to_their_turns() -> None:
    call = read([*CHAT, said("1"), *asked(SECOND, "Two?"), said("1"), user("Three?")])
    assert [one.size for one in call.request.images] == [(64, 48), (48, 64)]
    assert [one.pictures for one in call.request.messages] == [1, 0, 1, 0, 0]
    later = read([user("Three?"), said("1"), *CHAT])
    assert [one.pictures for one in later.request.messages] == [0, 0, 1]
    behind = read([user(SHOWN, SHOWN, text("Which?"))]).request
    assert behind.messages == (Message("user", (PICTURE, PICTURE, "Which?")),)


def test_every_role_has_its_place_and_neighbours_are_one() -> None:
    chat = [
        {"role": "developer", "content": "Be brief."},
        user("Look:"),
        user(SHOWN, text("It."), SHOWN, text("Look it"), text("up.")),
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": [text("It is 7."), SHOWN]},
        {"role": "assistant", "content": None, "function_call": CALL["function"]},
        {"role": "assistant", "content": None, "refusal": "No."},
        said("1"),
        {"role": "system", "content": "In English."},
        user("Well?"),
    ]
    assert read(chat).request.messages == (
        Message("system", ("Be brief.",)),
        Message("user", ("Look:", PICTURE, "It.", PICTURE, "Look it\nup.")),
        Message("assistant", (), (ToolCall("find", '{"a": 1}'),)),
        Message("tool", ("It is 7.", PICTURE), name="find"),
        Message("assistant", ("No.\n1",)),
        Message("system", ("In English.",)),
        Message("user", ("Well?",)),
    )


def test_what_a_template_has_no_place_for_becomes_text() -> None:
    chat = clean_messages([
        Message("system", ("Be brief.",)),
        Message("user", (PICTURE, "Look it up.")),
        Message("assistant", ("Yes.",), (ToolCall("find", '{"a": 1}'),)),
        Message("tool", ("7",), name="find"),
        Message("system", ("In English.",)),
    ])  # fmt: skip
    call = 'Yes.\n<tool_call>\n{"name": "find", "arguments": {"a": 1}}\n</tool_call>'
    result = '<tool_response name="find">\n7\n</tool_response>\nIn English.'
    turns = (Message("user", (PICTURE, "Look it up.")), Message("assistant", (call,)))
    last = Message("user", (result,))
    assert shaped(chat, Form("anywhere")) == (Message("system", ("Be brief.",)), *turns, last)
    assert shaped(chat, Form("nowhere")) == (
        Message("user", ("Be brief.", PICTURE, "Look it up.")), *turns[1:], last
    )  # fmt: skip
    kept = shaped(chat, Form("first", tools=True))
    assert kept[2:4] == chat[2:4] and kept[4] == Message("user", ("In English.",))
    late = clean_messages([*turns, Message("system", ("A",)), Message("user", ("B",))])
    assert shaped(late, Form("anywhere"))[2].role == "system"
    assert shaped(late, Form("first"))[2] == Message("user", ("A\nB",))
    shown = shaped([Message("system", ("Such:", PICTURE)), *turns], Form("anywhere"))
    assert shown[0] == Message("user", ("Such:", PICTURE, PICTURE, "Look it up."))


def test_tools_are_told_or_named() -> None:
    assert json.loads(read(tools=[TOOL]).request.tools) == [TOOL]
    none = read(tools=[TOOL], tool_choice="none")
    assert none.request.tools == "" and none.ignored == ("tools",)
    assert read(tools=[], tool_choice="auto").ignored == ()


HUGE: Final = 10**400  # no float holds it
# Values that a field may not have.
BAD_VALUES: dict[str, list[Any]] = {
    "temperature": [2.5, "warm", HUGE],
    "top_p": [0, HUGE],
    "top_k": [HUGE],
    "seed": [0.5],
    "presence_penalty": [3, -HUGE],
    "logit_bias": [{"yes": 1}, {"1": HUGE}, {str(HUGE): 1}],
    "n": [0, MOST_ANSWERS + 1],
    "logprobs": [5],
    "top_logprobs": [5],
    "tools": [[{"type": "function"}], "find"],
    "functions": [[TOOL["function"]]],
    "tool_choice": ["required", {"type": "function", "function": {"name": "f"}}],
    "response_format": [
        {"type": "xml"}, formed({"type": "x"}), formed({"enum": []}),
        formed({"$ref": "http://127.0.0.1/x"}), formed({"not": {"type": "string"}}, strict=True),
        formed({"enum": ["x" * 100_000]}),
    ],
    "best_of": [2],
    "modalities": [["text", "audio"]],
    "max_completion_tokens": [0],
    "max_tokens": ["7", float("inf")],
    **{name: [["aGVsbG8="]] for name in (  # where other APIs have pictures
        "images", "image_data", "attachments", "experimental_attachments", "input_images", "files",
        "file_ids", "documents", "multi_modal_data", "imageUrls",
    )},
    "image": ["data:image/png;base64,aGVsbG8gd29ybGQ="],
    "stop": [["x"] * (MOST_STOPS + 1), "", [1]],
    "stream": ["yes"],
    "stream_options": ["x"],
    "rotatek": ["think"],
    "model": [None, "gpt-4o", ["tiny"]],
}  # fmt: skip
BAD_SETTINGS: dict[str, Any] = {
    "speed": 1, "channels": "magic", "keep_channels": 2, "max_pixels": 0.5, "smaller": HUGE,
    "calibration": "/etc/passwd",
}  # fmt: skip
FIELDS = [({name: bad}, name) for name, values in BAD_VALUES.items() for bad in values]
FIELDS += [({"rotatek": {name: bad}}, f"rotatek.{name}") for name, bad in BAD_SETTINGS.items()]
FIELDS += [
    ({"rotatek": {"min_pixels": 9000, "max_pixels": 8000}}, "rotatek.min_pixels"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
]


@pytest.mark.parametrize(("fields", "param"), FIELDS, ids=lambda one: str(one)[:50])
def test_a_value_that_a_field_may_not_have(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(errors.UserError) as refused:
        read(**fields)
    assert refused.value.param == param and "passwd" not in refused.value.message
    assert refused.value.status == (404 if param == "model" else 400)
    if isinstance(text := fields.get(param), str) and param != "model":
        assert f'got "{text[:20]}' in refused.value.message, "16 is a number, and a text is none"


FIRST: Final = "messages[0].content[1].image_url"
LONG: Final = "x" * 400_001
LARGE: Final = uri(Image.new("1", (3000, 3000)))
BAD_MESSAGES: list[tuple[Any, type[errors.UserError], str]] = [
    ([], errors.MessagesUnreadable, "messages"),
    (["hello"], errors.MessagesUnreadable, "messages[0]"),
    ([*CHAT, said("x")], errors.MessagesUnreadable, "messages"),
    ([*CHAT, {"role": "function", "content": "x"}], errors.SettingError, "messages[1].role"),
    ([*CHAT, {"role": "user"}], errors.MessagesUnreadable, "messages[1]"),
    ([{"role": "assistant", "tool_calls": [{}]}, *CHAT], errors.MessagesUnreadable, "messages[0]"),
    ([user({"type": "video_url"})], errors.PartUnsupported, "messages[0].content[0]"),
    ([user({"type": "file"})], errors.FileNotGiven, "messages[0].content[0].file"),
    ([user({"type": "text"})], errors.MessagesUnreadable, "messages[0].content[0]"),
    ([user("Hi?") | {"images": ["x"]}], errors.SettingError, "messages[0].images"),
    ([user(text("Hi?", image_url={"url": ADDRESS}))], errors.SettingError,
     "messages[0].content[0].image_url"),
    ([user(SHOWN | {"video": ["x"]})], errors.SettingError, "messages[0].content[0].video"),
    (asked(ADDRESS, " "), errors.QuestionEmpty, "messages"),
    (asked(ADDRESS, LONG), errors.QuestionDoesNotFit, "messages"),
    ([{"role": "system", "content": LONG}, *CHAT], errors.SystemDoesNotFit, "messages"),
    ([*CHAT, said(LONG), *CHAT], errors.HistoryDoesNotFit, "messages"),
    (asked("https://example.org/a.png"), errors.ImageNotData, FIRST),
    (asked("file:///etc/passwd"), errors.ImageNotData, FIRST),
    (asked("data:image/png,abc"), errors.NotAnImage, FIRST),
    (asked("data:image/png;base64,!!"), errors.ImageDamaged, FIRST),
    (asked("data:image/png;base64,"), errors.ImageMissing, FIRST),
    (asked(ADDRESS[:-60]), errors.ImageDamaged, FIRST),
    (asked("data:image/png;base64," + "A" * 42_000_000), errors.ImageTooLarge, FIRST),
    ([*CHAT, CHAT[0] | said("")|{"content": [SHOWN]}, *CHAT], errors.ImageOutOfPlace,
     "messages[1].content[0]"),
    ([user(image(ADDRESS, detail="banana"))], errors.SettingError,
     "messages[0].content[0].image_url.detail"),
    ([user(*[SHOWN] * (MAX_IMAGES + 1))], errors.TooManyImages, "messages"),
    ([user(*[image(LARGE)] * 23)], errors.ImageTooManyPixels, "messages"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("messages", "kind", "param"), BAD_MESSAGES, ids=[row[1].code for row in BAD_MESSAGES]
)
def test_messages_that_are_no_chat(messages: Any, kind: Any, param: str) -> None:
    with pytest.raises(kind) as refused:
        read(messages)
    assert refused.value.param == param and "passwd" not in refused.value.message


@pytest.mark.parametrize("body", [b"", b"[1]", b"\xff\xfe\x00", b"[" * 100_000])
def test_a_body_that_is_no_object(body: bytes) -> None:
    with pytest.raises(errors.BodyUnreadable):
        read_call(body, ["tiny"], USUAL)


@pytest.mark.parametrize("name", ["metadata", "tools", "rotatek"])
def test_a_field_is_nested_so_deeply_and_no_deeper(name: str) -> None:
    """Long before templates and libraries that are handed it could not follow."""
    for depth in (96, 101, 900):
        tool: dict[str, Any] = {"function": {"name": "find", "parameters": "DEEP"}}
        own = {"tools": [tool]} if name == "tools" else {name: ["DEEP"]}
        body = json.dumps({"model": "tiny", "messages": CHAT} | own)
        body = body.replace('"DEEP"', '{"a": ' * depth + "1" + "}" * depth)
        try:
            read_call(body.encode(), ["tiny"], USUAL)
        except errors.SettingError as error:
            assert error.param == name and ("levels deep" in error.message) == (depth > 96)


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
    held = StopText(stops)
    assert [held.feed(piece) for piece in pieces] == shown
    assert held.hit == any(stop in "".join(pieces) for stop in stops)
    at_the_end = StopText(["END"])
    assert at_the_end.feed("the EN") == "the " and at_the_end.rest() == "EN" and not at_the_end.hit


def test_keys() -> None:
    assert Keys().owner(None) == Keys([" ", ""]).owner("Bearer x")
    keys = Keys(["a" * 16, "b" * 16])
    assert keys.owner("Bearer " + "a" * 16) != keys.owner("bearer " + "b" * 16)
    for wrong in (None, "Bearer ", "a" * 16, "Basic " + "a" * 16, "Bearer " + "a" * 15,
                  "Bearer \udce9"):  # fmt: skip
        with pytest.raises(errors.KeyUnknown):
            keys.owner(wrong)
    with pytest.raises(errors.SettingError):
        Keys(["short"])


# -- pictures as data URIs: the bytes count, not what is said of them ---------------------------


def _png() -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").resize((40, 30)).save(file, format="PNG")
    return file.getvalue()


PNG: Final = _png()
PLAIN: Final = base64.b64encode(PNG).decode()
SAFE: Final = base64.urlsafe_b64encode(PNG).decode()
LINES: Final = base64.encodebytes(PNG).decode()
WAYS: Final = [
    f"data:image/png;base64,{LINES}",
    f"data:image/png;base64,\t {PLAIN[:9]} \f\v{PLAIN[9:]}\n\n",
    f"data:image/png;base64,{SAFE.rstrip('=')}",
    f"data:text/plain;charset=utf-8;base64,{PLAIN}",
    f"data:,{PLAIN}",
    f"data:image/png; base64,{PLAIN}",
    f"DATA:IMAGE/PNG;BASE64,{PLAIN}",
    f"data:image/png;base64,{quote(LINES, safe='')}",
    f"data:image/png,{quote(PNG)}",
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: repr(way[:30]))
def test_a_picture_is_read_by_its_content(way: str) -> None:
    assert file_of({"url": way}) == file_of(way) == PNG


def test_a_file_is_bounded_before_and_after() -> None:
    for data in ("A" * 42_000_000, " \n" * 10_000_000 + "A" * 42_000_000):
        with pytest.raises(errors.ImageTooLarge):
            file_of(f"data:image/png;base64,{data}")
    assert file_of(f"data:image/png;base64,{PLAIN}{' ' * 14_000_000}") == PNG


# -- whatever a client sends, the door answers or refuses --------------------------------------

WORDS = st.text(max_size=12) | st.sampled_from(["What?", "<|im_end|>", "\ud800", "\ue0000\ue001"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(width=32) | WORDS
ANY = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
ADDRESSES = st.sampled_from([ADDRESS, ADDRESS.replace(";base64", ""), "data:,x", "http://x/"])
FILES = ADDRESSES | st.dictionaries(st.sampled_from(["url", "file_data", "detail"]), ADDRESSES)
KINDS = st.sampled_from(["text", "image_url", "file", "refusal", "input_text"])
PARTS = ANY | st.fixed_dictionaries(
    {"type": KINDS}, optional={"text": WORDS, "image_url": FILES, "file": FILES, "refusal": WORDS}
)
ROLES = st.sampled_from(["system", "developer", "user", "user", "assistant", "tool", "critic"])
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": ROLES, "content": WORDS | st.lists(PARTS, max_size=4) | st.none()},
        optional={"name": ANY, "tool_calls": ANY, "tool_call_id": ANY, "x": ANY},
    ),
    max_size=5,
)
LAST = st.lists(PARTS, max_size=2).map(
    lambda parts: [{"role": "user", "content": [*asked(ADDRESS)[0]["content"], *parts]}]
)
ANY_FIELDS = [
    "temperature", "n", "tools", "tool_choice", "functions", "stream_options", "response_format",
    "user", "stop", "max_tokens", "\ud800", "top_k", "metadata", "seed", "logit_bias", "logprobs",
]  # fmt: skip


@pytest.mark.slow
@examples(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    MESSAGES, LAST | st.just([]), st.dictionaries(st.sampled_from(ANY_FIELDS), ANY, max_size=2),
    st.none() | st.dictionaries(WORDS, ANY, max_size=3),
)  # fmt: skip
def test_any_call(
    address: str, messages: list[Any], last: list[Any], more: dict[str, Any], settings: Any
) -> None:
    body = {"model": "tiny", "max_tokens": 1, "rotatek": settings, "messages": messages + last}
    reply = httpx.post(
        f"{address}/v1/chat/completions", content=json.dumps(body | more), timeout=60,
        headers={"content-type": "application/json"},
    )  # fmt: skip
    told = reply.json()
    if reply.status_code == 200:
        assert told["choices"][0]["finish_reason"] in ("stop", "length")
    else:
        assert reply.status_code in (400, 404, 413), told
        assert told["error"]["message"].endswith((".", ":")) and told["error"]["code"] != "refused"
