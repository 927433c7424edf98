"""Decoder layers without a cache of their own: they attend to the Keys and Values that an earlier
layer has stored (Gemma 4)."""

from typing import Any

from torch import nn
from transformers import PreTrainedConfig

from rotatek.bridge.fitness import attention_of, decoder_layers


def borrows(attention: Any) -> bool:
    """Whether an attention module reads another layer's Keys and Values."""
    return bool(getattr(attention, "is_kv_shared_layer", False))


def lends(attention: Any) -> bool:
    """Whether later layers read an attention module's Keys and Values."""
    return bool(getattr(attention, "store_full_length_kv", False))


def cached_layers(model: nn.Module) -> list[nn.Module]:
    """The decoder layers that have a cache, in order: those that borrow come behind them."""
    return [layer for layer in decoder_layers(model) if not borrows(attention_of(layer))]


def lender_of(model: nn.Module, attention: Any) -> int | None:
    """The number of the layer whose Keys and Values an attention module borrows, or None."""
    if not borrows(attention):
        return None
    modules = [attention_of(layer) for layer in cached_layers(model)]
    return next(
        number
        for number, module in reversed(list(enumerate(modules)))
        if lends(module) and module.layer_type == attention.layer_type
    )


def kv_shapes(config: PreTrainedConfig) -> list[tuple[int, int]]:
    """Key heads and their width, of each layer with a cache.

    Args:
        config: of a language model.
    """
    shapes, shared = [], getattr(config, "num_kv_shared_layers", None) or 0
    for number in range(config.num_hidden_layers - shared):
        own = config.per_layer_config[number] if hasattr(config, "per_layer_config") else config
        heads = config.num_attention_heads
        width = getattr(own, "head_dim", None) or config.hidden_size // heads
        shapes.append((own.num_key_value_heads or heads, width))
    return shapes
