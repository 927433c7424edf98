"""The output projection's metric: in it an error of the Values is an error of the output."""

import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch
from torch import Tensor, nn

from rotatek.bridge.fitness import attention_of, decoder_layers
from rotatek.methods import rotation

HELD: Final = "rotatek_output_metric"  # the attribute of an attention module


class OutputMetric:
    """S and S^-1 of one attention module's output projection, and of which weights they are.

    S = (sum over a kv head's query heads of W_o^T W_o)^(1/2): the metric in which an error of the
    Values is an error of the layer's output. The module holds it, so that it is computed once a
    model and lives as long as the model does; caches only read it.

    Attributes:
        roots: S and S^-1, [Hkv, d, d] each; None for a quantised W_o, whose weights cannot be read.
        weights: which weights they were computed from.
    """

    def __init__(
        self, roots: tuple[Tensor, Tensor] | None = None, weights: tuple[Any, ...] | None = None
    ) -> None:
        self.roots, self.weights = roots, weights

    def __reduce__(self) -> tuple[Any, ...]:
        return OutputMetric, ()  # a copy of the model computes its own


def output_metric(module: nn.Module, key: Tensor) -> tuple[Tensor, Tensor] | None:
    """An attention module's metric and its inverse, computed when first asked for.

    They are computed again where the weights have moved or changed since. Changes that PyTorch does
    not count (through `.data`) are not seen: S is then a little off, and still has its inverse.

    Args:
        module: the attention module, with its output projection `o_proj`.
        key: [B, Hkv, n, d], for its shape alone.

    Returns:
        S and S^-1, [Hkv, d, d] each; None for a quantised W_o, whose weights cannot be read.
    """
    projection = getattr(module, "o_proj", None)
    weights = _version(getattr(projection, "weight", None))
    held = vars(module).get(HELD)
    if held is None or held.weights != weights:
        with torch.inference_mode(False), torch.no_grad(), _loaded(projection, key):
            weight = getattr(projection, "weight", None)
            known = weight if weight is not None and weight.is_floating_point() else None
            held = OutputMetric(None if known is None else _output_roots(known, key), weights)
        setattr(module, HELD, held)
    roots: tuple[Tensor, Tensor] | None = held.roots
    return roots


def held_metrics(model: nn.Module) -> Iterator[Tensor]:
    """What the attention modules of a model hold by now: tensors that all its caches share."""
    for layer in decoder_layers(model):
        held = vars(attention_of(layer) or layer).get(HELD)
        if held is not None and held.roots is not None:
            yield from held.roots


def _version(weight: Any) -> tuple[Any, ...] | None:
    """Equal for weights that have not moved or changed; None where accelerate has offloaded them,
    and every pass loads them to another address."""
    if not isinstance(weight, Tensor) or weight.device.type == "meta":
        return None
    count = 0 if weight.is_inference() else weight._version
    return weight.device, weight.data_ptr(), weight.dtype, count


def _loaded(projection: Any, key: Tensor) -> AbstractContextManager[Any]:
    """A context for reading the weights of a projection, which accelerate may have offloaded."""
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
