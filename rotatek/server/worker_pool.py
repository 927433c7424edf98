"""Answers computed in threads and awaited in an event loop: how many at once, how many wait."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rotatek.bridge.attention import StopFlag
from rotatek.errors import QueueFull

Event = TypeVar("Event")


class WorkerPool:
    """A bounded number of answers at once, and a bounded queue; all are asked for in one loop.

    Args:
        most: answers at once, a thread each.
        queue: how many more may wait.
    """

    def __init__(self, most: int = 32, queue: int = 64) -> None:
        self.most, self.queue = most, queue
        self._pool = ThreadPoolExecutor(most, "answer")
        self._stops: set[StopFlag] = set()  # of answers inside, whether they run or wait

    @property
    def running(self) -> int:
        """Answers that are being computed."""
        return min(len(self._stops), self.most)

    @property
    def waiting(self) -> int:
        """Answers that wait for a thread."""
        return max(0, len(self._stops) - self.most)

    def check(self) -> None:
        """Raises `QueueFull` where no more can wait."""
        if len(self._stops) >= self.most + self.queue:
            raise QueueFull

    async def events(
        self, answer: Callable[[], Iterator[Event]], stop: StopFlag
    ) -> AsyncGenerator[Event, None]:
        """The events of one answer; it stops within a token when the caller stops reading.

        Args:
            answer: makes the events; called in a thread, when its turn comes.
            stop: the answer's own flag.

        Raises:
            QueueFull: at once, where there is no room.
        """
        loop = asyncio.get_running_loop()
        told: asyncio.Queue[Event | BaseException | None] = asyncio.Queue()

        def tell(what: Event | BaseException | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: there is no listener
                loop.call_soon_threadsafe(told.put_nowait, what)

        def work() -> None:
            try:
                for event in answer():
                    tell(event)
            except BaseException as error:  # raised where it is awaited
                tell(error)
            finally:
                tell(None)

        self.check()
        self._stops.add(stop)  # until its thread ends, whether its events are read or not
        job = self._pool.submit(work)
        job.add_done_callback(lambda _: self._stops.discard(stop))
        try:
            while (event := await told.get()) is not None:
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            stop.set()
            job.cancel()

    def stop(self) -> None:
        """End every answer within one token."""
        for stop in tuple(self._stops):
            stop.set()
