"""A prompt in a padded batch is counted as it would be alone."""

from typing import Any

import pytest
import torch

from rotatek.cache.prompt_bytes import bytes_by_prompt
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.prefill import empty_cache, fill, plan_for
from rotatek.inputs.request import make_request
from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import Settings
from rotatek.methods.tokens import TOKENS
from rotatek.models import Embedded, VisionLanguageModel
from rotatek.models.base import collate
from tests.families import tiny_gemma3
from tests.fixtures import Picture
from tests.tiny import tiny_llava, tiny_qwen

FORMS: list[dict[str, Any]] = [
    {"bits": 0.75},
    {"bits": 2},
    {"keep_channels": 0.25},
    *({"channels": name} for name in CHANNELS if name not in ("rotatek", "full")),
]
OTHERS = ("decoder", "nowhere")  # stages of which one pruner represents all
PRUNERS: list[dict[str, Any]] = [
    {},
    {"tokens": "fastv", "keep_tokens": 0.4},
    *(
        {"tokens": name}
        for name, kind in TOKENS.items()
        if kind.stage not in ("decoder", "nowhere")
    ),
]
SIZES = ((84, 84), (196, 140), (280, 280))
QUESTIONS = ("what?", "what is the total of all that was bought on this day?", "how much?")


def weighed(vlm: VisionLanguageModel, embedded: Embedded, settings: Settings) -> RotateKCache:
    plan = plan_for(vlm, embedded, settings.pruning, general=settings.asks_generally)
    cache = empty_cache(vlm, embedded, settings, plan)
    fill(vlm, embedded, plan, [cache], timed=False)
    assert isinstance(cache, RotateKCache)
    return cache


@pytest.mark.parametrize("family", ["qwen", "llava", "gemma3"])
@pytest.mark.parametrize("pruner", PRUNERS, ids=str)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_prompt_of_a_batch_weighs_what_it_weighs_alone(
    family: str, pruner: dict[str, Any], form: dict[str, Any], picture: Picture
) -> None:
    few = pruner and pruner.get("tokens") != "fastv"
    if (family != "qwen" or few) and form not in FORMS[::4] or (family != "qwen" and pruner):
        pytest.skip("one family has them all")
    made = {"qwen": tiny_qwen, "llava": tiny_llava, "gemma3": lambda: tiny_gemma3(window=16)}
    vlm = made[family]()
    settings = Settings.of(**form, **pruner)
    pairs = zip(SIZES, QUESTIONS, strict=True)
    each = [
        vlm.embed(vlm.prompt(make_request(picture(*size, seed=2), question, 4)), settings.pruning)
        for size, question in pairs
    ]
    with torch.inference_mode():
        batch = weighed(vlm, collate(each), settings)
        alone = [weighed(vlm, one, settings).bytes().total for one in each]
    found = bytes_by_prompt(batch)
    assert len(set(alone)) > 1 or family == "gemma3"
    assert found == pytest.approx(alone, rel=0.01, abs=64)
