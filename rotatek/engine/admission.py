"""Admission: a request waits until the caches of earlier ones leave enough memory for its own."""

import threading
from collections.abc import Callable
from typing import Final

import torch

from rotatek.bridge.attention import StopFlag
from rotatek.models.memory import free_bytes

LOOK_S: Final = 0.05  # how often a waiting request checks whether it was stopped
TELL_S: Final = 1.0  # how often it reports its position in the queue
SHARE: Final = {"cuda": 0.75, "cpu": 0.5}  # of free memory, for caches; prefills need the rest


def room_of(device: torch.device) -> int:
    """Bytes for the caches of all visitors, on a device that holds its model already."""
    return round(SHARE.get(device.type, 0.5) * free_bytes(str(device)))


class MemoryReservation:
    """One request's share of the memory for caches, from its admission until its release.

    Attributes:
        size: bytes: an estimate at first, the real ones once they are known.
        admitted: whether the request may start.
        resting: whether its answer is complete, and its caches stay for a further question.
    """

    def __init__(self, admission: "Admission", size: int) -> None:
        self._admission = admission
        self.size = size
        self.admitted = self.resting = False

    @property
    def place(self) -> int:
        """The position in the queue, from 1; 0 once it is admitted."""
        queue = self._admission.queue
        with self._admission.changed:
            return queue.index(self) + 1 if self in queue else 0

    def wait(self, stop: StopFlag | None = None) -> bool:
        """Wait until it is admitted, its position has changed, it is stopped, or `TELL_S` is over.
        Whether it is admitted."""
        place, looks = self.place, round(TELL_S / LOOK_S)
        with self._admission.changed:
            while looks and not self.admitted and not (stop is not None and stop.is_set()):
                self._admission.changed.wait(LOOK_S)
                looks -= 1
                if not self.admitted and self._admission.queue.index(self) + 1 != place:
                    break
        return self.admitted

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
        batched: Callable[[], int] = int,
        beside: Callable[[], int] = int,
    ) -> None:
        self._ask_room, self._batched, self._beside = room, batched, beside
        self._room: int | None = None
        self.leases: list[MemoryReservation] = []  # that are admitted
        self.queue: list[MemoryReservation] = []
        self.changed = threading.Condition()  # held while either list changes

    @property
    def room(self) -> int:
        """Bytes for all caches."""
        if self._room is None:
            self._room = self._ask_room()
        return self._room

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
