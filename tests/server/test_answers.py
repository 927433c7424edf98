"""The fields of an answer: its end, its usage, ignored fields, and its cache."""

from typing import Any

import httpx
import openai
import pytest
from PIL import Image

from rotatek import errors
from rotatek.engine.engine import Engine
from rotatek.inputs.limits import Limits
from rotatek.models import VisionLanguageModel
from rotatek.server.chat_app import ChatApp
from rotatek.server.fields import HEADER
from rotatek.service.model_list import Model
from rotatek.service.service import Service
from tests.families import EVERY
from tests.fixtures import Picture
from tests.server.conftest import asked, client_of, served, uri

pytestmark = [
    pytest.mark.slow,
    # transformers 5.17's processor of InternVL counts tiles in a way that NumPy 2 warns of.
    pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning"),
]


def ask(client: openai.OpenAI, messages: list[dict[str, Any]], **given: Any) -> Any:
    create: Any = client.chat.completions.create
    return create(**{"model": "tiny", "messages": messages, "max_tokens": 8} | given)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def image(picture: Image.Image, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": uri(picture)} | more}


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def said(words: str) -> dict[str, Any]:
    return {"role": "assistant", "content": words}


def test_an_answer_that_just_fits_is_complete(client: openai.OpenAI, picture: Picture) -> None:
    """The tiny model ends some answers early; one token less is a cut, and the very number not."""
    for seed in range(40):
        messages = asked(picture(seed=seed))
        whole = ask(client, messages, max_tokens=60)
        tokens = whole.usage.completion_tokens
        if whole.choices[0].finish_reason == "stop" and tokens > 1:
            break
    else:
        pytest.fail("no seed ends its answer")
    exact = ask(client, messages, max_tokens=tokens)
    assert exact.choices[0].finish_reason == "stop"
    assert exact.choices[0].message.content == whole.choices[0].message.content
    assert exact.usage.completion_tokens == tokens
    assert exact.usage.total_tokens == whole.usage.total_tokens
    for stream in (False, True):
        cut = ask(client, messages, max_tokens=tokens - 1, stream=stream)
        last = list(cut)[-1] if stream else cut
        assert last.choices[0].finish_reason == "length"
    assert cut is not None


def test_a_follow_up_of_a_cut_answer_goes_on_from_what_was_told(
    client: openai.OpenAI, picture: Picture
) -> None:
    """The token that only shows whether it was complete is not in the cache."""
    first = asked(picture(seed=50))
    answer = ask(client, first)
    assert answer.choices[0].finish_reason == "length"
    second = [*first, said(answer.choices[0].message.content), user(text("And?"))]
    warm = ask(client, second)
    assert warm.rotatek["warm"]
    tokens = answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert tokens - 1 <= warm.usage.prompt_tokens_details.cached_tokens <= tokens
    cold = ask(client, second)
    cached = cold.usage.prompt_tokens_details.cached_tokens
    assert not cold.rotatek["warm"] and cached == cold.usage.visual_tokens, "the tower had seen it"


def test_an_answer_ends_where_the_context_does(vlm: VisionLanguageModel, picture: Picture) -> None:
    engine = Engine(vlm, limits=Limits(max_prompt_tokens=60))
    service = Service([Model("tiny", "Tiny", "nowhere")], lambda source: engine)
    with served(ChatApp(service)) as address, client_of(address) as client:
        messages = asked(picture(64, 48))
        for stream in (False, True):
            options = {"stream_options": {"include_usage": True}} if stream else {}
            reply = ask(client, messages, max_tokens=5000, stream=stream, **options)
            chunks = list(reply) if stream else [reply]
            usage = chunks[-1].usage
            reason = [c.choices[0].finish_reason for c in chunks if c.choices][-1]
            if reason == "length":
                assert usage.total_tokens == 60
            assert reason in ("length", "stop") and usage.total_tokens <= 60
        for wrong, kind in (
            ([user(text("x" * 90), image(picture(64, 48)))], errors.QuestionDoesNotFit),
            ([{"role": "system", "content": "x" * 90}, *messages], errors.SystemDoesNotFit),
            ([*messages, said("x" * 90), user(text("?"))], errors.HistoryDoesNotFit),
            ([user(text("?"), *[image(picture(64, 48))] * 20)], errors.PicturesDoNotFit),
        ):
            with pytest.raises(openai.BadRequestError) as refused:
                ask(client, wrong)
            assert refused.value.body["message"] == kind.sentence  # type: ignore[index]
            assert (refused.value.code, refused.value.param) == (kind.code, "messages")


def test_only_the_very_same_chat_is_warm(client: openai.OpenAI, picture: Picture) -> None:
    shown = picture(seed=60)
    system = {"role": "system", "content": "Be brief."}
    first = [system, user(text("What  is it?"), image(shown))]
    tool = {"type": "function", "function": {"name": "find"}}
    others: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
        ([system, user(text("What is it?"), image(shown))], {}),  # white space
        ([{"role": "system", "content": "Be long."}, first[1]], {}),
        ([first[1]], {}),
        ([user(text("Be brief.")), first[1]], {}),
        ([system, user(image(shown), text("What  is it?"))], {}),
        ([system, user(text("What  is it?"), image(shown, detail="low"))], {}),
        (first, {"extra_body": {"rotatek": {"max_pixels": 60_000}}}),
        (first, {"extra_body": {"rotatek": {"keep_channels": 0.75}}}),
        ([system, user(text("What  is it?"), image(picture(seed=61)))], {}),
    ]
    answer = said(ask(client, first).choices[0].message.content)
    last = user(text("And?"))
    for before, more in others:
        assert not ask(client, [*before, answer, last], **more).rotatek["warm"]
    edited = said(answer["content"] + "!")
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    for wrong in (edited, answer | {"tool_calls": [call]}):
        assert not ask(client, [*first, wrong, last]).rotatek["warm"]
    assert not ask(client, [*first, answer, {"role": "system", "content": "x"}, last]).rotatek[
        "warm"
    ]
    assert ask(client, [*first, answer, last], tools=[tool], tool_choice="none").rotatek["warm"]


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_ignored_is_said_and_counted(
    client: openai.OpenAI, address: str, picture: Picture, stream: bool
) -> None:
    def counted() -> dict[str, float]:
        lines = httpx.get(f"{address}/metrics").text.splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if "ignored_fields_total{" in line]
        return {name.split('"')[1]: float(value) for name, value in pairs}

    before = counted()
    create = client.chat.completions.with_raw_response.create
    tool: Any = {"type": "function", "function": {"name": "find"}}
    messages: Any = [{"role": "system", "content": "Hi.", "name": "me"}, *asked(picture())]
    reply = create(
        model="tiny", messages=messages, max_tokens=2, stream=stream, user="me", tools=[tool],
        reasoning_effort="low", extra_body={"speed": 9}, temperature=0,
    )  # fmt: skip
    named = reply.headers[HEADER].split(", ")
    assert sorted(named) == ["messages.name", "reasoning_effort", "speed", "tools", "user"]
    more = {name: value - before.get(name, 0) for name, value in counted().items()}
    assert more["user"] == more["messages.name"] == more["tools"] == more["other"] == 1
    plain = create(model="tiny", messages=messages[1:], max_tokens=2, temperature=0, seed=1)
    assert HEADER not in plain.headers


FOLLOWS = (
    "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "qwen3_5_moe", "internvl", "llava_next",
    "llava_onevision",
)  # fmt: skip


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava_next", "gemma3", "internvl"])
def test_detail_is_a_budget_of_the_family(family: str, picture: Picture) -> None:
    """Where tokens follow the picture's size, less detail is fewer of them; elsewhere nothing."""
    engine = Engine(EVERY[family]())
    service = Service([Model("tiny", "Tiny", "nowhere")], lambda source: engine)
    large = picture(640, 470)

    def used(detail: str | None, **sizes: int) -> int:
        more = {} if detail is None else {"detail": detail}
        reply = ask(
            client, [user(text("What?"), image(large, **more))], max_tokens=1,
            extra_body={"rotatek": sizes},
        )  # fmt: skip
        return reply.usage.prompt_tokens_details.image_tokens

    with served(ChatApp(service)) as address, client_of(address) as client:
        usual = used(None)
        assert used("auto") == used("high") == usual
        few = used("low"), used("high", max_pixels=60 * 45)
        if family not in FOLLOWS:
            assert few == (usual, usual)
        elif family.startswith("qwen"):
            assert usual <= 256 and few[0] == usual, "the tiny models see no more than that"
            assert few[1] < usual / 4
        else:
            assert few[0] < usual and few[1] < usual
