"""Parallel prompts on a processor: shares of its cores, and no answer changes."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rotatek.bridge.attention import pause
from rotatek.engine import device_turns, scheduler
from rotatek.engine.device_turns import CpuShares, cores_here
from rotatek.engine.engine import Engine
from rotatek.errors import Stopped
from rotatek.models import VisionLanguageModel
from tests.fixtures import Picture
from tests.fixtures import tokens_of as ids
from tests.unit.test_serving import asked_at_once, of_every_form


@pytest.fixture(autouse=True)
def threads_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.get_num_threads()
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    yield
    torch.set_num_threads(before)


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


@pytest.mark.parametrize(("load", "threads"), [(0.4, 4), (4.2, 4), (6.1, 2), (30.0, 1)])
def test_cores_of_a_crowded_machine_are_left_to_others(
    load: float, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    with CpuShares(4).work():
        assert torch.get_num_threads() == threads


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


def test_a_failure_gives_its_place_back() -> None:
    cores = CpuShares(2)
    for _ in range(5):
        with pytest.raises(ValueError, match="no"), cores.prompts, cores.work():
            raise ValueError("no")
    assert torch.get_num_threads() == 2


def test_answers_beside_each_other_are_those_given_alone(
    vlm: VisionLanguageModel, picture: Picture
) -> None:
    work = of_every_form(picture, 20)
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
