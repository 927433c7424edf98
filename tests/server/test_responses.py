"""`/v1/responses`, as the official client drives it."""

from typing import Any, Literal

import httpx
import openai
import pytest
from PIL import Image
from pydantic import BaseModel

from rotatek import errors
from rotatek.models import VisionLanguageModel
from rotatek.server.api_keys import Keys
from rotatek.server.chat_app import ChatApp
from rotatek.server.fields import HEADER
from rotatek.server.response_store import ResponseStore
from tests.fixtures import Picture
from tests.server.conftest import asked, client_of, served, tiny_door, uri
from tests.server.test_files import KEYS, data_of, png
from tests.unit.test_pdf import pdf_of

pytestmark = pytest.mark.slow
QUESTION = "What is it?"


def respond(client: openai.OpenAI, given: Any, **more: Any) -> Any:
    create: Any = client.responses.create
    return create(**{"model": "tiny", "input": given, "max_output_tokens": 8} | more)


def chat(client: openai.OpenAI, messages: list[dict[str, Any]], **more: Any) -> Any:
    create: Any = client.chat.completions.create
    return create(**{"model": "tiny", "messages": messages, "max_tokens": 8} | more)


def shows(image: Image.Image | str, question: str = QUESTION) -> list[dict[str, Any]]:
    address = image if isinstance(image, str) else uri(image)
    parts = [
        {"type": "input_text", "text": question},
        {"type": "input_image", "image_url": address, "detail": "auto"},
    ]
    return [{"role": "user", "content": parts}]


@pytest.fixture
def shown(picture: Picture) -> Image.Image:
    return picture(80, 60, seed=31)


def test_a_response_is_the_chats_answer(client: openai.OpenAI, shown: Image.Image) -> None:
    settings = {"extra_body": {"rotatek": {"keep_channels": 0.5}}}
    expected = chat(client, asked(shown), **settings)
    said = respond(client, shows(shown), metadata={"a": "b"}, **settings)
    assert said.output_text == expected.choices[0].message.content
    assert said.status == "incomplete" and said.incomplete_details.reason == "max_output_tokens"
    assert said.usage.input_tokens == expected.usage.prompt_tokens
    assert said.usage.output_tokens == 8 and said.usage.total_tokens == said.usage.input_tokens + 8
    assert said.usage.input_tokens_details.image_tokens == expected.usage.visual_tokens
    assert said.usage.kv_bytes > 0 and said.usage.kv_bytes_full > 0
    assert said.rotatek["settings"]["keep_channels"] == 0.5 and "doubt" in said.rotatek
    assert said.metadata == {"a": "b"} and said.object == "response" and said.model == "tiny"
    (message,) = said.output
    assert message.role == "assistant" and message.content[0].type == "output_text"


def test_texts_instructions_and_functions(client: openai.OpenAI) -> None:
    system = {"role": "system", "content": "Be brief."}
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    messages = [
        system, {"role": "user", "content": "Hello?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "7"},
    ]  # fmt: skip
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Hello?"}]},
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "find", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "7"},
    ]
    pairs: list[tuple[Any, Any]] = [("Hello?", messages[:2]), (items, messages)]
    for given, instead in pairs:
        said = respond(client, given, instructions="Be brief.")
        expected = chat(client, instead)
        assert said.output_text == expected.choices[0].message.content
        assert said.usage.input_tokens == expected.usage.prompt_tokens
        assert said.instructions == "Be brief." and said.usage.visual_tokens == 0


def test_files_in_an_input(client: openai.OpenAI, shown: Image.Image) -> None:
    paper = pdf_of([shown, shown])
    uploaded = client.files.create(file=("a.png", png(shown)), purpose="vision")
    expected = respond(client, shows(shown)).output_text
    parts = shows(shown)[0]["content"]
    named = [
        parts[0], {"type": "input_image", "file_id": uploaded.id, "image_url": None}
    ]  # fmt: skip
    assert respond(client, [{"role": "user", "content": named}]).output_text == expected
    document = {"type": "input_file", "filename": "a.pdf", "file_data": data_of(paper)}
    pages = respond(client, [{"role": "user", "content": [parts[0], document]}])
    assert pages.usage.visual_tokens > 0
    away = {"type": "input_file", "file_url": "https://example.org/a.pdf"}
    with pytest.raises(openai.BadRequestError) as refused:
        respond(client, [{"role": "user", "content": [parts[0], away]}])
    assert (refused.value.code, refused.value.param) == ("file_not_given", "input[0].content[1]")


EVENTS = [
    "response.created", "response.in_progress", "response.output_item.added",
    "response.content_part.added", "response.output_text.delta", "response.output_text.done",
    "response.content_part.done", "response.output_item.done",
]  # fmt: skip


def test_a_stream_is_the_response_in_events(client: openai.OpenAI, shown: Image.Image) -> None:
    whole = respond(client, shows(shown))
    events = list(respond(client, shows(shown), stream=True))
    kinds = [event.type for event in events]
    assert [kind for n, kind in enumerate(kinds) if kind not in kinds[:n]] == [
        *EVENTS, "response.incomplete"
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    last = events[-1].response
    assert text == last.output_text == whole.output_text and last.usage == whole.usage
    assert {e.response.id for e in events if hasattr(e, "response")} == {last.id}
    assert events[0].response.status == "in_progress" and events[0].response.output == []


def test_the_clients_stream_helper(client: openai.OpenAI, picture: Picture) -> None:
    """It wants a complete answer: the tiny model ends some of them early."""
    for seed in range(40):
        given: Any = shows(picture(seed=seed))
        whole = respond(client, given, max_output_tokens=60)
        if whole.status == "completed":
            break
    assert whole.status == "completed" and whole.incomplete_details is None
    helper: Any = client.responses.stream
    with helper(model="tiny", input=given, max_output_tokens=60) as stream:
        seen = [event.type for event in stream]
        final = stream.get_final_response()
    assert seen[-1] == "response.completed"
    assert final.output_text == whole.output_text and final.status == "completed"


def test_a_response_goes_on_from_another(client: openai.OpenAI, shown: Image.Image) -> None:
    first = respond(client, shows(shown, "First?"), instructions="Be brief.")
    assert client.responses.retrieve(first.id).output_text == first.output_text
    second = respond(client, "And?", previous_response_id=first.id)
    assert second.previous_response_id == first.id and not second.rotatek["warm"]
    whole = [
        *asked(shown, "First?"),
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "And?"},
    ]
    assert second.output_text == chat(client, whole).choices[0].message.content, "no instructions"
    plain = respond(client, shows(shown, "First?"))
    warm = respond(client, "And?", previous_response_id=plain.id)
    assert warm.rotatek["warm"] and warm.usage.input_tokens_details.cached_tokens > 0
    client.responses.delete(first.id)
    loose = respond(client, shows(shown), store=False)
    for gone in (first.id, loose.id, "resp_0"):
        with pytest.raises(openai.NotFoundError) as refused:
            respond(client, "And?", previous_response_id=gone)
        assert (refused.value.code, refused.value.param) == (
            "response_unknown", "previous_response_id"
        )  # fmt: skip
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(gone)


def test_nobody_goes_on_from_another_keys_response(vlm: VisionLanguageModel) -> None:
    with served(tiny_door(vlm, keys=Keys(KEYS))) as address:
        one, other = (client_of(address, key) for key in KEYS)
        said = respond(one, "Hello?")
        for call in (
            lambda: respond(other, "And?", previous_response_id=said.id),
            lambda: other.responses.retrieve(said.id),
            lambda: other.responses.delete(said.id),
        ):
            with pytest.raises(openai.NotFoundError) as refused:
                call()
            assert refused.value.body["message"] == errors.ResponseUnknown.sentence  # type: ignore[index]
        assert one.responses.retrieve(said.id).output_text == said.output_text


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no input": ({"input": None}, "input"),
    "an empty input": ({"input": []}, "input"),
    "a number": ({"input": 7}, "input"),
    "a reference": ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
    "a picture elsewhere": (
        {"input": shows("https://example.org/a.png")}, "input[0].content[1]"
    ),
    "sound": ({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]},
              "input[0].content[0]"),
    "a role": ({"input": [{"role": "critic", "content": "x"}]}, "input[0]"),
    "the background": ({"background": True}, "background"),
    "a conversation": ({"conversation": "conv_1"}, "conversation"),
    "a prompt": ({"prompt": {"id": "x"}}, "prompt"),
    "a search": ({"tools": [{"type": "web_search"}]}, "tools"),
    "a forced call": (
        {"tools": [{"type": "function", "name": "f", "parameters": {}}],
         "tool_choice": {"type": "function", "name": "f"}}, "tool_choice"
    ),
    "a length": ({"max_output_tokens": -1}, "max_output_tokens"),
    "instructions": ({"instructions": ["x"]}, "instructions"),
    "two answers": ({"extra_body": {"n": 2}}, "n"),
    "no model": ({"model": "gpt-5"}, "model"),
    "a store": ({"store": "yes"}, "store"),
    "a text": ({"text": "x"}, "text"),
}  # fmt: skip


def _but_input(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "input"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_a_sentence(client: openai.OpenAI, name: str) -> None:
    given, param = REFUSED[name]
    more = {"input": "Hello?"} | given
    for stream in (False, True):
        with pytest.raises((openai.BadRequestError, openai.NotFoundError)) as refused:
            respond(client, stream=stream, given=more["input"], **_but_input(more))
        assert refused.value.param == param
        assert refused.value.body["message"].endswith(".")  # type: ignore[index]


def test_what_changes_nothing_is_named(client: openai.OpenAI) -> None:
    tool: Any = {"type": "function", "name": "find", "parameters": {}, "strict": True}
    create: Any = client.responses.with_raw_response.create
    reply = create(
        model="tiny", input="Hello?", max_output_tokens=2, temperature=0, tools=[tool],
        tool_choice="auto", truncation="disabled", store=True, include=[],
        text={"format": {"type": "text"}}, reasoning={"effort": "low"}, user="me",
    )  # fmt: skip
    assert sorted(reply.headers[HEADER].split(", ")) == ["reasoning", "tools", "user"]
    assert reply.parse().tools[0].name == "find"


def test_a_stream_that_breaks_ends_with_an_error(vlm: VisionLanguageModel) -> None:
    door = tiny_door(vlm, pause=0.03)
    with served(door) as address:
        stream = respond(client_of(address), "Hello?", stream=True, max_output_tokens=1000)
        next(iter(stream))
        door.close()
        with pytest.raises(openai.APIError) as refused:
            list(stream)
        assert refused.value.message == errors.Restarting.sentence


def test_responses_are_counted_and_need_the_key(door: ChatApp, address: str) -> None:
    body = {"model": "tiny", "input": "Hello?", "max_output_tokens": 2}
    read = door.meters.registry.get_sample_value
    before = read("rotatek_tokens_total", {"kind": "completion"}) or 0
    assert httpx.post(f"{address}/v1/responses", json=body).status_code == 200
    assert read("rotatek_tokens_total", {"kind": "completion"}) == before + 2


def test_stored_responses_are_bounded_and_expire() -> None:
    time = [0.0]
    store = ResponseStore(most=4, most_bytes=100, own_bytes=60, age_s=10, now=lambda: time[0])

    def has(owner: str, ident: str) -> bool:
        try:
            return bool(store.get(owner, ident).body)
        except errors.ResponseUnknown:
            return False

    for owner, ident, size in (("a", "1", 30), ("b", "2", 30), ("a", "3", 40), ("a", "4", 61)):
        store.keep(owner, {"id": ident}, [], size)
    assert [has("a", i) for i in "134"] == [False, True, False] and has("b", "2")
    store.keep("c", {"id": "5"}, [], 50)
    assert not has("b", "2") and has("c", "5") and store.bytes == 90, "the oldest of all"
    for ident in "6789":
        store.keep("c", {"id": ident}, [], 0)
    assert not has("c", "5") and all(has("c", i) for i in "6789")
    time[0] = 11.0
    assert not has("c", "9") and store.bytes == 0


class Page(BaseModel):
    """What an answer is to say."""

    kind: Literal["receipt", "letter"]
    paid: bool


def test_a_schema_is_followed(client: openai.OpenAI, shown: Image.Image) -> None:
    create: Any = client.responses.parse
    given = {"model": "tiny", "input": shows(shown), "max_output_tokens": 60}
    said = create(**given, text_format=Page)
    assert isinstance(said.output_parsed, Page) and said.status == "completed"
    with pytest.raises(openai.BadRequestError) as refused:
        respond(client, "Hello?", text={"format": {"type": "poem"}})
    assert refused.value.param == "text.format"
    helper: Any = client.responses.stream
    with helper(**given, text_format=Page) as stream:
        assert stream.get_final_response().output_parsed == said.output_parsed


def test_a_seed_gives_the_same_response(client: openai.OpenAI, shown: Image.Image) -> None:
    more = {"rotatek": {"keep_channels": 0.25}}  # an answer of more than one token
    drawn = {"temperature": 2.0, "extra_body": {"seed": 7, **more}}
    said = [respond(client, shows(shown), **drawn) for _ in range(2)]
    assert said[0].output_text == said[1].output_text and said[0].temperature == 2.0
    greedy = respond(client, shows(shown), extra_body=more)
    assert said[0].output_text != greedy.output_text
