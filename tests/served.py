"""Pages and services for tests: engines that take their time, a page here or in a process."""

import gc
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from rotatek import Engine, RotateKCache, Settings
from rotatek.engine.events import Event, Token
from rotatek.inputs.request import Request
from rotatek.page import server
from rotatek.page.binding import MODEL_WORK, VISITORS
from rotatek.page.page_context import PageContext
from rotatek.page.server import build
from rotatek.service.model_list import Example, Model
from rotatek.service.service import Service
from tests import wire
from tests.fixtures import free_port

START_S = 120  # a busy machine


class Slow(Engine):
    """An engine whose every event takes `pause` seconds, and which begins while it is `open`.

    Attributes:
        asked: the questions that have come.
        said: the tokens that each has been answered with so far.
    """

    pause = 0.0

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.asked: list[str] = []
        self.said: dict[str, int] = {}
        self.open = threading.Event()
        self.open.set()

    def compare(
        self, request: Request, columns: Mapping[str, Settings], *rest: Any, **options: Any
    ) -> Iterator[Event]:
        self.asked.append(request.question)
        self.open.wait(60)
        for event in super().compare(request, columns, *rest, **options):
            time.sleep(self.pause)
            if isinstance(event, Token):
                self.said[request.question] = event.index + 1
            yield event


def service_of(engine: Engine) -> Service:
    """A service of one model."""
    return Service([Model("tiny", "Tiny", "nowhere")], lambda source: engine)


def square(folder: Path) -> Path:
    """A small drawn picture on disk."""
    image = Image.new("RGB", (336, 224), "white")
    ImageDraw.Draw(image).rectangle((60, 40, 180, 160), fill="#0ca38a")
    image.save(folder / "square.png")
    return folder / "square.png"


@contextmanager
def page_of(service: Service, picture: Path, at_once: int = VISITORS,
            **options: Any) -> Iterator[tuple[Any, str]]:  # fmt: skip
    """The whole page with one example, served with the product's own settings, and its address;
    options are the context's."""
    context = PageContext(service, [Example(picture, "A square", ("Which colour?",))], **options)
    with pytest.MonkeyPatch.context() as fewer:
        fewer.setitem(MODEL_WORK, "concurrency_limit", at_once)
        page = build(context, server.ASSETS)
    given = {"prevent_thread_lock": True, "quiet": True, "server_name": "127.0.0.1"}
    _, url, _ = server.launch(page, service, **given)
    try:
        yield page, url
    finally:
        page.close(verbose=False)


@contextmanager
def page_process(
    words: list[str], log: Path, **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A page in a process of its own, which is ended, and its address."""
    port = free_port()
    told = os.environ | {"GRADIO_SERVER_PORT": str(port)} | environment
    with log.open("wb") as sink:
        process = subprocess.Popen(words, cwd=log.parent, env=told, stdout=sink, stderr=sink)
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def wait_ready(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    """Until its health says that it is ready; a process that has died fails with its log."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the page did not start:\n{log.read_text()[-3000:]}"
        with suppress(OSError):
            if wire.fetch(f"{url}/health")[1]["status"] == "ready":
                return
        time.sleep(0.2)
    pytest.fail(f"the page was not ready within {START_S} s:\n{log.read_text()[-3000:]}")


def until(condition: Callable[[], Any], limit_s: float = 60) -> None:
    """Wait until it holds; fails after `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)


def caches_held() -> set[int]:
    """The caches of this process that hold a tensor, by identity."""
    gc.collect()
    return {id(o) for o in gc.get_objects() if type(o) is RotateKCache and any(o.tensors())}
