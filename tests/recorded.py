"""A CUDA graph on the CPU: operations recorded once and run again on the same storages.

What a graph freezes is frozen here too: numbers that the host worked out, shapes, addresses. What
cannot be captured (a number read back from the device) fails here, too.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kernels import reference

FORBIDDEN = ("aten._local_scalar_dense", "aten.nonzero", "aten.equal", "aten.is_nonzero")


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple, dict, Any]] = []
        self.before: dict[int, tuple[Tensor, Tensor]] = {}  # what was written in place, as it was

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        name = func.name().rpartition(".")[0] if "." in func.name() else func.name()
        if name.replace("::", ".").startswith(FORBIDDEN):
            raise RuntimeError(f"{name} while a stream is captured")
        given = [*args, *(kwargs or {}).values()]
        for value, argument in zip(given, func._schema.arguments, strict=False):
            written = argument.alias_info is not None and argument.alias_info.is_write
            if written and isinstance(value, Tensor):
                self.before.setdefault(value.data_ptr(), (value, value.clone()))
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out


class RecordedGraph:
    """Replaces `torch.cuda.CUDAGraph`, as `rotatek.cache.step_graph.capture` makes it; without
    `work`, as its `GraphMemory` begins it."""

    def __init__(self, device: torch.device, work: Callable[[], None] | None = None) -> None:
        self.replays = 0
        self._ending, self._recorder = ExitStack(), _Recorder()
        self._ending.enter_context(self._recorder)
        patch = self._ending.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(reference, "reads_packed", lambda _: False)  # a graph asks no host
        if work is not None:
            try:
                work()
            finally:
                self.capture_end()

    def capture_end(self) -> None:
        self._ending.close()
        for tensor, before in self._recorder.before.values():  # a capture runs nothing
            tensor.copy_(before)
        self.calls = self._recorder.calls

    def replay(self) -> None:
        self.replays += 1
        for func, args, kwargs, out in self.calls:
            again = func(*args, **kwargs)
            _write(out, again)


class RecordedMemory:
    """Replaces `rotatek.cache.step_graph.GraphMemory`; its graphs keep what they compute."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.graphs: list[RecordedGraph] = []

    @property
    def bytes(self) -> int:
        outs = [call[-1] for graph in self.graphs for call in graph.calls]
        return sum(out.nbytes for out in outs if isinstance(out, Tensor))

    def begin(self) -> RecordedGraph:
        graph = RecordedGraph(self.device)
        self.graphs.append(graph)
        return graph

    @contextmanager
    def recording(self) -> Iterator[Callable[[], RecordedGraph]]:
        yield self.begin


def _write(old: Any, new: Any) -> None:
    """Put what an operation gave this time where it was the last time."""
    if isinstance(old, Tensor):
        if old.data_ptr() != new.data_ptr() and old.numel():
            old.copy_(new)
    elif isinstance(old, list | tuple):
        for one, other in zip(old, new, strict=True):
            _write(one, other)
