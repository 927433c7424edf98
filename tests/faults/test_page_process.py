"""The page as a process: SIGTERM in the middle of an answer, and a lost accelerator."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import wire
from tests.fixtures import free_port

ROOT = Path(__file__).resolve().parents[2]
START_S = 120  # a busy machine
LEAVE_S = 15.0  # two seconds and a busy machine; the whole answer would take longer than this
IMAGE = ROOT / "assets" / "examples" / "receipt.png"
# An engine whose every token takes a while, on a tiny random model; it loses its accelerator when
# the question says so.
PROGRAM = """
import sys, time
from rotatek.engine.engine import Engine
from rotatek.page import server
from rotatek.service import model_list
from tests.tiny import tiny_qwen

class Slow(Engine):
    def compare(self, request, columns, *rest, **options):
        self._lost = self._lost or "lost" in request.question
        for event in super().compare(request, columns, *rest, **options):
            time.sleep(0.03)
            yield event

vlm = tiny_qwen()
offer = [model_list.Model("tiny", "Tiny", "tiny")]
server.service_here = lambda: server.Service(offer, lambda source: Slow(vlm))
server.main()
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="signals"),
]


class Page:
    """A served page in a process of its own."""

    def __init__(self, log: Path) -> None:
        self.port = free_port()
        environment = os.environ | {"GRADIO_SERVER_PORT": str(self.port), "PYTHONPATH": str(ROOT)}
        self.log = log
        with log.open("wb") as sink:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, stdout=sink, stderr=sink
            )

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def wait(self) -> None:
        """Until /health says that it is ready."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            try:
                if wire.fetch(f"{self.address}health")[1]["status"] == "ready":
                    return
            except OSError:
                pass
            time.sleep(0.2)
        pytest.fail(self.log.read_text()[-2000:])

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
    folder = tmp_path_factory.mktemp("pages")
    started = [Page(folder / f"log-{number}.txt") for number in range(2)]
    try:
        for page in started:
            page.wait()
        yield list(started)
    finally:
        for page in started:
            page.process.kill()
            page.process.wait()


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
