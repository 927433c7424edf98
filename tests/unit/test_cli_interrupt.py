"""Ctrl-C ends a command, also where cleaning up waits for a lock without an owner."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from rotatek.cli import main as cli

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")
STUCK = """
import signal, threading
from rotatek.cli import main as cli
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
cli.CLEANUP_S = {seconds}
with cli.interruptible():
    try:
        print("waiting", flush=True)
        threading.Event().wait()
    finally:
        print("cleaning up", flush=True)
        while True:
            threading.Event().wait(0.05)
"""


@pytest.fixture
def stuck(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process that was interrupted, and cleans up for ever."""
    words = [sys.executable, "-c", STUCK.format(seconds=request.param)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "waiting\n"
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "cleaning up\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("stuck", [0.2], indirect=True)
def test_cleaning_up_may_take_only_so_long(stuck: subprocess.Popen[str]) -> None:
    assert stuck.wait(30) == cli.INTERRUPTED


@pytest.mark.parametrize("stuck", [600], indirect=True)
def test_a_second_interrupt_ends_it_at_once(stuck: subprocess.Popen[str]) -> None:
    clock = time.perf_counter()
    stuck.send_signal(signal.SIGINT)
    assert stuck.wait(30) == cli.INTERRUPTED and time.perf_counter() - clock < 10


def test_what_is_not_interrupted_leaves_python_as_it_was() -> None:
    before = signal.getsignal(signal.SIGINT)
    with cli.interruptible():
        assert (signal.getsignal(signal.SIGINT) is before) == (
            before is not signal.default_int_handler
        )
    assert signal.getsignal(signal.SIGINT) is before


def test_anothers_handler_stays() -> None:
    """A server that drains its streams first has one of its own."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with cli.interruptible():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
