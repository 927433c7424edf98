"""The output projection's metric: in it an error of the Values is an error of the output.

S = (sum over a kv head's query heads of W_o^T W_o)^(1/2), computed once a model; caches only read
it.
"""

import importlib
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from rotatek.bridge.layers import attention_of, decoder_layers, weight_of
from rotatek.methods import rotation

Roots = tuple[Tensor, Tensor]
# S and S^-1 of attention modules, and of which weights: none for a quantised W_o whose weights
# cannot be read. Beside the modules, so that no copy or file has them; they go when it goes.
_HELD: Final[WeakKeyDictionary[nn.Module, tuple[Roots | None, Any]]] = WeakKeyDictionary()


def output_metric(module: nn.Module, key: Tensor) -> Roots | None:
    """S and S^-1 of an attention module, [Hkv, d, d] each, computed when first asked for and where
    the weights of its `o_proj` have moved or changed since; None for a quantised one whose weights
    cannot be read. Changes that PyTorch does not count (through `.data`) are not seen: S is then a
    little off, and still has its inverse. key: [B, Hkv, n, d], for its shape alone.
    """
    projection: Any = getattr(module, "o_proj", None)
    weight = getattr(projection, "weight", None)
    held, version = _HELD.get(module), _version(weight)
    if held is None or held[1] != version:
        loaded: Any = nullcontext()
        offloaded = isinstance(weight, Tensor) and weight.device.type == "meta"
        if offloaded and key.device.type != "meta":
            accelerate = importlib.import_module("accelerate.utils")
            inner = getattr(projection, "base_layer", projection)  # PEFT wraps it
            loaded = accelerate.align_module_device(inner, key.device)
        roots, (_, heads, _, d) = None, key.shape
        with torch.inference_mode(False), torch.no_grad(), loaded:
            known = weight_of(projection)
            if known is not None:  # blocks: [Hkv, G, hidden, d]
                blocks = known.float().unflatten(1, (heads, -1, d)).permute(1, 2, 0, 3)
                roots = rotation.metric_root((blocks.mT @ blocks).sum(1))
        _HELD[module] = held = roots, version
    return held[0]


def held_metrics(model: nn.Module) -> Iterator[Tensor]:
    """The metrics of a model so far: tensors that all its caches share."""
    for layer in decoder_layers(model):
        held = _HELD.get(attention_of(layer) or layer)
        if held is not None and held[0] is not None:
            yield from held[0]


def _version(weight: Any) -> tuple[Any, ...] | None:
    """Equal for weights that have not moved or changed; None where accelerate has offloaded them,
    and every pass loads them to another address."""
    if type(weight) not in (Tensor, nn.Parameter):
        return None if weight is None else (type(weight),)  # a quantiser's, which does not change
    if weight.device.type == "meta":
        return None
    count = 0 if weight.is_inference() else weight._version
    return weight.device, weight.data_ptr(), weight.dtype, count
