"""ZeroGPU: the engine in a forked worker behind pickling queues, with Stop and errors across."""

import inspect
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
import torch
from PIL import Image

from rotatek import BASELINE, Engine, Settings, errors
from rotatek.engine.events import Event, Failed, Finished, Prefilled, Token
from rotatek.inputs.request import Request, make_request
from rotatek.models import VisionLanguageModel
from rotatek.page import zerogpu
from tests.fixtures import present

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = {"baseline": BASELINE, "RotateK": Settings.of(keep_channels=0.25)}

pytestmark = [
    pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork"),
    # Python warns of forking a process that has threads, which is what ZeroGPU does.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


# Replaces the `spaces` package: as the real one (0.51), `GPU` turns a generator function into one
# whose body runs in a forked process: arguments go in and values come back through pickling queues,
# a value that does not pickle is an error, a closed generator ends the worker's at its next value,
# errors cross as `gr.Error`, and a worker is kept for the next call.

CONTEXT: Any = multiprocessing.get_context("fork")
END, FAILED, VALUE = "end", "failed", "value"


class Worker:
    """A forked process that runs one generator function, call after call."""

    def __init__(self, task: Callable[..., Iterator[Any]]) -> None:
        self.calls, self.values = CONTEXT.SimpleQueue(), CONTEXT.SimpleQueue()
        self.stop = CONTEXT.Event()
        self.process = CONTEXT.Process(target=self._work, args=(task,), daemon=True)
        self.process.start()

    def _work(self, task: Callable[..., Iterator[Any]]) -> None:
        while True:
            arguments = pickle.loads(self.calls.get())
            self.stop.clear()
            running = task(*arguments)
            try:
                for value in running:
                    if self.stop.is_set():
                        running.close()  # type: ignore[attr-defined]
                        break
                    self.values.put((VALUE, pickle.dumps(value)))
            except Exception as error:
                self.values.put((FAILED, type(error).__name__))
            self.values.put((END, None))


class Spaces:
    """What `import spaces` gives. seconds: each call's requested duration; refuse: the message with
    which the next calls get no GPU."""

    def __init__(self) -> None:
        self.seconds: list[int] = []
        self.workers: list[Worker] = []
        self.refuse = ""

    def GPU(self, *, duration: Callable[..., int]) -> Callable[[Callable], Callable]:  # noqa: N802
        """The decorator."""

        def decorate(task: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
            assert inspect.isgeneratorfunction(task), "the real one would run it as a function"

            def call(*arguments: Any) -> Iterator[Any]:
                self.seconds.append(duration(*arguments))
                if self.refuse:
                    raise gr.Error(self.refuse, print_exception=False)
                worker = self._worker(task)
                worker.calls.put(pickle.dumps(arguments))
                yield from self._values(worker)

            return call

        return decorate

    def _worker(self, task: Callable[..., Iterator[Any]]) -> Worker:
        alive = [worker for worker in self.workers if worker.process.is_alive()]
        if not alive:
            alive = [Worker(task)]
            self.workers.append(alive[0])
        return alive[0]

    def _values(self, worker: Worker) -> Iterator[Any]:
        ended = False
        try:
            while True:
                kind, value = self._next(worker)
                ended = kind == END
                if ended:
                    return
                if kind == FAILED:
                    raise gr.Error(value, title="ZeroGPU worker error", print_exception=False)
                yield pickle.loads(value)
        finally:
            worker.stop.set()
            while not ended and worker.process.is_alive():
                ended = self._next(worker)[0] == END

    def _next(self, worker: Worker) -> tuple[str, Any]:
        while not worker.values._reader.poll(0.05):
            if not worker.process.is_alive():
                raise gr.Error("GPU task aborted", print_exception=False)
        return worker.values.get()

    def close(self) -> None:
        """End the workers."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.join()


@pytest.fixture
def spaces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spaces]:
    stub = Spaces()
    monkeypatch.setitem(sys.modules, "spaces", stub)
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    yield stub
    stub.close()


@pytest.fixture
def engine(
    spaces: Spaces, qwen: VisionLanguageModel, monkeypatch: pytest.MonkeyPatch
) -> zerogpu.LentEngine:
    """A tiny model behind a lent GPU; this process is not allowed to compute with it."""
    moved: list[str] = []
    monkeypatch.setattr(zerogpu, "load", lambda source, device, dtype: qwen)
    monkeypatch.setattr(type(qwen.model), "to", lambda self, device: moved.append(device))
    made = zerogpu.maker()("large")
    assert isinstance(made, zerogpu.LentEngine) and moved == ["cuda"]
    parent = os.getpid()
    forward = type(qwen.model).forward

    def only_in_a_worker(self: torch.nn.Module, *args: object, **options: object) -> object:
        assert os.getpid() != parent, "the model ran outside of a worker"
        return forward(self, *args, **options)

    monkeypatch.setattr(type(qwen.model), "forward", only_in_a_worker)
    return made


@pytest.fixture
def request_(picture: Callable[..., Image.Image]) -> Request:
    return make_request(picture(160, 120), "What is the total?", 8)


def said(events: list[Event]) -> dict[str, str]:
    return {event.column: event.answer for event in events if isinstance(event, Finished)}


def test_a_worker_answers_as_this_process_would(
    engine: zerogpu.LentEngine, request_: Request, qwen: VisionLanguageModel, spaces: Spaces
) -> None:
    events = list(engine.compare(request_, COLUMNS, engine.flag()))
    again = list(engine.compare(request_, COLUMNS, engine.flag()))
    assert len(spaces.workers) == 1, "a worker is kept for the next question"
    assert said(events) == said(again) and set(said(events)) == set(COLUMNS)
    filled = next(e for e in events if isinstance(e, Prefilled) and e.column == "RotateK")
    assert filled.visual_kept == filled.visual_tokens > 0
    traced = next(e for e in events if isinstance(e, Finished) and e.trace is not None)
    assert present(traced.trace).shape == (4, 2)
    assert b"torch" not in pickle.dumps(events), "tensors must not leave a worker"


def test_stop_reaches_the_worker_and_the_answer_so_far_comes_back(
    engine: zerogpu.LentEngine, picture: Callable[..., Image.Image]
) -> None:
    stop, tokens = engine.flag(), 0
    request = make_request(picture(160, 120), "Go on", 150)
    for event in engine.compare(request, COLUMNS, stop):
        tokens += isinstance(event, Token)
        if tokens == 4:
            stop.set()
        if isinstance(event, Finished):
            assert event.metrics["stopped"]
    assert tokens < 150, "of 300: what had been sent before the worker saw it, and no more"
    stop.clear()
    assert not stop.is_set()


def test_a_closed_generator_frees_the_worker_for_the_next_visitor(
    engine: zerogpu.LentEngine, picture: Callable[..., Image.Image], request_: Request,
    spaces: Spaces, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    sent, real = list[str](), spaces._next

    def noted(worker: Worker) -> tuple[str, Any]:
        kind, value = real(worker)
        sent.append(kind)
        return kind, value

    running = engine.compare(make_request(picture(160, 120), "Go on", 150), COLUMNS, engine.flag())
    next(event for event in running if isinstance(event, Token))
    monkeypatch.setattr(spaces, "_next", noted)
    running.close()  # type: ignore[attr-defined]
    assert 0 < len(sent) < 150, "of 300 tokens and more"
    assert set(said(list(engine.compare(request_, COLUMNS, engine.flag())))) == set(COLUMNS)


@pytest.mark.parametrize("reason", ["quota", "killed", "settings"])
def test_no_gpu_a_killed_worker_and_a_failure_in_it_are_sentences(
    reason: str, engine: zerogpu.LentEngine, request_: Request, spaces: Spaces
) -> None:
    kind: type[errors.UserError] = errors.GpuNotLent
    if reason == "settings":
        kind, wrong = errors.CalibrationUnusable, Settings.of(calibration="nowhere.safetensors")
        events = list(engine.compare(request_, {"x": wrong}, engine.flag()))
    elif reason == "quota":
        spaces.refuse = "You have exceeded your GPU quota. <a href='https://example.org'>More</a>"
        events = list(engine.compare(request_, COLUMNS, engine.flag()))
    else:
        events = []
        for event in engine.compare(request_, COLUMNS, engine.flag()):
            events.append(event)
            if len(events) == 1:
                os.kill(spaces.workers[0].process.pid, signal.SIGKILL)
    assert isinstance(events[-1], Failed)
    assert isinstance(events[-1].error, kind)
    spaces.refuse = ""
    assert said(list(engine.compare(request_, COLUMNS, engine.flag())))


def test_a_question_takes_at_most_ten_gpu_seconds(
    engine: zerogpu.LentEngine, picture: Callable[..., Image.Image], spaces: Spaces
) -> None:
    for columns in (1, 2, 3, 4):
        assert zerogpu.seconds(columns, zerogpu.longest(columns)) <= zerogpu.QUESTION_S
        assert zerogpu.seconds(columns, zerogpu.longest(columns) + 1) > zerogpu.QUESTION_S
    long = make_request(picture(160, 120), "Go on", 1024)
    shorter, told = engine.terms(long, 2)
    assert shorter.max_new_tokens == zerogpu.longest(2) < 1024
    assert told == f"The GPU is shared here, so answers end after {zerogpu.longest(2)} tokens."
    brief = make_request(picture(160, 120), "?", 4)
    assert engine.terms(brief, 2) == (brief, "")
    list(engine.compare(brief, COLUMNS, engine.flag()))
    assert spaces.seconds == [round(zerogpu.seconds(2, 4))] and spaces.seconds[0] < 5


def test_small_models_stay_on_the_spaces_own_processor(
    spaces: Spaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = zerogpu.maker()("pocket")
    assert type(made) is Engine and made.vlm.device.type == "cpu"
    assert zerogpu.offered()[0] == "pocket" and zerogpu.is_here()
    monkeypatch.setenv("SPACES_ZERO_GPU", "")
    assert not zerogpu.is_here()


def test_nothing_is_probed_on_import_and_spaces_is_optional() -> None:
    """Importing the app initialises neither CUDA nor Triton, and needs no `spaces`."""
    code = (
        "import sys; sys.modules['spaces'] = None\n"
        "import torch\n"
        "def probed(*args, **options): raise SystemExit('CUDA was probed at import')\n"
        "for name in ('is_available', 'device_count', 'init', '_lazy_init', 'mem_get_info'):\n"
        "    setattr(torch.cuda, name, probed)\n"
        "import app, rotatek.page.zerogpu, rotatek.page.server, rotatek.models.loading\n"
        "assert not torch.cuda.is_initialized()\n"
        "assert not {'kernels.attention_launch', 'kernels.solver'} & {*sys.modules}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
