"""Layers rotated together or one by one; what a cache keeps alive is counted; metrics live once."""

import gc
import types
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.generation import BaseStreamer

from rotatek.bridge.cache_argument import with_cache
from rotatek.bridge.fitness import attention_of, decoder_layers
from rotatek.cache import output_metric
from rotatek.cache.bytes import storage_bytes
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import prefill
from rotatek.engine.engine import Engine
from rotatek.engine.prefill import SharedPrefill
from rotatek.inputs.request import make_request
from rotatek.methods.channels import CHANNELS, bits, rotatek
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.rotatek import RotateK
from rotatek.methods.channels.store import Store
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from tests.fixtures import Picture, inputs_of
from tests.tiny import tiny_qwen


@pytest.mark.parametrize("extra", [{}, {"tokens": "fastv", "keep_tokens": 0.5}], ids=str)
def test_models_fill_the_same_caches_either_way(
    extra: dict, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    vlm, settings = tiny_qwen(), Settings.of(keep_channels=0.25, **extra)
    prompt = vlm.prompt(make_request(picture(150, 120, seed=0), "what is the total?", 2))
    embedded = vlm.embed(prompt, settings.tokens)

    def filled(shared: bool) -> list[tuple[str, Tensor]]:
        cache = RotateKCache(vlm.model, embedded.inputs(), settings)
        prefill(vlm, embedded, SharedPrefill(cache.plan, [cache]) if shared else cache)
        assert cache.bytes().total == sum(cache.bytes().parts.values())
        return list(cache.tensors())

    found = [filled(False), filled(True)]
    for module in (rotatek, bits):
        monkeypatch.setattr(module, "TOGETHER", 256)
    wanted = filled(False)
    for each in found:
        assert [part for part, _ in each] == [part for part, _ in wanted]
        assert all(torch.equal(a, b) for (_, a), (_, b) in zip(each, wanted, strict=True))


ELSEWHERE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, nn.Module)
GREEDY: dict[str, Any] = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}


def reachable(root: object) -> Iterator[Tensor]:
    """Every tensor that an object keeps alive; the model, which it holds weakly, is not among them.

    A tensor's own attributes and what it is a view of count, too.
    """
    seen: set[int] = set()
    left = [root]
    kept: list[object] = []  # so that no number is used again while we look
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, ELSEWHERE + (weakref.ref,)):
            continue
        seen.add(id(one))
        kept.append(one)
        if isinstance(one, Tensor):
            yield one
        left.extend(gc.get_referents(one))


def asked(vlm: VisionLanguageModel, picture: Picture) -> dict[str, Tensor]:
    return inputs_of(vlm, vlm.prompt(make_request(picture(112, 112), "what?", 8)))


def answered(vlm: VisionLanguageModel, inputs: dict[str, Tensor], **options: Any) -> RotateKCache:
    cache = RotateKCache(vlm.model, inputs, Settings.of(**options))
    vlm.model.generate(**inputs, **with_cache(vlm.model, cache), **GREEDY)
    return cache


FORMS: list[dict[str, Any]] = [
    {"smaller": 16},
    {"keep_channels": 0.25},
    {"tokens": "fastv", "keep_tokens": 0.4},
    *({"channels": name} for name in CHANNELS if name != "rotatek"),
]


@pytest.mark.parametrize("options", FORMS, ids=str)
def test_whatever_a_cache_keeps_alive_is_counted(options: dict[str, Any], picture: Picture) -> None:
    vlm = tiny_qwen()
    inputs = asked(vlm, picture)
    cache = answered(vlm, inputs, **options)
    counted = cache.bytes()
    known = {t.untyped_storage().data_ptr() for _, t in cache.tensors()}
    known |= {t.untyped_storage().data_ptr() for t in (*cache.shared(), *cache.marks())}
    found = list(reachable(cache))
    assert [t.shape for t in found if t.untyped_storage().data_ptr() not in known] == []
    assert storage_bytes(found) <= counted.total + counted.shared
    assert sum(counted.parts.values()) == counted.total


def test_metrics_follow_the_weights(picture: Picture) -> None:
    vlm = tiny_qwen()
    inputs = asked(vlm, picture)
    answered(vlm, inputs, smaller=16)
    module = attention_of(decoder_layers(vlm.model)[0])
    assert module is not None
    before = output_metric.output_metric(module, torch.empty(1, 2, 1, 32))
    with torch.no_grad():
        module.get_parameter("o_proj.weight").mul_(2)
    after = output_metric.output_metric(module, torch.empty(1, 2, 1, 32))
    assert before is not None and after is not None
    torch.testing.assert_close(after[0], 2 * before[0])


class _Told(BaseStreamer):
    """Notes when tokens come."""

    def __init__(self, told: list[str]) -> None:
        self.told = told

    def put(self, value: Tensor) -> None:
        self.told.append("token")

    def end(self) -> None:
        self.told.append("end")


@pytest.mark.parametrize("settings", [Settings.of(smaller=4), Settings.of(keep_channels=0.25)])
def test_a_first_token_does_not_wait_for_compression(
    settings: Settings, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A streamer and a listener have it before any store is there; the answer is the same."""
    vlm, told = tiny_qwen(), list[str]()
    request = make_request(picture(120, 90), "what is it?", 6)
    inputs = inputs_of(vlm, vlm.prompt(request))
    compress, end = RotateK.compress_together, RotateKCache.end

    def seen(self: RotateK, layers: Sequence[LayerStates]) -> Sequence[Store]:
        told.append("stores")
        return compress(self, layers)

    def at_once(self: RotateKCache) -> None:
        end(self)
        self.finish()

    def said(**changed: Any) -> Tensor:
        cache = with_cache(vlm.model, RotateKCache(vlm.model, inputs, settings))
        told.clear()
        return vlm.model.generate(
            **inputs, **cache, max_new_tokens=6, min_new_tokens=6, streamer=_Told(told), **changed
        )

    monkeypatch.setattr(RotateK, "compress_together", seen)
    later = said()
    assert told == ["token", "token", "stores", *["token"] * 5, "end"]  # the prompt comes first
    with monkeypatch.context() as patch:
        patch.setattr(RotateKCache, "end", at_once)
        assert said().equal(later) and told[:2] == ["token", "stores"]
    told.clear()
    for event in Engine(vlm).compare(request, {"one": settings}, trace=False):
        told.append(type(event).__name__)
    assert told[:4] == ["Prefilled", "Token", "stores", "Stored"] and told.count("stores") == 1
