"""One text behind several filled caches, read in one forward pass: the model's weights are read
once, and each cache attends for itself."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rotatek.bridge.state_layers import key_layers, state_layers
from rotatek.cache.layer import AttendingCache, CompressedLayer
from rotatek.cache.rotatek_cache import RotateKCache


class SideBySideLayer(CompressedLayer):
    """One layer of `SideBySide`; rows: that layer of each cache."""

    def __init__(self, index: int, layers: Sequence[CompressedLayer]) -> None:
        super().__init__(index)
        self.layers = layers
        self.logical = max(layer.logical for layer in layers)  # masks are the layers' own

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        """Attention output [caches, T, Hq, d]; arguments as of `CompressedLayer.attend`."""
        found = []
        for row, layer in enumerate(self.layers):
            own = slice(row, row + 1)
            layer.logical += key.shape[2]
            found.append(layer.attend(module, query[own], key[own], value[own], full))
        return torch.cat(found)

    def lend(self, module: nn.Module, query: Tensor, full: Callable) -> Tensor:
        """Attention output [caches, T, Hq, d] of a later layer, over this one's tokens."""
        parts = zip(self.layers, query.split(1), strict=True)
        return torch.cat([layer.lend(module, own, full) for layer, own in parts])


class SideBySide(AttendingCache):
    """A row for each of several filled caches of one sample, which grow by the same tokens.

    Args:
        caches: that `fits` accepts.
    """

    def __init__(self, caches: Sequence[RotateKCache]) -> None:
        self.caches = caches
        each = zip(*map(key_layers, caches), strict=True)
        super().__init__(layers=[SideBySideLayer(n, layers) for n, layers in enumerate(each)])

    @staticmethod
    def fits(cache: RotateKCache) -> bool:
        """Whether a cache can be read side by side: it keeps no states, and no window moves."""
        return not state_layers(cache) and all(layer.span is None for layer in key_layers(cache))

    @property
    def only_grows(self) -> bool:
        """Whether each cache does."""
        return all(cache.only_grows for cache in self.caches)

    def meet(self, model: PreTrainedModel, given: Mapping[str, Any]) -> None:
        """See a call's arguments before the model does: each cache sees its own row."""
        for row, cache in enumerate(self.caches):
            cache.meet(model, {"input_ids": given["input_ids"][row : row + 1]})

    def counters(self) -> Any:
        """For `rewind`, of each cache."""
        return [cache.counters() for cache in self.caches]

    def rewind(self, counters: Any) -> None:
        """Forget the tokens that each cache has added since."""
        for cache, own in zip(self.caches, counters, strict=True):
            cache.rewind(own)
        for layer in self.layers:
            layer.logical = max(own.logical for own in layer.layers)
