"""Questions to filled caches of one model, replayed as chains of CUDA graphs.

Launching a pass of 30 tokens kernel by kernel takes the host some 67 ms for 7 billion parameters,
of which the GPU works 6. No graph holds the whole pass, since each picture's cache has tensors of
its own. So it is a chain of graphs, broken at every attention call: all caches of a model share
what is between those, and there a cache's layer attends as ever. Chains are captured on a cache
that stores nothing, so that no cache of a request is at risk. Questions are padded on the right:
attention is causal, and a layer is given the real rows alone.
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

from rotatek.bridge.attention import is_hooked, pause
from rotatek.bridge.layers import attention_layers, decoder_layers, key_layers
from rotatek.bridge.scope import SCOPE, own_calls, with_cache
from rotatek.cache import step_graph
from rotatek.cache.layer import AttendingCache, CompressedLayer
from rotatek.cache.measures import storage_bytes, synchronise
from rotatek.cache.step_graph import CaptureFailed, GraphMemory

log = logging.getLogger(__name__)

FAR: Final = 1 << 20  # tokens: a cache's length that must change nothing between attention calls
STEP: Final = 16  # tokens: questions are padded to a multiple
LONGEST: Final = 128  # tokens of a question
MOST_ROWS: Final = 512  # tokens of all questions of a pass; a longer one keeps the GPU busy itself
# Chains of a model: one for each padded length of a picture's questions. For 7 billion parameters a
# chain is 29 graphs, whose nodes the driver keeps, and 9 MB of slots at most; the rest is shared.
KEPT: Final = LONGEST // STEP


def padded(rows: int, tokens: int) -> tuple[int, int] | None:
    """The batch and the tokens of the chain for so many rows and tokens; None if there is none."""
    batch, length = 1 << (rows - 1).bit_length(), -(-tokens // STEP) * STEP
    fits = tokens > 1 and length <= LONGEST and batch * length <= MOST_ROWS
    return (batch, length) if fits else None


@dataclass(eq=False)
class _Slots:
    """Where a graph leaves an attention call's input, and the next one finds its output: query
    [B, Hq, T, d]; key, value [B, Hkv, T, d]; out [B, T, Hq, d]. Layers share them."""

    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor

    def real(self, rows: int, tokens: int) -> "_Slots":
        """Views of the real rows and tokens."""
        query, key, value = (one[:rows, :, :tokens] for one in (self.query, self.key, self.value))
        return _Slots(query, key, value, self.out[:rows, :tokens])


class _Break(NamedTuple):
    """An attention call between two graphs: layer number `layer` attends for `module`."""

    layer: int
    module: nn.Module
    slots: _Slots


class _Layer(CompressedLayer):
    """A layer that stores nothing; `cut` takes its attention call."""

    def __init__(self, index: int, length: int, cut: Callable[..., Tensor]) -> None:
        super().__init__(index)
        self.logical, self.cut = length, cut

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0  # no layer reads the model's masks

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        return self.cut(_Break(self.index, module, _Slots(query, key, value, query)))

    def lend(self, module: nn.Module, query: Tensor, full: Callable) -> Tensor:
        raise CaptureFailed("a layer borrows the Keys of another one")


class _Chain:
    """The graphs of one model for questions of one padded shape, and what they read and write.

    Runs the pass of a first question twice before it captures it: for lazy initialisation, and to
    see that it depends on the cache's length nowhere but in its positions. No other thread replays
    in `memory` meanwhile, and nothing of a chain that fails is left behind.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        shape: tuple[int, int],
        ids: Tensor,
        positions: Tensor,
        memory: GraphMemory,
    ) -> None:
        self.ids = ids.new_zeros(shape)
        self.positions = positions.new_zeros(*positions.shape[:-2], *shape)
        self.last = ids.new_zeros(1)
        self.breaks: list[_Break] = []
        self.graphs: list[Any] = []
        self._slots: dict[tuple, _Slots] = {}
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
        self, model: PreTrainedModel, length: int, cut: Callable[[_Break], Tensor]
    ) -> Tensor:
        """The pass over a cache of so many tokens that stores nothing; its last logits."""
        layers = [_Layer(index, length, cut) for index in range(len(attention_layers(model)))]
        with own_calls(stop=None, checkpoint=None):  # a capture neither waits nor ends early
            out = model(
                input_ids=self.ids,
                position_ids=self.positions,
                use_cache=True,
                logits_to_keep=self.last,
                **with_cache(model, AttendingCache(layers=layers)),
            )
        logits: Tensor = out.logits
        return logits

    def _left(self, found: _Break) -> _Break:
        """A break whose input is in slots of ours, copied there."""
        given = found.slots.query, found.slots.key, found.slots.value
        kind = tuple((one.shape, one.dtype) for one in given)
        if kind not in self._slots:  # a token's heads one after the other in memory
            query, value = given[0], given[2]
            own = [one.new_zeros(one.transpose(1, 2).shape).transpose(1, 2) for one in given]
            out = value.new_zeros(len(query), *query.shape[2:0:-1], value.shape[-1])
            self._slots[kind] = _Slots(own[0], own[1], own[2], out)
        slots = self._slots[kind]
        for held, one in zip((slots.query, slots.key, slots.value), given, strict=True):
            held.copy_(one)
        return found._replace(slots=slots)

    def _seen(self, model: PreTrainedModel, length: int) -> list[Tensor]:
        """What the attention calls are given, and the logits, where each call gives zeros."""
        seen: list[Tensor] = []

        def cut(found: _Break) -> Tensor:
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

        def cut(found: _Break) -> Tensor:
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
            own.out.copy_(layer.attend(module, own.query, own.key, own.value, _unasked))
        self.graphs[-1].replay()
        return self.logits[:rows, -1].to(torch.float32, copy=True)


def _unasked(*_: Tensor) -> Tensor:
    raise RuntimeError("A filled layer asked for its model's own attention.")


class QuestionGraphs:
    """The chains of one model. They are made when first needed, each for questions of one padded
    shape, and made anew where the model's weights, modules or hooks have changed. The least
    recently used ones go where there are more than `KEPT`. bytes: that they hold of the device's.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = threading.Lock()
        self._chains: OrderedDict[tuple, _Chain] = OrderedDict()
        self._memory: GraphMemory | None = None  # of all graphs: one question is read at a time
        self._failed: set[tuple] = set()  # kinds of questions that cannot be captured
        self._modules: list[nn.Module] = []  # that the chains read
        self._seen: list[Any] = []  # what was found on them
        self._warned = False

    @torch.inference_mode()
    def ask(
        self, model: PreTrainedModel, ids: Tensor, positions: Tensor, cache: Any
    ) -> Tensor | None:
        """Read a question into a filled cache by replaying the graphs, one thread at a time.

        Args:
            model: transformers' own.
            ids: [B, T] text.
            positions: [B, T] or [axes, B, T].
            cache: grows by T tokens.

        Returns:
            Next-token logits [B, vocabulary] in float32; None where the pass has to be launched
            kernel by kernel, and the cache is unchanged.

        Raises:
            Exception: what went wrong in a replay, or `Stopped`; the cache is unchanged.
        """
        shape, device = padded(*ids.shape), ids.device
        ours = isinstance(cache, AttendingCache) and cache.only_grows
        other = model.training or torch.is_autocast_enabled(device.type)
        other = other or SCOPE.get().queries is not None  # which a replay would not show
        if shape is None or not ours or other or not step_graph.capturable(device):
            return None
        cache.meet(model, {"input_ids": ids})
        with self._lock:
            found = self._chain(model, shape, ids, positions)
            if found is None:
                return None
            counters = cache.counters()
            try:
                logits = found.run(ids, positions, key_layers(cache))
                synchronise(device)  # the next question is written to the same tensors
            except Exception:
                cache.rewind(counters)
                raise
        cache.end()
        return logits

    def forget(self, reason: str = "") -> None:
        """Free the chains, as soon as no question is being read; reason: what failed, if any."""
        with self._lock:
            self._drop()
            if reason:
                self._warn(reason)

    def _drop(self) -> None:
        self._chains.clear()
        self._memory, self.bytes = None, 0

    def _warn(self, reason: str, error: Exception | None = None) -> None:
        if not self._warned:
            log.warning("a question is launched kernel by kernel: %s", reason, exc_info=error)
        self._warned = True

    def _chain(
        self, model: PreTrainedModel, shape: tuple[int, int], ids: Tensor, positions: Tensor
    ) -> _Chain | None:
        """The chain for a shape, captured now if it is new. A capture that fails is not tried
        again, and frees the others: they may hold the memory that it lacked."""
        ends = model.get_input_embeddings(), model.get_decoder(), model.get_output_embeddings()
        roots = [module for module in ends if module is not None]
        if self._modules[: len(roots)] != roots or _seen_on(self._modules) != self._seen:
            self._drop()
            self._failed.clear()
            self._modules = _called(model, roots)
            self._seen = _seen_on(self._modules)
        kind = (*shape, positions.shape[:-2], positions.dtype)
        if kind not in self._chains and kind not in self._failed:
            self._failed.add(kind)
            if len(attention_layers(model)) != len(decoder_layers(model)):
                return None  # states, or Keys of other layers
            if not all(_is_plain(module, ids.device) for module in self._modules):
                return None
            while len(self._chains) >= KEPT:
                self._chains.popitem(last=False)
            if self._memory is None or not self._chains:
                self._memory = GraphMemory(ids.device)
            try:
                self._chains[kind] = _Chain(model, shape, ids, positions, self._memory)
            except Exception as error:
                self._drop()
                self._warn(str(error), error)
                return None
            self._failed.discard(kind)
            self.bytes = self._memory.bytes + sum(one.bytes for one in self._chains.values())
        if kind in self._chains:
            self._chains.move_to_end(kind)
        return self._chains.get(kind)


def _called(model: PreTrainedModel, roots: Sequence[nn.Module]) -> list[nn.Module]:
    """All modules that a pass over text calls: the roots, those inside them, those around them."""
    inside = dict.fromkeys([*roots, *chain.from_iterable(root.modules() for root in roots)])
    others = (module for module in model.modules() if module not in inside)
    return [*inside, *(one for one in others if not inside.keys().isdisjoint(one.modules()))]


def _is_plain(module: nn.Module, device: torch.device) -> bool:
    """Whether a module runs its class's own code, on weights that stay where they are on a device:
    accelerate moves none there, no hook has to see each call, and no adapter can be switched."""
    own = (t for t in chain(module._parameters.values(), module._buffers.values()) if t is not None)
    here = all(t.device == device and (t.data_ptr() or not t.numel()) for t in own)
    changed = {"forward", "_hf_hook"} & vars(module).keys() or hasattr(module, "_disable_adapters")
    return here and not (changed or is_hooked(module))


def _seen_on(modules: Sequence[nn.Module]) -> list[Any]:
    """What a chain depends on: where the weights of modules are and of what type, which modules are
    inside them, and whether there are hooks or replaced code."""
    found: list[Any] = []
    for module in modules:
        for own in (module._parameters, module._buffers):
            for tensor in own.values():
                if tensor is not None:
                    found += tensor.data_ptr(), tensor.dtype
        found += map(id, module._modules.values())
        found.append(vars(module).get("forward"))
        if (module._forward_pre_hooks or module._forward_hooks) and is_hooked(module):
            found.append(None)
    return found
