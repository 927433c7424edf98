"""A stand-in for a captured CUDA graph on a machine without a GPU."""

from collections.abc import Callable
from typing import Any

import torch


class Trial:
    """Replaces a captured step: `replay` does the work, on the addresses it has."""

    made: list["Trial"]

    def __init__(self, device: torch.device, cache: Any, work: Callable[[], None]) -> None:
        counters = cache.counters()
        work()
        cache.rewind(counters)
        self.work = work
        self.cache, self.replayed = cache, 0
        self.places = self.addresses()
        Trial.made.append(self)

    def replay(self) -> None:
        """The device's work; what the host has counted by it is taken back."""
        self.work()
        self.replayed += 1
        for layer in self.cache.layers:
            layer.logical -= 1
            for slots in layer.groups:
                slots._grown -= 1
        assert self.addresses() == self.places

    def addresses(self) -> list[int]:
        return [tensor.data_ptr() for tensor in self.cache.tensors()]
