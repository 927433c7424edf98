"""One scheduler a model: every visitor's rows are decoded in one step.

There is no thread of its own. Whoever wants a token and finds none ready leads a step for all rows
that are answering, and the others find theirs ready. Rows join and leave between two steps; a
prefill is one piece of work between steps, and gives way to them in every layer.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from rotatek import decode, failures
from rotatek.attention import Flag, decoder_layers, stoppable
from rotatek.cache.compressed import RotateKCache, release
from rotatek.cache.shared import synchronise
from rotatek.models import VisionLanguageModel
from rotatek.models.memory import is_out_of_memory
from rotatek.serving.batch import RunningBatch, Watcher
from rotatek.serving.graphs import BatchGraph
from rotatek.serving.turns import GivingWay, Turns

log = logging.getLogger("rotatek")

SHARE: Final = 1.5  # of a step's time: what a prefill takes before it gives way
LEAST_S: Final = {"cuda": 0.005, "cpu": 0.5}  # at least; fewer and fuller steps suit processors
PREPROCESSED: Final = 2  # requests whose pictures are made into pixels at once


@dataclass(frozen=True)
class Pick:
    """One chosen token.

    probability: the model's own of it; kl: KL(first column || this) of the distributions it was
    chosen from, in nats, or None; ms: of the step, which all its rows share.
    """

    token: int
    probability: float
    kl: float | None
    ms: float


@dataclass(eq=False)
class Seat:
    """One row's way through the scheduler, from its prefill's logits to its last token.

    Args:
        cache: filled; empty while the row is in the batch, and whole again once it has left.
        position: of the first new token.
        logits: [1, vocabulary] behind the prompt; let go of once the row has joined.
        limit: new tokens, at most.
        stop: ends the answer early once it is set.
        request: equal for the rows of one request; a larger number is a later one.
        first: the row that this one is compared with.
        watchers: see its queries.

    Attributes:
        blind: whether a failure elsewhere has cost the watchers a step.
    """

    cache: Cache
    position: int
    logits: Tensor
    limit: int
    stop: Flag | None = None
    request: int = 0
    first: "Seat | None" = None
    watchers: Sequence[Watcher] = ()
    blind: bool = False
    picks: deque[Pick] = field(default_factory=deque)
    made: int = 0
    token: int = -1
    row: int | None = None  # in the batch
    ended: bool = False
    failure: Exception | None = None


@dataclass
class Counters:
    """What a scheduler has done since it was made."""

    prefills: int = 0
    steps: int = 0
    tokens: int = 0
    shed: int = 0  # requests that left the batch because memory ran out
    failed: int = 0  # rows that failed by themselves
    captures: int = 0  # steps captured as CUDA graphs


class Scheduler:
    """Decodes the rows of all visitors together.

    Args:
        vlm: the model.
        graphs: replay steps as CUDA graphs, where there is a GPU.
    """

    def __init__(self, vlm: VisionLanguageModel, *, graphs: bool = False) -> None:
        self.vlm = vlm
        self.graphs = graphs and vlm.device.type == "cuda"
        self.counters = Counters()
        self.preprocessing = threading.Semaphore(PREPROCESSED)
        self.preparing = threading.Lock()  # tokenizers change while they work
        self._turns, self._prefills = Turns(), Turns()
        self._told = threading.Condition()
        self._leading = False
        self._batch: RunningBatch | None = None
        self._seats: dict[int, Seat] = {}  # by row
        self._requests = 0
        self.batch_bytes = 0  # that the running batch holds, as it was when a row last came or went
        self._step_s = 0.0
        self._graph: BatchGraph | None = None
        self._moved = self._uncaptured = -1  # states of the batch: at the last step; not capturable
        self._banned: Tensor | None = None

    # -- what an engine calls ------------------------------------------------------------------

    @contextmanager
    def prefill(self, stop: Flag | None) -> Iterator[None]:
        """The device, for a vision tower or a prefill: one at a time, between steps and beside
        them."""
        with self._prefills, self._turns:
            flag = GivingWay(self._turns, self._patience, self._settle, stop)
            with stoppable(flag):
                yield
            self._settle()

    def _patience(self) -> float:
        return max(LEAST_S.get(self.vlm.device.type, 0.0), SHARE * self._step_s)

    def _settle(self) -> None:
        synchronise(self.vlm.device)

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
        with self._turns:
            self.counters.prefills += len(seats)
            self._hand_out(seats, torch.cat([seat.logits for seat in seats]), 0.0)
            self._seat([seat for seat in seats if not seat.ended])

    def next(self, seat: Seat) -> Pick | None:
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
            self._unseat([seat for seat in seats if seat.row is not None], restore)
            for seat in seats:
                seat.ended = True
                seat.picks.clear()

    @property
    def running(self) -> int:
        """Rows that are answering."""
        return len(self._seats)

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
        room = max(seat.limit for seat in seats) if self.graphs else 0
        watchers = [() if seat.blind else seat.watchers for seat in seats]
        rows = self._batch.join([seat.cache for seat in seats], room, watchers)
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
            with self._turns:
                self._step()
        finally:
            with self._told:
                self._leading = False
                self._told.notify_all()

    @torch.inference_mode()
    def _step(self) -> None:
        """One token for every row that is answering; failures are the rows', not the leader's."""
        self._end([s for s in self._seats.values() if s.stop is not None and s.stop.is_set()])
        if self._batch is None:
            return
        counters, failure = self._batch.counters(), None
        started = time.perf_counter()
        try:
            seats, logits = self._forward(self._batch)
            seconds = time.perf_counter() - started
            self._hand_out(seats, logits, 1000 * seconds)
        except BaseException as error:
            failure = error
        if failure is None:
            self._step_s = seconds
            return
        self._undo(counters, failure)
        if not isinstance(failure, Exception):
            raise failure

    def _end(self, stopped: Sequence[Seat]) -> None:
        """Rows whose visitors want no more."""
        self._unseat(stopped, restore=True)
        for seat in stopped:
            seat.ended = True
            seat.picks.clear()

    def _forward(self, batch: RunningBatch) -> tuple[list[Seat], Tensor]:
        """Feed every row's last token: the rows, and their next-token logits [rows, vocabulary]."""
        rows = [None if number is None else self._seats[number] for number in batch.order]
        tokens = torch.tensor([0 if s is None else s.token for s in rows], device=self.vlm.device)
        places = [0 if seat is None else seat.position for seat in rows]
        position = torch.tensor(places, device=self.vlm.device)
        logits = self._logits(batch, tokens, position)
        batch.stepped()
        seats = [seat for seat in rows if seat is not None]
        if len(seats) < len(rows):
            used = [place for place, seat in enumerate(rows) if seat is not None]
            logits = logits[torch.tensor(used, device=logits.device)]
        for seat in seats:
            seat.position += 1
        self.counters.steps += 1
        return seats, logits

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

    def _hand_out(self, seats: Sequence[Seat], logits: Tensor, ms: float) -> None:
        """Choose each row's next token; rows that end leave before anybody hears of it."""
        picks = self._chosen(seats, logits, ms)
        self.counters.tokens += len(picks)
        over = []
        for seat, pick in zip(seats, picks, strict=True):
            seat.made, seat.token = seat.made + 1, pick.token
            if pick.token in self.vlm.stop_ids or seat.made == seat.limit:
                over.append(seat)
        self._unseat(over, restore=True)
        with self._told:
            for seat, pick in zip(seats, picks, strict=True):
                seat.picks.append(pick)
            for seat in over:
                seat.ended = True

    @torch.inference_mode()
    def _chosen(self, seats: Sequence[Seat], logits: Tensor, ms: float) -> list[Pick]:
        """The likeliest token of each row that may be said, in one transfer to the host."""
        if self._banned is None or self._banned.device != logits.device:
            self._banned = torch.tensor(self.vlm.banned_ids, device=logits.device)
        chosen = logits.index_fill(-1, self._banned.long(), float("-inf")).argmax(-1)
        logs = logits.log_softmax(-1)
        found = [chosen.double(), logs.gather(-1, chosen[:, None])[:, 0].double().exp()]
        pairs = _pairs(seats)
        if pairs:
            first = logs[[pair[1] for pair in pairs]]
            other = logs[[pair[0] for pair in pairs]]
            found.append((first.exp() * (first - other)).sum(-1).double())
        told = torch.cat(found).tolist()
        count = len(seats)
        kls = dict(zip([i for i, _ in pairs], told[2 * count :], strict=True))
        return [
            Pick(int(told[i]), told[count + i], max(0.0, kls[i]) if i in kls else None, ms)
            for i in range(count)
        ]

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
            return
        if is_out_of_memory(failure):
            failure.__traceback__ = None  # it holds what did not fit
            latest = max(seat.request for seat in self._seats.values())
            self._fail([s for s in self._seats.values() if s.request == latest], failure)
            self.counters.shed += 1
            failures.free(self.vlm.device)
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
            token = torch.tensor([seat.token], device=self.vlm.device)
            place = torch.tensor([seat.position], device=self.vlm.device)
            started = time.perf_counter()
            logits = decode.decode_one_token(self.vlm, token, place, seat.cache, None)
            seat.position += 1
            self._hand_out([seat], logits, 1000 * (time.perf_counter() - started))
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


def _pairs(seats: Sequence[Seat]) -> list[tuple[int, int]]:
    """(row, the row it is compared with) where both are at the same token."""
    places = {id(seat): place for place, seat in enumerate(seats)}
    return [
        (place, places[id(seat.first)])
        for place, seat in enumerate(seats)
        if seat.first is not None and id(seat.first) in places and seat.first.made == seat.made
    ]
