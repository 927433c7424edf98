"""The attention function registered with transformers, and the model's preparation for it.

`Cache.update` sees Keys but no queries, so compression runs here, at the end of each layer's own
prefill attention: the layer travels on the Key tensor that `update` returned. With any other cache
the function is plain SDPA, so one loaded model serves baseline and compressed columns alike.
"""

import inspect
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from rotatek.bridge.cache_argument import cache_among
from rotatek.bridge.packed_sequences import Segments, segments_of
from rotatek.bridge.patch_projection import multiply_patches
from rotatek.errors import ModelUnsupported, Stopped

NAME: Final = "rotatek"


class Layer(Protocol):
    """What may travel on a Key tensor: it knows what to do with its own attention call."""

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        """Run one attention call.

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


class VisionTap(Protocol):
    """Looks at one vision module's queries and Keys while an image is encoded."""

    module: nn.Module

    def see(self, query: Tensor, key: Tensor, scale: float) -> None:
        """Look at one attention call.

        Args:
            query: [B, H, n, d].
            key: [B, H, n, d].
            scale: what scores are multiplied by.
        """
        ...


class QueryTap(Protocol):
    """Looks at the language model's queries while a column answers."""

    def see(self, layer: int, query: Tensor) -> None:
        """One attention call: query [B, Hq, T, d]."""
        ...


class StopFlag(Protocol):
    """A visitor's wish to stop: a `threading.Event`, or what does its work between processes."""

    def is_set(self) -> bool:
        """Whether to stop."""
        ...

    def set(self) -> None:
        """Ask to stop."""
        ...

    def clear(self) -> None:
        """Forget it, once nobody reads it any more."""
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
        yield
    finally:
        _TAP.reset(token)


@contextmanager
def watched(tap: QueryTap | None) -> Iterator[None]:
    """Let `tap` see the language model's queries in this context, and in no other thread's."""
    token = _QUERIES.set(tap)
    try:
        yield
    finally:
        _QUERIES.reset(token)


@contextmanager
def stoppable(
    stop: StopFlag | None, checkpoint: Callable[[], None] | None = None
) -> Iterator[None]:
    """Let every attention call in this context begin with `pause`.

    A prefill is one call for its caller; its layers are the places where it can end early.

    Args:
        stop: ends the work at the next pause.
        checkpoint: called at every pause, to let other work go ahead.
    """
    tokens = _STOP.set(stop), _CHECKPOINT.set(checkpoint)
    try:
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
    """Whether somebody looks at the queries of this context."""
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
) -> tuple[Tensor, None]:
    """Attention for transformers' interface.

    Args:
        module: the attention module that calls.
        query: [B, Hq, T, d].
        key: [B, Hkv, n, d]; where a layer travels on it (`tag`), that layer attends.
        value: [B, Hkv, n, d].
        attention_mask: as SDPA takes it; for plain attention only.
        scaling: what scores are multiplied by; 1 / sqrt(d) by default.
        segments: of a vision tower's call, where it is made for several sequences at once.
        **kwargs: passed on to plain attention.

    Returns:
        [B, T, Hq, d], and no weights.

    Raises:
        Stopped: where the context's `stoppable` flag is set.
    """
    pause()

    def full(*states: Tensor) -> Tensor:
        return sdpa_attention_forward(
            module, *(states or (query, key, value)), attention_mask, scaling=scaling, **kwargs
        )[0]

    tap = _TAP.get()
    if tap is not None and tap.module is module:
        for own, seen in segments.each(query, key) if segments else [(query, key)]:
            tap.see(own, seen, scaling or query.shape[-1] ** -0.5)
    if segments is not None:
        return segments.attend(query, key, value, full), None
    queries, index = _QUERIES.get(), getattr(module, "layer_idx", None)
    if queries is not None and index is not None:
        queries.see(index, query)
    layer: Layer | None = getattr(key, "rotatek_layer", None)
    return (full() if layer is None else layer.attend(module, query, key, value, full)), None


def register() -> None:
    """Make the function known to transformers; the mask too, or padding would be dropped."""
    AttentionInterface.register(NAME, rotatek_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def decoder_layers(model: PreTrainedModel) -> nn.ModuleList:
    """The language model's decoder layers.

    Raises:
        ModelUnsupported: where they cannot be found.
    """
    decoder = model.get_decoder()
    layers = getattr(decoder, "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise ModelUnsupported(
            f"{type(model).__name__} has no decoder layers that RotateK can read. "
            "`python -m rotatek info` lists the families that work."
        )
    return layers


def prepare(model: PreTrainedModel) -> PreTrainedModel:
    """Let `model` serve compressed caches; harmless for every other use, and safe to repeat.

    Switches the model's attention to `rotatek_attention`, gives each decoder layer one stateless
    hook through which a cache may narrow the rows of its own forward pass, and see what they hold,
    lets a vision tower attend to its windows in one call and multiply its patches, and lets a cache
    that has a `run` of its own run the model.

    Raises:
        ModelUnsupported: where the attention cannot be switched.
    """
    register()
    decoder = model.get_decoder()
    if decoder.config._attn_implementation == NAME:
        return model
    model.set_attn_implementation(NAME)
    if decoder.config._attn_implementation != NAME:
        raise ModelUnsupported(f"{type(model).__name__} does not take a registered attention.")
    for index, layer in enumerate(decoder_layers(model)):
        layer.register_forward_pre_hook(_narrowing_hook(index), with_kwargs=True)
        layer.register_forward_hook(_adding_hook(index), with_kwargs=True)
    decoder.register_forward_pre_hook(_keep_additions, with_kwargs=True)
    for module in set(model.modules()) - set(decoder.modules()):
        multiply_patches(module)
        if hasattr(module, "scaling") and "cu_seqlens" in arguments(module):
            module.register_forward_pre_hook(_together, with_kwargs=True)
    if "forward" not in vars(model):  # accelerate's hooks, which move tensors, keep their place
        model.forward = _RunByCache(model)
    return model


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


def _keep_additions(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple | None:
    """A pre-hook of the language model: where rows will be dropped, what it would add to the visual
    rows behind its first layers (DeepStack) waits in the plan, because only the plan knows which
    rows are left by then."""
    plan = getattr(cache_among(kwargs), "plan", None)
    added = kwargs.get("deepstack_visual_embeds")
    if plan is None or not added or not plan.prunes:
        return None
    plan.additions = kwargs["visual_pos_masks"], tuple(added)
    return args, {**kwargs, "visual_pos_masks": None, "deepstack_visual_embeds": None}


def _adding_hook(index: int) -> Callable:
    """A hook that adds behind a layer what `_keep_additions` has kept for it."""

    def hook(module: nn.Module, args: tuple, kwargs: dict[str, Any], out: Any) -> Any:
        plan = getattr(cache_among(kwargs), "plan", None)
        added = None if plan is None else plan.addition(index)
        return None if added is None else out + added.to(out)

    return hook


class Narrowing(NamedTuple):
    """What a layer reads where rows were dropped before it.

    hidden: [B, n, c]; source: [B, n] the prompt's row that each of them was; mask: or None.
    """

    hidden: Tensor
    source: Tensor
    mask: Tensor | None


class _RunByCache:
    """A model's forward pass that a call's own cache may run, as `RotateKCache.run` does.

    It holds the model weakly, so that nothing keeps it alive, and goes along with its copies.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = weakref.ref(model)
        self.__name__ = "forward"
        own = inspect.signature(type(model).forward)  # `generate` asks what the model takes
        self.__signature__ = own.replace(parameters=list(own.parameters.values())[1:])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        model = self._model()
        assert model is not None
        forward = partial(type(model).forward, model)
        own = getattr(cache_among(kwargs), "run", None)
        return forward(*args, **kwargs) if own is None else own(forward, args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> "_RunByCache":
        model = self._model()
        return _RunByCache(memo.get(id(model), model))


def _narrowing_hook(index: int) -> Callable:
    """A pre-hook that shows the call's own cache the layer's rows, less those dropped before it."""

    def hook(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple | None:
        plan = getattr(cache_among(kwargs), "plan", None)
        if plan is None:
            return None
        entering = args[0] if args else kwargs["hidden_states"]
        narrowing = plan.enter(index, entering, kwargs.get("attention_mask"))
        if narrowing is None:
            return None
        hidden, source, mask = narrowing
        kwargs = {**kwargs, "attention_mask": mask}
        if kwargs.get("position_embeddings") is not None:
            kwargs["position_embeddings"] = tuple(
                take_rows(part, source) for part in kwargs["position_embeddings"]
            )
        if kwargs.get("position_ids") is not None:
            kwargs["position_ids"] = take_rows(kwargs["position_ids"][..., None], source)[..., 0]
        if args:
            return (hidden, *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": hidden}

    return hook


def take_rows(states: Tensor, source: Tensor) -> Tensor:
    """Rows `source` [B, n] of states [B or 1, L, c]."""
    source = source.to(states.device)
    states = states.expand(source.shape[0], -1, -1)
    return states.gather(1, source[..., None].expand(-1, -1, states.shape[-1]))


def narrow_mask(whole: Tensor | None, source: Tensor, valid: Tensor) -> Tensor | None:
    """The mask of those rows that are left.

    Args:
        whole: the model's own mask [B or 1, 1, L, L] of all rows, bool; None where it is causal.
        source: [B, n] the rows that are left.
        valid: [B, n] which of them are real.

    Returns:
        [B, 1, n, n] bool, or None where it is causal.
    """
    if whole is None:
        return causal_mask(valid)
    count, source = source.shape[1], source.to(whole.device)
    rows = source[:, None, :, None].expand(-1, -1, -1, whole.shape[-1])
    left = whole.expand(source.shape[0], -1, -1, -1).gather(2, rows)
    left = left.gather(3, source[:, None, None].expand(-1, -1, count, -1))
    own = torch.eye(count, dtype=torch.bool, device=left.device)  # see `causal_mask`
    return (left & valid.to(left.device)[:, None, None]) | own


def causal_mask(valid: Tensor) -> Tensor | None:
    """Bool mask [B, 1, L, L] for rows of which `valid` [B, L] are real; None if all are."""
    if bool(valid.all()):
        return None
    length = valid.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=valid.device).tril()
    mask = causal & valid[:, None, None, :]
    # A padding row sees itself, or its softmax would be NaN.
    return mask | torch.eye(length, dtype=torch.bool, device=valid.device)
