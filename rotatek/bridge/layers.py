"""The layers of a language model: whether compressed attention computes theirs, and the states of
those that hold one in place of Keys.

Our kernels compute softmax(scale * q K^T) V over cached tokens, all of them or a window of the
newest. A model that computes more would silently give other answers, so it is refused here.

Linear attention, state spaces and short convolutions hold a state of one size, in transformers' own
cache layers. A cache has a layer for each of the language model; what compresses numbers those with
Keys alone.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from rotatek.bridge.scope import with_cache
from rotatek.errors import ModelUnsupported

KINDS: Final = ("full_attention", "sliding_attention", "attention")  # of layers that we compute
STATES: Final = ("conv_states", "recurrent_states")  # by number, as a layer may have several
# Arguments of an attention call that change its scores, by what a person calls them.
EXTRAS: Final = {
    "softcap": "capped attention scores",
    "s_aux": "attention sinks",
    "sinks": "attention sinks",
    "position_bias": "a bias of its attention scores",
    "alibi": "a bias of its attention scores",
}


def _forwards(kind: type) -> Iterator[Any]:
    """Forward passes of a module's class and of those behind it, without decorators."""
    for base in kind.__mro__:
        forward = inspect.unwrap(vars(base).get("forward", object))
        if hasattr(forward, "__code__"):
            yield forward


def attends(module: nn.Module) -> bool:
    """Whether a module calls the attention function that its configuration names."""
    kind: Any = type(module)
    return _names_attention(kind) and hasattr(module, "config")


@cache
def _names_attention(kind: type) -> bool:
    forward = next(_forwards(kind), None)
    names = () if forward is None else forward.__code__.co_names
    return "ALL_ATTENTION_FUNCTIONS" in names and "_attn_implementation" in names


def decoder_layers(model: nn.Module) -> nn.ModuleList:
    """The language model's decoder layers.

    Raises:
        ModelUnsupported: where they cannot be found.
    """
    inner = unwrapped(model)
    layers = getattr(inner.get_decoder(), "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise ModelUnsupported(
            f"{type(inner).__name__} has no decoder layers that RotateK can read. "
            "`python -m rotatek info` lists the families that work."
        )
    return layers


def unwrapped(model: nn.Module) -> PreTrainedModel:
    """The model of transformers inside wrappers such as PEFT's and `torch.compile`'s.

    Raises:
        ModelUnsupported: where there is none.
    """
    parts = model.modules() if isinstance(model, nn.Module) else ()
    found = next((one for one in parts if isinstance(one, PreTrainedModel)), None)
    if found is None:
        raise ModelUnsupported(f"{type(model).__name__} is no model of transformers. Give one.")
    return found


def weight_of(module: Any) -> Tensor | None:
    """A layer's weights as numbers [out, in], which quantisers keep in tensors of their own kind or
    behind a method; None where they cannot be read."""
    weight: Any = getattr(module, "weight", None)
    weight = weight() if callable(weight) and not isinstance(weight, Tensor) else weight
    if type(weight) in (Tensor, nn.Parameter) and weight.is_floating_point():
        return weight
    offered = getattr(module if weight is None else weight, "dequantize", None)
    try:
        made = None if offered is None else offered()
    except Exception:  # whatever a quantiser raises
        return None
    return made if isinstance(made, Tensor) and made.is_floating_point() else None


def device_of(module: nn.Module) -> torch.device:
    """The device on which a module computes: accelerate may keep its weights somewhere else."""
    device = next(module.parameters()).device
    if device.type != "meta":
        return device
    hooks = (getattr(part, "_hf_hook", None) for part in module.modules())
    known = (getattr(hook, "execution_device", None) for hook in hooks)
    return torch.device(next((one for one in known if one is not None), device))


def attention_of(layer: nn.Module) -> nn.Module | None:
    """The one module of a decoder layer that attends; None where there is none, or several."""
    found = [module for module in layer.modules() if attends(module)]
    return found[0] if len(found) == 1 else None


def attention_layers(model: nn.Module) -> list[nn.Module]:
    """The decoder layers that attend, and hold Keys; others hold a state in their place, or borrow
    the Keys of an earlier one."""
    found = ((layer, attention_of(layer)) for layer in decoder_layers(model))
    return [layer for layer, own in found if own is not None and not borrows(own)]


def borrows(attention: Any) -> bool:
    """Whether an attention module reads another layer's Keys and Values."""
    return bool(getattr(attention, "is_kv_shared_layer", False))


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


def number_of(module: nn.Module) -> int | None:
    """An attention module's number among those of its model's layers that hold Keys; None for one
    that is not the language model's."""
    index, kinds = getattr(module, "layer_idx", None), getattr(module.config, "layer_types", None)
    if index is None or not kinds:
        return index
    keys = _with_keys(module.config, kinds)
    return sum(kind in keys for kind in kinds[:index])


def norm_behind(layer: nn.Module) -> nn.Module | None:
    """The norm between a decoder layer's attention and the residual stream, as in Gemma and GLM-4;
    None where the output is added as it is."""
    if hasattr(layer, "post_feedforward_layernorm"):
        return getattr(layer, "post_attention_layernorm", None)
    return getattr(layer, "post_self_attn_layernorm", None)


def window_of(module: nn.Module) -> int | None:
    """Tokens that an attention module's queries see at most; None where there is no window."""
    source = module if hasattr(module, "sliding_window") else getattr(module, "config", None)
    return getattr(source, "sliding_window", None) or None  # some configurations say 0 for none


def refuse_unfit(model: PreTrainedModel) -> None:
    """Refuse a model whose attention is not computed here; nothing of it is changed.

    Raises:
        ModelUnsupported: names the feature that compressed attention does not compute.
    """
    layers, config = decoder_layers(model), model.get_decoder().config
    name = type(model).__name__
    found = next(_unlike(model), None)
    if found is not None:
        raise ModelUnsupported(
            f"{name} has {found}, which compressed attention does not compute. "
            "Use a plain cache with this model."
        )
    kinds = getattr(config, "layer_types", None) or ["attention"] * len(layers)
    keys = _with_keys(config, kinds)
    attend = [attention_of(layer) is not None for layer in layers]
    if attend != [kind in keys for kind in kinds[: len(layers)]] or not any(attend):
        raise ModelUnsupported(f"{name} does not take a registered attention.")


def _unlike(model: PreTrainedModel) -> Iterator[str]:
    """Features that our attention does not compute."""
    config = model.get_decoder().config
    crossed = getattr(config, "cross_attention_layers", None) or config.is_encoder_decoder
    if crossed or model.config.is_encoder_decoder:
        yield "cross-attention layers"
    if hasattr(model, "generate") and not isinstance(model, GenerationMixin):
        yield "a way of its own to generate, not token by token"
    others = _with_keys(config, getattr(config, "layer_types", None) or ()) - set(KINDS)
    if others:
        yield f"layers of other kinds ({', '.join(sorted(map(str, others)))})"
    if getattr(config, "altup_num_inputs", None):
        yield "several streams of hidden states"
    if getattr(config, "alibi", False):
        yield EXTRAS["alibi"]
    for module in decoder_layers(model).modules():
        if attends(module):
            yield from _unlike_attention(module)


def _with_keys(config: Any, kinds: Sequence[str]) -> set[str]:
    """Kinds of layers that hold Keys in transformers' own cache; all where it does not know one."""
    if set(kinds) <= set(KINDS):
        return set(kinds)
    try:
        plain = DynamicCache(config=config).layers
    except (LookupError, AttributeError, TypeError):
        return set(kinds)
    pairs = zip(kinds, plain, strict=False)
    return {kind for kind, layer in pairs if isinstance(layer, CacheLayerMixin)}


def _unlike_attention(module: nn.Module) -> Iterator[str]:
    """A feature of an attention module that our attention does not compute."""
    takes = inspect.signature(next(_forwards(type(module)))).parameters
    names = vars(module).keys() | module._parameters.keys() | module._buffers.keys()
    names |= module._modules.keys()
    values = {name: getattr(module, name, None) for name in names}
    plain = bool | int | float | str  # which says no as False, zero or nothing
    given = {n for n, v in values.items() if (v if isinstance(v, plain) else v is not None)}
    if any("softcap" in one or "soft_cap" in one or "logit_cap" in one for one in given):
        yield EXTRAS["softcap"]
    if any("sink" in one for one in given):
        yield EXTRAS["sinks"]
    if any("alibi" in one or "relative_attention_bias" in one for one in given):
        yield EXTRAS["alibi"]
    if "is_kv_shared_layer" in given and "shared_kv_states" not in takes:
        yield "layers that share the Keys and Values of others"
    if "is_cross_attention" in given or "cross_attention_states" in takes:
        yield "cross-attention layers"
    if hasattr(module, "expand_kv"):  # transformers' own cache holds the latent ones, too
        yield "Keys and Values that it makes of latent ones (MLA)"
    if "indexer" in given:
        yield "layers that choose which tokens they see"


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
    for name in STATES:
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
    return {name: list(getattr(layer, name, {}).values()) for name in STATES}


def restore(layer: Any, state: Mapping[str, Sequence[Tensor | None]]) -> Any:
    """An empty layer, with copies of a state, of `state_of`."""
    updates = (layer.update_conv_state, layer.update_recurrent_state) if any(state.values()) else ()
    for update, name in zip(updates, STATES, strict=False):
        for number, tensor in enumerate(state[name]):
            if tensor is not None:
                update(tensor, number)
                layer.has_previous_state[number] = True
    return layer
