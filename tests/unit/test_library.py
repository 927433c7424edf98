"""The library as another program uses it: names, refusals, budgets, and types of numbers."""

import importlib.util

import pytest
import torch
from transformers.cache_utils import DynamicCache

from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.errors import ModeUnsupported, RequestTooLong, SettingError
from rotatek.inputs.request import make_request
from rotatek.methods.columns import matched
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import Prompt, VisionLanguageModel, load
from rotatek.models.loading import DTYPES
from tests.fixtures import Picture, inputs_of
from tests.tiny import tiny_qwen


@pytest.fixture(scope="module")
def vlm() -> VisionLanguageModel:
    return tiny_qwen()


def _prompt(vlm: VisionLanguageModel, picture: Picture, question: str = "what is it?") -> Prompt:
    return vlm.prompt(make_request(picture(120, 90), question, 8))


@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")
def test_the_older_name_of_a_cache_does_the_same(
    vlm: VisionLanguageModel, picture: Picture
) -> None:
    inputs = inputs_of(vlm, _prompt(vlm, picture))
    options = {"max_new_tokens": 8, "do_sample": False}
    caches = [RotateKCache(vlm.model, inputs, Settings.of(keep_channels=0.25)) for _ in range(2)]
    now = vlm.model.generate(**inputs, **options, **with_cache(vlm.model, caches[0]))
    before = vlm.model.generate(**inputs, **options, past_key_values=caches[1])
    assert torch.equal(now, before)
    assert caches[0].bytes() == caches[1].bytes()


def test_what_cannot_work_is_refused(vlm: VisionLanguageModel, picture: Picture) -> None:
    inputs = inputs_of(vlm, _prompt(vlm, picture))
    with pytest.raises(ModeUnsupported):
        RotateKCache(vlm.model, inputs, Settings.of(tokens="visionzip", keep_tokens=0.5))
    with pytest.raises(RequestTooLong):
        vlm.prompt(make_request(picture(120, 90), "?", 64), limit=20)


def test_vision_ids_are_never_said(vlm: VisionLanguageModel, picture: Picture) -> None:
    from tests.greedy import decode

    embedded = vlm.embed(_prompt(vlm, picture))
    logits = torch.zeros(1, vlm.model.config.get_text_config().vocab_size)
    logits[0, vlm.image_token] = 9.0
    step = next(decode(vlm, embedded, DynamicCache(), logits, 1))
    assert step.tokens[0] not in vlm.banned_ids


@pytest.mark.parametrize(
    ("keep_tokens", "keep_channels", "nominal"),
    [(0.4, 0.25, 0.25), (0.3, 0.25, 0.1875), (0.45, 0.25, 0.28125), (0.35, 0.25, 0.21875)],
)
def test_nominal_budgets_of_the_paper(
    keep_tokens: float, keep_channels: float, nominal: float
) -> None:
    settings = Settings.of(tokens="fastv", keep_tokens=keep_tokens, keep_channels=keep_channels)
    assert settings.nominal_kv == pytest.approx(nominal)
    columns = matched(settings)
    assert all(one.nominal_kv == pytest.approx(nominal) for one in [*columns.values()][1:])
    assert BASELINE.nominal_kv == 1


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
