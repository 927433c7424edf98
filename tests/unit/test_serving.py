"""Continuous batching: an answer does not depend on the others in the batch."""

import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from rotatek import BASELINE, Engine, Settings
from rotatek.engine import device_turns, passes
from rotatek.engine.conversation import Conversation
from rotatek.engine.device_turns import CpuShares, cores_here
from rotatek.engine.events import Failed, Finished, Queued, Stored, Token
from rotatek.inputs.request import Limits, Request, make_request
from rotatek.models import VisionLanguageModel
from tests.families import EVERY
from tests.fixtures import Picture, at_once
from tests.fixtures import tokens_of as ids
from tests.tiny import tiny_qwen

KINDS = {
    "baseline": BASELINE,
    "rotated": Settings.of(keep_channels=0.25),
    "other width": Settings.of(keep_channels=0.5),
    "bits": Settings.of(smaller=8),
    "masks": Settings.of(channels="spark", keep_channels=0.25),
    "index": Settings.of(tokens="fastv", fastv_layer=1, keep_tokens=0.3, channels="think"),
    "zipped": Settings.of(tokens="visionzip", keep_tokens=0.4),
}


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No other process takes a core; threads as before at the end."""
    before = torch.get_num_threads()
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    yield
    torch.set_num_threads(before)


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers end at their limit alone."""
    monkeypatch.setattr(VisionLanguageModel, "stop_ids", frozenset())


def asked(picture: Picture, number: int, tokens: int = 12) -> Request:
    """A question of its own about a picture of its own."""
    image = picture(90 + 20 * (number % 5), 120, seed=number)
    return make_request(image, f"question {number} " * (1 + number % 3), tokens)


def of_every_form(picture: Picture, count: int) -> list[tuple[Request, dict[str, Settings]]]:
    """Questions with columns of every storage form in turn, some beside the baseline."""
    work = []
    for number in range(count):
        name = list(KINDS)[number % len(KINDS)]
        columns = {name: KINDS[name]} | ({"first": BASELINE} if number % 4 == 0 else {})
        work.append((asked(picture, number, 6 + 3 * (number % 4)), columns))
    return work


def asked_at_once(
    engine: Engine, work: Sequence[tuple[Request, dict[str, Settings]]]
) -> list[dict[str, list[int]]]:
    """The tokens of all, asked at about the same time."""

    def one(number: int) -> dict[str, list[int]]:
        request, columns = work[number]
        time.sleep(random.Random(number).random() / 10)
        return ids(engine.compare(request, columns, trace=number % 2 == 0))

    return at_once([partial(one, number) for number in range(len(work))])


@pytest.fixture(scope="module", params=["llava_next", "qwen3_5"])
def vlm(request: pytest.FixtureRequest) -> VisionLanguageModel:
    return EVERY[request.param]()


Work = list[tuple[Request, dict[str, Settings]]]


@pytest.fixture(scope="module")
def alone(vlm: VisionLanguageModel, picture: Picture) -> tuple[Work, list[dict[str, list[int]]]]:
    """Sixteen questions with columns of every storage form, and the answer to each by itself."""
    work = of_every_form(picture, 16)
    return work, [ids(list(Engine(vlm).compare(*one))) for one in work]


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("how", ["launched", "captured", "on shares of the cores"])
def test_answers_under_load_are_those_given_alone(
    how: str, vlm: VisionLanguageModel, alone: Any, request: pytest.FixtureRequest
) -> None:
    """Every storage form, mixed lengths, rows that come and go: launched, replayed under a graph's
    rules (addresses that stay, rows not in use, room ahead), or with prompts read in parallel."""
    work, wanted = alone
    engine = Engine(vlm)
    if how == "captured":
        graphs = request.getfixturevalue("recorded")
        engine.graphs = engine.scheduler.graphs = True
    elif how != "launched":
        engine.scheduler.cores = CpuShares(2)
    assert asked_at_once(engine, work) == wanted
    state = engine.state()
    assert state.rows == state.running == state.waiting == state.live_bytes == 0
    assert state.failed == state.shed == engine.scheduler.batch_bytes == 0
    assert state.tokens > state.steps  # rows really were decoded side by side
    if how == "captured":
        assert 0 < len(graphs) < state.steps and sum(graph.replays for graph in graphs) > 0


@pytest.mark.usefixtures("recorded", "endless")
def test_forms_that_have_left_take_no_room(picture: Picture) -> None:
    """While one answer goes on under a graph's rules, others of every form come and go."""
    engine, sizes = Engine(tiny_qwen()), []
    engine.graphs = engine.scheduler.graphs = True
    stays = engine.compare(asked(picture, 1, 64), {"x": KINDS["rotated"]})
    while not isinstance(next(stays), Stored):
        pass
    for name, settings in KINDS.items():
        list(engine.compare(asked(picture, 2, 3), {name: settings}))
        sizes.append(engine.scheduler.batch_bytes)
    assert sizes[-1] <= 2 * min(sizes)
    assert sum(isinstance(event, Token) for event in stays) > 50  # it was there all along


def test_nobody_sees_what_is_another_visitors(picture: Picture) -> None:
    """Sixteen visitors ask the same words about pictures of one size; every answer is the one that
    its own picture gives, and pictures that differ in one pixel are never taken for each other."""
    engine = Engine(tiny_qwen())
    pictures = [picture(112, 112, seed=7).copy() for _ in range(16)]
    for number, image in enumerate(pictures):
        image.paste((16 * number, 255 - 16 * number, 40), (0, 0, 112, 56))
    near = pictures[0].copy()
    near.putpixel((100, 100), (1, 2, 3))
    pictures.append(near)
    work = [(make_request(p, "What is it?", 10), {"x": KINDS["rotated"]}) for p in pictures]
    alone = [ids(list(Engine(engine.vlm).compare(*one))) for one in work]
    assert asked_at_once(engine, work) == alone
    assert len({tuple(said["x"]) for said in alone}) > 4
    assert engine.pictures.hits == 0 and engine.pictures.misses == 17


def test_a_warm_picture_is_not_looked_at_again(
    vlm: VisionLanguageModel, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other questions under every setting: the same tokens as cold, and the tower has rested."""
    questions = ["What?", "And where is it?"]
    work = [
        (make_request(picture(130, 100, seed=3), text, 8), KINDS | {"again": KINDS["masks"]})
        for text in questions
    ]
    cold = [ids(list(Engine(vlm, limits=Limits(warm_bytes=0)).compare(*one))) for one in work]
    engine, looks = Engine(vlm), []
    for name in ("features", "tower_states"):
        real = getattr(vlm, name)

        def noted(pixels: Any, real: Any = real) -> Any:
            looks.append(1)
            return real(pixels)

        monkeypatch.setattr(vlm, name, noted)
    assert ids(list(engine.compare(*work[0]))) == cold[0]
    first = len(looks)
    assert ids(list(engine.compare(*work[1]))) == cold[1]
    assert len(looks) == first > 0 and engine.pictures.hits == 1
    kept = engine.pictures.bytes
    assert 0 < kept <= engine.limits.warm_bytes
    engine.pictures.most_bytes = kept
    list(engine.compare(asked(picture, 5, 2), {"x": BASELINE}))
    assert engine.pictures.bytes <= kept  # the least recent made room
    engine.pictures.clear()
    assert engine.pictures.bytes == 0


def failing(monkeypatch: pytest.MonkeyPatch, bad: Any, failure: Exception) -> None:
    """Steps fail as long as they hold a row that `bad` is true of."""
    real = passes.forward_one

    def step(vlm: Any, tokens: Any, position: Any, cache: Any) -> Any:
        logits = real(vlm, tokens, position, cache)
        if bad(position.tolist()):
            raise failure
        return logits

    monkeypatch.setattr(passes, "forward_one", step)


def test_a_row_that_fails_takes_nobody_with_it(
    picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(EVERY["qwen3_5"]())
    long = make_request(picture(110, 120, seed=1), "a long question " * 20, 12)
    others = [(asked(picture, n, 12), {"x": KINDS["rotated"], "y": BASELINE}) for n in range(3)]
    alone = [ids(list(engine.compare(*one))) for one in others]
    mine = ids(list(engine.compare(long, {"x": KINDS["rotated"]})))["x"]
    assert len(mine) > 6
    last = max(len(r.question) for r, _ in others) + 200
    failing(monkeypatch, lambda places: max(places) > last, RuntimeError("one bad row"))
    work = [*others, (long, {"x": KINDS["rotated"]})]
    found = at_once([partial(lambda own: list(engine.compare(*own)), own) for own in work])
    assert [ids(events) for events in found[:3]] == alone
    assert isinstance(found[3][-1], Failed)
    assert engine.state().failed == 1 and engine.scheduler.batch_bytes == 0


@pytest.mark.usefixtures("endless")
def test_memory_that_runs_out_sheds_the_latest_and_it_comes_again(
    picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first visitor does not notice; the second starts again under tighter limits."""
    engine = Engine(tiny_qwen())
    first, second = (asked(picture, n, 16) for n in (1, 2))
    alone = ids(list(engine.compare(first, {"x": KINDS["rotated"]})))
    failing(monkeypatch, lambda places: len(places) > 1, torch.OutOfMemoryError("2 GiB"))
    begun = engine.compare(first, {"x": KINDS["rotated"]})
    seen = [next(begun) for _ in range(3)]
    later = engine.compare(second, {"x": BASELINE})
    told = [next(later) for _ in range(3)]
    seen += list(begun)
    told += list(later)
    assert ids(seen)["x"][: len(alone["x"])] == alone["x"]
    assert [type(e).__name__ for e in told].count("Restarted") == 1
    assert isinstance(told[-1], Finished) and engine.state().shed == 1


@pytest.mark.usefixtures("endless")
def test_rows_leave_within_a_token_of_stop_and_of_a_closed_connection(picture: Picture) -> None:
    """It needs no request: the next step of any row removes them."""
    engine = Engine(tiny_qwen())
    stop = threading.Event()
    stays = engine.compare(asked(picture, 1, 60), {"x": KINDS["rotated"]})
    stops = engine.compare(asked(picture, 2, 60), {"x": KINDS["rotated"], "y": BASELINE}, stop)
    leaves = engine.compare(asked(picture, 3, 60), {"x": KINDS["bits"]})
    for events in (stays, stops, leaves):
        while not isinstance(next(events), Stored):
            pass
    assert engine.state().rows == 4
    leaves.close()  # type: ignore[attr-defined]
    assert engine.state().rows == 3
    stop.set()
    before = engine.state().steps
    while engine.state().steps == before:
        next(stays)
    assert engine.state().rows == 1
    rest = list(stops)
    assert not [e for e in rest if isinstance(e, Token)]
    assert all(e.metrics["stopped"] for e in rest if isinstance(e, Finished))
    stays.close()  # type: ignore[attr-defined]
    assert engine.state().live_bytes == engine.scheduler.batch_bytes == 0


@pytest.mark.usefixtures("endless")
def test_what_does_not_fit_waits_and_is_told_its_place(picture: Picture) -> None:
    engine = Engine(tiny_qwen(), limits=Limits(cache_bytes=1))
    first = engine.compare(asked(picture, 1, 20), {"x": BASELINE})
    while not isinstance(next(first), Token):
        pass
    waiting = [engine.compare(asked(picture, n, 4), {"x": BASELINE}) for n in (2, 3)]
    assert [next(events) for events in waiting] == [Queued(1), Queued(2)]
    assert engine.state().waiting == 2
    stop = threading.Event()
    third = engine.compare(asked(picture, 4, 4), {"x": BASELINE}, stop)
    assert next(third) == Queued(3)
    stop.set()
    assert not [e for e in third if isinstance(e, Token | Queued)]
    waiting[0].close()  # type: ignore[attr-defined]
    assert next(waiting[1]) == Queued(1)  # who leaves the queue makes room
    list(first)
    assert ids(list(waiting[1]))["x"]
    assert engine.state().live_bytes == engine.state().waiting == 0


@pytest.mark.usefixtures("endless")
def test_a_resting_conversation_counts_and_lets_others_in(picture: Picture) -> None:
    engine, talk = Engine(tiny_qwen(), limits=Limits(cache_bytes=1)), Conversation()
    list(engine.compare(asked(picture, 1, 4), {"x": KINDS["rotated"]}, conversation=talk))
    assert engine.state().live_bytes == talk.cache_bytes > 0 == engine.state().running
    assert ids(list(engine.compare(asked(picture, 2, 4), {"x": BASELINE})))
    assert ids(list(engine.follow(talk, "And?", 4)))
    talk.close()
    assert engine.state().live_bytes == 0


@pytest.mark.usefixtures("endless")
def test_prefills_let_steps_go_between_their_layers(
    picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a slow prompt is read, an answer that is being written goes on."""
    engine = Engine(tiny_qwen())
    monkeypatch.setattr("rotatek.engine.scheduler.SHARE", 0.0)
    monkeypatch.setattr("rotatek.engine.scheduler.LEAST_S", {})
    events = engine.compare(asked(picture, 1, 200), {"x": KINDS["rotated"]})
    while not isinstance(next(events), Token):
        pass
    entered = engine.vlm.model.get_decoder().layers[2]
    steps: list[int] = []

    def slow(*_: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            steps.append(engine.state().steps)
            time.sleep(0.05)

    with entered.register_forward_pre_hook(slow):
        other = threading.Thread(
            target=lambda: list(engine.compare(asked(picture, 2, 2), {"x": BASELINE}))
        )
        other.start()
        while other.is_alive():
            next(events, None)
        other.join()
    assert engine.state().steps > steps[0]


@pytest.mark.usefixtures("endless")
def test_a_conversation_goes_on_from_a_row_that_left() -> None:
    """A second question, beside another visitor's row and alone."""
    vlm, image = tiny_qwen(), Image.new("RGB", (140, 168), "red")
    image.paste("blue", (40, 40, 90, 120))
    first, columns = make_request(image, "What is it?", 6), {"x": Settings.of(smaller=3)}
    found = []
    for crowded in (True, False):
        engine, talk = Engine(vlm), Conversation()
        other = engine.compare(make_request(image.rotate(90), "And this?", 40), columns)
        for _ in range(6 if crowded else 0):
            next(other)
        told = [*engine.compare(first, columns, conversation=talk)]
        told += engine.follow(talk, "And then?", 6)
        found.append(ids(told)["x"])
        other.close()  # type: ignore[attr-defined]
        talk.close()
        assert engine.state().live_bytes == engine.scheduler.batch_bytes == 0
    assert found[0] == found[1] and len(found[0]) == 12


@pytest.mark.parametrize(("load", "threads"), [(0.4, 4), (6.1, 2), (30.0, 1)])
def test_cores_of_a_crowded_machine_are_left_to_others(
    load: float, threads: int, idle: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    cores = CpuShares(4)
    for _ in range(3):  # a failure gives its place back
        with pytest.raises(ValueError, match="no"), cores.prompts, cores.work():
            assert torch.get_num_threads() == threads
            raise ValueError("no")
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize(
    ("limit", "cores"), [("200000 100000", 2), ("50000 100000", 1), ("max 100000", 8)]
)
def test_a_containers_limit_is_heeded(
    limit: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_turns, "THREADS", 8)
    (tmp_path / "cpu.max").write_text(limit + "\n")
    assert cores_here(str(tmp_path / "cpu.max")) == cores
    assert cores_here(str(tmp_path / "none")) == 8
