"""The attention function registered with transformers, and the model's preparation for it.

`Cache.update` receives Keys but no queries, so compression runs here, at the end of each layer's
prefill attention: the cache layer travels on the Key tensor that `update` returned. Only calls with
one of our caches (`rotatek.bridge.scope`) use this code. All others keep the model's own attention,
mask and outputs.
"""

import inspect
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from rotatek.bridge.cache_argument import cache_among
from rotatek.bridge.fitness import (
    EXTRAS,
    attends,
    attention_of,
    decoder_layers,
    plain_attention,
    refuse_unfit,
    unwrapped,
    window_of,
)
from rotatek.bridge.kv_sharing import borrows, lender_of
from rotatek.bridge.narrowing import take_rows
from rotatek.bridge.packed_sequences import Segments, segments_of
from rotatek.bridge.patch_projection import multiply_patches
from rotatek.bridge.scope import NAME, Call, OwnConfig, RunByCache, current_call, own_calls
from rotatek.errors import ModelUnsupported, Stopped


class Layer(Protocol):
    """A cache layer that travels on a Key tensor and computes its own attention call."""

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        """Run one attention call over this layer's own Keys and Values.

        Args:
            module: the attention module that calls.
            query: [B, Hq, T, d].
            key: [B, Hkv, n, d], what the cache's `update` returned.
            value: [B, Hkv, n, d].
            full: runs plain attention over these three.

        Returns:
            [B, T, Hq, d].
        """
        ...

    def lend(self, module: nn.Module, query: Tensor, full: Callable) -> Tensor:
        """Run a later decoder layer's attention call over these Keys and Values.

        Args:
            module: the attention module that calls, which has no cache.
            query: [B, Hq, T, d], of all rows of this forward pass, or of the last ones.
            full: runs plain attention over what this pass has brought.

        Returns:
            [B, T, Hq, d].
        """
        ...


class VisionTap(Protocol):
    """Records one vision module's queries and Keys while an image is encoded."""

    module: nn.Module

    def see(self, query: Tensor, key: Tensor, scale: float) -> None:
        """Record one attention call.

        Args:
            query: [B, H, n, d].
            key: [B, H, n, d].
            scale: factor of the scores.
        """
        ...


class QueryTap(Protocol):
    """Records the language model's queries during an answer."""

    def see(self, layer: int, query: Tensor) -> None:
        """One attention call: query [B, Hq, T, d]."""
        ...


class StopFlag(Protocol):
    """A visitor's wish to stop: a `threading.Event`, or an equivalent between processes."""

    def is_set(self) -> bool:
        """Whether to stop."""
        ...

    def set(self) -> None:
        """Ask to stop."""
        ...

    def clear(self) -> None:
        """Reset the flag once no reader needs it."""
        ...


_TAP: Final[ContextVar[VisionTap | None]] = ContextVar("rotatek_vision_tap", default=None)
_QUERIES: Final[ContextVar[QueryTap | None]] = ContextVar("rotatek_query_tap", default=None)
_STOP: Final[ContextVar[StopFlag | None]] = ContextVar("rotatek_stop", default=None)
_CHECKPOINT: Final[ContextVar[Callable[[], None] | None]] = ContextVar(
    "rotatek_checkpoint", default=None
)


@contextmanager
def tapped(tap: VisionTap) -> Iterator[None]:
    """Let `tap` see its module's attention calls in this context, and in no other thread's."""
    token = _TAP.set(tap)
    try:
        with own_calls():
            yield
    finally:
        _TAP.reset(token)


@contextmanager
def watched(tap: QueryTap | None) -> Iterator[None]:
    """Let `tap` see the language model's queries in this context, and in no other thread's."""
    token = _QUERIES.set(tap)
    try:
        with own_calls():
            yield
    finally:
        _QUERIES.reset(token)


@contextmanager
def stoppable(
    stop: StopFlag | None, checkpoint: Callable[[], None] | None = None
) -> Iterator[None]:
    """Let every attention call in this context begin with `pause`.

    A prefill is one call for its caller; it can end early only between two layers.

    Args:
        stop: ends the work at the next pause.
        checkpoint: called at every pause, to let other work go ahead.
    """
    tokens = _STOP.set(stop), _CHECKPOINT.set(checkpoint)
    try:
        with own_calls():
            yield
    finally:
        _STOP.reset(tokens[0])
        _CHECKPOINT.reset(tokens[1])


def pause() -> None:
    """Between two pieces of a prefill's work: others go ahead here, and Stop works.

    Raises:
        Stopped: where the context's `stoppable` flag is set.
    """
    checkpoint, stop = _CHECKPOINT.get(), _STOP.get()
    if checkpoint is not None:
        checkpoint()
    if stop is not None and stop.is_set():
        raise Stopped


def is_watched() -> bool:
    """Whether the queries of this context are recorded."""
    return _QUERIES.get() is not None


def tag(key: Tensor, layer: Layer) -> Tensor:
    """A view of `key` that carries `layer` to the attention function."""
    view = key.view_as(key)
    view.rotatek_layer = layer  # type: ignore[attr-defined]
    return view


def rotatek_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    segments: Segments | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention for transformers' interface.

    Args:
        module: the attention module that calls.
        query: [B, Hq, T, d].
        key: [B, Hkv, n, d]; where a layer travels on it (`tag`), that layer attends.
        value: [B, Hkv, n, d].
        attention_mask: as the model's own attention takes it.
        scaling: factor of the scores; 1 / sqrt(d) by default.
        segments: of a vision tower's call for several sequences at once.
        **kwargs: passed on to the model's own attention.

    Returns:
        [B, T, Hq, d], and weights where the model's own attention gives them.

    Raises:
        ModelUnsupported: where a layer attends, and the module asks for more than it computes.
        Stopped: where the context's `stoppable` flag is set.
    """
    pause()
    own = _own_attention(module)

    def full(*states: Tensor) -> Tensor:
        given = states or (query, key, value)
        made: Tensor = own(module, *given, attention_mask, scaling=scaling, **kwargs)[0]
        return made

    tap = _TAP.get()
    if tap is not None and tap.module is module:
        for mine, seen in segments.each(query, key) if segments else [(query, key)]:
            tap.see(mine, seen, scaling or query.shape[-1] ** -0.5)
    if segments is not None:
        return segments.attend(query, key, value, full), None
    queries, index = _QUERIES.get(), getattr(module, "layer_idx", None)
    if queries is not None and index is not None and not borrows(module):
        queries.see(index, query)
    layer: Layer | None = getattr(key, "rotatek_layer", None)
    if layer is None:
        return own(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    _check_arguments(module, query, scaling, kwargs)
    if borrows(module):
        T, n = query.shape[2], key.shape[2]
        if attention_mask is None and 1 < T < n:  # the last rows, which see all before them
            ones = torch.ones(T, n, dtype=torch.bool, device=query.device)
            attention_mask = ones.tril(n - T)[None, None]
        return layer.lend(module, query, full), None
    call = current_call()
    if call is not None:
        call.attended += 1
    return layer.attend(module, query, key, value, full), None


def _own_attention(module: nn.Module) -> Callable[..., Any]:
    """The attention function that a module would use without our caches."""
    config, call = getattr(module, "config", None), current_call()
    plain = getattr(config, "plain", config)
    chosen = getattr(plain, "_attn_implementation", None)
    if chosen in (None, NAME, "sdpa") or (call is not None and call.narrowed):
        return sdpa_attention_forward  # which takes the mask that `narrow_mask` makes
    return plain_attention(module, chosen)


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


def register() -> None:
    """Make the function known to transformers; the mask too, or padding would be dropped."""
    AttentionInterface.register(NAME, rotatek_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def prepare(model: PreTrainedModel) -> PreTrainedModel:
    """Let `model` serve compressed caches; all other calls are unchanged. Safe to repeat.

    In calls that carry one of our caches, attention goes through `rotatek_attention`, stateless
    hooks drop and record rows between decoder layers, a vision tower attends to all its windows in
    one call and multiplies its patches, and a cache with its own `run` runs the model.

    Args:
        model: of transformers, or a wrapper around one, such as PEFT's.

    Raises:
        ModelUnsupported: where its attention is not one that compressed attention computes. The
            model is not touched then.
    """
    inner = unwrapped(model)
    decoder = inner.get_decoder()
    if any(hook is _start_counting for hook in decoder._forward_pre_hooks.values()):
        _let_run(inner)
        return model
    refuse_unfit(inner)
    register()
    seen: dict[int, OwnConfig] = {}
    for module in inner.modules():
        if attends(module) and not isinstance(module.config, OwnConfig):
            module.config = seen.setdefault(id(module.config), OwnConfig(module.config))
    for index, layer in enumerate(decoder_layers(inner)):
        attention = attention_of(layer)
        window = None if attention is None else window_of(attention)
        lender = lender_of(inner, attention)
        layer.register_forward_pre_hook(partial(_narrow, index, window, lender), with_kwargs=True)
        layer.register_forward_hook(partial(_add, index), with_kwargs=True)
    for module in _around(inner, decoder):
        module.register_forward_pre_hook(_enter, with_kwargs=True)
    decoder.register_forward_pre_hook(_start_counting, with_kwargs=True)
    decoder.register_forward_pre_hook(_keep_additions, with_kwargs=True)
    decoder.register_forward_hook(_check_count, with_kwargs=True)
    for module in _around(inner, decoder):
        module.register_forward_hook(_leave, with_kwargs=True, always_call=True)
    for module in set(inner.modules()) - set(decoder.modules()):
        multiply_patches(module)
        if hasattr(module, "scaling") and "cu_seqlens" in arguments(module):
            module.register_forward_pre_hook(_together, with_kwargs=True)
    _let_run(inner)
    return model


def _let_run(model: PreTrainedModel) -> None:
    """Let a cache run the model's forward pass; accelerate's, which moves tensors, stays."""
    forward = vars(model).get("forward")
    if forward is None or hasattr(forward, "_torchdynamo_orig_callable"):
        model.forward = RunByCache(model, forward)


def _around(model: PreTrainedModel, decoder: nn.Module) -> list[nn.Module]:
    """The models that a call passes on its way to the language model, and that one."""
    models = [one for one in model.modules() if isinstance(one, PreTrainedModel)]
    return [one for one in models if any(part is decoder for part in one.modules())]


def arguments(module: nn.Module) -> Collection[str]:
    """Names of what a layer's forward takes, `self` among them."""
    return inspect.signature(type(module).forward).parameters


def _together(module: Any, args: tuple, kwargs: dict[str, Any]) -> tuple | None:
    """A pre-hook of vision attention, which transformers calls once a window, picture or frame:
    one call for all of them (`rotatek.bridge.packed_sequences`)."""
    bounds = kwargs.get("cu_seqlens")
    if bounds is None or module.config._attn_implementation != NAME:
        return None
    segments = segments_of(bounds)
    return args, {**kwargs, "cu_seqlens": segments.whole, "segments": segments}


def _enter(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
    """A pre-hook of the language model and its wrappers: a call that carries one of our caches
    is ours until `_leave`. The outermost module passes the call to the cache."""
    cache = cache_among(kwargs)
    if getattr(cache, "attends", False):
        _begin(module, cache, kwargs)


def _leave(module: nn.Module, args: tuple, kwargs: dict[str, Any], out: Any) -> None:
    """The hook that ends what `_enter` began, after an error, too."""
    if getattr(cache_among(kwargs), "attends", False):
        _end(module)


@torch.compiler.disable
def _begin(module: nn.Module, cache: Any, given: dict[str, Any]) -> None:
    if current_call() is None:
        cache.meet(given)
        Call(module, cache).begin()


@torch.compiler.disable
def _end(module: nn.Module) -> None:
    call = current_call()
    if call is not None and call.owner is module:
        call.end()


def _start_counting(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
    """A pre-hook of the language model."""
    if getattr(cache_among(kwargs), "attends", False):
        call = current_call()
        assert call is not None
        call.attended, call.narrowed = 0, False


def _check_count(module: nn.Module, args: tuple, kwargs: dict[str, Any], out: Any) -> None:
    """A hook of the language model: each layer of the cache has to have attended, once.

    Raises:
        ModelUnsupported: where one has not, so that tokens of the context were left out.
    """
    cache = cache_among(kwargs)
    if not getattr(cache, "attends", False):
        return
    if getattr(cache, "plan", None) is not None:
        cache.plan.forget_lent()
    call = current_call()
    if call is None or call.attended == len(cache.layers):
        return
    raise ModelUnsupported(
        f"{call.attended} of the {len(cache.layers)} layers of {type(module).__name__} attended "
        "through the compressed cache. Do not compile parts with `torch.compile`, or use a plain "
        "cache."
    )


def _keep_additions(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple | None:
    """A pre-hook of the language model, for plans that drop rows: moves its additions to visual
    rows (DeepStack) to the plan, which knows the remaining rows of each layer."""
    plan = getattr(cache_among(kwargs), "plan", None)
    added = kwargs.get("deepstack_visual_embeds")
    if plan is None or not added or not plan.prunes:
        return None
    plan.additions = kwargs["visual_pos_masks"], tuple(added)
    return args, {**kwargs, "visual_pos_masks": None, "deepstack_visual_embeds": None}


def _add(index: int, module: nn.Module, args: tuple, kwargs: dict[str, Any], out: Any) -> Any:
    """A hook that adds the additions kept by `_keep_additions` behind layer `index`."""
    plan = getattr(cache_among(kwargs), "plan", None)
    added = None if plan is None else plan.addition(index)
    return None if added is None else out + added.to(out)


def _narrow(
    index: int,
    window: int | None,
    lender: int | None,
    module: nn.Module,
    args: tuple,
    kwargs: dict[str, Any],
) -> tuple | None:
    """A pre-hook that passes the rows of layer `index` to the call's cache. The layer attends to at
    most `window` tokens, less those dropped before it, or before its `lender`."""
    plan = getattr(cache_among(kwargs), "plan", None)
    if plan is None:
        return None
    entering = args[0] if args else kwargs["hidden_states"]
    if lender is None:
        narrowing = plan.enter(index, entering, kwargs.get("attention_mask"), window)
    else:
        narrowing = plan.borrow(lender, entering, window)
    if narrowing is None:
        return None
    call = current_call()
    if call is not None:
        call.narrowed = True
    hidden, source, mask = narrowing
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
