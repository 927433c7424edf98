"""Copies between a device and the host for which no queue has to run empty."""

from collections.abc import Callable

import torch
from torch import Tensor


def to_host(found: Tensor) -> Callable[[], Tensor]:
    """Queue a copy to the host; the result waits for that copy, not for what is queued later."""
    if not found.is_cuda:
        return lambda: found
    copy = torch.empty(found.shape, dtype=found.dtype, pin_memory=True)
    copy.copy_(found, non_blocking=True)
    done = torch.cuda.Event()
    done.record(torch.cuda.current_stream(found.device))

    def wait() -> Tensor:
        done.synchronize()
        return copy

    return wait


def to_device(made: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device, without waiting: a pageable one is copied in step."""
    return (made.pin_memory() if device.type == "cuda" else made).to(device, non_blocking=True)
