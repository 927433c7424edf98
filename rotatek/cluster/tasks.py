"""Evaluation and calibration as tasks of Ray, which runs those of a lost node again elsewhere.

A task gets its questions with their pictures and gives answers back; only this process writes the
journal, so every answer is there once, and an interrupted run goes on where it stopped.
"""

import functools
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import ray
from PIL import Image
from tqdm import tqdm

from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cluster.local import started
from rotatek.engine.decode import prefill
from rotatek.errors import UserError
from rotatek.evaluation.evaluate import Evaluation, Outcome, describe_run, notice
from rotatek.evaluation.journal import Answer, Journal, Notes
from rotatek.evaluation.runner import Runner, RunOptions
from rotatek.evaluation.suite import Item, Suite
from rotatek.evaluation.tables import wanted
from rotatek.evaluation.work_batches import Unit, batches, missing, size
from rotatek.inputs.request import Clip, make_request, open_image
from rotatek.methods.calibration import PREFILL, Calibrator
from rotatek.models import VisionLanguageModel, load

TRIES: Final = 8  # nodes that one task may lose
AHEAD: Final = 2  # tasks a job that are handed out: one that runs, and the next
LOOK_S: Final = 0.5


@dataclass(frozen=True)
class Source:
    """Which model a task answers with, and how."""

    model: str
    device: str | None
    options: RunOptions = field(default_factory=RunOptions)


@dataclass
class SentSuite:
    """The questions of one task, with their pictures as PNG files."""

    name: str
    items: Sequence[Item]
    pictures: dict[int, bytes]

    def image(self, document: int) -> Image.Image:
        """The picture, RGB."""
        return open_image(self.pictures[document])


@functools.lru_cache(maxsize=1)
def model_of(name: str, device: str | None) -> VisionLanguageModel:
    """The model, which a worker loads once for all of its tasks."""
    return load(name, device)


def describe(source: Source, suite: Suite) -> tuple[dict[str, Any], int]:
    """A run's header, and how many questions a batch has where the model is."""
    vlm = model_of(source.model, source.device)
    return describe_run(vlm, suite, source.options), Runner(vlm, suite, Notes()).batch


def answer(source: Source, suite: SentSuite, owed: Sequence[Any]) -> tuple[list[Answer], dict]:
    """What the settings `owed` answer to a suite's questions, and those that were refused."""
    notes = Notes()
    runner = Runner(model_of(source.model, source.device), suite, notes, source.options)
    for _ in runner.run([Unit(list(suite.items), list(owed))]):
        pass
    return list(notes.answers.values()), runner.refused


Prompt = tuple[Image.Image | list[Image.Image] | Clip, str]  # what is shown, and a question


def sums(source: Source, prompts: Sequence[Prompt]) -> tuple[Calibrator, str]:
    """The covariances of some prompts, each a picture and a question; and the model's name."""
    vlm, calibrator = model_of(source.model, source.device), Calibrator()
    for picture, question in prompts:
        embedded = vlm.embed(vlm.prompt(make_request(picture, question, 1)))
        prefill(
            vlm, embedded, RotateKCache(vlm.model, embedded.inputs(), PREFILL, recorder=calibrator)
        )
    return calibrator, vlm.name


class Jobs:
    """Several tasks at once, each with its share of this machine's or cluster's processors.

    Args:
        count: tasks at once.
        device: of their models.
    """

    def __init__(self, count: int, device: str | None) -> None:
        self.count = count
        have = ray.cluster_resources()
        on_gpu = device != "cpu" and have.get("GPU", 0) > 0
        self.options: dict[str, Any] = {"max_retries": TRIES, "num_cpus": 0 if on_gpu else 1}
        if on_gpu:
            self.options["num_gpus"] = min(1.0, int(1000 * have["GPU"] / count) / 1000)

    def send(self, task: Any, *given: Any) -> Any:
        """Hand one task out; what it gives is there later."""
        return ray.remote(**self.options)(task).remote(*given)

    def map(self, task: Any, work: Iterator[tuple], asked: threading.Event) -> Iterator[Any]:
        """What `task` gives for each piece of work, as it comes, until `asked` is set."""
        running: list[Any] = []
        try:
            while not asked.is_set():
                while len(running) < AHEAD * self.count and (given := next(work, None)):
                    running.append(self.send(task, *given))
                if not running:
                    return
                done, running = ray.wait(running, timeout=LOOK_S)
                yield from (_given(one) for one in done)
        finally:
            for one in running:
                ray.cancel(one, force=True)


def evaluate(evaluation: Evaluation, count: int) -> Outcome:
    """Answer what is missing by `count` tasks at once.

    Args:
        evaluation: what to evaluate.
        count: of tasks.

    Raises:
        UserError: if a task failed, or if this process was asked to end; answers are kept.
    """
    cpus = max(count, os.cpu_count() or 1)
    with started(cpus), _termination() as asked:
        jobs = Jobs(count, evaluation.device)
        source = Source(evaluation.model, evaluation.device, evaluation.options)
        return _evaluate(evaluation, source, jobs, asked)


def _evaluate(
    evaluation: Evaluation, source: Source, jobs: Jobs, asked: threading.Event
) -> Outcome:
    """`evaluate`, with a Ray that runs."""
    suite = evaluation.suite
    whole = SentSuite(suite.name, list(suite.items), {})
    header, batch = _given(jobs.send(describe, source, whole))
    journal = Journal(evaluation.journal, header)
    chosen = list(wanted(evaluation.tables))
    journal.record(settings for settings, _ in chosen)
    todo = missing(suite.items, chosen, journal.answers)
    units = list(batches(todo, batch, jobs.count))
    refused: dict[str, str] = {}
    started_at, is_late = time.monotonic(), False
    work = ((source, _sent(suite, unit), unit.owed) for unit in units)
    with tqdm(total=size(units), unit="answer", file=sys.stderr, smoothing=0.05) as bar:
        for answers, sentences in jobs.map(answer, work, asked):
            fresh = [a for a in answers if (a.setting, a.item) not in journal.answers]
            journal.add(fresh)
            bar.update(len(fresh))
            for name in sentences.keys() - refused.keys():
                notice(f"Left out: {sentences[name]}")
            refused |= sentences
            limit = evaluation.limit_s
            is_late = limit is not None and time.monotonic() - started_at > limit
            if is_late and bar.n < bar.total:
                return Outcome(False, refused)
    if asked.is_set():
        raise UserError(
            "The evaluation was stopped. What was answered is kept: run the command again to go "
            "on, or with --report to see what there is."
        )
    return Outcome(True, refused)


def calibrate(source: Source, prompts: Sequence[Prompt], count: int) -> tuple[Calibrator, str]:
    """One calibrator of all prompts, by `count` tasks at once; and the model's name.

    Args:
        source: the model.
        prompts: pictures and questions.
        count: of tasks.
    """
    with started(max(count, os.cpu_count() or 1)):
        jobs, whole, name = Jobs(count, source.device), Calibrator(), source.model
        pieces = [prompts[first::count] for first in range(count)]
        sent = [jobs.send(sums, source, piece) for piece in pieces if piece]
        for one in sent:  # in this order, whichever is ready first: sums round
            part, name = _given(one)
            whole.add(part)
        return whole, name


def _sent(suite: Suite, unit: Unit) -> SentSuite:
    """A unit's questions with their pictures."""
    documents = {item.document for item in unit.items}
    return SentSuite(suite.name, unit.items, {d: _png(suite.image(d)) for d in documents})


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _given(reference: Any) -> Any:
    """What a task gives.

    Raises:
        UserError: its own, or that it failed.
    """
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, UserError):
            raise cause from None
        raise UserError(
            "A task of the evaluation failed; Ray's logs say why. Run the command again to go on."
        ) from error


@contextmanager
def _termination() -> Iterator[threading.Event]:
    """An event that SIGTERM sets, as `timeout` and batch systems send it, in place of the end."""
    asked = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: asked.set())
    try:
        yield asked
    finally:
        signal.signal(signal.SIGTERM, before)
