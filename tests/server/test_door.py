"""The door itself: addresses, refusals, ignored fields, figures, bounds, and clients that leave."""

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import httpx
import openai
import pytest
from langchain_core import messages
from langchain_openai import ChatOpenAI
from PIL import Image

from rotatek import errors
from rotatek.models import VisionLanguageModel
from rotatek.server.api_keys import Keys
from rotatek.server.chat_app import HEADER, ChatApp
from rotatek.server.request_body import RequestBodies
from rotatek.server.worker_pool import WorkerPool
from tests.fixtures import Picture, at_once
from tests.served import Slow, until
from tests.server.conftest import (
    ask,
    asked,
    client_of,
    image,
    refused,
    served,
    streamed,
    text,
    texts,
    tiny_door,
    user,
)

pytestmark = pytest.mark.slow
TYPED = {"content-type": "application/json"}


def test_refusals_have_the_apis_form(client: openai.OpenAI, picture: Picture) -> None:
    assert refused(client, asked("https://example.org/cat.png")).body == {
        "message": errors.ImageNotData.sentence, "type": "invalid_request_error",
        "param": "messages[0].content[1].image_url", "code": "image_not_data",
    }  # fmt: skip
    assert refused(client, asked(picture()), temperature=5, stream=True).param == "temperature"
    assert isinstance(refused(client, asked(picture()), model="gpt-4o"), openai.NotFoundError)
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4o")
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"


def test_what_is_not_the_api(address: str) -> None:
    chat = f"{address}/v1/chat/completions"
    told = [
        httpx.get(f"{address}/v1/embeddings"),
        httpx.get(f"{address}/anything"),
        httpx.post(f"{address}/v1/responses", json={"model": "tiny", "input": "What?"}),
        httpx.delete(f"{address}/v1/files/file-1"),
        httpx.get(chat),
        httpx.put(chat),
        httpx.post(chat, content=b"{}"),
        httpx.post(chat, content=b"{", headers=TYPED),
        httpx.post(chat, content=iter([b" " * 1_000_000] * 41), headers=TYPED),
    ]
    assert [one.status_code for one in told] == [404, 404, 404, 404, 404, 405, 400, 400, 413]
    assert all("/v1/chat/completions" in one.json()["error"]["message"] for one in told[:6])
    assert httpx.get(f"{address}/health").json()["status"] == "ready"


def test_a_stream_has_its_head_while_the_prompt_is_read(
    vlm: VisionLanguageModel, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head at once, comments that clients skip, and no proxy that keeps them back; what is
    refused later is told in the stream."""
    monkeypatch.setattr("rotatek.server.chat_app.HEAD_S", 0.05)
    monkeypatch.setattr("rotatek.server.chat_app.QUIET_S", 0.05)
    body = {"model": "tiny", "messages": asked(picture()), "max_tokens": 2, "stream": True}
    with served(tiny_door(vlm, pause=0.3)) as address:
        url = f"{address}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, timeout=60) as reply:
            assert reply.status_code == 200 and reply.headers["x-accel-buffering"] == "no"
            told = reply.read().decode().split("\n\n")
        assert told[0].startswith(":") and told[1].startswith(":")
        assert told[-2] == "data: [DONE]" and '"role":"assistant"' in "".join(told).replace(" ", "")
        chunks = ask(client_of(address), asked(picture()), stream=True)
        assert streamed(chunks)[0].reason == "length"
        monkeypatch.setattr("rotatek.server.chat_app.answered", late_failure)
        with pytest.raises(openai.APIError, match="Something went wrong"):
            list(ask(client_of(address), asked(picture()), stream=True))


def late_failure(*_: Any) -> None:
    time.sleep(0.2)
    raise ValueError


def test_keys_guard_all_but_health(vlm: VisionLanguageModel) -> None:
    with served(tiny_door(vlm, keys=Keys(["a-key-of-the-door"]))) as address:
        paths = ("/v1/models", "/metrics", "/v1/anything", "/health")
        assert [httpx.get(address + path).status_code for path in paths] == [401, 401, 401, 200]


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_ignored_is_said(client: openai.OpenAI, picture: Picture, stream: bool) -> None:
    create = client.chat.completions.with_raw_response.create
    tool: Any = {"type": "function", "function": {"name": "find"}}
    messages: Any = [{"role": "system", "content": "Hi.", "name": "me"}, *asked(picture())]
    reply = create(
        model="tiny", messages=messages, max_tokens=2, stream=stream, user="me", tools=[tool],
        reasoning_effort="low", extra_body={"speed": 9}, temperature=0,
    )  # fmt: skip
    named = reply.headers[HEADER].split(", ")
    assert sorted(named) == ["messages.name", "reasoning_effort", "speed", "tools", "user"]
    plain = create(model="tiny", messages=messages[1:], max_tokens=2, temperature=0, seed=1)
    assert HEADER not in plain.headers


def test_metrics_count(client: openai.OpenAI, address: str, picture: Picture) -> None:
    ask(client, asked(picture()))
    lines = httpx.get(f"{address}/metrics").text.splitlines()
    figures = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    found = {name.removeprefix("rotatek_"): float(value) for name, value in figures.items()}
    assert found['requests_total{status="200"}'] >= 1 <= found["first_token_seconds_count"]
    assert found['tokens_total{kind="completion"}'] >= 8
    assert found['kv_bytes{of="waiting"}'] > 0 == found['kv_bytes{of="answering"}']
    assert found["running"] == found["waiting"] == 0


@pytest.fixture
def slow(vlm: VisionLanguageModel) -> Iterator[tuple[ChatApp, str]]:
    """One answer at once, one may wait, and each takes seconds."""
    door = tiny_door(vlm, pause=0.03, workers=WorkerPool(1, 1))
    with served(door) as address:
        yield door, address


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_stops_its_answer(
    slow: tuple[ChatApp, str], picture: Picture, stream: bool
) -> None:
    door, address = slow
    body = {"model": "tiny", "messages": asked(picture()), "max_tokens": 1000, "stream": stream}
    body["rotatek"] = {"keep_channels": 0.25}  # an answer that goes on, and shows no letters
    with pytest.raises(httpx.ReadTimeout):  # noqa: SIM117  # the client hangs up
        httpx.post(f"{address}/v1/chat/completions", json=body, timeout=httpx.Timeout(9, read=0.4))
    until(lambda: door.workers.running == 0)  # its thousand tokens would take half a minute
    assert door.meters.registry.get_sample_value("rotatek_kv_bytes", {"of": "answering"}) == 0
    gone = {"status": "499"}
    until(lambda: door.meters.registry.get_sample_value("rotatek_requests_total", gone) == 1)
    assert len(door.service.conversations) == 0


def test_a_full_queue_refuses(slow: tuple[ChatApp, str], picture: Picture) -> None:
    door, address = slow
    told, engine = list[int](), cast(Slow, door.service.engine("tiny"))
    engine.open.clear()  # until all that are refused have been

    def one() -> None:
        try:
            ask(client_of(address), asked(picture()), max_tokens=4)
            told.append(200)
        except openai.RateLimitError as error:
            assert error.code == "queue_full" and error.response.headers["retry-after"]
            told.append(error.status_code)
            if len(told) == 4:
                engine.open.set()

    at_once([one] * 6)
    assert sorted(told) == [200, 200, 429, 429, 429, 429]
    assert door.workers.running == door.workers.waiting == 0


def test_a_process_that_leaves_says_so(slow: tuple[ChatApp, str], picture: Picture) -> None:
    door, address = slow
    stream = ask(client_of(address), asked(picture()), max_tokens=1000, stream=True)
    next(iter(stream))
    threading.Timer(0.2, door.close).start()
    with pytest.raises(openai.APIError) as broken:
        list(stream)
    assert broken.value.message == errors.Restarting.sentence
    assert isinstance(refused(client_of(address), asked(picture())), openai.InternalServerError)


def test_bodies_are_bounded_together(vlm: VisionLanguageModel) -> None:
    door = tiny_door(vlm)
    door.bodies = RequestBodies(most=1000, together=1500, patience_s=30)

    def sent(first: bytes, pause: float, last: bytes) -> httpx.Response:
        def body() -> Iterator[bytes]:
            yield first
            time.sleep(pause)
            yield last

        return httpx.post(f"{address}/v1/chat/completions", content=body(), headers=TYPED)

    with served(door) as address:
        told = at_once([lambda: sent(b" " * 900, 1.0, b"{}")] * 2)
        assert sorted(one.status_code for one in told) == [404, 429], "one too many"
        assert door.bodies.held == 0
        door.bodies.pixel_bytes = 3 * 64 * 48 - 1
        error = refused(client_of(address), asked(Image.new("RGB", (64, 48))))
        assert isinstance(error, openai.RateLimitError) and door.bodies.pixels_held == 0
        door.bodies.patience_s = 0.3
        late = sent(b"{", 1.0, b"}")
        assert late.status_code == 408 and late.json()["error"]["code"] == "body_too_slow"


# -- programs that people have: a question at once and as a stream -----------------------------


@pytest.fixture
def left_behind() -> Iterator[None]:
    """Connections that a package leaves open are closed here, without a warning."""
    yield
    gc.collect()


# Warnings of other people's packages are theirs.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("left_behind")
def test_langchain(client: openai.OpenAI, address: str, picture: Picture) -> None:
    content: list[Any] = [text("What is it?"), image(picture(80, 60, seed=9), detail="low")]
    (expected,) = texts(ask(client, [user(*content)], max_tokens=9, temperature=0))
    model = ChatOpenAI(
        model="tiny", base_url=f"{address}/v1", api_key="none", temperature=0, max_tokens=9,
        max_retries=0,
    )  # fmt: skip
    asked = [messages.SystemMessage("Be brief."), messages.HumanMessage(content)]
    reply = model.invoke(asked[1:])
    assert reply.content == expected != ""
    assert reply.usage_metadata["output_tokens"] == 9
    assert reply.usage_metadata["input_token_details"]["cache_read"] > 0, "asked before"
    streamed = "".join(chunk.content for chunk in model.stream(asked[1:]))
    assert streamed == expected
    told = model.invoke(asked)
    later = [*asked, told, messages.HumanMessage("And?"), messages.HumanMessage("Well?")]
    assert model.invoke(later).response_metadata["finish_reason"] in ("stop", "length")
    tool = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
    assert model.bind_tools([tool]).invoke(asked).content
    call = messages.AIMessage("", tool_calls=[{"name": "find", "args": {"a": 1}, "id": "c1"}])
    result = messages.ToolMessage("It is 7.", tool_call_id="c1")
    assert model.invoke([*asked, call, result]).content
