"""A second stream of each CUDA device, on which layers are measured while the model goes on.

A prefill's products fill a GPU; the many small kernels that measure a layer do not. On a stream of
their own they run beside the next layers. Only what is temporary is made there: work on it begins
behind all that the device's own stream was given before, and `join` lets that stream wait for it.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


class SideStreams:
    """One prefill's use of them; without a GPU, and while a graph is captured, nothing happens."""

    def __init__(self) -> None:
        self._used: dict[torch.device, Any] = {}

    def keep(self, tensors: Iterable[Tensor]) -> None:
        """The work will read these: their memory is not used again before it has, even where the
        prefill breaks off and lets go of them."""
        for tensor in tensors:
            side = stream_beside(tensor.device)
            if side is not None:
                self._used[tensor.device] = side
                tensor.record_stream(side)

    @contextmanager
    def behind(self) -> Iterator[bool]:
        """Queue work on them, behind what the devices' own streams have; whether there are any."""
        with ExitStack() as stack:
            for device, side in self._used.items():
                side.wait_stream(torch.cuda.current_stream(device))
                stack.enter_context(torch.cuda.stream(side))
            yield bool(self._used)

    def join(self) -> None:
        """Let the devices' own streams wait for the work."""
        for device, side in self._used.items():
            torch.cuda.current_stream(device).wait_stream(side)
        self._used.clear()


def stream_beside(device: torch.device) -> Any:
    """The side stream of a device; None where there is none now."""
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return None
    return _made(device)


@lru_cache(maxsize=16)
def _made(device: torch.device) -> Any:
    """All prefills of a device share it, so that each may read what another has worked out."""
    return torch.cuda.Stream(device)
