"""Turns at the device, first come, first served, and shares of a processor's cores."""

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

LIMIT: Final = "/sys/fs/cgroup/cpu.max"  # of a container on Linux
WIDEST: Final = 4  # cores that one prompt still makes good use of
THREADS: Final = torch.get_num_threads()  # before any work has taken a share


def cores_here(limit: str = LIMIT) -> int:
    """Cores that torch may use, within a container's limit: more threads would be stopped in the
    middle of their work."""
    try:
        with open(limit, encoding="ascii") as file:
            quota, period = map(int, file.read().split())
    except (OSError, ValueError):  # "max" is no number
        return THREADS
    return max(1, min(THREADS, quota // period))


class DeviceTurns:
    """A fair lock, which so many threads may hold at once: it goes to the one that has waited
    longest."""

    def __init__(self, places: int = 1) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._free = places

    @property
    def contended(self) -> bool:
        """Whether a thread waits."""
        return bool(self._waiting)

    def __enter__(self) -> None:
        with self._guard:
            if self._free:
                self._free -= 1
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        mine.acquire()  # until it is handed over

    def __exit__(self, *_: object) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1


class CpuShares:
    """A processor's cores: each piece of work has its share of them, taken anew in every layer."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.prompts = DeviceTurns(max(2, count // WIDEST))
        self._working = 0
        self._changed = threading.Condition()

    @contextmanager
    def work(self, patience: float = 0.0) -> Iterator[None]:
        """A piece of work; patience: seconds to wait until no other one runs."""
        with self._changed:
            self._changed.wait_for(lambda: not self._working, max(0.0, patience))
            self._working += 1
        try:
            self.share()
            yield
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()
            torch.set_num_threads(self.count)

    def share(self) -> None:
        """Set this thread's operations to use its share.

        Cores that the machine's other processes keep busy are not counted: an operation on two
        threads waits for the slower one, and one of those waits for a core.
        """
        crowd = os.getloadavg()[0] - self.count if hasattr(os, "getloadavg") else 0.0
        free = self.count - max(0, round(crowd))
        torch.set_num_threads(max(1, free // max(1, self._working)))
