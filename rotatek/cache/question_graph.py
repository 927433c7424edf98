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

from rotatek.bridge.attention import is_watched
from rotatek.bridge.fitness import attention_layers, decoder_layers
from rotatek.bridge.state_layers import key_layers
from rotatek.cache import step_graph
from rotatek.cache.device_timing import synchronise
from rotatek.cache.layer import AttendingCache
from rotatek.cache.pieces import Chain

log = logging.getLogger(__name__)

STEP: Final = 16  # tokens: questions are padded to a multiple
LONGEST: Final = 128  # tokens of a question
MOST_ROWS: Final = 512  # tokens of all questions of a pass; a longer one keeps the GPU busy itself
KEPT: Final = 8  # chains of a model: the least recently used one goes


def padded(rows: int, tokens: int) -> tuple[int, int] | None:
    """The batch and the tokens of the chain for so many rows and tokens; None if there is none."""
    batch, length = 1 << (rows - 1).bit_length(), -(-tokens // STEP) * STEP
    fits = tokens > 1 and length <= LONGEST and batch * length <= MOST_ROWS
    return (batch, length) if fits else None


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
    """Whether a call of a model runs its own code alone, on a GPU, and no query is recorded."""
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
