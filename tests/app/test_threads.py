"""As many visitors as the page promises to answer at once are answered at once."""

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rotatek.engine.engine import Engine
from rotatek.engine.events import Event
from rotatek.inputs.request import Request
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from rotatek.page.binding import VISITORS
from rotatek.service.service import Service
from tests import wire
from tests.app.conftest import TINY, served
from tests.tiny import tiny_qwen


class Patient(Engine):
    """An engine that says nothing, after all visitors have come."""

    def __init__(self, model: VisionLanguageModel) -> None:
        super().__init__(model)
        self.inside, self.come = threading.Semaphore(0), threading.Event()

    def warm_up(self) -> None:
        """Nothing: it would wait for visitors, too."""

    def compare(
        self, request: Request, columns: Mapping[str, Settings], *rest: Any, **options: Any
    ) -> Iterator[Event]:
        self.inside.release()
        self.come.wait(120)
        yield from ()


def test_every_visitor_has_a_thread_and_the_page_has_some_left(picture_file: Path) -> None:
    """Gradio holds a thread for every question that waits, forty by default."""
    engine = Patient(tiny_qwen())
    with served(Service([TINY], lambda source: engine), picture_file) as (_, url):
        image = wire.picture(url, picture_file)
        asked = wire.question(url, image=image, question="Hello?", length=16)
        joined = [wire.join(url, asked) for _ in range(VISITORS)]
        listeners = [wire.Listener(url, place["session_hash"]) for _, place in joined]
        try:
            assert all(engine.inside.acquire(timeout=60) for _ in joined)
            assert wire.upload(url, picture_file.read_bytes())[0] == 200
        finally:
            engine.come.set()
        assert all('"process_completed"' in listener.rest() for listener in listeners)
