"""Messages of clients: parts in order, roles of every kind, and fields that change nothing."""

import json
from typing import Any

import pytest
from PIL import Image

from rotatek import errors
from rotatek.inputs.messages import PICTURE, Form, Message, ToolCall, clean_messages, shaped
from rotatek.methods.settings import Settings
from rotatek.server.chat_request import Size, read_call
from tests.server.conftest import asked, uri

ADDRESS = uri(Image.new("RGB", (64, 48), "white"))
CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"a": 1}'}}
TOOL = {"type": "function", "function": {"name": "find", "description": "Finds it."}}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words} | more


def image(address: str = ADDRESS, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": address} | more}


def read(messages: Any = None, **given: Any) -> Any:
    sent = {"model": "tiny", "messages": asked(ADDRESS) if messages is None else messages} | given
    return read_call(json.dumps(sent).encode(), ["tiny"], Settings())


def test_texts_and_pictures_keep_their_order() -> None:
    chat = [text("First:"), image(), text("Second:"), image(), text("Which"), text("is larger?")]
    (message,) = read([{"role": "user", "content": chat}]).request.messages
    assert message.parts == ("First:", PICTURE, "Second:", PICTURE, "Which\nis larger?")
    behind = read([{"role": "user", "content": [image(), image(), text("Which?")]}]).request
    assert behind.messages == (Message("user", (PICTURE, PICTURE, "Which?")),)


def test_neighbours_of_one_role_are_one_message() -> None:
    said = [
        {"role": "user", "content": "Look:"},
        {"role": "user", "content": [image(), text("One?")]},
        {"role": "assistant", "content": "1"},
        {"role": "assistant", "content": [text("or 2")]},
        {"role": "user", "content": "Sure?"},
        {"role": "user", "content": "Really?"},
    ]
    assert read(said).request.messages == (
        Message("user", ("Look:", PICTURE, "One?")),
        Message("assistant", ("1\nor 2",)),
        Message("user", ("Sure?\nReally?",)),
    )


def test_every_role_has_its_place() -> None:
    said = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [image(), text("Look it up.")]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": [text("It is 7."), image()]},
        {"role": "assistant", "function_call": {"name": "say", "arguments": {"b": 2}}},
        {"role": "function", "name": "say", "content": "said"},
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "system", "content": "In English."},
        {"role": "user", "content": "Well?"},
    ]
    assert read(said).request.messages == (
        Message("system", ("Be brief.",)),
        Message("user", (PICTURE, "Look it up.")),
        Message("assistant", (), (ToolCall("find", '{"a": 1}'),)),
        Message("tool", ("It is 7.", PICTURE), name="find"),
        Message("assistant", (), (ToolCall("say", '{"b": 2}'),)),
        Message("tool", ("said",), name="say"),
        Message("assistant", ("No.",)),
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


def test_detail_and_pixels() -> None:
    both = [{"role": "user", "content": [image(detail="low"), image(detail="high"), text("?")]}]
    call = read(both, rotatek={"max_pixels": 90_000, "keep_channels": 0.5})
    assert call.sizes == (Size(True, None, 90_000), Size(False, None, 90_000))
    assert call.settings == Settings.of(keep_channels=0.5) and len(set(call.pictures)) == 2
    plain = read(asked(ADDRESS)).pictures
    for more in ({"detail": "auto"}, {"detail": "high"}, {"detail": None}):
        same = [{"role": "user", "content": [text("What is it?"), image(**more)]}]
        assert read(same).pictures == plain
    assert read(rotatek={"min_pixels": 9000}).pictures != plain
    assert read(rotatek={"min_pixels": 9000}).settings == Settings()


def test_tools_are_told_or_named() -> None:
    assert json.loads(read(tools=[TOOL]).request.tools) == [TOOL]
    assert json.loads(read(functions=[TOOL["function"]]).request.tools)[0]["function"]["name"]
    none = read(tools=[TOOL], tool_choice="none")
    assert none.request.tools == "" and none.ignored == ("tools",)
    assert read(tools=[], tool_choice="auto").ignored == ()


def test_settings_have_nothing_to_compress_in_a_chat_of_texts() -> None:
    texts = [{"role": "user", "content": "What?"}]
    assert read(texts, rotatek={"smaller": 4}).ignored == ("rotatek",)
    with pytest.raises(errors.SettingError):
        read(texts, rotatek={"keep_tokens": 0.5})


def test_lengths_reach_to_the_context() -> None:
    assert read(max_tokens=4096).length == 4096
    assert read(max_tokens=10**12).length == read(max_tokens=16384).length
    assert read(max_tokens=7, max_completion_tokens=9).length == 9
    assert read(max_tokens=7.0).length == 7
