"""One scheduler a model: every visitor's rows are decoded in one step.

There is no thread of its own. Whoever wants a token and finds none ready leads a step for all rows
that are answering, and the others find theirs ready. Rows join and leave between two steps; a
prefill is one piece of work between steps, and gives way to them in every layer. On a processor of
several cores prefills run side by side, and beside the steps. Where steps are replayed, the next
one is under way while visitors' threads take the last one's tokens: whoever touches the batch then
lands it first.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor

from rotatek.bridge.attention import Flag, stoppable
from rotatek.bridge.fitness import decoder_layers
from rotatek.cache.device_timing import Pace, Stopwatch, synchronise
from rotatek.cache.rotatek_cache import RotateKCache, release
from rotatek.engine import decode, recovery
from rotatek.engine.batch import RunningBatch
from rotatek.engine.batch_graph import BatchGraph
from rotatek.engine.cpu_shares import AVAILABLE, CpuShares
from rotatek.engine.device_turns import DeviceTurns, YieldToDecode
from rotatek.engine.sequences import Counters, SampledToken, Seat
from rotatek.engine.steps import PendingStep, chosen
from rotatek.models import VisionLanguageModel
from rotatek.models.memory import Unused, is_out_of_memory, share_arenas

log = logging.getLogger("rotatek")

SHARE: Final = 2.0  # of a step's time: what a prefill takes before it gives way
LEAST_S: Final = {"cuda": 0.005, "cpu": 0.2}  # at least; fewer and fuller steps suit processors
# Requests whose pictures are made into pixels at once: .15 s each for 1,280 tokens, on one core.
PREPROCESSED: Final = max(2, (os.cpu_count() or 2) // 2)


class Scheduler:
    """Decodes the rows of all visitors together.

    Args:
        vlm: the model.
        graphs: replay steps as CUDA graphs, where there is a GPU.
        expected: requests that are being answered or soon will be, if somebody knows.
    """

    def __init__(
        self,
        vlm: VisionLanguageModel,
        *,
        graphs: bool = False,
        expected: Callable[[], int] = int,
    ) -> None:
        self.vlm, self.device = vlm, vlm.device  # asked for once: a model looks for it
        self._stops = vlm.stop_ids
        self.graphs = graphs and vlm.device.type == "cuda"
        self.counters, self._expected = Counters(), expected
        self.preprocessing = threading.Semaphore(PREPROCESSED)
        self.preparing = threading.Lock()  # tokenizers change while they work
        self._turns, self._prefills = DeviceTurns(), DeviceTurns()
        here = vlm.device.type == "cpu"
        self.cores = CpuShares(AVAILABLE) if here and AVAILABLE > 1 else None
        self._unused = Unused()
        if here:
            share_arenas()
        self._told = threading.Condition()
        self._leading = False
        self._batch: RunningBatch | None = None
        self._seats: dict[int, Seat] = {}  # by row
        self._requests = 0
        self.batch_bytes = 0  # that the running batch holds, as it was when a row last came or went
        self._step_s = self._stepped = 0.0  # how long a usual one takes; when the last was over
        self._graph: BatchGraph | None = None
        self._flight: PendingStep | None = None  # a step that was launched and not yet waited for
        self._moved = self._uncaptured = -1  # states of the batch: at the last step; not capturable
        self._banned: Tensor | None = None

    # -- what an engine calls ------------------------------------------------------------------

    @contextmanager
    def prefill(self, stop: Flag | None) -> Iterator[None]:
        """The device, for a vision tower or a prefill: one at a time, between steps and beside
        them. A processor's cores are shared out instead."""
        if self.cores is not None:
            with self.cores.prompt(stop) as flag, stoppable(flag):
                yield
        else:
            with self._prefills, self._turns:
                flag = YieldToDecode(self._turns, self._patience, Pace(self.device), stop)
                with stoppable(flag):
                    yield
                synchronise(self.device)
        if self.device.type == "cpu":
            self._unused.give_back()

    def _patience(self) -> float:
        """Seconds of a prefill, behind the step that may be under way when its turn comes."""
        own = max(LEAST_S.get(self.device.type, 0.0), SHARE * self._step_s)
        return own if self._flight is None else own + self._step_s

    def request(self) -> int:
        """A number for a request's rows."""
        with self._told:
            self._requests += 1
            return self._requests

    def join(self, seats: Sequence[Seat]) -> None:
        """Let filled caches answer. Their first tokens are ready at once.

        Raises:
            RuntimeError: where memory is missing; nothing has joined then.
        """
        logits = torch.cat([seat.logits for seat in seats])
        picks = self._chosen(seats, range(len(seats)), logits, 0.0)  # no row waits for these
        with self._turns:
            self._land()
            self.counters.prefills += len(seats)
            self._hand_out(seats, picks)
            self._seat([seat for seat in seats if not seat.ended])

    def next(self, seat: Seat) -> SampledToken | None:
        """The next token of a row, or None where it has ended.

        Raises:
            Exception: what went wrong in a step, for this row.
        """
        while True:
            if seat.stop is not None and seat.stop.is_set():
                self.leave([seat], restore=True)
                return None
            with self._told:
                if seat.picks:
                    return seat.picks.popleft()
                if seat.failure is not None:
                    raise seat.failure
                if seat.ended:
                    return None
                if self._leading:
                    self._told.wait()
                    continue
                self._leading = True
            self._lead()

    def leave(self, seats: Sequence[Seat], *, restore: bool = False) -> None:
        """Let rows go before their end, between two steps.

        Args:
            seats: whose; those that have ended are left as they are.
            restore: give their caches back, for what is still to be read of them.
        """
        if all(seat.row is None for seat in seats):
            for seat in seats:
                seat.ended = True
            return
        with self._turns:
            self._land()
            self._unseat([seat for seat in seats if seat.row is not None], restore)
            for seat in seats:
                seat.ended = True
                seat.picks.clear()

    @property
    def running(self) -> int:
        """Rows that are answering."""
        return len(self._seats)

    @property
    def places(self) -> int:
        """Rows that a step computes, those that wait for somebody included."""
        return 0 if self._batch is None else len(self._batch.order)

    @property
    def bytes(self) -> int:
        """Live bytes of the running batch."""
        with self._turns:
            return self._weigh()

    def _weigh(self) -> int:
        self.batch_bytes = 0 if self._batch is None else self._batch.bytes
        return self.batch_bytes

    # -- between steps -------------------------------------------------------------------------

    def _seat(self, seats: Sequence[Seat]) -> None:
        """Put rows into the batch."""
        if not seats:
            return
        if self._batch is None:
            self._batch = RunningBatch(len(decoder_layers(self.vlm.model)))
            self._batch.static = self.graphs
            self._moved = self._uncaptured = -1
        limit = max(seat.limit for seat in seats)
        watchers = [() if seat.blind else seat.watchers for seat in seats]
        caches = [seat.cache for seat in seats]
        here = len({seat.request for seat in (*self._seats.values(), *seats)})
        growth = max(1.0, self._expected() / here)
        rows = self._batch.join(caches, limit, watchers, reserve=self.graphs, growth=growth)
        for seat, (row,) in zip(seats, rows, strict=True):
            seat.row = row
            self._seats[row] = seat
        self._weigh()

    def _unseat(self, seats: Sequence[Seat], restore: bool) -> None:
        """Take rows out of the batch."""
        rows = {seat.row: seat for seat in seats if seat.row is not None}
        if not rows or self._batch is None:
            return
        for row, seat in rows.items():
            seat.row = None
            self._seats.pop(row, None)
        try:
            self._batch.leave(rows, {r: s.cache for r, s in rows.items()} if restore else None)
        except Exception as error:  # no room for what was to be given back
            for seat in rows.values():
                seat.failure = error.with_traceback(None)
                release(seat.cache)
            self._drop(rows)
        if not self._seats:
            self._batch = self._graph = None
        self._weigh()

    def _drop(self, rows: Iterable[int]) -> None:
        """Take rows out whatever it costs: where that fails too, the device is gone for all."""
        assert self._batch is not None
        try:
            self._batch.leave(rows)
        except Exception as error:
            for seat in self._seats.values():
                seat.failure, seat.row = error, None
            self._seats.clear()

    # -- a step --------------------------------------------------------------------------------

    def _lead(self) -> None:
        """Take one step for everybody, and tell them."""
        try:
            if self.cores is None:
                with self._turns:
                    self._step()
            else:
                self.cores.wait_for_all(self._stepped + self._patience() - time.perf_counter())
                with self._turns, self.cores.work():
                    self._step()
                self._stepped = time.perf_counter()
        finally:
            with self._told:
                self._leading = False
                self._told.notify_all()

    @torch.inference_mode()
    def _step(self) -> None:
        """One token for every row that is answering. Where the next step would be replayed, it is
        launched before anybody hears of this one: whatever visitors' threads do then, the device
        works beside them."""
        if self._flight is None:
            self._launch()
        self._land()
        if self._batch is not None and self._replays(self._batch):
            self._launch()

    def _replays(self, batch: RunningBatch) -> bool:
        """Whether the next step is one that was captured before."""
        graph = self._graph
        return graph is not None and graph.fits and self._moved == batch.moved

    def _launch(self) -> None:
        """Begin a step of all rows; failures are the rows', not the leader's."""
        self._end([s for s in self._seats.values() if s.stop is not None and s.stop.is_set()])
        batch = self._batch
        if batch is None:
            return
        counters, failure = batch.counters(), None
        try:
            self._flight = self._forward(batch, counters)
        except BaseException as error:
            failure = error
        if failure is not None:
            self._undo(counters, failure)

    def _land(self) -> None:
        """Wait for the step that was launched, if any, and hand out its tokens."""
        flight, self._flight = self._flight, None
        if flight is None:
            return
        assert self._batch is not None
        failure = None
        try:
            synchronise(self.device)
            seconds = flight.watch.seconds
            picks = self._chosen(flight.seats, flight.places, flight.logits, 1000 * seconds)
        except BaseException as error:
            failure = error
        if failure is not None:
            self._undo(flight.counters, failure)
            return
        if flight.usual or not self._step_s:
            self._step_s = seconds
        self._batch.stepped()
        self.counters.steps += 1
        for seat in flight.seats:
            seat.position += 1
        self._hand_out(flight.seats, picks)

    def _end(self, stopped: Sequence[Seat]) -> None:
        """Rows whose visitors want no more."""
        self._unseat(stopped, restore=True)
        for seat in stopped:
            seat.ended = True
            seat.picks.clear()

    def _forward(self, batch: RunningBatch, counters: list[Any]) -> PendingStep:
        """Feed every row's last token."""
        rows = [None if number is None else self._seats[number] for number in batch.order]
        fed = [(0, 0) if seat is None else (seat.token, seat.position) for seat in rows]
        tokens, position = torch.tensor(fed, device=self.device).T
        usual = not self.graphs or self._replays(batch)
        with Stopwatch(self.device) as watch:
            logits = self._logits(batch, tokens, position)
        places = [place for place, seat in enumerate(rows) if seat is not None]
        seats = [seat for seat in rows if seat is not None]
        return PendingStep(seats, places, logits, counters, watch, usual)

    def _logits(self, batch: RunningBatch, tokens: Tensor, position: Tensor) -> Tensor:
        """A step: replayed where nothing has moved since the last one, else launched."""
        steady, self._moved = self._moved == batch.moved, batch.moved
        if self.graphs and steady and self._uncaptured != batch.moved:
            try:
                if self._graph is None or not self._graph.fits:
                    self._graph = None  # its memory first
                    self._graph = BatchGraph(self.vlm, batch)
                    self.counters.captures += 1
                return self._graph(tokens, position)
            except RuntimeError as error:
                if self._graph is not None or is_out_of_memory(error):
                    raise
                log.warning("steps without a CUDA graph", exc_info=True)
                self._uncaptured = batch.moved
        return decode.decode_one_token(self.vlm, tokens, position, batch, None)

    def _hand_out(self, seats: Sequence[Seat], picks: Sequence[SampledToken]) -> None:
        """Give each row its next token; rows that end leave before anybody hears of it."""
        self.counters.tokens += len(picks)
        over = []
        for seat, pick in zip(seats, picks, strict=True):
            seat.made, seat.token = seat.made + 1, pick.token
            if pick.token in self._stops or seat.made == seat.limit:
                over.append(seat)
        self._unseat(over, restore=True)
        with self._told:
            for seat, pick in zip(seats, picks, strict=True):
                seat.picks.append(pick)
            for seat in over:
                seat.ended = True

    def _chosen(
        self, seats: Sequence[Seat], places: Sequence[int], logits: Tensor, ms: float
    ) -> list[SampledToken]:
        """The likeliest token of each row that may be said."""
        if self._banned is None or self._banned.device != logits.device:
            self._banned = torch.tensor(self.vlm.banned_ids, device=logits.device).long()
        return chosen(seats, places, logits, self._banned, ms)

    # -- when a step fails ---------------------------------------------------------------------

    def _undo(self, counters: list[Any], failure: BaseException) -> None:
        """Take back a step that failed, and find out whom it was for."""
        batch = self._batch
        assert batch is not None
        try:
            batch.rewind(counters)
        except Exception:  # the device is gone
            self._fail(list(self._seats.values()), failure)
            return
        if not isinstance(failure, Exception):
            raise failure
        if is_out_of_memory(failure):
            failure.__traceback__ = None  # it holds what did not fit
            latest = max(seat.request for seat in self._seats.values())
            self._fail([s for s in self._seats.values() if s.request == latest], failure)
            self.counters.shed += 1
            recovery.free(self.device)
            return
        log.warning("a step of %d rows failed: each goes alone", len(self._seats))
        for seat in list(self._seats.values()):
            self._alone(seat)

    def _alone(self, seat: Seat) -> None:
        """One row's step on its own cache; if it fails, it fails for this row only."""
        seat.blind = True
        self._unseat([seat], restore=True)
        if seat.failure is not None:
            return
        if isinstance(seat.cache, RotateKCache):
            seat.cache.graph = False
        try:
            token = torch.tensor([seat.token], device=self.device)
            place = torch.tensor([seat.position], device=self.device)
            started = time.perf_counter()
            logits = decode.decode_one_token(self.vlm, token, place, seat.cache, None)
            picks = self._chosen([seat], [0], logits, 1000 * (time.perf_counter() - started))
            seat.position += 1
            self._hand_out([seat], picks)
            self._seat([seat] if not seat.ended else [])
        except Exception as error:
            self._fail([seat], error)

    def _fail(self, seats: Sequence[Seat], failure: BaseException) -> None:
        """End rows with an error."""
        self._unseat(seats, restore=False)
        self.counters.failed += len(seats)
        with self._told:
            for seat in seats:
                if isinstance(failure, Exception):
                    seat.failure = failure
                seat.ended = True
