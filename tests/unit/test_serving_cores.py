"""Parallel prompts on a processor: shares of its cores, and no answer changes."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rotatek.bridge.attention import pause
from rotatek.engine import cpu_shares, scheduler
from rotatek.engine.cpu_shares import CpuShares, Neighbours
from rotatek.engine.engine import Engine
from rotatek.errors import Stopped
from rotatek.models import VisionLanguageModel, memory
from tests.fixtures import Picture
from tests.fixtures import tokens_of as ids
from tests.soak import resident_megabytes
from tests.unit.test_serving import asked_at_once, of_every_form

UNKNOWN = Neighbours("/no/such/file")  # so that other processes of this machine change nothing


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_prompts_share_the_cores_and_the_next_one_waits() -> None:
    cores = CpuShares(4, UNKNOWN)
    inside, seen, leave = threading.Barrier(3), list[int](), threading.Event()

    def read() -> None:
        with cores.prompt():
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
        with cores.prompt():
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


def test_cores_of_busy_neighbours_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four cores two others' work takes two; later it takes all, and one thread stays."""
    stat, clock, own = tmp_path / "stat", [0.0], [0.0]
    fake = SimpleNamespace(monotonic=lambda: clock[0], process_time=lambda: own[0])
    monkeypatch.setattr(cpu_shares, "time", fake)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    tick = os.sysconf("SC_CLK_TCK")

    def after(user: float, idle: float) -> None:
        """Seconds of all cores together since the start."""
        stat.write_text(f"cpu {int(user * tick)} 0 0 {int(idle * tick)} 0 0 0 0 0 0\n")

    after(0, 0)
    cores = CpuShares(4, Neighbours(str(stat)))
    cores.share()
    assert torch.get_num_threads() == 4  # nothing is known yet
    clock[0], own[0] = 1.0, 1.0
    after(3, 1)  # ours 1, others' 2, idle 1: two cores are ours
    cores.share()
    assert torch.get_num_threads() == 2
    with cores.work(), cores.work():
        assert torch.get_num_threads() == 1  # each has a half
    clock[0] = 2.0
    after(7, 1)  # others took everything
    cores.share()
    assert torch.get_num_threads() == 1
    clock[0] = 3.0
    after(7, 5)  # and are gone
    cores.share()
    assert torch.get_num_threads() == 4
    (tmp_path / "loadavg").write_text("0.0 0.0 0.0 3/99 7\n")
    clock[0] = 63.0  # a minute without work: two others have begun, which its mean hides
    after(9, 240)
    cores.share()
    assert torch.get_num_threads() == 2
    clock[0] = 63.5
    after(9, 242)
    cores.share()
    assert torch.get_num_threads() == 4


@pytest.mark.skipif(not Path(cpu_shares.STAT).exists(), reason="counts processes on Linux alone")
@pytest.mark.skipif((os.cpu_count() or 1) > 8, reason="takes a busy process a core")
def test_real_neighbours_leave_one_thread() -> None:
    """Measured beside them: five columns took 1.2 times as long as with one thread from the start,
    and 9 times with two."""
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        time.sleep(0.3)  # they have begun
        cores = CpuShares(os.cpu_count() or 1)
        time.sleep(1.5 * cpu_shares.SAMPLE_S)
        cores.share()
        assert torch.get_num_threads() == 1
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_a_step_waits_for_prompts_but_not_for_long() -> None:
    cores = CpuShares(2, UNKNOWN)
    started = time.perf_counter()
    cores.wait_for_all(60)
    with cores.prompt():
        cores.wait_for_all(0.05)
        cores.wait_for_all(-1)
    assert 0.05 <= time.perf_counter() - started < 30


def test_a_failure_gives_its_place_back() -> None:
    cores = CpuShares(2, UNKNOWN)
    for _ in range(5):
        with pytest.raises(ValueError, match="no"), cores.prompt():
            raise ValueError("no")
    assert torch.get_num_threads() == 2


def test_answers_beside_each_other_are_those_given_alone(
    vlm: VisionLanguageModel, picture: Picture
) -> None:
    work = of_every_form(picture, 20)
    alone = [ids(list(Engine(vlm).compare(*one))) for one in work]
    engine = Engine(vlm)
    engine.scheduler.cores = cores = CpuShares(2, UNKNOWN)
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
    served.cores = cores = CpuShares(4, UNKNOWN)
    with pytest.raises(Stopped), served.prefill(stop):
        with cores.work():
            pause()
            assert torch.get_num_threads() == 2
        pause()
        assert torch.get_num_threads() == 4  # alone again
        stop.set()
        pause()
    pause()  # outside nothing is stopped


@pytest.mark.parametrize("said", [None, "4"])
def test_threads_share_the_pools_of_memory_unless_somebody_has_said(
    said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda *what: asked.append(what))
    monkeypatch.setattr("rotatek.models.memory.ctypes.CDLL", lambda _: library)
    monkeypatch.setattr("rotatek.models.memory.sys.platform", "linux")
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    if said:
        monkeypatch.setenv("MALLOC_ARENA_MAX", said)
    memory.share_arenas()
    assert asked == ([] if said else [(-8, memory.ARENAS)])
    monkeypatch.setattr(
        "rotatek.models.memory.ctypes.CDLL", lambda _: SimpleNamespace()
    )  # another C library
    memory.share_arenas()
    monkeypatch.setattr("rotatek.models.memory.sys.platform", "win32")
    monkeypatch.setattr("rotatek.models.memory.ctypes.CDLL", None)
    memory.share_arenas()


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_unused_memory_goes_back_to_the_system_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hold_holes() -> list[torch.Tensor]:
        """128 MB that are free, between 2.6 MB that are not."""
        return [torch.ones(16_384) for _ in range(2000)][::50]

    unused, held = memory.Unused(), hold_holes()
    before = resident_megabytes()
    unused.give_back()
    assert resident_megabytes() < before - 100 and all(one.sum() == one.numel() for one in held)
    again, before = hold_holes(), resident_megabytes()
    unused.give_back()  # the last time was a moment ago
    assert resident_megabytes() > before - 10 and again
    monkeypatch.setattr(memory, "TRIM_S", 0.0)
    unused.give_back()
    assert resident_megabytes() < before - 100
    monkeypatch.setattr("rotatek.models.memory.ctypes.CDLL", lambda _: SimpleNamespace())
    memory.Unused().give_back()  # another C library


def test_a_prompt_on_a_processor_returns_what_it_used(
    vlm: VisionLanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(memory.Unused, "give_back", lambda _: calls.append(True))
    with scheduler.Scheduler(vlm).prefill(None):
        assert not calls
    assert calls
