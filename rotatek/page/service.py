"""Engines, the questions being answered, and how to stop them: what all visitors share."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from PIL.Image import Image as Picture

from rotatek import errors, inputs
from rotatek.config import Settings
from rotatek.engine import Engine
from rotatek.events import Failed, Prefilled, Token
from rotatek.page.run import Run, start

REPAINT_S = 0.06  # growing answers are shown at most this often


class Service:
    """Answers for the page. Models are loaded at first use and kept.

    make: builds the engine of a model by name; `Engine` itself, outside of tests.
    """

    def __init__(self, make: Callable[[str], Engine] = Engine) -> None:
        self._make = make
        self._engines: dict[str, Engine] = {}
        self._loading = threading.Lock()
        self._stops: dict[str, threading.Event] = {}
        self._welcome: Run | None = None
        self._welcoming = threading.Lock()

    def engine(self, model: str) -> Engine:
        """The engine of `model`, loaded and warmed up once."""
        with self._loading:
            if model not in self._engines:
                engine = self._make(model)
                engine.warm_up()
                self._engines[model] = engine
            return self._engines[model]

    def visual_tokens(self, model: str, image: Picture) -> int:
        """How many visual tokens `image` becomes."""
        return sum(self.engine(model).vlm.preprocess((image,)).counts)

    def ask(
        self,
        model: str,
        image: Picture | None,
        question: str,
        columns: Mapping[str, Settings],
        max_new_tokens: int,
        session: str | None = None,
    ) -> Iterator[Run]:
        """The run as it grows, at most once every `REPAINT_S`; the last one is complete.

        Args:
            session: whose run this is; `stop(session)` ends it within one token.

        Raises:
            UserError: before anything is shown, where the question or image is refused.
        """
        if image is None:
            raise errors.ImageMissing
        request = inputs.make_request(image, question, max_new_tokens)
        engine = self.engine(model)
        run = start(dict(columns), np.asarray(request.images[0]), request.question)
        stop = threading.Event()
        if session is not None:
            self.stop(session)  # one run a visitor
            self._stops[session] = stop
        shown = 0.0
        try:
            yield run
            for event in engine.compare(request, columns, stop):
                run.take(event)
                if isinstance(event, Prefilled):
                    run.full_visual_bytes = engine.full_bytes(event.visual_tokens)
                if not isinstance(event, Token) or time.monotonic() - shown > REPAINT_S:
                    shown = time.monotonic()
                    yield run
            run.stopped = stop.is_set()
            yield run
        except errors.UserError as error:
            run.take(Failed(None, error.message))
            yield run
        finally:
            stop.set()
            if session is not None and self._stops.get(session) is stop:
                del self._stops[session]

    def stop(self, session: str | None) -> None:
        """End the session's run, if there is one, within one token."""
        running = self._stops.get(session or "")
        if running is not None:
            running.set()

    def welcome(
        self, model: str, image: Picture, question: str, columns: Mapping[str, Settings]
    ) -> Run:
        """The run that greets every visitor, answered once for all of them."""
        with self._welcoming:
            if self._welcome is None:
                for run in self.ask(model, image, question, columns, 64):
                    self._welcome = run
            assert self._welcome is not None
            return self._welcome
