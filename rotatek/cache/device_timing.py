"""Timing of a device that works on a queue, without waiting for it."""

import time

import torch


def synchronise(device: torch.device) -> None:
    """Wait for queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _marked(device: torch.device, timed: bool) -> torch.cuda.Event:
    """A marker at the end of the queue."""
    mark = torch.cuda.Event(enable_timing=timed)
    mark.record(torch.cuda.current_stream(device))
    return mark


class Stopwatch:
    """Time that a device spends on the work queued inside; only reading it waits."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._marks = device, list[torch.cuda.Event]()
        self._began = self._took = 0.0

    def __enter__(self) -> "Stopwatch":
        self._mark()
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._took = time.perf_counter() - self._began
        self._mark()

    def _mark(self) -> None:
        if self._device.type == "cuda":
            self._marks.append(_marked(self._device, timed=True))

    @property
    def seconds(self) -> float:
        """Of the device, or of the host where it has none."""
        if not self._marks:
            return self._took
        first, last = self._marks
        last.synchronize()
        return first.elapsed_time(last) / 1000


class Pace:
    """Lets the host be one piece of work ahead of the device, and no more: it launches the next one
    while the device works, and soon finds the device idle when it wants it to be."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._last: torch.cuda.Event | None = None

    def follow(self) -> None:
        """A piece has been queued: wait for the one before it."""
        if self._device.type == "cuda":
            last, self._last = self._last, _marked(self._device, timed=False)
            if last is not None:
                last.synchronize()

    def wait(self) -> None:
        """Wait for all queued work."""
        synchronise(self._device)
