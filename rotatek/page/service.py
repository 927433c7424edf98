"""Engines, the questions being answered, and how to stop them: what all visitors share."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from PIL.Image import Image as Picture

from rotatek import errors, inputs
from rotatek.config import Settings
from rotatek.engine import Engine
from rotatek.events import Failed, Prefilled, Token
from rotatek.page.choices import Model
from rotatek.page.run import Run, start

REPAINT_S = 0.06  # growing answers are shown at most this often


class Service:
    """Answers for the page. Models are loaded at first use and kept.

    models: what is on offer, the default first; make: builds an engine from a model's source.
    """

    def __init__(self, models: Sequence[Model], make: Callable[[str], Engine] = Engine) -> None:
        self.models = tuple(models)
        self._make = make
        self._engines: dict[str, Engine] = {}
        self._loading = threading.Lock()
        self._stops: dict[str, set[threading.Event]] = {}
        self._welcome: Run | None = None
        self._welcoming = threading.Lock()

    def engine(self, name: str) -> Engine:
        """The engine of a model on offer, loaded and warmed up once.

        Raises:
            SettingError: for a model that is not on offer.
        """
        sources = {model.name: model.source for model in self.models}
        if name not in sources:
            raise errors.SettingError("model", "one of " + ", ".join(sources), name)
        with self._loading:
            if name not in self._engines:
                engine = self._make(sources[name])
                engine.warm_up()
                self._engines[name] = engine
            return self._engines[name]

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
            session: whose run this is; `stop(session)` ends it.

        Raises:
            UserError: before anything is shown, where the question or image is refused.
        """
        if image is None:
            raise errors.ImageMissing
        request = inputs.make_request(image, question, max_new_tokens)
        engine = self.engine(model)
        run = start(dict(columns), np.asarray(request.images[0]), request.question)
        stop, key = threading.Event(), session or ""
        self._stops.setdefault(key, set()).add(stop)
        shown = 0.0
        try:
            yield run
            for event in engine.compare(request, columns, stop):
                run.take(event)
                if isinstance(event, Prefilled):
                    run.full_visual_bytes = engine.vlm.full_bytes(event.visual_tokens)
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
            self._stops.get(key, set()).discard(stop)
            if not self._stops.get(key, True):
                self._stops.pop(key, None)

    def stop(self, session: str | None) -> None:
        """End what the session is waiting for, within one token."""
        for stop in tuple(self._stops.get(session or "", ())):
            stop.set()

    def welcome(self, image: Picture, question: str, columns: Mapping[str, Settings]) -> Run:
        """The run that greets every visitor, answered once for all of them."""
        with self._welcoming:
            if self._welcome is None:
                *_, self._welcome = self.ask(self.models[0].name, image, question, columns, 64)
            return self._welcome
