"""Figures of a head agree with the methods: stored numbers, scores, energy and bytes."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image

from kernels.reference import project_query
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import decode, prefill
from rotatek.engine.engine import Engine
from rotatek.inputs.request import make_request
from rotatek.inputs.token_grid import Grid
from rotatek.inspect import trace_analysis
from rotatek.inspect.trace import Trace, TraceRecorder
from rotatek.methods.channels import CHANNELS, RotateK, SparK, ThinK
from rotatek.methods.channels.base import (
    ChannelMethod,
    LayerStates,
    full_visual,
)
from rotatek.methods.channels.store import Store
from rotatek.methods.options import option
from rotatek.methods.settings import Settings

D = 32  # of the tiny model's heads


@dataclass(frozen=True)
class FirstChannels(ChannelMethod):
    """A method as another package might write it: only what must be written."""

    name: ClassVar[str] = "first"
    label: ClassVar[str] = "First channels"
    summary: ClassVar[str] = "Keeps the first channels, whatever they hold."

    keep: float = option(0.25, "Share", "share that stays", kind="fraction", key="keep_channels")

    def compress(self, states: LayerStates) -> Store:
        """Keep the first channels."""
        *shape, d = states.keys.shape
        k = max(1, round(d * self.keep))
        index = torch.arange(k).expand(*shape[:2], k)
        return Store(full_visual(states)._replace(keys=states.keys[..., :k], index=index))


METHODS = [
    # OSCAR turns a layer's heads alike, which no head's figure knows
    *(kind() for kind in CHANNELS.values() if kind.name != "oscar"),
    FirstChannels(),
    RotateK(weighting="none"),
    SparK(recovery="mean"),
]
REDUCING = [method for method in METHODS if method.drops_channels]


def name(method: ChannelMethod) -> str:
    """A readable id of a test."""
    return repr(method).partition("keep")[0] + "-".join(
        str(getattr(method, field, "")) for field in ("weighting", "recovery")
    )


def traced(engine: Engine, settings: Settings, tokens: int = 2) -> tuple[Trace, RotateKCache]:
    """One prefill and a short answer: a trace of every visual token, and the cache it left."""
    noise = np.random.default_rng(3).integers(0, 255, (6, 4, 3), dtype=np.uint8)
    image = Image.fromarray(noise).resize((112, 168))
    prompt = engine.vlm.prompt(make_request(image, "Which?", tokens), 4096)
    embedded = engine.vlm.embed(prompt, settings.pruning)
    recorder = TraceRecorder(512)
    cache = RotateKCache(engine.vlm.model, embedded.inputs(), settings, recorder=recorder)
    logits, _ = prefill(engine.vlm, embedded, cache)
    list(decode(engine.vlm, embedded, cache, logits, tokens))
    return recorder.finish((Grid(6, 4),), prompt.visual_tokens, None), cache


@pytest.fixture(scope="module")
def trace(engine: Engine) -> Trace:
    """Of a prefill that keeps every token."""
    return traced(engine, Settings.of(keep_channels=0.25))[0]


@pytest.mark.parametrize("keep", [0.1, 0.5])
@pytest.mark.parametrize("method", METHODS, ids=name)
def test_scores_are_those_of_a_real_cache(
    engine: Engine, method: ChannelMethod, keep: float
) -> None:
    stored = method.with_keep(keep)
    if isinstance(stored, RotateK):  # a basis that figures too find in the end
        stored = RotateK(keep, stored.weighting, solver="eigh")
    trace, cache = traced(engine, Settings(channels=stored))
    k = round(D * stored.key_share)
    generator = torch.Generator().manual_seed(0)
    for layer, head in ((0, 1), (2, 0), (3, 1)):
        visual = cache.layers[layer].store.read()
        query = torch.randn(1, visual.values.shape[1], 1, 5, D, generator=generator)
        projected, bias = project_query(query, visual)
        scores = projected @ visual.keys[:, :, None].transpose(-1, -2)
        if bias is not None:
            scores = scores + bias.reshape(*scores.shape[:-1], 1)
        states = trace.head(layer, head)
        shown = query[0, head, 0] @ method.reconstruction(states, k).T
        # a trace holds Keys in float16
        off = (shown - scores[0, head, 0]).norm() / scores[0, head, 0].norm()
        assert off < 2e-2, (layer, head, float(off))


@pytest.mark.parametrize("k", [1, 8, D])
@pytest.mark.parametrize("method", REDUCING, ids=name)
def test_a_mask_has_exactly_the_stored_numbers(trace: Trace, method: ChannelMethod, k: int) -> None:
    states = trace.head(1, 0)
    stored = method.with_keep(k / D).for_figures().compress(states.as_layer())
    mask = trace_analysis.masks(trace, 1, 0, {"it": method}, k)["it"]
    assert mask.dtype == bool and mask.shape == states.keys.shape
    assert mask.sum() == stored.visual.keys.numel() == k * len(states.keys)
    assert (mask.sum(1) == k).all()


def test_masks_are_the_channels_that_are_stored_not_only_as_many(trace: Trace) -> None:
    states = trace.head(2, 1)
    masks = trace_analysis.masks(trace, 2, 1, trace_analysis.compared(RotateK()), 8)
    index = ThinK(0.25).compress(states.as_layer()).visual.index
    assert index is not None
    index = index[0, 0]
    assert np.flatnonzero(masks["think"][0]).tolist() == index.tolist()
    dense = SparK(0.25).compress(states.as_layer()).read().keys[0, 0]
    kept = torch.from_numpy(masks["spark"])
    assert torch.equal(dense[kept], states.keys[kept])
    assert masks["rotatek"][:, :8].all() and not masks["rotatek"][:, 8:].any()


def test_attention_from_k_channels_is_that_of_the_reconstruction(trace: Trace) -> None:
    for method in (RotateK(0.25), RotateK(0.25, "none")):
        view = trace_analysis.attention_view(trace, 1, 1, method, 1)
        states, query = trace.head(1, 1), trace.query(1, 1, 1)
        small = (query @ method.reconstruction(states, 8).T) * D**-0.5
        exact = (query @ states.keys.T) * D**-0.5
        assert np.allclose(view.approximate, small.mean(0), atol=1e-3)
        assert np.allclose(view.exact, exact.mean(0), atol=1e-4)
        assert np.allclose(view.compressed, small.softmax(-1).mean(0), atol=1e-3)
    whole = trace_analysis.attention_view(trace, 1, 1, RotateK(1.0), 0)
    assert whole.score_error < 1e-3
