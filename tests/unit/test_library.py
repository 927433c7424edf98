"""The library as another program uses it: names, refusals, budgets, and types of numbers."""

import importlib.util

import pytest
import torch
from transformers.cache_utils import DynamicCache

from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.errors import ModeUnsupported, RequestTooLong, SettingError
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models import Prompt, VisionLanguageModel, load
from rotatek.models.loading import DTYPES
from tests.fixtures import Picture, inputs_of


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
    from tests.greedy import decode

    embedded = qwen.embed(_prompt(qwen, picture))
    logits = torch.zeros(1, qwen.model.config.get_text_config().vocab_size)
    logits[0, qwen.image_token] = 9.0
    step = next(decode(qwen, embedded, DynamicCache(), logits, 1))
    assert step.tokens[0] not in qwen.banned_ids


def test_four_bit_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    from rotatek.models import loading

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModeUnsupported, match="bitsandbytes"):
        loading.load("pocket", "cpu", four_bit=True)


@pytest.mark.parametrize("name", [*DTYPES, ""])
def test_the_environment_names_the_type(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTATEK_DTYPE", name)
    wanted = DTYPES.get(name, torch.float32)
    assert load(device="cpu").model.dtype == wanted
    assert load(device="cpu", dtype=torch.float32).model.dtype == torch.float32
    monkeypatch.setenv("ROTATEK_DTYPE", "int3")
    with pytest.raises(SettingError, match="ROTATEK_DTYPE must be float32 or bfloat16"):
        load(device="cpu")
