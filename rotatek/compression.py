"""`RotateKCache`: the cache a caller hands to `generate`, and how its layers fill themselves.

inputs = processor(...)                                   # a prompt with images
cache = RotateKCache(model, inputs, Settings(keep_channels=0.25))
model.generate(**inputs, past_key_values=cache)
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from kernels.dispatch import attend
from rotatek import rotation
from rotatek.attention import causal_mask, decoder_layers, prepare, tag
from rotatek.cache import (
    ByteCount,
    CompressedLayer,
    RewindableCache,
    Store,
    TextBuffer,
    count_bytes,
    dynamic_bytes,
)
from rotatek.calibration import load_bases
from rotatek.channels import CHANNELS, ChannelMethod, Prefill
from rotatek.config import WINDOW, Settings
from rotatek.errors import ModelUnsupported, ModeUnsupported, SettingError
from rotatek.layout import Layout, Rows
from rotatek.tokens import TOKENS, TokenPruner


class Recorder(Protocol):
    """Looks at each layer's visual tokens before they are compressed."""

    def record(self, prefill: Prefill) -> None:
        """Called once a layer, in order."""
        ...

    def step(self, layer: int, query: Tensor) -> None:
        """Called once a layer for each decoded token: query [B, Hq, 1, d]."""
        ...


class TokenPlan:
    """Which rows of one prefill every layer sees. Shared by all layers, and by shared prefills."""

    def __init__(self, layout: Layout, settings: Settings, layers: int) -> None:
        self.settings = settings
        self.pruner: TokenPruner = TOKENS[settings.tokens]
        self.layers = layers
        self.length = layout.length
        self._first = min(settings.fastv_layer, layers - 1)  # the first layer with fewer rows
        self.kept_rows: Tensor | None = None  # [B, L] bool on the CPU, for display
        self._layout: Layout | None = layout
        self._rows: tuple[Rows, Rows, Rows] | None = layout.rows()
        self._source: Tensor | None = None
        self._mask: Tensor | None = None
        self.visual = int((layout.visual & layout.valid)[0].sum())
        self.visual_kept = self.visual

    @property
    def prunes(self) -> bool:
        """Whether a decoder layer will drop rows."""
        return self.pruner.stage == "decoder" and self.settings.keep_tokens < 1

    def rows(self) -> tuple[Rows, Rows, Rows]:
        """Visual, text and window rows of the layer now being filled."""
        assert self._rows is not None
        return self._rows

    def narrowing(self, layer: int) -> tuple[Tensor, Tensor | None] | None:
        """Source rows [B, L'] and mask for a layer behind the pruning, during prefill only."""
        if self._source is None or layer < self._first:
            return None
        return self._source, self._mask

    def observe(self, layer: int, query: Tensor, keys: Tensor, scale: float) -> None:
        """See one layer's prefill attention; choose rows when it is the pruner's turn."""
        if self.prunes and layer == self._first - 1:
            assert self._layout is not None
            kept = self.pruner.choose(query, keys, self._layout, self.settings, scale)
            narrow, self._source = self._layout.take(kept)
            self._mask = causal_mask(narrow.valid)
            self._rows = narrow.rows()
            self.kept_rows = kept.cpu()
            self.visual_kept = int((kept & self._layout.visual)[0].sum())
        if layer == self.layers - 1:  # the prefill is over: nothing of it needs to stay
            self._layout = self._rows = self._source = self._mask = None


class OutputMetrics:
    """S and S^-1 of each layer's output projection, computed once from its weights.

    S = (sum over a kv head's query heads of W_o^T W_o)^(1/2): the metric in which an error of the
    Values is an error of the layer's output.
    """

    def __init__(self) -> None:
        self._roots: dict[int, tuple[Tensor, Tensor] | None] = {}

    def of(self, layer: int, module: nn.Module, key: Tensor) -> tuple[Tensor, Tensor] | None:
        """[Hkv, d, d] each; None for a quantised W_o, whose weights cannot be read."""
        if layer not in self._roots:
            weight = getattr(getattr(module, "o_proj", None), "weight", None)
            if weight is None or not weight.is_floating_point():
                self._roots[layer] = None
            else:
                self._roots[layer] = _output_roots(weight, key)
        return self._roots[layer]


def _output_roots(weight: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    heads, d = key.shape[1], key.shape[3]
    blocks = weight.float().unflatten(1, (heads, -1, d)).permute(1, 2, 0, 3)  # [Hkv, G, hidden, d]
    return rotation.metric_root((blocks.transpose(-1, -2) @ blocks).sum(1))


@dataclass
class Filling:
    """How one cache's layers are compressed, and the stores they have filled so far."""

    method: ChannelMethod
    settings: Settings
    recorder: Recorder | None
    metrics: OutputMetrics
    bases: Sequence[Tensor] | None = None
    stores: list[Store] = field(default_factory=list)

    def compress(self, prefill: Prefill) -> Store:
        """Store one layer's visual tokens."""
        if self.recorder is not None:
            self.recorder.record(prefill)
        self.stores.append(self.method.compress(prefill, self.settings))
        return self.stores[-1]

    def settle(self, last: bool) -> None:
        """After each layer: what those filled so far are to share."""
        self.method.settle(self.stores, self.settings, last)
        if last:
            self.stores.clear()


class PlannedLayer(CompressedLayer):
    """A cache layer that runs its own attention: full at prefill, compressed afterwards."""

    def __init__(self, index: int, plan: TokenPlan, filling: Filling) -> None:
        super().__init__(index, plan.length)
        self.plan, self.filling = plan, filling

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Count the tokens and send this layer along to the attention function."""
        if not self.is_filled and self.index == 0 and key_states.shape[2] != self.plan.length:
            raise ModeUnsupported(
                "The prompt must be processed in one piece, and be the one the cache was made for."
            )
        keys, values = super().update(key_states, value_states)
        return tag(keys, self), values

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        """Attention output [B, T, Hq, d]."""
        scale = getattr(module, "scaling", query.shape[-1] ** -0.5)
        if self.text is None:
            out = full()
            self.absorb(module, query, key, value)
            self.plan.observe(self.index, query, key, scale)
            return out
        check_window(module, self.logical)
        recorder = self.filling.recorder
        if recorder is not None and query.shape[2] == 1 and not self.text.static:
            recorder.step(self.index, query)
        self.text.append(key, value)
        visual = None if self.store is None else self.store.read()
        return attend(query, visual, self.text.read(), scale).transpose(1, 2)

    def absorb(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        states: Prefill | None = None,
    ) -> Prefill | None:
        """Keep one prefill's states, and settle what this layer shares with others.

        states: the visual ones, where another cache has gathered them; returns them if any.
        """
        states = self._keep(module, query, key, value, states)
        self.filling.settle(last=self.index == self.plan.layers - 1)
        return states

    def _keep(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, states: Prefill | None
    ) -> Prefill | None:
        """Visual tokens compressed, the others at full width."""
        visual, text, window = (rows.to(key.device) for rows in self.plan.rows())
        gathered = text.gather(key), text.gather(value)
        self.text = TextBuffer(*gathered, text.lengths, text.ragged, text.longest)
        if visual.index.shape[1] == 0:
            return None
        if states is None:
            kept = visual.gather(key), visual.gather(value), visual.lengths
            states = Prefill(*kept, window.gather(query), window.alive, self.index)
        filling, metric = self.filling, None
        if filling.settings.values == "rotate":
            metric = filling.metrics.of(self.index, module, key)
        basis = None if filling.bases is None else filling.bases[self.index]
        self.store = filling.compress(replace(states, value_metric=metric, basis=basis))
        return states


def check_window(module: nn.Module, tokens: int) -> None:
    """Refuse a conversation that outgrew its attention's window.

    Raises:
        ModeUnsupported: with the window's length.
    """
    sliding = getattr(module, "sliding_window", None)
    if sliding is not None and tokens > sliding:
        raise ModeUnsupported(
            f"The conversation is longer than this model's sliding window of {sliding} tokens, "
            "which a compressed cache does not follow. Use a shorter prompt or answer."
        )


def synchronise(device: torch.device) -> None:
    """Wait for queued work, so that a clock reads what it should."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class RotateKCache(RewindableCache):
    """A KV cache whose visual part is compressed at the end of prefill.

    Args:
        model: a loaded vision-language model; it is prepared on first use.
        inputs: the prompt as the processor made it: `input_ids` [B, L], and `attention_mask` where
            the batch is padded; or `visual` [B, L] bool in place of `input_ids`.
        settings: which tokens and channels stay.
        recorder: sees every layer's visual tokens before they are compressed, then each query.
        metrics: the model's output metrics, to be kept between caches; else computed when needed.
        plan: an existing token plan, where several caches share one prefill.

    Raises:
        SettingError: for a method that is not registered.
        ModelUnsupported: for a model that cannot be prepared.
        CalibrationUnusable: for a calibration file of another model, or none at all.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        inputs: Mapping[str, Tensor],
        settings: Settings | None = None,
        *,
        recorder: Recorder | None = None,
        metrics: OutputMetrics | None = None,
        plan: TokenPlan | None = None,
    ) -> None:
        settings = settings or Settings()
        check_methods(settings)
        prepare(model)
        if settings.prunes_tokens and settings.tokens == "visionzip" and "visual" not in inputs:
            raise ModeUnsupported(
                "VisionZip acts before the language model: embed the prompt with the model's "
                "`embed(prompt, settings)` and hand its `inputs()` to the cache."
            )
        count = len(decoder_layers(model))
        self.settings = settings
        self.plan = plan or TokenPlan(layout_of(model, inputs), settings, count)
        bases = None if settings.calibration is None else load_bases(settings.calibration, count)
        filling = Filling(
            CHANNELS[settings.channels], settings, recorder, metrics or OutputMetrics(), bases
        )
        super().__init__(layers=[PlannedLayer(i, self.plan, filling) for i in range(count)])

    def make_growing(self) -> None:
        """Let the text grow again after `make_static`: no graph writes here any more, and nobody
        looks on."""
        for layer in self.layers:
            layer.text.static, layer.filling.recorder = False, None

    def advance(self) -> None:
        """Count one token that a graph's replay has added."""
        for layer in self.layers:
            layer.logical += 1
            layer.text.longest += 1

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """(part, tensor) of everything the cache holds."""
        for layer in self.layers:
            yield from layer.tensors()

    def bytes(self) -> ByteCount:
        """Live bytes by part, and their total."""
        return count_bytes(list(self.tensors()))

    def close(self) -> None:
        """Drop every tensor."""
        for layer in self.layers:
            layer.reset()


class _SharedLayer(CompressedLayer):
    """One layer of a `SharedPrefill`: runs full attention once and fills every member's layer."""

    def __init__(
        self, index: int, plan: TokenPlan, members: Sequence[Any], compress_ms: list[float] | None
    ) -> None:
        super().__init__(index, plan.length)
        self.plan, self.members, self.compress_ms = plan, members, compress_ms

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Count the tokens for every member."""
        for layer in (self, *self.members):
            if isinstance(layer, CompressedLayer):
                layer.logical = self.plan.length
        return tag(key_states, self), value_states

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        """Attention output [B, T, Hq, d]."""
        out, states = full(), None
        for number, layer in enumerate(self.members):
            started = self._clock(key)
            if isinstance(layer, PlannedLayer):
                made = layer.absorb(module, query, key, value, states)
                states = made if self.compress_ms is None else None
            else:
                layer.update(key, value)
            if self.compress_ms is not None:
                self.compress_ms[number] += 1000 * (self._clock(key) - started)
        scale = getattr(module, "scaling", query.shape[-1] ** -0.5)
        self.plan.observe(self.index, query, key, scale)
        return out

    def _clock(self, key: Tensor) -> float:
        """Seconds, with all work done where members are timed."""
        if self.compress_ms is not None:
            synchronise(key.device)
        return time.perf_counter()


class SharedPrefill(Cache):
    """One prefill that fills several caches of the same token plan; decode with the members.

    members: `RotateKCache`s made with `plan`, or plain transformers caches where nothing is pruned.
    compress_ms: milliseconds each member added to the prefill they share, where they are timed; if
    not, nothing waits, and what two of them would compute alike is computed once.
    """

    def __init__(self, plan: TokenPlan, members: Sequence[Cache], *, timed: bool = True) -> None:
        self.plan = plan
        self.compress_ms = [0.0] * len(members)
        clocks = self.compress_ms if timed else None
        for cache in members:
            if not isinstance(cache, RotateKCache):
                cache.layers.extend(DynamicLayer() for _ in range(plan.layers - len(cache.layers)))
        super().__init__(
            layers=[
                _SharedLayer(i, plan, [cache.layers[i] for cache in members], clocks)
                for i in range(plan.layers)
            ]
        )


def check_methods(settings: Settings) -> None:
    """Refuse names that no registry has.

    Raises:
        SettingError: naming what there is.
    """
    for name, registry in (("tokens", TOKENS), ("channels", CHANNELS)):
        if getattr(settings, name) not in registry:
            raise SettingError(name, "one of " + ", ".join(registry), getattr(settings, name))


def layout_of(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Layout:
    """Where the visual tokens of a processor's output are.

    Raises:
        ModelUnsupported: where the model has no image token.
    """
    visual = inputs.get("visual")
    if visual is None:
        token = getattr(model.config, "image_token_id", None)
        if token is None:
            raise ModelUnsupported(f"{type(model).__name__} has no image token.")
        visual = inputs["input_ids"] == token
    mask = inputs.get("attention_mask")
    valid = torch.ones_like(visual) if mask is None else mask.bool()
    return Layout(visual.bool(), valid, WINDOW)


def cache_bytes(cache: Cache) -> ByteCount:
    """Live bytes of any cache: compressed, or plain transformers'."""
    return cache.bytes() if isinstance(cache, RotateKCache) else dynamic_bytes(cache)


def release(cache: Cache) -> None:
    """Drop every tensor of any cache."""
    if isinstance(cache, RotateKCache):
        cache.close()
    else:
        cache.layers.clear()
