"""The door as the official client meets it."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from PIL import Image

from rotatek import errors
from rotatek.engine.engine import Engine
from rotatek.inputs.messages import PICTURE
from rotatek.inputs.request import make_request, open_image
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from rotatek.server.api_keys import Keys
from rotatek.server.chat_app import Bounds, ChatApp
from rotatek.server.request_body import RequestBodies
from tests.fixtures import Picture, Together
from tests.server.conftest import asked, client_of, served, tiny_door

pytestmark = pytest.mark.slow
KEYS = ("first-key-of-the-door", "second-key-of-the-door")


def ask(client: openai.OpenAI, messages: list[dict[str, Any]], **given: Any) -> Any:
    create: Any = client.chat.completions.create
    return create(**{"model": "tiny", "messages": messages, "max_tokens": 8} | given)


def solo(vlm: VisionLanguageModel, picture: Image.Image, tokens: int, settings: Settings) -> str:
    request = make_request(open_image(picture), ("What is it?", PICTURE), tokens)
    *_, finished = Engine(vlm).answer(request, settings)
    return finished.answer.rstrip("\ufffd")  # type: ignore[union-attr]


def test_an_answer_is_the_engines(
    client: openai.OpenAI, vlm: VisionLanguageModel, picture: Picture
) -> None:
    settings = {"tokens": "fastv", "keep_tokens": 0.5, "keep_channels": 0.5}
    said = ask(client, asked(picture(448, 336)), extra_body={"rotatek": settings})
    assert said.choices[0].message.content.strip() == solo(
        vlm, picture(448, 336), 8, Settings.of(**settings)
    )
    assert said.choices[0].finish_reason == "length"
    usage, figures = said.usage, said.rotatek
    assert usage.completion_tokens == 8 and usage.total_tokens == usage.prompt_tokens + 8
    assert 0 < usage.visual_tokens_kept < usage.visual_tokens < usage.prompt_tokens
    assert 0 < usage.kv_bytes == figures["kv_bytes"] < usage.kv_bytes_full
    assert figures["settings"] == Settings.of(**settings).as_dict() and not figures["warm"]


def test_a_stream_is_the_answer_in_pieces(client: openai.OpenAI, picture: Picture) -> None:
    whole = ask(client, asked(picture(seed=1)))
    chunks = list(
        ask(client, asked(picture(seed=1)), stream=True, stream_options={"include_usage": True})
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant" and len({c.id for c in chunks}) == 1
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    ends, first = chunks[-1].usage, whole.usage
    assert not chunks[-1].choices and ends is not None and first is not None
    assert ends.prompt_tokens_details is not None and first.prompt_tokens_details is not None
    assert ends.prompt_tokens_details.cached_tokens == first.model_dump()["visual_tokens"]
    ends.prompt_tokens_details = first.prompt_tokens_details  # the picture was encoded before
    assert ends == first


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_text_ends_the_answer(client: openai.OpenAI, picture: Picture, stream: bool) -> None:
    whole = ask(client, asked(picture(seed=2)), max_tokens=40).choices[0].message.content
    stop = whole[3:5]
    assert len(stop) == 2
    given = {"stop": [stop, "never said"], "stream": stream, "max_tokens": 40}
    said = ask(client, asked(picture(seed=2)), **given)
    if stream:
        chunks = list(said)
        text = "".join(c.choices[0].delta.content or "" for c in chunks)
        reason = chunks[-1].choices[0].finish_reason
    else:
        text, reason = said.choices[0].message.content, said.choices[0].finish_reason
    assert (text, reason) == (whole[: whole.index(stop)], "stop")


def test_a_follow_up_goes_on_from_its_own_cache_once(
    client: openai.OpenAI, door: ChatApp, picture: Picture
) -> None:
    first = asked(picture(seed=3))
    answer = ask(client, first).choices[0].message.content
    second = [*first, {"role": "assistant", "content": answer}, {"role": "user", "content": "And?"}]
    before = len(door.service.conversations)
    warm = ask(client, second)
    assert warm.rotatek["warm"] and len(door.service.conversations) == before
    cold = ask(client, second)
    assert not cold.rotatek["warm"], "the cache was given away, and has gone on since"
    other = [*asked(picture(seed=4)), *second[1:]]
    assert not ask(client, other).rotatek["warm"], "another picture"
    third = [*second, {"role": "assistant", "content": "not what it said"}, second[-1]]
    assert not ask(client, third).rotatek["warm"], "another history"


def test_a_later_turn_may_bring_pictures(
    client: openai.OpenAI, door: ChatApp, picture: Picture
) -> None:
    """The chat is read afresh, the cache of the turn before is freed, and the next is warm."""
    first, later = asked(picture(seed=5)), asked(picture(448, 336, seed=6), "And this?")
    one = ask(client, first)
    answer = {"role": "assistant", "content": one.choices[0].message.content}
    second = [*first, answer, *later]
    before = len(door.service.conversations)
    said = ask(client, second)
    assert not said.rotatek["warm"] and len(door.service.conversations) == before
    assert said.usage.visual_tokens > one.usage.visual_tokens
    assert said.usage.kv_bytes < 0.9 * said.usage.kv_bytes_full
    third = [*second, {"role": "assistant", "content": said.choices[0].message.content}]
    other = asked(picture(448, 336, seed=7), "And this?")
    question = {"role": "user", "content": "Sure?"}
    moved = [*first, answer, *other, third[-1], question]
    assert not ask(client, moved).rotatek["warm"], "another picture of a later turn"
    assert ask(client, [*third, question]).rotatek["warm"]


def test_refusals_have_the_apis_form(client: openai.OpenAI, picture: Picture) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        ask(client, asked("https://example.org/cat.png"))
    assert bad.value.body == {
        "message": errors.ImageNotData.sentence, "type": "invalid_request_error",
        "param": "messages[0].content[1].image_url", "code": "image_not_data",
    }  # fmt: skip
    with pytest.raises(openai.BadRequestError) as bad:
        ask(client, asked(picture()), temperature=5, stream=True)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        ask(client, asked(picture()), model="gpt-4o")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4o")
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"


def test_what_is_not_the_api(address: str) -> None:
    chat = f"{address}/v1/chat/completions"
    typed = {"content-type": "application/json"}
    large = httpx.post(chat, content=iter([b" " * 1_000_000] * 41), headers=typed)
    told = [
        httpx.get(f"{address}/v1/embeddings"),
        httpx.get(f"{address}/anything"),
        httpx.post(f"{address}/v1/responses", json={"model": "tiny", "input": "What?"}),
        httpx.delete(f"{address}/v1/files/file-1"),
        httpx.get(chat),
        httpx.post(chat, content=b"{}"),
        httpx.post(chat, content=b"{", headers=typed),
        large,
    ]
    assert [one.status_code for one in told] == [404, 404, 404, 404, 404, 400, 400, 413]
    assert all(one.json()["error"]["message"] for one in told)
    assert all("/v1/chat/completions" in one.json()["error"]["message"] for one in told[:5])
    assert httpx.get(f"{address}/health").json()["status"] == "ready"


def test_metrics_count(client: openai.OpenAI, address: str, picture: Picture) -> None:
    ask(client, asked(picture()))
    lines = httpx.get(f"{address}/metrics").text.splitlines()
    figures = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(figures['rotatek_requests_total{status="200"}']) >= 1
    assert float(figures['rotatek_tokens_total{kind="completion"}']) >= 8
    assert float(figures['rotatek_kv_bytes{of="waiting"}']) > 0
    assert float(figures['rotatek_kv_bytes{of="answering"}']) == 0
    assert float(figures["rotatek_first_token_seconds_count"]) >= 1
    assert float(figures["rotatek_running"]) == float(figures["rotatek_waiting"]) == 0


def test_keys_are_asked_for_and_keep_caches_apart(
    vlm: VisionLanguageModel, picture: Picture
) -> None:
    door = tiny_door(vlm, keys=Keys(KEYS))
    with served(door) as address:
        first, second, stranger = (client_of(address, key) for key in (*KEYS, "a" * 20))
        with pytest.raises(openai.AuthenticationError) as refused:
            ask(stranger, asked(picture()))
        assert refused.value.code == "invalid_api_key"
        assert httpx.get(f"{address}/v1/models").status_code == 401
        assert httpx.get(f"{address}/metrics").status_code == 401
        assert httpx.get(f"{address}/health").status_code == 200
        said = ask(first, asked(picture())).choices[0].message.content
        turns = [{"role": "assistant", "content": said}, {"role": "user", "content": "And?"}]
        assert not ask(second, [*asked(picture()), *turns]).rotatek["warm"]
        assert ask(first, [*asked(picture()), *turns]).rotatek["warm"]


@pytest.fixture
def slow(vlm: VisionLanguageModel) -> Iterator[tuple[ChatApp, str]]:
    """One answer at once, one may wait, and each takes seconds."""
    door = tiny_door(vlm, pause=0.03, bounds=Bounds(answers=1, queue=1))
    with served(door) as address:
        yield door, address


def until(condition: Any, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_stops_its_answer(
    slow: tuple[ChatApp, str], picture: Picture, stream: bool
) -> None:
    door, address = slow
    body = {"model": "tiny", "messages": asked(picture()), "max_tokens": 1000, "stream": stream}
    body["rotatek"] = {"keep_channels": 0.25}  # an answer that goes on, and shows no letters
    with pytest.raises(httpx.ReadTimeout):  # noqa: SIM117  # the client hangs up
        httpx.post(f"{address}/v1/chat/completions", json=body, timeout=httpx.Timeout(9, read=0.4))
    until(lambda: door.workers.running == 0, 2.0)
    assert door.meters.registry.get_sample_value("rotatek_kv_bytes", {"of": "answering"}) == 0
    gone = {"status": "499"}
    until(lambda: door.meters.registry.get_sample_value("rotatek_requests_total", gone) == 1)
    assert len(door.service.conversations) == 0


def test_a_full_queue_refuses(
    slow: tuple[ChatApp, str], picture: Picture, together: Together
) -> None:
    door, address = slow
    told: list[int] = []

    def one() -> None:
        try:
            ask(client_of(address), asked(picture()), max_tokens=20)
            told.append(200)
        except openai.RateLimitError as error:
            assert error.code == "queue_full" and error.response.headers["retry-after"]
            told.append(error.status_code)

    together([one] * 6)
    assert sorted(told) == [200, 200, 429, 429, 429, 429]
    assert door.workers.running == door.workers.waiting == 0


def test_a_process_that_leaves_says_so(slow: tuple[ChatApp, str], picture: Picture) -> None:
    door, address = slow
    stream = ask(client_of(address), asked(picture()), max_tokens=1000, stream=True)
    next(iter(stream))
    threading.Timer(0.2, door.close).start()
    with pytest.raises(openai.APIError) as refused:
        list(stream)
    assert refused.value.message == errors.Restarting.sentence
    with pytest.raises(openai.InternalServerError) as later:
        ask(client_of(address), asked(picture()))
    assert later.value.status_code == 503


def test_bodies_are_bounded_together(vlm: VisionLanguageModel) -> None:
    door = tiny_door(vlm)
    door.bodies = RequestBodies(most=1000, together=1500, patience_s=0.4)
    typed = {"content-type": "application/json"}
    with served(door) as address:
        chat = f"{address}/v1/chat/completions"

        def trickle() -> Iterator[bytes]:
            yield b" " * 900
            time.sleep(0.2)
            yield b"{}"

        codes: list[int] = []

        def post() -> None:
            codes.append(httpx.post(chat, content=trickle(), headers=typed).status_code)

        threads = [threading.Thread(target=post) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(codes) == [404, 429], "an object without a model, and one too many"
        assert door.bodies.held == 0

        def stall() -> Iterator[bytes]:
            yield b"{"
            time.sleep(0.8)
            yield b"}"

        door.bodies.pixel_bytes = 3 * 64 * 48 - 1
        with pytest.raises(openai.RateLimitError):
            ask(client_of(address), asked(Image.new("RGB", (64, 48))))
        assert door.bodies.pixels_held == 0
        slow = httpx.post(chat, content=stall(), headers=typed)
        assert slow.status_code == 408 and json.loads(slow.text)["error"]["code"] == "body_too_slow"
