"""Turns at the device: first come, first served; long work yields to decoding steps in between."""

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

from rotatek.cache.device_timing import Pace


class DeviceTurns:
    """A fair lock: it goes to the thread that has waited longest.

    Args:
        places: how many threads may hold it at once.
    """

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

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1


class YieldToDecode:
    """Lets decoding steps interrupt a prefill, between two of its layers.

    Args:
        turns: the lock that the prefill holds.
        patience: most seconds that others wait, besides one layer.
        pace: keeps the device at most one layer behind the host.
    """

    def __init__(self, turns: DeviceTurns, patience: Callable[[], float], pace: Pace) -> None:
        self._turns, self._patience, self._pace = turns, patience, pace
        self._begin()

    def _begin(self) -> None:
        self._pace.follow()
        self._since = time.perf_counter()

    def checkpoint(self) -> None:
        """Yield to other threads that have waited long enough."""
        self._pace.follow()
        if self._turns.contended and time.perf_counter() - self._since >= self._patience():
            self._pace.wait()
            self._turns.__exit__()
            self._turns.__enter__()
            self._begin()
