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
    """

    def __init__(self, admission: "Admission", size: int) -> None:
        self._admission = admission
        self.size = size
        self.admitted = self.resting = False

    @property
    def place(self) -> int:
        """The position in the queue, from 1; 0 once it is admitted."""
        return self._admission.place(self)

    def wait(self, stop: StopFlag | None = None) -> bool:
        """Wait until it is admitted, its position has changed, it is stopped, or `TELL_S` is over.
        Whether it is admitted."""
        return self._admission.wait(self, stop)

    def resize(self, size: int) -> None:
        """Replace the estimate by the real bytes."""
        self._admission.change(self, size, self.resting)

    def rest(self, size: int) -> None:
        """The answer is complete, and its caches stay for a further question."""
        self._admission.change(self, size, True)

    def resume(self, size: int) -> None:
        """A further question is answered from the caches that stayed."""
        self._admission.change(self, size, False)

    def release(self) -> None:
        """Everything has been freed. Safe to repeat."""
        self._admission.release(self)


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
        self._held: list[MemoryReservation] = []
        self._queue: list[MemoryReservation] = []
        self._changed = threading.Condition()

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
        held = tuple(self._held)
        resting = sum(lease.size for lease in held if lease.resting)
        return max(sum(lease.size for lease in held) + size, resting + self._batched())

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Requests that are being answered."""
        return sum(not lease.resting for lease in tuple(self._held))

    def ask(self, size: int) -> MemoryReservation:
        """Ask for a reservation of so many bytes; it may have to wait."""
        lease = MemoryReservation(self, size)
        with self._changed:
            self._queue.append(lease)
            self._admit()
        return lease

    def _admit(self) -> None:
        while self._queue:
            lease = self._queue[0]
            if self.running and self._with(lease.size) + self._beside() > self.room:
                break
            self._held.append(self._queue.pop(0))
            lease.admitted = True
        self._changed.notify_all()

    def place(self, lease: MemoryReservation) -> int:
        """See `MemoryReservation.place`."""
        with self._changed:
            return self._queue.index(lease) + 1 if lease in self._queue else 0

    def wait(self, lease: MemoryReservation, stop: StopFlag | None) -> bool:
        """See `MemoryReservation.wait`."""
        place, looks = self.place(lease), round(TELL_S / LOOK_S)
        with self._changed:
            while looks and not lease.admitted and not (stop is not None and stop.is_set()):
                self._changed.wait(LOOK_S)
                looks -= 1
                if not lease.admitted and self._queue.index(lease) + 1 != place:
                    break
        return lease.admitted

    def change(self, lease: MemoryReservation, size: int, resting: bool) -> None:
        """Change a reservation: its bytes, or whether it rests."""
        with self._changed:
            lease.size, lease.resting = size, resting
            self._admit()

    def release(self, lease: MemoryReservation) -> None:
        """See `MemoryReservation.release`."""
        with self._changed:
            for leases in (self._held, self._queue):
                if lease in leases:
                    leases.remove(lease)
            self._admit()
