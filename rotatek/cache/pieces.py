"""A forward pass over text as a chain of CUDA graphs, broken at every attention call.

All caches of a model share what is between the attention calls: norms, projections, MLP. These
pieces are replayed, and between two of them a cache's layer attends as ever. They are captured on
a cache that stores nothing, so that no cache of a request is at risk. Questions are padded on the
right: attention is causal, and a layer is given the real rows alone.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rotatek.bridge.attention import pause, stoppable
from rotatek.bridge.layers import attention_layers
from rotatek.bridge.scope import with_cache
from rotatek.cache.layer import AttendingCache, CompressedLayer
from rotatek.cache.measures import storage_bytes
from rotatek.cache.step_graph import CaptureFailed, GraphMemory

FAR: Final = 1 << 20  # tokens: a cache's length that must change nothing in the pieces


@dataclass(eq=False)
class Slots:
    """Where a piece leaves an attention call's input, and the next one finds its output; layers
    share them. query [B, Hq, T, d]; key, value [B, Hkv, T, d]; out [B, T, Hq, d]."""

    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor

    @classmethod
    def like(cls, query: Tensor, key: Tensor, value: Tensor) -> "Slots":
        """Slots for states of these shapes, each token's heads side by side."""
        out = value.new_zeros(len(query), *query.shape[2:0:-1], value.shape[-1])
        return cls(_side_by_side(query), _side_by_side(key), _side_by_side(value), out)

    def real(self, rows: int, tokens: int) -> "Slots":
        """Views of the real rows and tokens."""
        query, key, value = (one[:rows, :, :tokens] for one in (self.query, self.key, self.value))
        return Slots(query, key, value, self.out[:rows, :tokens])


def _side_by_side(states: Tensor) -> Tensor:
    """Zeros [B, H, T, d], a token's heads one after the other in memory."""
    B, H, T, d = states.shape
    return states.new_zeros(B, T, H, d).transpose(1, 2)


class Break(NamedTuple):
    """An attention call between two pieces: layer number `layer` attends for `module`."""

    layer: int
    module: nn.Module
    slots: Slots


class _Layer(CompressedLayer):
    """A layer that stores nothing; `cut` takes its attention call."""

    def __init__(self, index: int, length: int, cut: Callable[..., Tensor]) -> None:
        super().__init__(index)
        self.logical, self.cut = length, cut

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Of the question alone: no layer reads the model's masks."""
        return query_length, 0

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        return self.cut(Break(self.index, module, Slots(query, key, value, query)))

    def lend(self, module: nn.Module, query: Tensor, full: Callable) -> Tensor:
        raise CaptureFailed("a layer borrows the Keys of another one")


class Chain:
    """The pieces of one model for questions of one padded shape, and what they read and write."""

    def __init__(
        self,
        model: PreTrainedModel,
        shape: tuple[int, int],
        ids: Tensor,
        positions: Tensor,
        memory: GraphMemory,
    ) -> None:
        """Capture them. Runs the pass twice: for lazy initialisation, and to see that it depends on
        the cache's length nowhere but in its positions.

        Args:
            model: that has no layers with states or with Keys of other layers.
            shape: of `padded`.
            ids: [B, T] of a first question.
            positions: [..., B, T].
            memory: of the graphs, which no other thread's replay uses meanwhile.

        Raises:
            Exception: whatever went wrong; nothing is left behind.
        """
        self.ids = ids.new_zeros(shape)
        self.positions = positions.new_zeros(*positions.shape[:-2], *shape)
        self.last = ids.new_zeros(1)
        self.breaks: list[Break] = []
        self.graphs: list[Any] = []
        self._slots: dict[tuple, Slots] = {}
        self._fill(ids, positions)
        near, far = (self._seen(model, length) for length in (0, FAR))
        if not all(map(torch.equal, near, far)):
            raise CaptureFailed("the model's layers read the length of a cache")
        with memory.recording() as begin:
            self._capture(model, begin)

    @property
    def bytes(self) -> int:
        """Bytes of its own, beside those of its graphs' memory."""
        slots = (vars(each).values() for each in self._slots.values())
        return storage_bytes([self.ids, self.positions, self.last, *chain(*slots)])

    def _fill(self, ids: Tensor, positions: Tensor) -> None:
        rows, tokens = ids.shape
        self.ids[:rows, :tokens].copy_(ids)
        self.positions[..., :rows, :tokens].copy_(positions)
        self.last.fill_(tokens - 1)

    def _forward(
        self, model: PreTrainedModel, length: int, cut: Callable[[Break], Tensor]
    ) -> Tensor:
        """The pass over a cache of so many tokens that stores nothing; its last logits."""
        layers = [_Layer(index, length, cut) for index in range(len(attention_layers(model)))]
        with stoppable(None):  # a capture neither waits nor ends early
            out = model(
                input_ids=self.ids,
                position_ids=self.positions,
                use_cache=True,
                logits_to_keep=self.last,
                **with_cache(model, AttendingCache(layers=layers)),
            )
        logits: Tensor = out.logits
        return logits

    def _left(self, found: Break) -> Break:
        """A break whose input is in slots of ours, copied there."""
        given = found.slots.query, found.slots.key, found.slots.value
        kind = tuple((one.shape, one.dtype) for one in given)
        if kind not in self._slots:
            self._slots[kind] = Slots.like(*given)
        slots = self._slots[kind]
        for held, one in zip((slots.query, slots.key, slots.value), given, strict=True):
            held.copy_(one)
        return found._replace(slots=slots)

    def _seen(self, model: PreTrainedModel, length: int) -> list[Tensor]:
        """What the attention calls are given, and the logits, where each call gives zeros."""
        seen: list[Tensor] = []

        def cut(found: Break) -> Tensor:
            slots = self._left(found).slots
            seen.extend(one.clone() for one in (slots.query, slots.key, slots.value))
            return slots.out

        return [self._forward(model, length, cut), *seen]

    def _capture(self, model: PreTrainedModel, begin: Callable[[], Any]) -> None:
        """Record the pass: every attention call ends a graph and begins another one."""
        open_ = [begin()]

        def end() -> None:
            graph = open_.pop()
            graph.capture_end()
            self.graphs.append(graph)

        def cut(found: Break) -> Tensor:
            self.breaks.append(self._left(found))
            end()
            open_.append(begin())
            return self.breaks[-1].slots.out

        try:
            self.logits = self._forward(model, 0, cut)
            end()
        finally:
            for graph in open_:
                with suppress(Exception):  # the first error says more
                    graph.capture_end()

    def run(self, ids: Tensor, positions: Tensor, layers: Sequence[Any]) -> Tensor:
        """Logits [B, vocabulary] in float32 behind a question [B, T] to layers, which grow."""
        rows, tokens = ids.shape
        self._fill(ids, positions)
        real = {slots: slots.real(rows, tokens) for slots in self._slots.values()}
        for graph, (number, module, slots) in zip(self.graphs, self.breaks, strict=False):
            graph.replay()
            pause()
            layer, own = layers[number], real[slots]
            layer.logical += tokens
            out = layer.attend(module, own.query, own.key, own.value, _unasked)
            own.out.copy_(out)
        self.graphs[-1].replay()
        return self.logits[:rows, -1].to(torch.float32, copy=True)


def _unasked(*_: Tensor) -> Tensor:
    raise RuntimeError("A filled layer asked for its model's own attention.")
