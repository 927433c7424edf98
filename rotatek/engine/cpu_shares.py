"""A processor's cores, shared out among pieces of work that run side by side.

One prompt is not read twice as fast by two cores, and every visitor's thread that uses both has to
start a helper first: 16 clients of the embedded model, two at a time with one core each, took .67
of the time that they took one after the other with two. Each piece takes its share anew in every
layer, so that somebody who is alone has all of them.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from rotatek.engine.device_turns import DeviceTurns

AVAILABLE: Final = torch.get_num_threads()  # asked before anybody has taken a share
WIDEST: Final = 4  # cores that one prompt still makes good use of


class CpuShares:
    """Who works on a processor now.

    Args:
        count: threads that torch may use.
    """

    def __init__(self, count: int) -> None:
        self.count = count
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
        """Let this thread's operations use as many cores as are its share."""
        torch.set_num_threads(max(1, self.count // max(1, self._working)))

    def wait_for_all(self, seconds: float) -> None:
        """Until nobody works, or so many seconds are over."""
        with self._changed:
            self._changed.wait_for(lambda: not self._working, max(0.0, seconds))
