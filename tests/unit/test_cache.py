"""What a cache keeps alive is counted; a first token does not wait for compression."""

import gc
import types
import weakref
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import pytest
from torch import Tensor, nn

from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.bytes import storage_bytes
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.engine import Engine
from rotatek.inputs.request import make_request
from rotatek.methods.channels import CHANNELS
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.rotatek import RotateK
from rotatek.methods.channels.store import Store
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from tests.fixtures import Picture, inputs_of
from tests.tiny import tiny_qwen

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


@pytest.mark.parametrize("settings", [Settings.of(smaller=4), Settings.of(keep_channels=0.25)])
def test_a_first_token_does_not_wait_for_compression(
    settings: Settings, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A streamer and a listener have it before any store is there."""
    vlm, told = tiny_qwen(), list[str]()
    request = make_request(picture(120, 90), "what is it?", 6)
    inputs = inputs_of(vlm, vlm.prompt(request))
    compress = RotateK.compress_together

    def seen(self: RotateK, layers: Sequence[LayerStates]) -> Sequence[Store]:
        told.append("stores")
        return compress(self, layers)

    monkeypatch.setattr(RotateK, "compress_together", seen)
    cache, streamer = RotateKCache(vlm.model, inputs, settings), mock.Mock()
    streamer.put.side_effect = lambda _: told.append("token")
    vlm.model.generate(
        **inputs, **with_cache(vlm.model, cache), max_new_tokens=6, min_new_tokens=6,
        streamer=streamer,
    )  # fmt: skip
    assert told == ["token", "token", "stores", *["token"] * 5]  # the prompt comes first
    told.clear()
    for event in Engine(vlm).compare(request, {"one": settings}, trace=False):
        told.append(type(event).__name__)
    assert told[:4] == ["Prefilled", "Token", "stores", "Stored"] and told.count("stores") == 1
