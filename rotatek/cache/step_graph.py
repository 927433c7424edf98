"""A model's one-token step as a CUDA graph, for `generate` and for the engine.

Launching a step kernel by kernel takes the host some 30 ms for 7 billion parameters, of which the
GPU works 7. A captured step is one launch. It reads and writes fixed addresses, so text grows
inside capacity that was reserved for it (`TextBuffer.static`).
"""

import gc
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor
from transformers.utils import ModelOutput

from rotatek.bridge.layers import key_layers, state_layers, tensors_of
from rotatek.bridge.scope import NAMES
from rotatek.cache.layer import AttendingCache

ROOM: Final = 128  # tokens of the first reservation by default; it doubles when full
MOST: Final = 1024  # tokens of one reservation
_FED: Final = ("input_ids", "position_ids")
# The cache's layers mask padding, and a step has positions and no pixels: these are unused.
_UNREAD: Final = (
    "attention_mask", "mm_token_type_ids", "token_type_ids", "image_grid_thw", "video_grid_thw",
    "second_per_grid_ts", "image_sizes", "image_position_ids",
)  # fmt: skip
_WATCHED: Final = ("output_attentions", "output_hidden_states", "labels")
_CAPTURING: Final = threading.Lock()  # one capture at a time in the process


class CaptureFailed(Exception):
    """A step that cannot be captured; the cache is as it was before."""


def capturable(device: torch.device) -> bool:
    """Whether a step on `device` can be captured now."""
    return device.type == "cuda" and not torch.cuda.is_current_stream_capturing()


class GraphMemory:
    """A pool of a GPU for graphs of which one at a time is replayed, and the stream that captures
    them. What a replay computes in it, the replay of another one may overwrite. Make a new pool
    where every graph of it is gone: PyTorch does not take up one that nothing holds.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)  # the pool's blocks belong to it
        self._pool = torch.cuda.graph_pool_handle()

    @property
    def bytes(self) -> int:
        """Bytes that the pool holds of the device's memory."""
        return sum(part["total_size"] for part in torch.cuda.memory_snapshot(self._pool))

    @contextmanager
    def recording(self) -> Iterator[Callable[[], torch.cuda.CUDAGraph]]:
        """A context in which this thread captures graphs, one after the other.

        Yields:
            what begins a graph; the graph's `capture_end` ends it. What one of them leaves in the
            pool another one may read, so that they have to be replayed in this order.
        """
        device, stream = self.device, self._stream
        with _CAPTURING:
            collecting = gc.isenabled()
            gc.disable()  # another graph's end inside this capture would break it
            stream.wait_stream(torch.cuda.current_stream(device))
            try:
                with torch.cuda.device(device), torch.cuda.stream(stream):
                    torch.cuda.current_blas_handle()  # one a thread; none can be made in a graph

                    def begin() -> torch.cuda.CUDAGraph:
                        graph = torch.cuda.CUDAGraph()
                        generator = torch.cuda.default_generators[torch.cuda.current_device()]
                        # While a graph holds the default random state, sampling in other threads
                        # fails: a private one is registered.
                        shared = generator.graphsafe_get_state()
                        generator.graphsafe_set_state(shared.clone_state())
                        try:
                            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                        finally:
                            generator.graphsafe_set_state(shared)
                        return graph

                    yield begin
            finally:
                if collecting:
                    gc.enable()
        torch.cuda.current_stream(device).wait_stream(stream)


def capture(device: torch.device, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """Record the kernels that `work` launches on a GPU; none of them runs. It has run before, so
    that lazy initialisation is done."""
    with GraphMemory(device).recording() as begin:
        graph = begin()
        try:
            work()
        finally:
            graph.capture_end()
    return graph


class StepGraph:
    """The captured one-token forward pass of one model on one cache.

    The first step of its kind runs normally, with capacity reserved, and does lazy initialisation;
    the second is captured; from there on steps are replayed. Capturing starts again where capacity
    is full, where the cache's tensors were replaced (beams, another prompt), and where a call
    differs in more than its numbers. It refers to neither model nor cache.

    Args:
        room: tokens of the first reservation; None where a cache has all its capacity, and the kind
            of a step tells whether its tensors have moved.
    """

    def __init__(self, room: int | None = ROOM) -> None:
        self.room = room
        self._kind: tuple | None = None  # of the step that has run with the present capacity
        self._held: list[Tensor] = []  # what the graph writes text and states to
        self._graph: Any = None
        self._fed: dict[str, Tensor] = {}
        self._answer: tuple[type[ModelOutput], dict[str, Any]] | None = None

    @property
    def captured(self) -> tuple | None:
        """The kind of the step that was captured and is replayed from here on."""
        return None if self._graph is None else self._kind

    def step(
        self,
        kind: tuple,
        forward: Callable[..., ModelOutput],
        cache: AttendingCache,
        given: dict[str, Any],
    ) -> ModelOutput:
        """One token a sample, `forward(**given)`, replayed where that is possible; kind: the result
        of `kind_of(given)`, and further values that must be equal."""
        if kind != self._kind or not self._holds(cache):
            self.forget()
            if self.room is not None:
                if cache.reserve(self.room):
                    self.room = min(2 * self.room, MOST)  # the next time
                self._held = _written(cache)
            out = forward(**given)
            self._kind = kind
            return out
        if not cache.graph:
            return forward(**given)
        if self._graph is None:
            return self._begin(forward, cache, given)
        for name, fixed in self._fed.items():
            fixed.copy_(given[name])
        self._graph.replay()
        cache.advance()
        return self._result(cache)

    def forget(self) -> None:
        """Let go of the graph and its memory."""
        self._kind, self._held, self._graph, self._fed, self._answer = None, [], None, {}, None

    def _holds(self, cache: AttendingCache) -> bool:
        """Whether the graph writes a further token to the right slot, inside any window."""
        if self.room is None:
            return True
        layers = key_layers(cache)
        return (
            all(layer.text is not None and layer.text.static for layer in layers)
            and all(mine is held for mine, held in zip(_written(cache), self._held, strict=False))
            and all(la.text.longest < la.text.room and la.follows for la in layers)
        )

    def _begin(
        self, forward: Callable[..., ModelOutput], cache: AttendingCache, given: dict[str, Any]
    ) -> ModelOutput:
        """Capture a step, which counts it, and run it once."""
        self._fed = {name: given[name].clone() for name in _FED}
        fixed = {k: v for k, v in given.items() if k not in _UNREAD} | self._fed
        made: list[ModelOutput] = []
        counters = cache.counters()
        try:
            graph = capture(given["input_ids"].device, lambda: made.append(forward(**fixed)))
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            cache.rewind(counters)
            raise CaptureFailed from error
        self._graph = graph
        # None replaces the cache, or the graph would refer to itself.
        kept = {k: None if v is cache else v for k, v in made[0].items()}
        self._answer = type(made[0]), kept
        self._graph.replay()
        return self._result(cache)

    def _result(self, cache: AttendingCache) -> ModelOutput:
        """The step's results, in memory of its own."""
        assert self._answer is not None
        kind, parts = self._answer
        own = {k: v.clone() if isinstance(v, Tensor) else v for k, v in parts.items()}
        return kind(**{k: cache if v is None else v for k, v in own.items()})


def _written(cache: AttendingCache) -> list[Tensor]:
    """What a step writes to: each layer's text, or its states."""
    states = [tensor for layer in state_layers(cache) for tensor in tensors_of(layer)]
    return [*(layer.text.keys for layer in key_layers(cache)), *states]


def kind_of(given: Mapping[str, Any]) -> tuple | None:
    """A key of calls that one graph can serve, by their arguments; None for calls that no graph
    can. Positions have to be given: a model that works them out takes them from the host's
    counters, which a graph would freeze."""
    fed = [given.get(name) for name in _FED]
    mask = given.get("attention_mask")
    if not all(isinstance(one, Tensor) and one.shape[-1] == 1 for one in fed):
        return None
    if isinstance(mask, Tensor) and mask.dim() != 2 or isinstance(mask, dict):
        return None
    if any(given.get(name) for name in _WATCHED) or given.get("return_dict") is False:
        return None
    kind: list[Any] = [(one.shape, one.dtype, one.device) for one in fed if one is not None]
    for name, value in given.items():
        if value is None or name in _FED or name in _UNREAD or name in NAMES:
            continue
        if not isinstance(value, bool | int | float | str):
            return None
        kind.append((name, value))
    return tuple(kind) if capturable(given["input_ids"].device) else None
