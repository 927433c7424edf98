"""Memory for caches: a request waits until those of earlier ones leave enough for its own.

A lost accelerator is not recovered: every later call of this process would fail too, so its owner
has to restart it.
"""

import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Final

import torch

from rotatek.bridge.attention import StopFlag
from rotatek.errors import Stopped
from rotatek.inputs.request import Request
from rotatek.inputs.token_grid import resized

log = logging.getLogger("rotatek")

SHARE: Final = {"cuda": 0.75, "cpu": 0.5}  # of free memory, for caches; prefills need the rest
LOOK_S: Final = 0.05  # how often a waiting request checks whether it was stopped
TELL_S: Final = 1.0  # how often it reports its position in the queue
LEAST_TOKENS = 16  # an answer is not cut below this
RESTART_S = 1.0  # for visitors to receive the message that the accelerator is lost


class MemoryReservation:
    """One request's share of the memory for caches, from its admission until its release.

    size: bytes, an estimate at first, the real ones once they are known; admitted: whether the
    request may start; resting: whether its answer is complete, and its caches stay for a further
    question.
    """

    def __init__(self, admission: "Admission", size: int) -> None:
        self._admission = admission
        self.size = size
        self.admitted = self.resting = False

    def queued(self, stop: StopFlag | None = None) -> Iterator[int]:
        """Its place in the queue, from 1, until it is admitted: whenever that has changed, and at
        least every `TELL_S`.

        Raises:
            Stopped: where it is stopped meanwhile.
        """
        queue, changed = self._admission.queue, self._admission.changed
        place, told = 0, 0.0
        while True:
            with changed:
                if not self.admitted and place:
                    changed.wait(LOOK_S)
                if self.admitted:
                    return
                before, place = place, queue.index(self) + 1
            if stop is not None and stop.is_set():
                raise Stopped
            if place != before or time.monotonic() - told >= TELL_S:
                told = time.monotonic()
                yield place

    def resize(self, size: int, *, resting: bool = False) -> None:
        """Replace the estimate by the real bytes, and say whether it rests now."""
        with self._admission.changed:
            self.size, self.resting = size, resting
            self._admission.admit()

    def release(self) -> None:
        """Everything has been freed. Safe to repeat."""
        with self._admission.changed:
            for leases in (self._admission.leases, self._admission.queue):
                if self in leases:
                    leases.remove(self)
            self._admission.admit()


class Admission:
    """First come, first served, by bytes. Where no request is being answered, any may start.

    Args:
        room: bytes for all caches; called once, when the first request comes.
        batched: bytes of the running batch, padding and spare rows included.
        beside: bytes of the model's that take from `room` and are no caches.
    """

    def __init__(
        self,
        room: Callable[[], int],
        batched: Callable[[], int],
        beside: Callable[[], int],
    ) -> None:
        self._ask_room, self._batched, self._beside = room, batched, beside
        self.leases: list[MemoryReservation] = []  # that are admitted
        self.queue: list[MemoryReservation] = []
        self.changed = threading.Condition()  # held while either list changes

    @cached_property
    def room(self) -> int:
        """Bytes for all caches."""
        return self._ask_room()

    @property
    def held(self) -> int:
        """Bytes of admitted requests and of kept conversations."""
        return self._with(0)

    def _with(self, size: int) -> int:
        """Bytes allocated after `size` more. Where the batch has allocated more than its rows need,
        that counts; a new request may take a free row of it."""
        held = tuple(self.leases)
        resting = sum(lease.size for lease in held if lease.resting)
        return max(sum(lease.size for lease in held) + size, resting + self._batched())

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self.queue)

    @property
    def running(self) -> int:
        """Requests that are being answered."""
        return sum(not lease.resting for lease in tuple(self.leases))

    def ask(self, size: int) -> MemoryReservation:
        """Ask for a reservation of so many bytes; it may have to wait."""
        lease = MemoryReservation(self, size)
        with self.changed:
            self.queue.append(lease)
            self.admit()
        return lease

    def admit(self) -> None:
        """Let requests start while there is room; called with `changed` held."""
        while self.queue:
            lease = self.queue[0]
            if self.running and self._with(lease.size) + self._beside() > self.room:
                break
            self.leases.append(self.queue.pop(0))
            lease.admitted = True
        self.changed.notify_all()


def is_lost(failure: BaseException, device: torch.device) -> bool:
    """Whether the accelerator is of no use to this process any more: an illegal address, a failed
    assertion or a memory fault on a GPU is sticky, and the next call raises it again."""
    if device.type != "cuda" or not isinstance(failure, torch.AcceleratorError):
        return False
    try:
        probe(device)
    except RuntimeError:
        return True
    return False


def probe(device: torch.device) -> None:
    """One tiny piece of work on `device`; a `RuntimeError` where that does none any more."""
    torch.zeros(1, device=device).add_(1).cpu()


def leave_for_restart() -> None:
    """Leave with status 1, after visitors have the message. An orderly exit may hang in CUDA."""
    log.critical("the accelerator is lost: leaving for a restart")
    timer = threading.Timer(RESTART_S, os._exit, (1,))
    timer.daemon = True
    timer.start()


def free(device: torch.device) -> None:
    """Give unused memory back. Call it outside of `except`: a traceback keeps tensors alive."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def tighter(request: Request) -> Request:
    """The same question with images of half the side and at most half the answer."""
    images = tuple(resized(one, one.width // 2, one.height // 2) for one in request.images)
    tokens = min(request.max_new_tokens, max(LEAST_TOKENS, request.max_new_tokens // 2))
    return replace(request, images=images, max_new_tokens=tokens)
