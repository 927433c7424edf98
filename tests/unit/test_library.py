"""The library as another program uses it: names, refusals, types of numbers, bytes, streams."""

import gc
import types
import weakref
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

from rotatek import Engine, RotateK, RotateKCache, Settings, make_request
from rotatek.bridge.scope import with_cache
from rotatek.cache.measures import storage_bytes
from rotatek.errors import ModeUnsupported, RequestTooLong, SettingError
from rotatek.methods.channels import CHANNELS
from rotatek.methods.channels.base import LayerStates, Store
from rotatek.models import Prompt, VisionLanguageModel, load
from rotatek.models.loading import DTYPES
from tests.fixtures import Picture, inputs_of
from tests.tiny import tiny_qwen


def _prompt(qwen: VisionLanguageModel, picture: Picture, question: str = "what is it?") -> Prompt:
    return qwen.prompt(make_request(picture(120, 90), question, 8))


@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")
def test_the_older_name_of_a_cache_does_the_same(
    qwen: VisionLanguageModel, picture: Picture
) -> None:
    inputs = inputs_of(qwen, _prompt(qwen, picture))
    options = {"max_new_tokens": 8, "do_sample": False}
    caches = [RotateKCache(qwen.model, inputs, Settings.of(keep_channels=0.25)) for _ in range(2)]
    now = qwen.model.generate(**inputs, **options, **with_cache(qwen.model, caches[0]))
    before = qwen.model.generate(**inputs, **options, past_key_values=caches[1])
    assert torch.equal(now, before)
    assert caches[0].bytes() == caches[1].bytes()


def test_what_cannot_work_is_refused(qwen: VisionLanguageModel, picture: Picture) -> None:
    inputs = inputs_of(qwen, _prompt(qwen, picture))
    with pytest.raises(ModeUnsupported):
        RotateKCache(qwen.model, inputs, Settings.of(tokens="visionzip", keep_tokens=0.5))
    with pytest.raises(RequestTooLong):
        qwen.prompt(make_request(picture(120, 90), "?", 64), limit=20)


def test_vision_ids_are_never_said(qwen: VisionLanguageModel, picture: Picture) -> None:
    from tests.fixtures import decode

    embedded = qwen.embed(_prompt(qwen, picture))
    logits = torch.zeros(1, qwen.model.config.get_text_config().vocab_size)
    logits[0, qwen.image_token] = 9.0
    step = next(decode(qwen, embedded, DynamicCache(), logits, 1))
    assert step.tokens[0] not in qwen.banned_ids


@pytest.mark.parametrize("name", [*DTYPES, ""])
def test_the_environment_names_the_type(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTATEK_DTYPE", name)
    wanted = DTYPES.get(name, torch.float32)
    assert load(device="cpu").model.dtype == wanted
    assert load(device="cpu", dtype=torch.float32).model.dtype == torch.float32
    monkeypatch.setenv("ROTATEK_DTYPE", "int3")
    with pytest.raises(SettingError, match="ROTATEK_DTYPE must be float32 or bfloat16"):
        load(device="cpu")


# -- what a cache keeps alive is counted; a first token does not wait for compression ----------

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
