"""Turns at the device: first come, first served, and a long piece of work gives way in between."""

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

from rotatek.bridge.attention import Flag
from rotatek.cache.device_timing import Pace


class DeviceTurns:
    """A lock that is handed to whoever has waited longest.

    Args:
        places: how many may hold it at once.
    """

    def __init__(self, places: int = 1) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._free = places

    @property
    def contended(self) -> bool:
        """Whether anybody waits."""
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
    """A stop flag for a prefill, which looks at it in every layer: there it lets others go ahead.

    Args:
        turns: held by the prefill.
        patience: seconds that others wait at most, a layer aside.
        pace: keeps the device a layer behind the host, and no further.
        stop: the visitor's own flag.
    """

    def __init__(
        self, turns: DeviceTurns, patience: Callable[[], float], pace: Pace, stop: Flag | None
    ) -> None:
        self._turns, self._patience, self._pace, self._stop = turns, patience, pace, stop
        self._begin()

    def _begin(self) -> None:
        self._pace.follow()
        self._since = time.perf_counter()

    def is_set(self) -> bool:
        """Whether to stop; others have been let ahead where they waited long enough."""
        self._pace.follow()
        if self._turns.contended and time.perf_counter() - self._since >= self._patience():
            self._pace.settle()
            self._turns.__exit__()
            self._turns.__enter__()
            self._begin()
        return self._stop is not None and self._stop.is_set()
