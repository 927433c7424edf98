"""Compiling kernels for GPUs that are not there: in a process of its own, before kernels load."""

from types import ModuleType
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver


class Compiled:
    """Replaces a kernel: a launch compiles it and runs nothing."""

    found: list[Any] = []

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **options: self.found.append(
            self.kernel.warmup(*args, grid=grid, **options)
        )


def target(arch: int) -> None:
    """Let Triton compile for an architecture, as 90; there need be no driver."""

    class Absent:
        get_current_target = staticmethod(lambda: GPUTarget("cuda", arch, 32))
        get_current_device = staticmethod(lambda: 0)
        get_current_stream = staticmethod(lambda device=0: 0)
        get_active_torch_device = staticmethod(lambda: torch.device("cpu"))

    driver.set_active(Absent())


def compile_only(module: ModuleType, arch: int, *names: str) -> None:
    """Let a module's kernels be compiled in place of launched, for an architecture."""
    for name in names:
        setattr(module, name, Compiled(getattr(module, name)))
    if hasattr(module, "device_facts"):
        setattr(module, "device_facts", lambda device: (arch, 100))  # noqa: B010  (a module)
