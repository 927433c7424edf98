"""Layers that hold a state in place of Keys: linear attention, state spaces, short convolutions.

Their cache layers are transformers' own, untouched: a convolution's last inputs and a recurrent
state, of the same size whatever the prompt's length. A cache has one layer for each layer of the
language model, so that either kind is found by its index; what compresses numbers those with Keys.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from rotatek.bridge.fitness import attention_layers, attention_of, decoder_layers, device_of
from rotatek.bridge.scope import with_cache

NAMES: Final = ("conv_states", "recurrent_states")  # by number, as a layer may have several


def key_layers(cache: Cache) -> list[Any]:
    """A cache's layers that hold Keys, in order."""
    return [layer for layer in cache.layers if isinstance(layer, CacheLayerMixin)]


def state_layers(cache: Cache) -> list[Any]:
    """A cache's layers that hold a state, or nothing at all, in order."""
    return [layer for layer in cache.layers if not isinstance(layer, CacheLayerMixin)]


def among_states(model: PreTrainedModel, keys: Sequence[Any]) -> list[Any]:
    """A cache's layers for a model: `keys` where it attends, and empty ones of transformers' own
    where it does not."""
    layers = decoder_layers(model)
    if len(keys) == len(layers):  # no need to search them
        return list(keys)
    attending = [attention_of(layer) is not None for layer in layers]
    if all(attending):
        return list(keys)
    plain = DynamicCache(config=model.get_decoder().config).layers
    left = iter(keys)
    return [next(left) if own else la for own, la in zip(attending, plain, strict=True)]


@torch.inference_mode()
def state_bytes(model: PreTrainedModel) -> int:
    """Bytes of one prompt's states, whatever its length: those behind one token."""
    if len(attention_layers(model)) == len(decoder_layers(model)):
        return 0
    decoder = model.get_decoder()
    cache = DynamicCache(config=decoder.config)
    token = torch.zeros(1, 1, dtype=torch.long, device=device_of(decoder))
    decoder(input_ids=token, use_cache=True, **with_cache(decoder, cache))
    return sum(tensor.nbytes for layer in state_layers(cache) for tensor in tensors_of(layer))


def emptied(layer: Any) -> Any:
    """A layer of the same kind without a state."""
    return type(layer)(number_of_states=getattr(layer, "number_of_states", 1))


def forget_states(cache: Cache) -> None:
    """Leave empty layers where a cache has states."""
    cache.layers[:] = [
        layer if isinstance(layer, CacheLayerMixin) else emptied(layer) for layer in cache.layers
    ]


def slots(layer: Any) -> Iterator[tuple[dict[int, Tensor], int]]:
    """Where a layer's tensors are, [B, ...] each: a mapping, and the key in it."""
    for name in NAMES:
        held = getattr(layer, name, {})
        yield from ((held, number) for number, tensor in held.items() if tensor is not None)


def tensors_of(layer: Any) -> list[Tensor]:
    """A layer's tensors, [B, ...] each."""
    return [held[number] for held, number in slots(layer)]


def change(layer: Any, how: Callable[[Tensor], Tensor]) -> None:
    """Replace each of a layer's tensors, [B, ...]."""
    for held, number in slots(layer):
        held[number] = how(held[number])


def state_of(layer: Any) -> dict[str, list[Tensor | None]]:
    """The argument of `restore` that gives another layer this one's state."""
    return {name: list(getattr(layer, name, {}).values()) for name in NAMES}


def restore(layer: Any, state: Mapping[str, Sequence[Tensor | None]]) -> Any:
    """Give an empty layer copies of a state, of `state_of`; returns the layer."""
    updates = (layer.update_conv_state, layer.update_recurrent_state) if any(state.values()) else ()
    for update, name in zip(updates, NAMES, strict=False):
        for number, tensor in enumerate(state[name]):
            if tensor is not None:
                update(tensor, number)
                layer.has_previous_state[number] = True
    return layer


def copied(layer: Any) -> Any:
    """A layer with a state of its own that is equal to this one's."""
    return restore(emptied(layer), state_of(layer))
