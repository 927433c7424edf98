"""Many visitors, full queues, dropped connections, health: over HTTP, as strangers meet it."""

import errno
import gc
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client, handle_file

from rotatek import errors
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.engine import Engine
from rotatek.engine.events import Event, Token
from rotatek.inputs.request import Request
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from rotatek.service.service import Service
from tests import wire
from tests.app.conftest import TINY, served
from tests.tiny import tiny_qwen

pytestmark = pytest.mark.alone
STEP_S = 0.01
FREE_S = 1.0  # a cache is freed this soon after its visitor has gone
JOINS = 40
AT_ONCE = 4  # questions that this page answers side by side
WAITING = 8  # the length of these tests' queue


class Slow(Engine):
    """An engine whose tokens take `STEP_S`, and that keeps count of its answers."""

    def __init__(self, model: VisionLanguageModel) -> None:
        super().__init__(model)
        self.asked: list[str] = []
        self.said: dict[str, int] = {}

    def compare(
        self, request: Request, columns: Mapping[str, Settings], *rest: Any, **options: Any
    ) -> Iterator[Event]:
        self.asked.append(request.question)
        for event in super().compare(request, columns, *rest, **options):
            if isinstance(event, Token):
                time.sleep(STEP_S)
                self.said[request.question] = event.index + 1
            yield event


@pytest.fixture(scope="module")
def engine() -> Slow:
    return Slow(tiny_qwen())


@pytest.fixture(scope="module")
def crowded(engine: Slow, picture_file: Path) -> Iterator[str]:
    """A page with a short queue."""
    with served(Service([TINY], lambda source: engine), picture_file, AT_ONCE) as (page, url):
        page._queue.max_size = WAITING
        yield url


@pytest.fixture(scope="module")
def uploaded(crowded: str, picture_file: Path) -> dict[str, Any]:
    """The picture as the server knows it, for payloads made by hand; the model is loaded."""
    client = Client(crowded, verbose=False)
    client.predict(handle_file(picture_file), "Hello?", max_new_tokens=1, api_name="/ask")
    return wire.picture(crowded, picture_file)


def ask(
    address: str, image: dict[str, Any], question: str, tokens: int
) -> tuple[int, dict[str, Any]]:
    """A place in the queue for a question."""
    given = {"image": image, "question": question, "max_new_tokens": tokens, "model": "tiny"}
    return wire.join(address, wire.values(address, **given))


def until(true: Callable[[], bool], limit_s: float) -> float:
    """Seconds until it holds; fails after `limit_s`."""
    started = time.monotonic()
    while not true():
        assert time.monotonic() - started < limit_s, "waited too long"
        time.sleep(0.005)
    return time.monotonic() - started


def test_forty_joins_are_answered_or_politely_refused(
    crowded: str, uploaded: dict[str, Any], together: Callable
) -> None:
    outcomes: list[str] = []

    def one(number: int) -> None:
        status, said = ask(crowded, uploaded, f"number {number}?", 8)
        if status == 200:
            told = wire.Listener(crowded, said["event_id"]).rest()
            assert "event: complete" in told, told
            outcomes.append("answered")
        else:
            assert status == 503 and said == {"detail": errors.QueueFull.sentence}
            outcomes.append("refused")

    together([lambda number=number: one(number) for number in range(JOINS)])
    assert len(outcomes) == JOINS
    assert outcomes.count("answered") >= WAITING and outcomes.count("refused") > 0
    status, said = ask(crowded, uploaded, "And now?", 2)
    assert status == 200
    assert "event: complete" in wire.Listener(crowded, said["event_id"]).rest()


@pytest.fixture
def full(crowded: str, uploaded: dict[str, Any], engine: Slow) -> Iterator[list[wire.Listener]]:
    """All runs are busy, and the queue is full."""
    held = []
    for number in range(AT_ONCE + WAITING):
        status, said = ask(crowded, uploaded, f"long {number}?", 400)
        assert status == 200
        held.append(wire.Listener(crowded, said["event_id"]))
        if number < AT_ONCE:
            until(lambda n=number: f"long {n}?" in engine.asked, 10)  # type: ignore[misc]
    yield held
    for listener in held:
        listener.drop()
    until(lambda: is_idle(crowded, uploaded), 20)
    engine.asked.clear()


def is_idle(address: str, image: dict[str, Any]) -> bool:
    status, said = ask(address, image, "Idle?", 1)
    return status == 200 and "complete" in wire.Listener(address, said["event_id"]).rest()


def test_who_leaves_the_queue_is_never_answered(
    crowded: str, uploaded: dict[str, Any], engine: Slow, full: list[wire.Listener]
) -> None:
    full[4].drop()
    for listener in full[:4]:
        listener.drop()
    until(lambda: "long 5?" in engine.asked, 10)  # those behind move up
    assert "long 4?" not in engine.asked


@pytest.mark.parametrize("tokens", [0, 20])
def test_a_dropped_connection_frees_the_cache(
    tokens: int, crowded: str, uploaded: dict[str, Any], engine: Slow
) -> None:
    """During the prefill (0) and while tokens come: everything is freed within a second."""
    question = f"Dropped at {tokens}?"
    engine.asked.clear()
    others = live()  # of tests before
    _, said = ask(crowded, uploaded, question, 1000)
    listener = wire.Listener(crowded, said["event_id"])
    until(lambda: question in engine.asked and engine.said.get(question, 0) >= tokens, 30)
    listener.drop()
    before = engine.said.get(question, 0)
    until(lambda: live() <= others, FREE_S)
    assert engine.said.get(question, 0) <= before + FREE_S / STEP_S


def live() -> set[int]:
    """The caches of this process that hold a tensor, by identity."""
    return {id(o) for o in gc.get_objects() if type(o) is RotateKCache and any(o.tensors())}


def test_a_full_disk_while_uploading_is_said(crowded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file cannot be stored: a sentence, no traceback, and the next upload works."""

    def none_left(*args: Any, **options: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device", "/somewhere")

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "NamedTemporaryFile", none_left)
        patch.setattr("gradio.route_utils.NamedTemporaryFile", none_left, raising=False)
        assert wire.upload(crowded, b"!") == (507, {"detail": errors.StorageFull.sentence})
    assert wire.upload(crowded, b"!")[0] == 200
