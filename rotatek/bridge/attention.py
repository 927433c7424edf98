"""Calls of a model that carry one of our caches, and their attention function.

`Cache.update` receives Keys but no queries, so compression runs here, at the end of each layer's
prefill attention: the cache layer travels on the Key tensor that `update` returned. Only calls of
ours (`rotatek.bridge.scope`) use this code: transformers' base classes ask here
(`rotatek.bridge.process_wide`), and hooks on a model are put there once (`accepted`).

A decoder layer of a prefill, in order: a hook before it drops the rows that a pruner let go
(`_narrow`); `update` tags the Keys with their cache layer; `rotatek_attention` has that layer run
full attention and store what it needs; then the pruner chooses the rows of the next layer.
"""

import inspect
import threading
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules import module as _modules
from torch.utils.hooks import RemovableHandle
from transformers import GenerationMixin, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from rotatek.bridge.layers import (
    EXTRAS,
    attention_of,
    borrows,
    decoder_layers,
    key_layers,
    lender_of,
    norm_behind,
    number_of,
    refuse_unfit,
    unwrapped,
    window_of,
)
from rotatek.bridge.process_wide import install
from rotatek.bridge.row_layout import take_rows
from rotatek.bridge.scope import SCOPE, Call, cache_among, own_calls
from rotatek.bridge.vision import Segments, multiply_patches, together
from rotatek.errors import ModelUnsupported, ModeUnsupported, Stopped


class StopFlag(Protocol):
    """A visitor's wish to stop: a `threading.Event`, or an equivalent between processes."""

    def is_set(self) -> bool:
        """Whether to stop."""

    def set(self) -> None:
        """Ask to stop."""

    def clear(self) -> None:
        """Reset the flag once no reader needs it."""


_PUTTING: Final = threading.Lock()  # one thread at a time puts hooks on models
_ACCEPTED: Final[WeakKeyDictionary[nn.Module, list[int]]] = WeakKeyDictionary()  # by their layers


def pause() -> None:
    """Between two pieces of a prefill's work: others go ahead here, and Stop works.

    Raises:
        Stopped: where the stop flag of this context's `Scope` is set.
    """
    scope = SCOPE.get()
    if scope.checkpoint is not None:
        scope.checkpoint()
    if scope.stop is not None and scope.stop.is_set():
        raise Stopped


def tag(key: Tensor, layer: Any) -> Tensor:
    """A view of `key` that carries a `CompressedLayer` to the attention function.

    Raises:
        ModeUnsupported: outside a call of ours, where no such function would be asked.
    """
    if SCOPE.get().call is None:
        raise ModeUnsupported(
            "A layer ran with a compressed cache outside a call of its model, or another library "
            "has put `PreTrainedModel.__call__` back. Call the whole model, or use a plain cache."
        )
    view = key.view_as(key)
    view.rotatek_layer = layer  # type: ignore[attr-defined]
    return view


def rotatek_attention(
    own: Callable[..., Any],
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    segments: Segments | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention for transformers' interface, in calls of ours.

    Args:
        own: the function that the module would call by itself.
        module: that calls, with query [B, Hq, T, d], key and value [B, Hkv, n, d].
        key: where a layer travels on it (`tag`), that layer attends.
        scaling: factor of the scores; 1 / sqrt(d) by default.
        segments: of a vision tower's call for several sequences at once.

    Returns:
        [B, T, Hq, d], and weights where the model's own attention gives them.

    Raises:
        ModelUnsupported: where a layer attends, and the module asks for more than it computes.
        Stopped: as of `pause`.
    """
    pause()
    scope, layer = SCOPE.get(), getattr(key, "rotatek_layer", None)
    call, tap = scope.call, scope.tap
    if call is not None and call.narrowed:
        own = sdpa_attention_forward  # which takes the mask that `narrow_mask` makes

    def full(*states: Tensor) -> Tensor:
        given = states or (query, key, value)
        made: Tensor = own(module, *given, attention_mask, scaling=scaling, **kwargs)[0]
        return made

    if tap is not None and tap.module is module:
        for mine, seen in segments.each(query, key) if segments else [(query, key)]:
            tap.see(mine, seen, scaling or query.shape[-1] ** -0.5)
    if segments is not None:
        return segments.attend(query, key, value, full), None
    if scope.queries is not None and not borrows(module):
        index = number_of(module) if layer is None else layer.index
        if index is not None:
            scope.queries.see(index, over_root(module, query))
    if layer is None:
        return own(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    _check_arguments(module, query, scaling, kwargs)
    if borrows(module):
        T, n = query.shape[2], key.shape[2]
        if attention_mask is None and 1 < T < n:  # the last rows, which see all before them
            ones = torch.ones(T, n, dtype=torch.bool, device=query.device)
            attention_mask = ones.tril(n - T)[None, None]
        return layer.lend(module, query, full), None
    kind = query.device.type
    precision: AbstractContextManager[Any] = nullcontext()
    if torch.is_autocast_enabled(kind):  # our products choose their own precision
        kept, precision = torch.get_autocast_dtype(kind), torch.autocast(kind, enabled=False)
        query, key, value = (part.to(kept) for part in (query, key, value))
    with precision:
        out = layer.attend(module, query, key, value, full)
    if call is not None:
        call.attended += 1
        call.entering = call.norm = None  # the rest of the layer may free its input
    return out, None


def over_root(module: nn.Module, query: Tensor) -> Tensor:
    """Queries [..., d] whose scores over sqrt(d) are those of the module: Gemma 4's scale is 1."""
    times = getattr(module, "scaling", query.shape[-1] ** -0.5) * query.shape[-1] ** 0.5
    return query if abs(times - 1) < 1e-6 else query * times


def _check_arguments(
    module: nn.Module, query: Tensor, scaling: float | None, given: dict[str, Any]
) -> None:
    """Refuse a call whose scores differ from those that a compressed layer computes."""
    for name in given.keys() & EXTRAS.keys():
        if given[name] is not None:
            raise ModelUnsupported(
                f"{type(module).__name__} asks for {EXTRAS[name]}, which compressed attention "
                "does not compute. Use a plain cache with this model."
            )
    width = query.shape[-1] ** -0.5
    if abs((scaling or width) - getattr(module, "scaling", width)) > 1e-6 * width:
        raise ModelUnsupported(
            f"{type(module).__name__} scales its scores in a way that compressed attention does "
            "not know. Use a plain cache with this model."
        )


@torch.compiler.disable
def _carry(model: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call that carries one of our caches. The outermost model passes the call to the cache,
    which may replay it, unless accelerate or hooks of the caller's have to see every step."""
    cache, outer = cache_among(kwargs), SCOPE.get().call
    if outer is not None:
        return model._call_impl(*args, **_keep_additions(outer, cache, kwargs))
    _check_call(model, cache, kwargs)
    cache.meet(model, kwargs)
    bare = _is_unwatched(model, cache)
    forward = partial(type(model).forward, model) if bare else model._call_impl

    def counted(*args: Any, **kwargs: Any) -> Any:
        call = Call()
        with own_calls(call=call):
            out = forward(*args, **_keep_additions(call, cache, kwargs))
        layers = len(key_layers(cache))
        if call.attended != layers:
            raise ModelUnsupported(
                f"{call.attended} of the {layers} layers with Keys of {type(model).__name__} "
                "attended through the compressed cache. Do not compile parts with "
                "`torch.compile`, turn gradient checkpointing off, or use a plain cache."
            )
        cache.end()
        return out

    run = getattr(cache, "run", None) if isinstance(model, GenerationMixin) else None
    return counted(*args, **kwargs) if run is None else run(counted, args, kwargs, bare)


def _check_call(model: PreTrainedModel, cache: Any, given: dict[str, Any]) -> None:
    """Refuse a call that asks for what a compressed cache cannot give, or would give wrongly."""
    if getattr(model, "_is_replica", False):
        raise ModeUnsupported(
            "DataParallel copies the model to several GPUs, and a compressed cache is on one. Call "
            "its `module`."
        )
    if given.get("output_attentions"):
        raise ModeUnsupported(
            "Compressed attention has no attention maps. Leave output_attentions out, or use a "
            "plain cache."
        )
    plan = getattr(cache, "plan", None)
    if given.get("labels") is not None and plan is not None and plan.prunes:
        raise ModeUnsupported(
            f"A loss needs all rows of the prompt, of which {plan.pruner.label} drops some. Leave "
            f'labels out, or tokens="{plan.pruner.name}".'
        )


def accepted(model: nn.Module) -> PreTrainedModel:
    """The model of transformers in `model`, whose calls with our caches are ours from here on: the
    hooks that they need are put on it once, stay, and do nothing in other calls.

    Raises:
        ModelUnsupported: where its attention is not one that compressed attention computes. The
            model is not touched then.
    """
    inner = unwrapped(model)
    with _PUTTING:
        layers = [*map(id, decoder_layers(inner))]
        if _ACCEPTED.get(inner) != layers:
            refuse_unfit(inner)
            _put_hooks(inner)
            _ACCEPTED[inner] = layers
    install(_carry, rotatek_attention)
    return inner


def prepare(model: PreTrainedModel) -> PreTrainedModel:
    """Change a model of one's own for serving: its vision tower multiplies patches in our calls.
    Calls without our caches are unchanged. Safe to repeat; `RotateKCache` works without it.

    Args:
        model: of transformers, or a wrapper around one, such as PEFT's.

    Raises:
        ModelUnsupported: as of `accepted`.
    """
    inner = accepted(model)
    for module in set(inner.modules()) - set(inner.get_decoder().modules()):
        multiply_patches(module)
    return model


def _put_hooks(model: PreTrainedModel) -> None:
    """Hooks that drop and record rows between decoder layers, and let a vision tower attend to all
    its windows in one call; those of layers that have moved go. A plain call of another thread may
    meet one that PyTorch has not marked as taking keywords yet: it does nothing there."""
    for module in set(model.modules()) - set(model.get_decoder().modules()):
        wants = hasattr(module, "scaling") and "cu_seqlens" in arguments(module)
        if wants and together not in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(together, with_kwargs=True)
    for index, layer in enumerate(decoder_layers(model)):
        attention = attention_of(layer)
        window = None if attention is None else window_of(attention)
        told = index, window, attention is not None, lender_of(model, attention)
        _put(layer._forward_hooks, layer.register_forward_hook, partial(_add, index))
        _put(layer._forward_pre_hooks, layer.register_forward_pre_hook, partial(_narrow, *told))


def _put(hooks: dict[int, Any], register: Callable[..., Any], hook: partial) -> None:
    """Register a hook in place of another one of the same function."""
    for number, held in list(hooks.items()):
        if isinstance(held, partial) and held.func is hook.func:
            if held.args == hook.args:
                return
            del hooks[number]
    register(hook, with_kwargs=True)


def _is_unwatched(model: nn.Module, cache: Any) -> bool:
    """Whether nothing of a caller's has to see every step of a model on a cache: no hooks on its
    modules or on all of the process, no replaced code. It is searched for when the cache is new,
    and where any hook was put on anything since the last time: PyTorch numbers them."""
    latest = RemovableHandle.next_id
    if getattr(cache, "unwatched", None) != latest:
        codes = (vars(one).get("forward") for one in model.modules())  # as under accelerate
        other = any(
            code is not None and not hasattr(code, "_torchdynamo_orig_callable") for code in codes
        )
        everywhere = _modules._global_forward_pre_hooks or _modules._global_forward_hooks
        if everywhere or other or any(map(is_hooked, model.modules())):
            return False
        cache.unwatched = latest
    return True


def is_hooked(module: nn.Module) -> bool:
    """Whether a module has hooks of its caller's, which see every call: neither ours, nor those of
    transformers, which collect what a call asks for."""
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    owners = (getattr(getattr(hook, "func", hook), "__module__", None) or "" for hook in hooks)
    return not all(owner.startswith(("rotatek.", "transformers.")) for owner in owners)


def arguments(module: nn.Module) -> Collection[str]:
    """Names of what a layer's forward takes, `self` among them."""
    return inspect.signature(type(module).forward).parameters


def _keep_additions(call: Call, cache: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a model's call; where rows are dropped without its additions to visual rows
    (DeepStack), which the call keeps: `_add` knows the remaining rows of each layer."""
    plan, added = getattr(cache, "plan", None), given.get("deepstack_visual_embeds")
    if plan is None or not added or not plan.prunes:
        return given
    call.additions = given["visual_pos_masks"], tuple(added)
    return {**given, "visual_pos_masks": None, "deepstack_visual_embeds": None}


def _add(index: int, module: nn.Module, args: tuple, kwargs: Any, out: Any = None) -> Any:
    """A hook that adds the additions kept by `_keep_additions` behind layer `index`."""
    call = SCOPE.get().call
    if call is None or call.additions is None or index >= len(call.additions[1]):
        return None
    visual, added = call.additions[0], call.additions[1][index]
    dense = added.new_zeros(*visual.shape, added.shape[-1])
    dense[visual.to(dense.device)] = added
    return out + (dense if call.source is None else take_rows(dense, call.source)).to(out)


def _narrow(
    index: int,
    window: int | None,
    attends: bool,
    lender: int | None,
    module: nn.Module,
    args: tuple,
    kwargs: dict[str, Any] | None = None,
) -> tuple | None:
    """A pre-hook of layer `index`, which attends to at most `window` tokens, less those dropped
    before it or before its `lender`; or keeps a state."""
    plan = None if kwargs is None else getattr(cache_among(kwargs), "plan", None)
    call = SCOPE.get().call
    if kwargs is None or call is None or plan is None or not plan.is_open:
        return None
    call.entering, call.norm = args[0] if args else kwargs["hidden_states"], norm_behind(module)
    if lender is None:
        mask = kwargs.get("attention_mask")
        narrowing = plan.enter(index, call.entering, mask, window, attends)
    else:
        narrowing = plan.borrow(lender, call.entering, window)
    if narrowing is None:
        return None
    hidden, source, mask = narrowing
    call.narrowed, call.entering, call.source = True, hidden, source
    kwargs = {**kwargs, "attention_mask": mask}
    if source is None:  # the language model has taken its last rows already
        return args, kwargs
    if kwargs.get("position_embeddings") is not None:
        kwargs["position_embeddings"] = tuple(
            take_rows(part, source) for part in kwargs["position_embeddings"]
        )
    if kwargs.get("position_ids") is not None:
        kwargs["position_ids"] = take_rows(kwargs["position_ids"][..., None], source)[..., 0]
    if args:
        more = (take_rows(one, source) if isinstance(one, Tensor) else one for one in args[1:])
        return (hidden, *more), kwargs  # such as inputs of each layer
    return args, {**kwargs, "hidden_states": hidden}
