"""A prefill that broke off is refused until its cache is reset."""

from pathlib import Path
from typing import Any

import pytest
import torch

from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import prefill
from rotatek.errors import CacheNotStorable, ModeUnsupported
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models import Embedded, VisionLanguageModel
from tests.fixtures import Picture
from tests.tiny import tiny_qwen

BITS = Settings.of(smaller=4)


@pytest.fixture
def vlm() -> VisionLanguageModel:
    return tiny_qwen()


@pytest.fixture
def prompt(vlm: VisionLanguageModel, picture: Picture) -> Embedded:
    return vlm.embed(vlm.prompt(make_request(picture(150, 120), "what?", 4)))


def test_a_prefill_whose_head_fails_is_refused_until_it_is_reset(
    vlm: VisionLanguageModel, prompt: Embedded, tmp_path: Path
) -> None:
    model: Any = vlm.model

    def fail(*_: Any) -> None:
        raise RuntimeError("no memory")

    cache = RotateKCache(vlm.model, prompt.inputs(), BITS)
    hook = model.lm_head.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="no memory"):
        prefill(vlm, prompt, cache)
    hook.remove()
    with pytest.raises(ModeUnsupported, match="broke off"):
        prefill(vlm, prompt, cache)
    with pytest.raises(CacheNotStorable):
        cache.save(tmp_path / "cache")
    cache.reset()
    prefill(vlm, prompt, cache)
    whole = RotateKCache(vlm.model, prompt.inputs(), BITS)
    prefill(vlm, prompt, whole)
    pairs = zip(cache.tensors(), whole.tensors(), strict=True)
    assert all(torch.equal(mine, its) for (_, mine), (_, its) in pairs)
