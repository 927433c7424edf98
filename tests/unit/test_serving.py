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
from transformers.cache_utils import DynamicCache

from rotatek.bridge.attention import pause
from rotatek.engine import decode, device_turns, scheduler
from rotatek.engine.batch import RunningBatch
from rotatek.engine.conversation import Conversation
from rotatek.engine.device_turns import CpuShares, cores_here
from rotatek.engine.engine import Engine
from rotatek.engine.events import Failed, Finished, Queued, Token
from rotatek.errors import Stopped
from rotatek.inputs.limits import Limits
from rotatek.inputs.request import Request, make_request
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel
from tests.families import EVERY
from tests.fixtures import Picture, at_once
from tests.fixtures import tokens_of as ids
from tests.ragged import KINDS as RAGGED
from tests.ragged import ROOM, Alone, filled
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


def test_answers_under_load_are_those_given_alone(
    vlm: VisionLanguageModel, picture: Picture
) -> None:
    """Every storage form, mixed lengths, rows that come and go."""
    work = of_every_form(picture, 18)
    alone = [ids(list(Engine(vlm).compare(*one))) for one in work]
    engine = Engine(vlm)
    together = asked_at_once(engine, work)
    assert together == alone
    state = engine.state()
    assert state.rows == state.running == state.waiting == state.live_bytes == 0
    assert state.tokens > 2 * state.steps  # rows really were decoded side by side
    assert engine.scheduler.bytes == 0


def test_a_captured_step_serves_whoever_comes_and_goes(
    vlm: VisionLanguageModel, picture: Picture, recorded: list
) -> None:
    """Under a graph's rules: addresses that stay, rows that are not in use, room ahead."""
    engine = Engine(vlm)
    engine.graphs = engine.scheduler.graphs = True
    kinds = list(KINDS)
    work = [
        (asked(picture, n, 6 + 3 * (n % 4)), {(name := kinds[n % len(kinds)]): KINDS[name]})
        for n in range(16)
    ]
    alone = [ids(list(Engine(vlm).compare(*one))) for one in work]
    assert asked_at_once(engine, work) == alone
    state = engine.state()
    assert 0 < len(recorded) < state.steps and state.failed == state.shed == 0
    # How often rows come and go, and with it how long a capture serves, is the threads' matter.
    assert sum(graph.replays for graph in recorded) > state.steps / 8


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
    real = decode.forward_one

    def step(vlm: Any, tokens: Any, position: Any, cache: Any, mask: Any) -> Any:
        logits = real(vlm, tokens, position, cache, mask)
        if bad(position.tolist()):
            raise failure
        return logits

    monkeypatch.setattr(decode, "forward_one", step)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_5"])
def test_a_row_that_fails_takes_nobody_with_it(
    family: str, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(EVERY[family]())
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
    assert engine.state().failed == 1 and engine.scheduler.bytes == 0


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
    seen = [next(begun), next(begun)]
    later = engine.compare(second, {"x": BASELINE})
    told = [next(later) for _ in range(2)]
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
        while not isinstance(next(events), Token):
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
    assert engine.state().live_bytes == engine.scheduler.bytes == 0


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
    assert engine.state().prefills == 2 and engine.state().steps > steps[0]


# -- rows that differ in size from head to head ------------------------------------------------


@torch.inference_mode()
def step(vlm: VisionLanguageModel, batch: RunningBatch, rows: dict[int, Alone]) -> None:
    """One token for each row in the batch and alone: the same one."""
    here = [None if number is None else rows[number] for number in batch.order]
    zero = torch.zeros(1, dtype=torch.long)
    token = torch.cat([zero if one is None else one.token for one in here])
    place = torch.cat([zero if one is None else one.position for one in here])
    together = decode.decode_one_token(vlm, token, place, batch, None)
    batch.stepped()
    for row, one in zip(together, here, strict=True):
        if one is not None:
            own = decode.decode_one_token(vlm, one.token, one.position, one.cache, None)
            torch.testing.assert_close(row[None], own, atol=2e-3, rtol=2e-3)
            one.token, one.position = own.argmax(-1), one.position + 1
            assert int(row.argmax()) == int(one.token)


@pytest.mark.parametrize("frozen", [False, True], ids=["grown", "frozen"])
def test_rows_come_and_go_at_random(frozen: bool) -> None:
    """In one group, whatever their sizes are: every step says what each row says alone, and who
    leaves takes along exactly what he brought and was given."""
    vlm = tiny_qwen()
    batch, chance = RunningBatch(DynamicCache(config=vlm.model.config)), random.Random(7)
    batch.static = frozen
    rows: dict[int, Alone] = {}
    for number in range(20):
        if len(rows) > 2 and chance.random() < 0.5:
            gone = chance.choice(list(rows))
            one, back = rows.pop(gone), filled(vlm, RAGGED["bits"], 0).cache
            batch.leave([gone], {gone: back})
            for (name, mine), (_, its) in zip(one.cache.tensors(), back.tensors(), strict=True):
                if name != "text":  # which may have other spare slots
                    assert torch.equal(mine, its), name
            assert back.get_seq_length() == one.cache.get_seq_length()
        joins = filled(vlm, RAGGED["bits"], number)
        again = filled(vlm, RAGGED["bits"], number).cache
        ((row,),) = batch.join([again], ROOM if frozen else 0)
        rows[row] = joins
        step(vlm, batch, rows)
    assert len(batch.layers[0].groups) <= 2  # all but what is twice as large
    batch.leave(list(rows))
    assert batch.bytes == len(batch) == 0


@pytest.mark.usefixtures("endless")
def test_a_conversation_goes_on_from_a_row_that_left() -> None:
    """A second question, beside another visitor's row and alone."""
    vlm, image = tiny_qwen(), Image.new("RGB", (140, 168), "red")
    image.paste("blue", (40, 40, 90, 120))
    first, columns = make_request(image, "What is it?", 6), {"x": RAGGED["bits"]}
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
        assert engine.state().live_bytes == engine.scheduler.bytes == 0
    assert found[0] == found[1] and len(found[0]) == 12


# -- parallel prompts on a processor: shares of its cores, and no answer changes ---------------


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No other process takes a core; threads as before at the end."""
    before = torch.get_num_threads()
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("idle")
def test_prompts_share_the_cores_and_the_next_one_waits() -> None:
    cores = CpuShares(4)
    inside, seen, leave = threading.Barrier(3), list[int](), threading.Event()

    def read() -> None:
        with cores.prompts, cores.work():
            inside.wait(60)
            cores.share()
            seen.append(torch.get_num_threads())
            inside.wait(60)
            leave.wait(60)

    two = [threading.Thread(target=read) for _ in range(2)]
    for thread in two:
        thread.start()
    inside.wait(60)
    inside.wait(60)
    third = threading.Event()

    def wait() -> None:
        with cores.prompts, cores.work():
            third.set()

    late = threading.Thread(target=wait)
    late.start()
    with cores.work():  # a step goes ahead beside them
        assert torch.get_num_threads() == 1 and not third.is_set()
    assert torch.get_num_threads() == 4
    leave.set()
    for thread in two:
        thread.join(60)
    late.join(60)
    assert seen == [2, 2] and third.is_set()


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


@pytest.mark.usefixtures("idle")
def test_answers_beside_each_other_are_those_given_alone(
    vlm: VisionLanguageModel, picture: Picture
) -> None:
    work = of_every_form(picture, 12)
    alone = [ids(list(Engine(vlm).compare(*one))) for one in work]
    engine = Engine(vlm)
    engine.scheduler.cores = cores = CpuShares(2)
    most, reading = [0], set[int]()

    def look(*_: object) -> None:
        reading.add(threading.get_ident())
        most[0] = max(most[0], cores._working)

    with engine.vlm.model.get_decoder().layers[0].register_forward_pre_hook(look):
        assert asked_at_once(engine, work) == alone
    state = engine.state()
    assert state.rows == state.running == state.waiting == state.live_bytes == 0
    assert most[0] >= 2 and len(reading) > 2  # they really were read beside each other
    assert state.tokens > state.steps


@pytest.mark.usefixtures("idle")
def test_stop_ends_a_prompt_that_shares_the_cores(vlm: VisionLanguageModel) -> None:
    served, stop = scheduler.Scheduler(vlm), threading.Event()
    served.cores = cores = CpuShares(4)
    with pytest.raises(Stopped), served.prefill(stop):
        with cores.work():
            pause()
            assert torch.get_num_threads() == 2
        pause()
        assert torch.get_num_threads() == 4  # alone again
        stop.set()
        pause()
    pause()  # outside nothing is stopped
