"""An evaluation waits for memory of a GPU that its other processes hold now."""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rotatek.engine import recovery
from rotatek.evaluation.journal import Journal
from rotatek.evaluation.runner import WAITS_S, Runner


class Work:
    """Fails for want of memory so many times."""

    def __init__(self, fails: int, error: type[Exception] = torch.OutOfMemoryError) -> None:
        self.fails, self.error = fails, error

    def __call__(self) -> str:
        self.fails -= 1
        if self.fails >= 0:
            raise self.error("CUDA out of memory.")
        return "done"


def runner(device: str, folder: Path) -> Runner:
    vlm = SimpleNamespace(device=torch.device(device))
    journal = Journal(folder / "journal.jsonl", {})
    return Runner(vlm, None, journal)  # type: ignore[arg-type]


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were waited; each time unused memory was given back first."""
    seconds: list[float] = []
    freed: list[object] = []
    monkeypatch.setattr(recovery, "free", freed.append)

    def sleep(some: float) -> None:
        seconds.append(some)
        assert len(freed) == len(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    return seconds


def test_memory_is_waited_for(slept: list[float], tmp_path: Path) -> None:
    assert runner("cuda", tmp_path)._patient(Work(2)) == "done"
    assert slept == list(WAITS_S[:2])


def test_but_not_for_ever(slept: list[float], tmp_path: Path) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        runner("cuda", tmp_path)._patient(Work(99))
    assert slept == list(WAITS_S)


@pytest.mark.parametrize(
    ("device", "error"), [("cpu", torch.OutOfMemoryError), ("cuda", ValueError)]
)
def test_nothing_else_is_waited_for(
    device: str, error: type[Exception], slept: list[float], tmp_path: Path
) -> None:
    """A processor's memory is one process's, and another error stays."""
    with pytest.raises(error):
        runner(device, tmp_path)._patient(Work(1, error))
    assert slept == []
