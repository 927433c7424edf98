"""ZeroGPU: a GPU is lent for one question at a time, to a forked worker that pickles its events.

The models are loaded and moved to "cuda" before the page is served; the worker inherits them. A
request, settings and a stop flag cross the border; events (numbers, text, numpy) come back.
"""

import importlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import gradio as gr
import torch

from kernels import dispatch
from rotatek import errors
from rotatek.bridge.attention import StopFlag
from rotatek.engine.engine import Engine
from rotatek.engine.events import Event, Failed
from rotatek.inputs.request import Request
from rotatek.methods.settings import Settings
from rotatek.models import CHECKPOINTS, load
from rotatek.models.assembly import at_hand

Columns = dict[str, Settings]
log = logging.getLogger("rotatek")

# GPU-seconds of a question: measured on an H200 with 7B and 8B models, rounded up.
QUESTION_S: Final = 10.0  # what one question may take at most
START_S: Final = 2.0  # a worker's hand-over
PREFILL_S: Final = 0.5  # a column's vision tower and prefill; measured .04 to .12, eigh .39
TOKEN_S: Final = 0.03  # a column's decoding step, launched; measured .017 to .053, .03 mostly


def is_here() -> bool:
    """Whether this process runs on ZeroGPU, by the variable that the `spaces` package reads."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


def seconds(columns: int, new_tokens: int) -> float:
    """GPU-seconds that a question of `columns` columns and at most `new_tokens` tokens may take."""
    return START_S + columns * (PREFILL_S + new_tokens * TOKEN_S)


def longest(columns: int) -> int:
    """Tokens an answer may have for the question to stay within `QUESTION_S`."""
    return max(1, int(((QUESTION_S - START_S) / columns - PREFILL_S) / TOKEN_S))


class FileFlag:
    """A stop flag that works between processes: a file that comes into being. Picklable."""

    def __init__(self) -> None:
        self.path = Path(tempfile.gettempdir()) / f"rotatek-stop-{os.urandom(8).hex()}"

    def set(self) -> None:
        """Ask to stop."""
        self.path.touch()

    def is_set(self) -> bool:
        """Whether to stop; takes a microsecond."""
        return self.path.exists()

    def clear(self) -> None:
        """Remove the file, once no process reads it."""
        self.path.unlink(missing_ok=True)


class LentEngine(Engine):
    """An engine whose answers are computed by workers on a borrowed GPU."""

    def __init__(self, source: str, lent: Callable[..., Iterator[Event]]) -> None:
        vlm = load(source, "cpu", torch.bfloat16)
        vlm.optimise_for_gpu()
        vlm.model.to("cuda")
        super().__init__(vlm)
        self.source, self._lent = source, lent

    def warm_up(self) -> None:
        """Nothing: this process has no GPU of its own."""

    def flag(self) -> FileFlag:
        """A stop flag that the worker sees too."""
        return FileFlag()

    def terms(self, request: Request, columns: int) -> tuple[Request, str]:
        """The request within a question's GPU-seconds, and what to tell the visitor of it."""
        tokens = longest(columns)
        if request.max_new_tokens <= tokens:
            return request, ""
        said = f"The GPU is shared here, so answers end after {tokens} tokens."
        return replace(request, max_new_tokens=tokens), said

    def compare(
        self,
        request: Request,
        columns: Mapping[str, Settings],
        stop: StopFlag | None = None,
        **options: Any,
    ) -> Iterator[Event]:
        """As `Engine.compare`, by a worker. A refusal to lend a GPU is a `Failed` event."""
        try:
            with closing(self._lent(self.source, request, dict(columns), stop)) as events:  # type: ignore[type-var]
                yield from events
        except gr.Error as error:  # quota, no free GPU, an aborted worker
            log.warning("no GPU: %s", type(error).__name__)
            yield Failed(errors.GpuNotLent())


def maker() -> Callable[[str], Engine]:
    """How this Space makes engines: the embedded models run on its own processor, which uses no
    quota, the others on borrowed GPUs."""
    engines: dict[str, Engine] = {}

    def duration(source: str, request: Request, columns: Columns, stop: StopFlag) -> int:
        return round(seconds(len(columns), request.max_new_tokens))

    def answer(source: str, request: Request, columns: Columns, stop: StopFlag) -> Iterator[Event]:
        engine = engines[source]
        if engine.vlm.device.type == "cuda":
            dispatch.self_test(engine.vlm.device)
        yield from Engine.compare(engine, request, columns, stop)

    lent = importlib.import_module("spaces").GPU(duration=duration)(answer)

    def make(source: str) -> Engine:
        known = CHECKPOINTS.get(source)
        if known is not None and known.gigabytes < 1:
            return Engine(source, "cpu")
        engines[source] = LentEngine(source, lent)
        return engines[source]

    return make


def offered() -> list[str]:
    """What is offered where ROTATEK_MODELS is empty: embedded models at hand, and a large one."""
    small = [name for name, known in CHECKPOINTS.items() if known.gigabytes < 1]
    return [*(name for name in small if at_hand(CHECKPOINTS[name].source)), "qwen2.5-vl-7b"]
