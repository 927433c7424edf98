"""Decoder layers without a cache of their own: they attend to the Keys and Values that an earlier
layer has stored (Gemma 4)."""

from typing import Any

from torch import nn
from transformers import PreTrainedModel

from rotatek.bridge.fitness import attention_layers, attention_of, borrows, decoder_layers


def lends(attention: Any) -> bool:
    """Whether later layers read an attention module's Keys and Values."""
    return bool(getattr(attention, "store_full_length_kv", False))


def owners(model: nn.Module) -> int:
    """Decoder layers, less those at the end that borrow."""
    return sum(not borrows(attention_of(layer)) for layer in decoder_layers(model))


def lender_of(model: nn.Module, attention: Any) -> int | None:
    """The number of the layer whose Keys and Values an attention module borrows, or None."""
    if not borrows(attention):
        return None
    modules: list[Any] = [attention_of(layer) for layer in attention_layers(model)]
    return next(
        number
        for number, module in reversed(list(enumerate(modules)))
        if lends(module) and module.layer_type == attention.layer_type
    )


def kv_shapes(model: PreTrainedModel) -> list[tuple[int, int]]:
    """Key heads and their width, of each layer that holds Keys."""
    shapes, config = [], model.config.get_text_config()
    heads = config.num_attention_heads
    for number, layer in enumerate(decoder_layers(model)):
        attention = attention_of(layer)
        if attention is None or borrows(attention):
            continue
        own = config.per_layer_config[number] if hasattr(config, "per_layer_config") else config
        width = getattr(own, "head_dim", None) or config.hidden_size // heads
        shapes.append((own.num_key_value_heads or heads, width))
    return shapes
