"""Engines, the questions being answered and how to stop them: what all visitors share."""

import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image
from PIL.Image import Image as Picture

import rotatek
from rotatek import errors
from rotatek.bridge.attention import StopFlag
from rotatek.engine.conversation import Conversation
from rotatek.engine.engine import Engine
from rotatek.engine.events import Answer, Event, Failed, Queued, Restarted, Token
from rotatek.inputs import request as inputs
from rotatek.inputs.sampling import GREEDY, Sampling
from rotatek.inspect.trace import Trace
from rotatek.methods.settings import Settings
from rotatek.models.download import GB, Progress, downloading
from rotatek.service.model_list import Model
from rotatek.service.session_store import SessionStore

MB = 1_000_000
REPORT_S = 0.25  # between two reports of a download's progress
HALT_S = 5.0  # for a superseded answer to end, which it does within a token
REPAINT_S = 0.06  # growing answers are shown at most this often


@dataclass
class Run:
    """One question on one image under several settings, baseline first."""

    columns: dict[str, Answer]
    pixels: np.ndarray  # uint8 [height, width, 3]
    question: str
    model: str = "pocket"  # by its name on offer
    max_new_tokens: int = 64
    stopped: bool = False
    superseded: bool = False  # stopped because its visitor asked again
    notice: str = ""  # what the visitor should know of how it was answered
    memory: dict[tuple, Any] = field(default_factory=dict, repr=False)
    key: str = field(default_factory=lambda: secrets.token_hex(8))
    talk: Conversation | None = field(default=None, repr=False)  # where its caches go, if kept
    goes_on: bool = False  # they wait for a follow-up question
    place: int = 0  # in the queue for memory; 0 where it is free
    previous: "Run | None" = None  # the turn before, in a conversation
    pictures: Sequence[Image.Image] = field(default=(), repr=False)  # all that were asked about
    sampling: Sampling = GREEDY  # with a seed where tokens are drawn

    def remember(self, key: tuple, make: Callable[[], Any]) -> Any:
        """`make()`, computed once: for slow results that do not change with the sliders."""
        if key not in self.memory:
            self.memory[key] = make()
        return self.memory[key]

    def recall(self, earlier: "Run") -> None:
        """Take over the measured damage of heads, where the uncompressed answer is the same."""
        mine = self.model, self.question, self.reference.ids
        its = earlier.model, earlier.question, earlier.reference.ids
        if mine == its and np.array_equal(self.pixels, earlier.pixels):
            known = earlier.memory.items()
            self.memory |= {key: value for key, value in known if key[0] == "damage"}

    def take(self, event: Event) -> None:
        """Hand one engine event to its column, or a failure to those still waiting."""
        self.place = event.place if isinstance(event, Queued) else 0
        if isinstance(event, Restarted):
            self.notice = event.message
            self.columns = {n: Answer(n, c.settings) for n, c in self.columns.items()}
        elif event.column is not None:
            self.columns[event.column].take(event)
        elif not isinstance(event, Queued):
            for column in self.columns.values():
                if column.finished is None:
                    column.take(event)

    @property
    def reference(self) -> Answer:
        """The uncompressed column."""
        return next(iter(self.columns.values()))

    @property
    def chosen(self) -> Answer:
        """The column of the visitor's own settings."""
        return list(self.columns.values())[min(1, len(self.columns) - 1)]

    @property
    def trace(self) -> Trace | None:
        """The trace of the column that was recorded, or None while there is none."""
        done = [column.finished for column in self.columns.values() if column.finished]
        own = next((event.trace for event in done if event.trace is not None), None)
        return self.previous.trace if own is None and self.previous is not None else own

    @property
    def turns(self) -> "list[Run]":
        """The complete conversation, this run last."""
        return [*(self.previous.turns if self.previous is not None else []), self]

    def next(self, question: str, max_new_tokens: int, sampling: Sampling = GREEDY) -> "Run":
        """The turn that follows, of which nothing has happened yet."""
        columns = {title: Answer(title, c.settings) for title, c in self.columns.items()}
        return Run(
            columns, self.pixels, question, self.model, max_new_tokens, memory=self.memory,
            previous=self, pictures=self.pictures, sampling=sampling,
        )  # fmt: skip


def start(
    columns: dict[str, Settings], pixels: np.ndarray, question: str, model: str = "pocket"
) -> Run:
    """A run of which nothing has happened yet."""
    return Run({title: Answer(title, s) for title, s in columns.items()}, pixels, question, model)


class Service:
    """Answers for the page. Models are loaded at first use and kept.

    models: the available ones, the default first; make: builds an engine from a model's source.
    failure: the message of a default model that could not be loaded, else empty.
    on_lost: called after an engine's accelerator is lost and its visitor has the message.
    """

    def __init__(self, models: Sequence[Model], make: Callable[[str], Engine] = Engine) -> None:
        self.models = tuple(models)
        self.failure = ""
        self.on_lost: Callable[[], None] | None = None
        self._make = make
        self._engines: dict[str, Engine] = {}
        self._downloads: defaultdict[str, Progress] = defaultdict(Progress)  # for all who wait
        self._loading = threading.Lock()
        self._stops: dict[str, dict[StopFlag, Run | None]] = {}  # None: waits for a model
        self._closed = False
        self.conversations = SessionStore[Conversation]()

    def engine(self, name: str) -> Engine:
        """The engine of a model on offer, loaded and warmed up once.

        Raises:
            SettingError: for a model that is not on offer; and what `rotatek.models.load` raises.
        """
        sources = {model.name: model.source for model in self.models}
        if not isinstance(name, str) or name not in sources:
            raise errors.SettingError("model", "one of " + ", ".join(sources), name)
        if name in self._engines:  # while another model is loaded, too
            return self._engines[name]
        with self._loading:
            if name not in self._engines:
                try:
                    with downloading(self._downloads[name]):
                        engine = self._make(sources[name])
                    engine.warm_up()
                except Exception as error:
                    if name == self.models[0].name:
                        self.failure = errors.public_message(error)
                        raise errors.UserError(self.failure) from error
                    raise
                self._engines[name] = engine
                self.failure = "" if name == self.models[0].name else self.failure
            return self._engines[name]

    def loading(self, name: str, session: str | None = None) -> Iterator[str]:
        """Messages while a model is loaded for the first time; none later. `stop(session)` ends the
        wait of a visitor, and the model is loaded all the same.

        Raises:
            UserError: as `engine`; Stopped.
        """
        if name in self._engines:
            return
        label = {one.name: one.label.partition(" (")[0] for one in self.models}.get(name, "")
        stop = threading.Event()
        if session is not None:
            self._stops.setdefault(session, {})[stop] = None
        failed: list[Exception] = []

        def load() -> None:
            try:
                self.engine(name)
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=load, daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                if stop.is_set():
                    raise errors.Stopped
                yield _progress_line(label, self._downloads[name])
                thread.join(REPORT_S)
        finally:
            self._forget(session or "", stop)
        if failed:
            raise failed[0]

    def loaded(self) -> dict[str, Engine]:
        """The engines so far; never waits."""
        return dict(self._engines)

    def health(self) -> dict[str, Any]:
        """The content of `/health`: "ready", "loading" or "failed"; per loaded model its device,
        what computes its attention, and why."""
        models = {name: engine.health() for name, engine in self.loaded().items()}
        status = "ready" if self.models[0].name in models else "loading"
        if self.failure or not all(health.able for health in models.values()):
            status = "failed"
        told = ("device", "attention", "reason")
        return {
            "status": status,
            "version": rotatek.__version__,
            "reason": self.failure,
            "models": {
                name: {part: getattr(health, part) for part in told}
                for name, health in models.items()
            },
        }

    def visual_tokens(self, model: str, image: Picture) -> int | None:
        """The number of visual tokens of a picture; None until a question has loaded the model."""
        engine = self._engines.get(model)
        if engine is None:
            return None
        return sum(engine.vlm.look(inputs.make_request(image, "?")).runs)

    def ask(
        self,
        model: str,
        image: Picture | None,
        question: str,
        columns: Mapping[str, Settings],
        max_new_tokens: int,
        session: str | None = None,
        *,
        talk: bool = False,
        sampling: Sampling = GREEDY,
    ) -> Iterator[Run]:
        """The run as it grows, at most once every `REPAINT_S`; the last one is complete.

        Args:
            session: the visitor's; `stop(session)` ends it.
            talk: keep the caches of a complete answer for `follow`.

        Raises:
            UserError: at once, where the question or image is refused.
        """
        if image is None:
            raise errors.ImageMissing
        sampling = sampling.seeded()
        request = inputs.make_request(image, question, max_new_tokens, sampling=sampling)
        engine = self.engine(model)
        if self._closed:
            raise errors.Restarting
        run = start(dict(columns), np.asarray(request.images[0]), request.question, model)
        run.pictures, run.sampling = request.images, sampling
        request, run.notice = engine.terms(request, len(columns))
        run.max_new_tokens = request.max_new_tokens
        if talk:
            self.conversations.drop(session or "")
            run.talk = Conversation()
        stop = engine.flag()
        events = engine.compare(request, columns, stop, conversation=run.talk)
        return self._grown(engine, run, events, stop, session or "")

    def follow(
        self,
        run: Run,
        question: str,
        max_new_tokens: int,
        session: str | None,
        sampling: Sampling = GREEDY,
    ) -> Iterator[Run]:
        """A further question about the image of `run`, answered from the caches it left; `run` is
        the `previous` of what is yielded.

        Raises:
            UserError: at once; ConversationGone where the caches are gone, and otherwise the
                conversation waits on.
        """
        question = inputs.clean_question(question)
        if self._closed:
            raise errors.Restarting
        talk = run.talk and self.conversations.take(session or "", run.talk)
        if talk is None:
            raise errors.ConversationGone
        later = run.next(question, max_new_tokens, sampling.seeded())
        try:
            engine = self.engine(run.model)
            stop = engine.flag()
            events = engine.follow(talk, question, max_new_tokens, stop, sampling=later.sampling)
        except Exception:  # refused, or nothing to go on from: what there is waits on
            self.conversations.hold(session or "", talk)
            raise
        later.talk, run.talk = talk, None
        return self._grown(engine, later, events, stop, session or "")

    def _grown(
        self, engine: Engine, run: Run, events: Iterator[Event], stop: StopFlag, session: str
    ) -> Iterator[Run]:
        """The run as `events` make it grow; at its end its conversation waits, or is closed."""
        talk, is_kept, shown = run.talk, False, 0.0
        try:
            with self.stoppable(engine, session, run, stop), closing(events):  # type: ignore[type-var]
                yield run
                for event in events:
                    run.take(event)
                    if isinstance(event, Restarted):
                        self.conversations.clear()
                    if not isinstance(event, Token) or time.monotonic() - shown > REPAINT_S:
                        shown = time.monotonic()
                        yield run
                run.stopped = stop.is_set()
                if talk is not None and talk.is_open:
                    self.conversations.hold(session, talk)
                    is_kept, run.goes_on = True, talk.is_open
                yield run
        except errors.UserError as error:
            run.take(Failed(error))
            yield run
        finally:
            if talk is not None and not is_kept:
                talk.close()

    @contextmanager
    def stoppable(
        self, engine: Engine, session: str, run: Run | None = None, stop: StopFlag | None = None
    ) -> Iterator[StopFlag]:
        """A flag, of the engine that works, for a session's work, which its visitor sees as `run`,
        if anything: `stop(session)` sets it.

        Raises:
            Restarting: once the service is closed.
        """
        if self._closed:
            raise errors.Restarting
        stop = engine.flag() if stop is None else stop
        self._stops.setdefault(session, {})[stop] = run
        try:
            yield stop
        finally:
            stop.set()
            self._forget(session, stop)
            if self.on_lost is not None and not engine.health().able:
                self.on_lost()

    def _forget(self, key: str, stop: StopFlag) -> None:
        self._stops.get(key, {}).pop(stop, None)
        if not self._stops.get(key, True):
            self._stops.pop(key, None)
        stop.clear()

    def stop(self, session: str | None) -> None:
        """Stop the session's work within one token, and free what it has kept."""
        self.conversations.drop(session or "")
        for stop in tuple(self._stops.get(session or "", ())):
            stop.set()

    def replace_run(self, session: str | None) -> None:
        """End what the session is waiting for, unseen, because it asks again, and wait for that."""
        for stop, run in tuple(self._stops.get(session or "", {}).items()):
            if run is not None:
                run.superseded = True
            stop.set()
        deadline = time.monotonic() + HALT_S
        while self._stops.get(session or "") and time.monotonic() < deadline:
            time.sleep(0.005)

    def busy(self) -> bool:
        """Whether anybody is being answered."""
        return bool(self._stops)

    def is_asking(self, session: str | None) -> bool:
        """Whether that visitor is being answered, or waits for a model."""
        return (session or "") in self._stops

    def close(self) -> None:
        """End every answer within one token, and refuse new ones."""
        self._closed = True
        self.conversations.clear()
        for session in tuple(self._stops):
            self.stop(session)


def _progress_line(label: str, progress: Progress) -> str:
    """What a visitor reads while a model is loaded."""
    done, total = progress.done, progress.total
    if done >= total:
        return f"Loading {label}…"
    come = f"{done / GB:.1f} of {total / GB:.1f} GB"
    if total < GB:
        come = f"{done // MB} of {total // MB} MB"
    return f"Downloading {label}: {come}…"
