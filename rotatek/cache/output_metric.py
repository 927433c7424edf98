"""The output projection's metric: in it an error of the Values is an error of the output."""

import importlib
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor, nn

from rotatek.methods import rotation


class OutputMetrics:
    """S and S^-1 of each layer's output projection, computed once from its weights.

    S = (sum over a kv head's query heads of W_o^T W_o)^(1/2): the metric in which an error of the
    Values is an error of the layer's output.
    """

    def __init__(self) -> None:
        self._roots: dict[int, tuple[Tensor, Tensor] | None] = {}

    def of(self, layer: int, module: nn.Module, key: Tensor) -> tuple[Tensor, Tensor] | None:
        """One layer's metric and its inverse.

        Args:
            layer: index from 0, the key of the cached metric.
            module: the attention module, with its output projection `o_proj`.
            key: [B, Hkv, n, d], used for its shape.

        Returns:
            S and S^-1, [Hkv, d, d] each; None for a quantised W_o, whose weights cannot be read.
        """
        if layer not in self._roots:
            projection = getattr(module, "o_proj", None)
            with _loaded(projection, key):
                weight = getattr(projection, "weight", None)
                if weight is None or not weight.is_floating_point():
                    self._roots[layer] = None
                else:
                    self._roots[layer] = _output_roots(weight, key)
        return self._roots[layer]


def _loaded(projection: Any, key: Tensor) -> AbstractContextManager[Any]:
    """Over what reads the weights of a projection, which accelerate may have offloaded."""
    weight = getattr(projection, "weight", None)
    if weight is None or weight.device.type != "meta" or key.device.type == "meta":
        return nullcontext()
    accelerate = importlib.import_module("accelerate.utils")  # which has offloaded it
    held = getattr(projection, "base_layer", projection)  # PEFT wraps it
    loading: AbstractContextManager[Any] = accelerate.align_module_device(held, key.device)
    return loading


def _output_roots(weight: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    heads, d = key.shape[1], key.shape[3]
    blocks = weight.float().unflatten(1, (heads, -1, d)).permute(1, 2, 0, 3)  # [Hkv, G, hidden, d]
    return rotation.metric_root((blocks.transpose(-1, -2) @ blocks).sum(1))
