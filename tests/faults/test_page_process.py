"""The page as a process: SIGTERM in the middle of an answer, and a lost accelerator."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import wire
from tests.served import page_process, wait_ready

ROOT = Path(__file__).resolve().parents[2]
LEAVE_S = 15.0  # two seconds and a busy machine; the whole answer would take longer than this
IMAGE = ROOT / "assets" / "examples" / "receipt.png"
# A tiny random model whose every token takes a while; it loses its accelerator when the question
# says so.
PROGRAM = """
from rotatek.page import server
from tests.served import Slow, service_of
from tests.tiny import tiny_qwen

class Losing(Slow):
    pause = 0.03
    def compare(self, request, columns, *rest, **options):
        self._lost = self._lost or "lost" in request.question
        return super().compare(request, columns, *rest, **options)

engine = Losing(tiny_qwen())
server.service_here = lambda: service_of(engine)
server.main()
"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="signals")]


class Page(NamedTuple):
    """A served page in a process of its own."""

    process: subprocess.Popen[bytes]
    address: str
    log: Path

    def ask(self, question: str) -> wire.Listener:
        """The stream of one long answer."""
        image = wire.picture(self.address, IMAGE)
        asked = wire.question(self.address, image=image, question=question, length=900)
        status, said = wire.join(self.address, asked)
        assert status == 200
        return wire.Listener(self.address, said["session_hash"])


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Page]]:
    """One for each test, started side by side: most of their time is one core's imports."""
    folder, words = tmp_path_factory.mktemp("pages"), [sys.executable, "-c", PROGRAM]
    with ExitStack() as ending:
        started = []
        for log in (folder / "one.txt", folder / "two.txt"):
            process, url = ending.enter_context(page_process(words, log, PYTHONPATH=str(ROOT)))
            started.append(Page(process, f"{url}/", log))
        for page in started:
            wait_ready(page.process, page.address.rstrip("/"), page.log)
        yield started


@pytest.fixture
def page(pages: list[Page]) -> Page:
    """A page that no test has used."""
    return pages.pop()


def test_sigterm_mid_answer_ends_it_and_the_process_leaves(page: Page) -> None:
    stream = page.ask("Go on")
    assert "rk-word" in stream.first()
    started = time.monotonic()
    page.process.send_signal(signal.SIGTERM)
    told = stream.rest()
    assert '"process_completed"' in told and "Stopped." in told, "what had been answered was sent"
    assert page.process.wait(LEAVE_S) == 0
    assert time.monotonic() - started < LEAVE_S
    assert "Traceback" not in page.log.read_text()


def test_a_lost_accelerator_turns_health_red_and_the_process_leaves(page: Page) -> None:
    stream = page.ask("Is it lost?")
    assert "Not answered." in stream.rest()
    assert wire.fetch(f"{page.address}health")[0] == 503
    assert page.process.wait(LEAVE_S) == 1
