"""Bytes of live tensors' storages by kind, each counted once, and times of a device's work."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from rotatek.bridge.layers import state_layers, tensors_of

PARTS: Final = ("visual_keys", "visual_values", "text", "state", "bases", "masks", "lengths")


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the unique storages behind `tensors`."""
    seen: dict[tuple[str, int], int] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        seen[(str(tensor.device), storage.data_ptr())] = storage.nbytes()
    return sum(seen.values())


@dataclass
class ByteCount:
    """Bytes of live storages by kind; `total` counts every unique storage once.

    shared: bytes that the cache reads with all others of its model, no part of the total: a
        calibration's bases, and the output metrics that methods weigh Values by.
    """

    parts: dict[str, int] = field(default_factory=dict)
    total: int = 0
    shared: int = 0


def count_bytes(tensors: list[tuple[str, Tensor]]) -> ByteCount:
    """Measure (kind, tensor) pairs. A storage of two kinds is counted for the first; or for each
    by its tensors, where those do not overlap, and for "lengths" what is between them."""
    whole: dict[tuple[torch.device, int], int] = {}
    views: dict[tuple[torch.device, int], dict[tuple[int, int], str]] = {}
    for part, tensor in tensors:
        storage = tensor.untyped_storage()
        place = (tensor.device, storage.data_ptr())
        whole[place] = storage.nbytes()
        views.setdefault(place, {}).setdefault((tensor.data_ptr(), tensor.nbytes), part)
    count = ByteCount(dict.fromkeys(PARTS, 0), sum(whole.values()))
    for place, own in views.items():
        left = whole[place] - sum(size for _, size in own)
        if left < 0 or len(own) == 1:
            count.parts[next(iter(own.values()))] += whole[place]
            continue
        count.parts["lengths"] += left
        for (_, size), part in own.items():
            count.parts[part] += size
    return count


def dynamic_bytes(cache: Cache) -> ByteCount:
    """Bytes of a plain transformers cache."""
    layers = [layer for layer in cache.layers if getattr(layer, "keys", None) is not None]
    held = [("text", t) for layer in layers for t in (layer.keys, layer.values)]
    held += [("state", t) for layer in state_layers(cache) for t in tensors_of(layer)]
    return count_bytes(held)


# -- a device that works on a queue is timed without waiting for it ------------------------------


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
