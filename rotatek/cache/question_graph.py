"""A question to a filled cache as a chain of CUDA graphs, broken at every attention call.

Launching a pass of 30 tokens kernel by kernel takes the host some 67 ms for 7 billion parameters,
of which the GPU works 6. No graph holds the whole pass, since each picture's cache has tensors of
its own. All pictures share what is between the attention calls: norms, projections, MLP. These
pieces are replayed, and between two of them a cache's layer attends as ever.

The pieces are captured on a cache that stores nothing, so that no cache of a request is at risk.
Questions are padded on the right: attention is causal, and a layer is given the real rows alone.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rotatek.bridge.attention import is_watched, pause, stoppable
from rotatek.bridge.cache_argument import with_cache
from rotatek.bridge.fitness import attention_layers, decoder_layers
from rotatek.bridge.state_layers import key_layers
from rotatek.cache import step_graph
from rotatek.cache.device_timing import synchronise
from rotatek.cache.layer import AttendingCache, CompressedLayer
from rotatek.cache.step_graph import CaptureFailed

log = logging.getLogger(__name__)

STEP: Final = 16  # tokens: questions are padded to a multiple
LONGEST: Final = 128  # tokens of a question
MOST_ROWS: Final = 512  # tokens of all questions of a pass; a longer one keeps the GPU busy itself
KEPT: Final = 8  # chains of a model: the least recently used one goes
FAR: Final = 1 << 20  # tokens: a cache's length that must change nothing in the pieces


def padded(rows: int, tokens: int) -> tuple[int, int] | None:
    """The batch and the tokens of the chain for so many rows and tokens; None if there is none."""
    batch, length = 1 << (rows - 1).bit_length(), -(-tokens // STEP) * STEP
    fits = tokens > 1 and length <= LONGEST and batch * length <= MOST_ROWS
    return (batch, length) if fits else None


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
        given = [torch.zeros_like(one.transpose(1, 2), memory_format=torch.contiguous_format)
                 for one in (query, key, value)]  # fmt: skip
        out = value.new_zeros(*given[0].shape[:3], value.shape[-1])
        return cls(*(one.transpose(1, 2) for one in given), out)

    def real(self, rows: int, tokens: int) -> "Slots":
        """Views of the real rows and tokens."""
        states = (one[:rows, :, :tokens] for one in (self.query, self.key, self.value))
        return Slots(*states, self.out[:rows, :tokens])


class Break(NamedTuple):
    """An attention call between two pieces: layer `index` attends for `module`."""

    index: int
    module: nn.Module
    slots: Slots


class _Layer(CompressedLayer):
    """A layer that stores nothing; `cut` takes its attention call."""

    def __init__(self, index: int, length: int, cut: Callable[..., Tensor]) -> None:
        super().__init__(index, 0)
        self.logical, self.cut = length, cut

    @property
    def is_filled(self) -> bool:
        return True

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
        self, model: PreTrainedModel, shape: tuple[int, int], ids: Tensor, positions: Tensor
    ) -> None:
        """Capture them. Runs the pass twice: for lazy initialisation, and to see that it depends on
        the cache's length nowhere but in its positions.

        Args:
            model: that has no layers with states or with Keys of other layers.
            shape: of `padded`.
            ids: [B, T] of a first question.
            positions: [..., B, T].

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
        with step_graph.recording(ids.device) as begin:
            self._capture(model, begin)

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
        seen = []

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
        for graph, (index, module, slots) in zip(self.graphs, self.breaks, strict=False):
            graph.replay()
            pause()
            layer, own = layers[index], real[slots]
            layer.logical += tokens
            out = layer.attend(module, own.query, own.key, own.value, _unasked)
            own.out.copy_(out)
        self.graphs[-1].replay()
        return self.logits[:rows, -1].to(torch.float32, copy=True)


def _unasked(*_: Tensor) -> Tensor:
    raise RuntimeError("A filled layer asked for its model's own attention.")


class QuestionGraphs:
    """The chains of one model. They are made when first needed, each for questions of one padded
    shape, and made anew where the model's weights have moved."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chains: OrderedDict[tuple, Chain | None] = OrderedDict()  # None: cannot be captured
        self._modules: list[nn.Module] = []  # that the chains read
        self._weights: list[int] = []  # where theirs are
        self._warned = False

    @torch.inference_mode()
    def ask(
        self, model: PreTrainedModel, ids: Tensor, positions: Tensor, cache: Any
    ) -> Tensor | None:
        """Read a question into a filled cache by replaying the pieces.

        One thread at a time: another one waits until the device has worked this question off.

        Args:
            model: transformers' own, with a cache of ours.
            ids: [B, T] text.
            positions: [B, T] or [axes, B, T].
            cache: grows by T tokens.

        Returns:
            Next-token logits [B, vocabulary] in float32; None where the pass has to be launched
            kernel by kernel, and the cache is unchanged.

        Raises:
            Stopped: where the context's `stoppable` flag is set.
        """
        shape, ours = padded(*ids.shape), isinstance(cache, AttendingCache)
        if shape is None or not (ours and cache.only_grows and _serves(model, ids)):
            return None
        cache.meet(model, {"input_ids": ids})
        if not cache.only_grows:  # there are pictures, which will be compressed
            return None
        with self._lock:
            found = self._chain(model, shape, ids, positions)
            if found is None:
                return None
            logits = found.run(ids, positions, key_layers(cache))
            synchronise(ids.device)  # the next question is written to the same tensors
        cache.end()
        return logits

    def forget(self) -> None:
        """Free the chains, unless a question is being read."""
        if self._lock.acquire(blocking=False):
            try:
                self._chains.clear()
            finally:
                self._lock.release()

    def _chain(
        self, model: PreTrainedModel, shape: tuple[int, int], ids: Tensor, positions: Tensor
    ) -> Chain | None:
        """The chain for a shape, captured now if it is new."""
        roots = _roots(model)
        if self._modules[: len(roots)] != roots or _addresses(self._modules) != self._weights:
            self._chains.clear()
            self._modules = [*roots, *(one for root in roots for one in root.modules())]
            self._weights = _addresses(self._modules)
        kind = (*shape, positions.shape[:-2], positions.dtype)
        if kind not in self._chains:
            while len(self._chains) >= KEPT:
                self._chains.popitem(last=False)
            self._chains[kind] = self._captured(model, shape, ids, positions)
        self._chains.move_to_end(kind)
        return self._chains[kind]

    def _captured(
        self, model: PreTrainedModel, shape: tuple[int, int], ids: Tensor, positions: Tensor
    ) -> Chain | None:
        if len(attention_layers(model)) != len(decoder_layers(model)):
            return None  # states, or Keys of other layers
        if not all(_is_on(module, ids.device) for module in self._modules):
            return None
        try:
            return Chain(model, shape, ids, positions)
        except Exception as error:
            if isinstance(error, torch.OutOfMemoryError):
                self._chains.clear()
            if not self._warned:
                log.warning("questions are launched kernel by kernel: %s", error, exc_info=True)
            self._warned = True
            return None


def _serves(model: PreTrainedModel, ids: Tensor) -> bool:
    """Whether a call of a model does what its own code says, on a GPU, and nobody watches."""
    bare = vars(model).get("forward") is None and not model.training
    bare = bare and not (model._forward_pre_hooks or model._forward_hooks)
    plain = not (torch.is_autocast_enabled(ids.device.type) or is_watched())
    return bare and plain and step_graph.capturable(ids.device)


def _roots(model: PreTrainedModel) -> list[nn.Module]:
    """What a pass over text reads."""
    ends = model.get_input_embeddings(), model.get_decoder(), model.get_output_embeddings()
    return [module for module in ends if module is not None]


def _is_on(module: nn.Module, device: torch.device) -> bool:
    """Whether a module's own weights are on a device, and accelerate moves none there."""
    own = chain(module._parameters.values(), module._buffers.values())
    return not hasattr(module, "_hf_hook") and all(t is None or t.device == device for t in own)


def _addresses(modules: Sequence[nn.Module]) -> list[int]:
    """Where the weights of modules are, and which modules are inside them."""
    found: list[int] = []
    for module in modules:
        for own in (module._parameters, module._buffers):
            found += [tensor.data_ptr() for tensor in own.values() if tensor is not None]
        found += map(id, module._modules.values())
    return found
