"""One scheduler a model: every visitor's rows are decoded in one step.

There is no scheduler thread. The caller whose token is missing runs one decode step for every
active row; the other callers find their tokens done. Rows join and leave between two steps; a
prefill runs between steps, and steps interrupt it after every layer. On a processor of several
cores prefills run side by side, and parallel to the steps. Where steps are replayed, the next one
runs while visitors' threads take the last one's tokens. Any change to the batch first waits for
the pending step.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import torch
from torch import Tensor

from rotatek.bridge.attention import StopFlag
from rotatek.bridge.scope import own_calls
from rotatek.cache.measures import Pace, Stopwatch, synchronise
from rotatek.cache.rotatek_cache import RotateKCache, release
from rotatek.cache.step_graph import StepGraph
from rotatek.engine import memory, passes
from rotatek.engine.batch import RunningBatch
from rotatek.engine.device_turns import THREADS, CpuShares, DeviceTurns, cores_here
from rotatek.engine.events import EngineState
from rotatek.engine.sequences import SampledToken, Sequence, TokenChoice
from rotatek.models import VisionLanguageModel
from rotatek.models.memory import Unused, is_out_of_memory, share_arenas

log = logging.getLogger("rotatek")

SHARE: Final = 2.0  # of a step's time: what a prefill takes before it gives way
LEAST_S: Final = {"cuda": 0.005, "cpu": 0.2}  # at least; fewer and fuller steps suit processors
# Requests whose pictures are preprocessed at once: .15 s each for 1,280 tokens, on one core.
PREPROCESSED: Final = max(2, (os.cpu_count() or 2) // 2)


@dataclass(frozen=True)
class PendingStep:
    """A step that has been launched."""

    sequences: list[Sequence]
    places: list[int]  # of them in the logits [rows, vocabulary]
    logits: Tensor
    counters: Any  # for `RunningBatch.rewind`
    watch: Stopwatch
    usual: bool  # whether steps mostly take as long; not where others are replayed, and this is not


class Scheduler:
    """Decodes the rows of all visitors together.

    Args:
        vlm: the model.
        graphs: replay steps as CUDA graphs, where there is a GPU.
        expected: requests that are being answered or soon will be, if known.
    """

    def __init__(
        self,
        vlm: VisionLanguageModel,
        *,
        graphs: bool = False,
        expected: Callable[[], int] = int,
    ) -> None:
        self.vlm, self.device = vlm, vlm.device  # read once: a model searches its weights for it
        self._stops = vlm.stop_ids
        self.graphs = graphs and vlm.device.type == "cuda"
        self.counters, self._expected = EngineState(), expected
        self.preprocessing = threading.Semaphore(PREPROCESSED)
        self.preparing = threading.Lock()  # tokenizers change while they work
        self._turns, self._prefills = DeviceTurns(), DeviceTurns()
        here = vlm.device.type == "cpu"
        self.cores = CpuShares(cores_here()) if here and THREADS > 1 else None
        self._unused = Unused()
        if here:
            share_arenas()
        self._told = threading.Condition()
        self._leading = False
        self._batch: RunningBatch | None = None
        self.requests = count(1)  # a number for each request's rows
        self.batch_bytes = 0  # that the running batch holds, as it was when a row last came or went
        self._step_s = self._stepped = 0.0  # how long a usual one takes; when the last was over
        self._pending: PendingStep | None = None  # a step that was launched and not yet waited for
        self._steps = StepGraph(room=None)
        self.choice = TokenChoice(vlm, self.preparing)

    # -- what an engine calls ------------------------------------------------------------------

    @contextmanager
    def prefill(self, stop: StopFlag | None, *, packing: bool = False) -> Iterator[None]:
        """The device, for a vision tower or a prefill: one at a time, between steps or parallel to
        them. A processor's cores are divided instead. `packing` of what a prefill has left waits
        for no other one, which would fill memory with more of that."""
        turn = self._prefills if self.cores is None else self.cores.prompts
        first = nullcontext() if packing else turn
        if self.cores is not None:
            with first, self.cores.work(), own_calls(stop=stop, checkpoint=self.cores.share):
                yield
        else:
            with first, self._turns:
                with own_calls(stop=stop, checkpoint=self._yielding()):
                    yield
                synchronise(self.device)
        if self.device.type == "cpu":
            self._unused.give_back()

    def _yielding(self) -> Callable[[], None]:
        """Lets steps interrupt a prefill that holds the device, between two of its layers."""
        pace = Pace(self.device)  # keeps the device at most one layer behind the host
        pace.follow()
        since = time.perf_counter()

        def checkpoint() -> None:
            nonlocal since
            pace.follow()
            if self._turns.contended and time.perf_counter() - since >= self._patience():
                pace.wait()
                self._turns.__exit__()
                self._turns.__enter__()
                pace.follow()
                since = time.perf_counter()

        return checkpoint

    def _patience(self) -> float:
        """Seconds of a prefill, behind the step that may be under way when its turn comes."""
        own = max(LEAST_S.get(self.device.type, 0.0), SHARE * self._step_s)
        return own if self._pending is None else own + self._step_s

    def start(self, sequences: list[Sequence]) -> None:
        """Choose the first tokens of filled caches, which are ready at once."""
        logits = torch.cat([one.logits for one in sequences if one.logits is not None])
        places = list(range(len(sequences)))
        picks = self.choice.next(sequences, places, logits, 0.0)  # no row waits for these
        for one in sequences:
            one.logits = None
        with self._turns:
            self._hand_out(sequences, picks)

    def join(self, sequences: list[Sequence]) -> None:
        """Let filled caches answer, which are started if they have not been.

        Raises:
            RuntimeError: where memory is missing; nothing has joined then.
        """
        if fresh := [sequence for sequence in sequences if sequence.logits is not None]:
            self.start(fresh)
        with self._turns:
            self._land()
            self._admit([sequence for sequence in sequences if not sequence.ended])

    def next(self, sequence: Sequence) -> SampledToken | None:
        """The next token of a row, or None where it has ended.

        Raises:
            Exception: what went wrong in a step, for this row.
        """
        while True:
            if sequence.stop is not None and sequence.stop.is_set():
                self.leave([sequence], restore=True)
                return None
            with self._told:
                if sequence.taken < len(sequence.picks):
                    sequence.taken += 1
                    return sequence.picks[sequence.taken - 1]
                if sequence.failure is not None:
                    raise sequence.failure
                if sequence.ended:
                    return None
                if self._leading:
                    self._told.wait()
                    continue
                self._leading = True
            self._lead()

    def leave(self, sequences: list[Sequence], *, restore: bool = False) -> None:
        """Remove rows before their end, between two steps; those that have ended are not changed.
        Restore: give their caches back, for figures that still read them."""
        if not any(sequence.joined for sequence in sequences):
            for sequence in sequences:
                sequence.ended = True
            return
        with self._turns:
            self._land()
            self._end(sequences, restore)

    @property
    def running(self) -> int:
        """Rows that are answering."""
        return len(self._rows)

    @property
    def _rows(self) -> list[Sequence]:
        batch = self._batch
        return [] if batch is None else batch.owners

    def _weigh(self) -> None:
        self.batch_bytes = 0 if self._batch is None else self._batch.bytes

    # -- between steps -------------------------------------------------------------------------

    def _admit(self, sequences: list[Sequence]) -> None:
        if not sequences:
            return
        if self._batch is None:
            self._batch = RunningBatch(sequences[0].cache, steps=self._steps)
            self._batch.static = self.graphs
        here = len({sequence.request for sequence in (*self._rows, *sequences)})
        growth = max(1.0, self._expected() / here)
        self._batch.join(sequences, reserve=self.graphs, growth=growth)
        for sequence in sequences:
            sequence.joined = True
        self._weigh()

    def _remove(self, sequences: list[Sequence], restore: bool) -> None:
        """Take rows out of the batch, if they are there."""
        rows = [sequence for sequence in sequences if sequence.joined]
        if not rows or self._batch is None:
            return
        for sequence in rows:
            sequence.joined = False
        try:
            self._batch.leave(rows, [one for one in rows if restore and one.needed])
        except Exception as error:  # no memory to give the caches back
            for sequence in rows:
                sequence.failure = error.with_traceback(None)
                release(sequence.cache)
            try:
                self._batch.leave(rows)
            except Exception as other:  # the device is lost for all
                for sequence in self._rows:
                    sequence.failure, sequence.joined = other, False
                self._batch = None
        if not self._rows:
            self._batch = None
            self._steps.forget()
        self._weigh()

    # -- a step --------------------------------------------------------------------------------

    def _lead(self) -> None:
        """Run one step for all rows, and deliver the tokens."""
        try:
            left = self._stepped + self._patience() - time.perf_counter()
            with nullcontext() if self.cores is None else self.cores.work(left), self._turns:
                self._step()
            self._stepped = time.perf_counter()
        finally:
            with self._told:
                self._leading = False
                self._told.notify_all()

    @torch.inference_mode()
    def _step(self) -> None:
        """One token for every active row. A step that can be replayed is launched before the tokens
        of this one are delivered, so that the device works parallel to visitors' threads."""
        if self._pending is None:
            self._launch()
        self._land()
        if self._batch is not None and self._batch.replays:
            self._launch()

    def _launch(self) -> None:
        """Begin a step of all rows; failures are the rows', not the leader's."""
        stopped = [s for s in self._rows if s.stop is not None and s.stop.is_set()]
        self._end(stopped, restore=True)
        batch = self._batch
        if batch is None:
            return
        counters, failure, rows = batch.counters(), None, batch.order
        try:
            fed = [(0, 0) if one is None else one.fed for one in rows]
            tokens, position = torch.tensor(fed, device=self.device).T
            usual = not self.graphs or batch.replays
            with Stopwatch(self.device) as watch:
                logits = passes.forward_one(self.vlm, tokens, position, batch)
            places = [place for place, one in enumerate(rows) if one is not None]
            self._pending = PendingStep(batch.owners, places, logits, counters, watch, usual)
        except BaseException as error:
            failure = error
        if failure is not None:
            self._undo(counters, failure)

    def _land(self) -> None:
        """Wait for the step that was launched, if any, and hand out its tokens."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        assert self._batch is not None
        failure = None
        try:
            synchronise(self.device)
            seconds = pending.watch.seconds
            picks = self.choice.next(
                pending.sequences, pending.places, pending.logits, 1000 * seconds
            )
        except BaseException as error:
            failure = error
        if failure is not None:
            self._undo(pending.counters, failure)
            return
        if pending.usual or not self._step_s:
            self._step_s = seconds
        self._batch.stepped()
        self.counters.steps += 1
        self._hand_out(pending.sequences, picks)

    def _end(self, sequences: list[Sequence], restore: bool) -> None:
        """Rows end early; what their callers have not taken is forgotten."""
        self._remove(sequences, restore)
        for sequence in sequences:
            sequence.ended = True
            del sequence.picks[sequence.taken :]

    def _hand_out(self, sequences: list[Sequence], picks: list[SampledToken]) -> None:
        """Give each row its next token; rows that end leave before anybody hears of it."""
        self.counters.tokens += len(picks)
        over = []
        for sequence, pick in zip(sequences, picks, strict=True):
            if sequence.matcher is not None:
                sequence.matcher.take(pick.token)
            broken = sequence.failure is not None
            last = len(sequence.picks) + 1 >= sequence.limit
            if broken or last or pick.token in self._stops:
                over.append(sequence)
        self._remove(over, restore=True)
        with self._told:
            for sequence, pick in zip(sequences, picks, strict=True):
                if sequence.failure is None:
                    sequence.picks.append(pick)
            for sequence in over:
                sequence.ended = True

    # -- when a step fails ---------------------------------------------------------------------

    def _undo(self, counters: Any, failure: BaseException) -> None:
        """Undo a step that failed, and find the rows that caused it."""
        batch = self._batch
        assert batch is not None
        try:
            batch.rewind(counters)
        except Exception:  # the device is gone
            self._fail(self._rows, failure)
            return
        if not isinstance(failure, Exception):
            raise failure
        if is_out_of_memory(failure):
            failure.__traceback__ = None  # it holds what did not fit
            latest = max(sequence.request for sequence in self._rows)
            self._fail([s for s in self._rows if s.request == latest], failure)
            self.counters.shed += 1
            memory.free(self.device)
            return
        log.warning("a step of %d rows failed: each is run separately", len(self._rows))
        for sequence in self._rows:
            self._alone(sequence)

    def _alone(self, sequence: Sequence) -> None:
        """One row's step on its own cache; a failure ends this row only."""
        sequence.watcher, sequence.missed, sequence.needed = None, True, True
        self._remove([sequence], restore=True)
        if sequence.failure is not None:
            return
        if isinstance(sequence.cache, RotateKCache):
            sequence.cache.graph = False
        try:
            token, place = torch.tensor(sequence.fed, device=self.device)[:, None]
            started = time.perf_counter()
            logits = passes.forward_one(self.vlm, token, place, sequence.cache)
            synchronise(self.device)
            ms = 1000 * (time.perf_counter() - started)
            picks = self.choice.next([sequence], [0], logits, ms)
            self._hand_out([sequence], picks)
            self._admit([sequence] if not sequence.ended else [])
        except Exception as error:
            self._fail([sequence], error)

    def _fail(self, sequences: list[Sequence], failure: BaseException) -> None:
        self._remove(sequences, restore=False)
        self.counters.failed += len(sequences)
        with self._told:
            for sequence in sequences:
                if isinstance(failure, Exception):
                    sequence.failure = failure
                sequence.ended = True
