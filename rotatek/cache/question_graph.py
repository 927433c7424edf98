"""Questions to filled caches of one model, replayed as chains of CUDA graphs.

Launching a pass of 30 tokens kernel by kernel takes the host some 67 ms for 7 billion parameters,
of which the GPU works 6. No graph holds the whole pass, since each picture's cache has tensors of
its own; a chain (`rotatek.cache.pieces`) serves them all.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rotatek.bridge.attention import is_hooked, is_watched
from rotatek.bridge.layers import attention_layers, decoder_layers, key_layers
from rotatek.cache import step_graph
from rotatek.cache.layer import AttendingCache
from rotatek.cache.measures import synchronise
from rotatek.cache.pieces import Chain
from rotatek.cache.step_graph import GraphMemory

log = logging.getLogger(__name__)

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


class QuestionGraphs:
    """The chains of one model. They are made when first needed, each for questions of one padded
    shape, and made anew where the model's weights, modules or hooks have changed. The least
    recently used ones go where there are more than `KEPT`.

    Attributes:
        bytes: of the device's memory that the chains hold.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = threading.Lock()
        self._chains: OrderedDict[tuple, Chain] = OrderedDict()
        self._memory: GraphMemory | None = None  # of all graphs: one question is read at a time
        self._failed: set[tuple] = set()  # kinds of questions that cannot be captured
        self._modules: list[nn.Module] = []  # that the chains read
        self._seen: list[Any] = []  # what was found on them
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
            Exception: what went wrong in a replay, or `Stopped` where the context's `stoppable`
                flag is set; the cache is unchanged.
        """
        shape, ours = padded(*ids.shape), isinstance(cache, AttendingCache)
        if shape is None or not (ours and cache.only_grows and _serves(model, ids)):
            return None
        cache.meet(model, {"input_ids": ids})
        with self._lock:
            found = self._chain(model, shape, ids, positions)
            if found is None:
                return None
            counters = cache.counters()
            try:
                logits = found.run(ids, positions, key_layers(cache))
                synchronise(ids.device)  # the next question is written to the same tensors
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
    ) -> Chain | None:
        """The chain for a shape, captured now if it is new."""
        roots = _roots(model)
        if self._modules[: len(roots)] != roots or _seen_on(self._modules) != self._seen:
            self._drop()
            self._failed.clear()
            self._modules = _called(model, roots)
            self._seen = _seen_on(self._modules)
        kind = (*shape, positions.shape[:-2], positions.dtype)
        if kind not in self._chains and kind not in self._failed:
            self._capture(kind, model, shape, ids, positions)
        if kind not in self._chains:
            return None
        self._chains.move_to_end(kind)
        return self._chains[kind]

    def _capture(
        self,
        kind: tuple,
        model: PreTrainedModel,
        shape: tuple[int, int],
        ids: Tensor,
        positions: Tensor,
    ) -> None:
        """Add a chain. A capture that fails is not tried again, and frees the others: they may hold
        the memory that it lacked."""
        self._failed.add(kind)
        if len(attention_layers(model)) != len(decoder_layers(model)):
            return  # states, or Keys of other layers
        if not all(_is_plain(module, ids.device) for module in self._modules):
            return
        while len(self._chains) >= KEPT:
            self._chains.popitem(last=False)
        if not self._chains:
            self._memory = GraphMemory(ids.device)
        assert self._memory is not None
        try:
            self._chains[kind] = Chain(model, shape, ids, positions, self._memory)
        except Exception as error:
            self._drop()
            self._warn(str(error), error)
            return
        self._failed.discard(kind)
        self.bytes = self._memory.bytes + sum(one.bytes for one in self._chains.values())


def _serves(model: PreTrainedModel, ids: Tensor) -> bool:
    """Whether a call of a model is one of inference on a GPU, and no query is recorded."""
    plain = not (model.training or torch.is_autocast_enabled(ids.device.type) or is_watched())
    return plain and step_graph.capturable(ids.device)


def _roots(model: PreTrainedModel) -> list[nn.Module]:
    """What a pass over text reads."""
    ends = model.get_input_embeddings(), model.get_decoder(), model.get_output_embeddings()
    return [module for module in ends if module is not None]


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
