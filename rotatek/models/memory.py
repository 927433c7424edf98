"""The memory that a model needs and that a device has free."""

import ctypes
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoModelForImageTextToText

GB: Final = 1_000_000_000
HEADROOM: Final = GB  # a 7B model's prefill, its caches and the CUDA context
ARENAS: Final = 2  # pools of the C library's memory that all threads share
TRIM_S: Final = 10.0  # between two returns of unused memory, which take a tenth of a second
_M_ARENA_MAX: Final = -8  # of malloc.h
CGROUP: Final = Path("/", "sys", "fs", "cgroup")
# PyTorch's messages for missing memory without an OutOfMemoryError: from the host's allocator, and
# from libraries with allocators of their own.
_OUT_OF_MEMORY = (
    "DefaultCPUAllocator: ",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)


def share_arenas() -> None:
    """Let threads share the memory pools of glibc, if `MALLOC_ARENA_MAX` does not set their number:
    each keeps what its largest picture needed, of a process that answered 300 requests of 24
    visitors on two cores .9 GB of 2.6."""
    mallopt = _of_glibc("mallopt")
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, ARENAS)


class Unused:
    """Returns memory of the C library to the system now and then: it keeps the holes that prompts
    of many sizes leave, with 200 clients on two cores .2 GB more within ten minutes."""

    def __init__(self) -> None:
        self._guard, self._last = threading.Lock(), float("-inf")
        self._trim = _of_glibc("malloc_trim")

    def give_back(self) -> None:
        """At most every `TRIM_S` seconds; does nothing where the library is not glibc."""
        if self._trim is None or not self._guard.acquire(blocking=False):
            return
        try:
            if time.monotonic() - self._last >= TRIM_S:
                self._trim(0)
                self._last = time.monotonic()
        finally:
            self._guard.release()


def is_out_of_memory(failure: BaseException) -> bool:
    """Whether memory of the host or of the device was missing."""
    if isinstance(failure, MemoryError | torch.OutOfMemoryError):
        return True
    told = str(failure) if isinstance(failure, RuntimeError) else ""
    return any(sign in told for sign in _OUT_OF_MEMORY)


def weight_bytes(config: Any, dtype: torch.dtype) -> int:
    """Bytes of a model's weights in `dtype`, from its configuration alone."""
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config, trust_remote_code=False)
    return int(model.num_parameters() * dtype.itemsize)


def free_bytes(device: str) -> int:
    """Bytes that `device` ("cpu", "cuda", "cuda:N", or "auto" for all GPUs) has free."""
    if device == "cpu" or not torch.cuda.is_available():
        return _free_on_host()
    if device == "auto":
        return sum(torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count()))
    return torch.cuda.mem_get_info(torch.device(device))[0]


def _free_on_host() -> int:
    """The host's available memory: the system's figure, or the container's where that is less."""
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, IndexError):
        told = Path("/", "proc", "meminfo").read_text().partition("MemAvailable:")[2]
        free = 1024 * int(told.split()[0])
    with suppress(OSError, ValueError):  # it may be "max"
        limit, used = ((CGROUP / name).read_text() for name in ("memory.max", "memory.current"))
        free = min(free, int(limit) - int(used))
    return free


def _of_glibc(name: str) -> Any:
    """A function of the C library, or None where it has none of this name."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
