"""A processor's cores, divided among pieces of work that run side by side.

Two cores do not read one prompt twice as fast, and each thread that uses both has to start a helper
first: 16 clients of the embedded model, two at a time with one core each, took .67 of the time that
they took one after the other with two. Each piece takes its share anew in every layer, so that a
single piece has all of them.

Cores that other processes keep busy are not counted: a small operation on two threads waits for the
slower one, and with a busy core that is most of its time.
"""

import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from rotatek.engine.device_turns import DeviceTurns

LIMIT: Final = "/sys/fs/cgroup/cpu.max"  # of a container on Linux
WIDEST: Final = 4  # cores that one prompt still makes good use of
SAMPLE_S: Final = 0.2  # between two measurements of other processes' load
STALE_S: Final = 1.0  # over a longer time, a mean says little about now
STAT: Final = "/proc/stat"  # of Linux; elsewhere other processes are not counted


def allowed_cores(limit: str = LIMIT) -> float:
    """The cores that a container's limit gives this process, 1 at least; infinity without a limit.
    More threads would be stopped in the middle of their work."""
    try:
        with open(limit, encoding="ascii") as file:
            quota, period = map(int, file.read().split())
    except (OSError, ValueError):  # "max" is no number
        return math.inf
    return max(1.0, quota / period)


THREADS: Final = torch.get_num_threads()  # before any work has taken a share
AVAILABLE: Final = int(min(THREADS, allowed_cores()))


class Neighbours:
    """The number of the machine's cores that other processes do not use.

    Args:
        stat: the file with the kernel's counters of processor time; `loadavg` lies beside it.
    """

    def __init__(self, stat: str = STAT) -> None:
        self._stat, self._lock = stat, threading.Lock()
        self._cores = os.cpu_count() or 1
        self._last = self._read()
        self._next = time.monotonic() + SAMPLE_S
        self._free = math.inf

    def free_cores(self) -> float:
        """Over the last sample of at least `SAMPLE_S`; at the first piece of work after a pause, by
        the threads that run at this moment. Infinity where nothing is known."""
        if time.monotonic() >= self._next and self._lock.acquire(blocking=False):
            try:
                self._sample()
            finally:
                self._lock.release()
        return self._free

    def _sample(self) -> None:
        now, before = self._read(), self._last
        is_stale = time.monotonic() > self._next + STALE_S
        self._last, self._next = now, time.monotonic() + SAMPLE_S
        running = self._running() if is_stale else 0
        if running:
            self._free = max(1, self._cores + 1 - running)  # one of them is ours
            return
        if now is None or before is None or now[0] <= before[0]:
            return
        whole, idle, own = (new - old for new, old in zip(now, before, strict=True))
        self._free = self._cores * min(1.0, max(0.0, (idle + own) / whole))

    def _running(self) -> int:
        """Threads that run or wait for a core; 0 where the kernel does not say."""
        try:
            path = os.path.join(os.path.dirname(self._stat), "loadavg")
            with open(path, encoding="ascii") as file:
                return int(file.read().split()[3].split("/")[0])
        except (OSError, ValueError, IndexError):
            return 0

    def _read(self) -> tuple[float, float, float] | None:
        """Seconds of all cores together, of idle ones, and of this process."""
        try:
            with open(self._stat, encoding="ascii") as file:
                counted = [int(word) for word in file.readline().split()[1:9]]
            tick = os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, AttributeError):
            return None
        own = time.process_time()
        return sum(counted) / tick, (counted[3] + counted[4]) / tick, own


class CpuShares:
    """The pieces of work that run on a processor now.

    Args:
        count: threads that torch may use.
        neighbours: measures the cores that other processes do not use.
    """

    def __init__(self, count: int, neighbours: Neighbours | None = None) -> None:
        self.count, self.neighbours = count, neighbours or Neighbours()
        self._prompts = DeviceTurns(max(2, count // WIDEST))
        self._working = 0
        self._changed = threading.Condition()

    @contextmanager
    def prompt(self) -> Iterator[None]:
        """Read a prompt, first come, first served; `share` is to be called in every layer."""
        with self._prompts, self.work():
            yield

    @contextmanager
    def work(self) -> Iterator[None]:
        """Do a piece of work with a share of the cores."""
        self._count(1)
        try:
            self.share()
            yield
        finally:
            self._count(-1)
            torch.set_num_threads(self.count)

    def _count(self, more: int) -> None:
        with self._changed:
            self._working += more
            self._changed.notify_all()

    def share(self) -> None:
        """Set this thread's operations to use its share of the cores."""
        free = round(min(self.count, self.neighbours.free_cores()))
        torch.set_num_threads(max(1, free // max(1, self._working)))

    def wait_for_all(self, seconds: float) -> None:
        """Wait until no work is running, or so many seconds are over."""
        with self._changed:
            self._changed.wait_for(lambda: not self._working, max(0.0, seconds))
