"""What caches and their layers are whose attention is ours.

Lengths are logical (positions come from them), never physical.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from rotatek.bridge.attention import tag
from rotatek.bridge.layers import change, key_layers, state_layers, tensors_of
from rotatek.errors import ModeUnsupported, UserError


class CompressedLayer(CacheLayerMixin):
    """A cache layer that computes attention itself."""

    is_compileable = False
    is_croppable = False
    is_sliding = False
    supports_early_init = False

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.logical = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to allocate before prefill."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Count the tokens and send this layer along to the attention function."""
        self.logical += key_states.shape[2]
        return tag(key_states, self), value_states

    @abstractmethod
    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        """One attention call of `module` over this layer's own Keys and Values, [B, T, Hq, d].

        query [B, Hq, T, d]; key and value [B, Hkv, n, d], what `update` returned; full: runs plain
        attention over these three.
        """

    @abstractmethod
    def lend(self, module: nn.Module, query: Tensor, full: Callable) -> Tensor:
        """The same of a later decoder layer's `module`, which has no cache of its own.

        query: of all rows of this forward pass, or of the last ones; full: runs plain attention
        over what this pass has brought.
        """

    def get_seq_length(self) -> int:
        """Logical tokens so far, pruned ones included."""
        return self.logical

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Logical, like the padding mask `generate` carries; the layer masks for itself."""
        return self.logical + query_length, 0

    def get_max_length(self) -> int:
        """No maximum."""
        return -1


def not_assisted() -> UserError:
    """The refusal of drafts, by an assistant or by prompt lookup."""
    return ModeUnsupported(
        "Assisted decoding does not work with a compressed cache, which cannot be cropped. Leave "
        "out the assistant, or `prompt_lookup_num_tokens`."
    )


class AttendingCache(Cache):
    """A cache whose layers compute attention: a model's call that carries one is compressed. Layers
    of the model that keep a state have transformers' own (`rotatek.bridge.layers`). Text can
    keep its addresses, for graphs, and undo its additions."""

    attends: ClassVar = True
    graph = True  # whether its one-token steps may be replayed as a CUDA graph

    @property
    def only_grows(self) -> bool:
        """Whether further text makes its layers' text grow, and does nothing else."""
        return False

    def meet(self, model: PreTrainedModel, given: Mapping[str, Any]) -> None:
        """See a call's model and its arguments before the model reads them."""

    def end(self) -> None:
        """Every layer of the language model has run."""

    def crop(self, *_: int) -> None:
        """Refused: dropped channels and tokens cannot come back, nor earlier states."""
        raise not_assisted()

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every sample."""
        self._select(lambda t: t.repeat_interleave(repeats, 0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some samples."""
        self._select(lambda t: t[indices.to(t.device)])

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Follow the beams."""
        self._select(lambda t: t.index_select(0, beam_idx.to(t.device)))

    def _select(self, how: Callable[[Tensor], Tensor]) -> None:
        for layer in key_layers(self):
            layer.select(how)
        for layer in state_layers(self):
            change(layer, how)

    def reserve(self, tokens: int) -> bool:
        """Make capacity for `tokens` more if little is free; whether no tensor had to move."""
        grown = False
        for layer in key_layers(self):
            text = layer.text
            text.static = False
            layer.follow(tokens)
            if 4 * (text.room - text.longest) < tokens:
                text.reserve(text.longest + tokens)
                grown = True
            text.static = True
        return grown

    def advance(self) -> None:
        """Count one token that a graph's replay has added."""
        for layer in key_layers(self):
            layer.logical += 1
            layer.text.longest += 1

    def counters(self) -> Any:
        """Per layer: host counts and a copy of the device's, and of states, for `rewind`."""
        return [(la.logical, la.text.mark()) for la in key_layers(self)], self.held_states()

    def held_states(self) -> list[Tensor]:
        """Copies of all states, which cannot be rewound."""
        return [tensor.clone() for layer in state_layers(self) for tensor in tensors_of(layer)]

    def rewind_states(self, states: list[Tensor]) -> None:
        """Undo what was done to states since `held_states`; their addresses stay."""
        own = (tensor for layer in state_layers(self) for tensor in tensors_of(layer))
        for mine, before in zip(own, states, strict=True):
            mine.copy_(before)

    @torch.inference_mode()  # as the prefill that made the lengths
    def rewind(self, counters: Any) -> None:
        """Forget the text added since `counters` were taken; buffers and addresses stay."""
        texts, states = counters
        for layer, (logical, mark) in zip(key_layers(self), texts, strict=True):
            layer.logical = logical
            layer.text.rewind(mark)
        self.rewind_states(states)
