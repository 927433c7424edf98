"""Layers whose element-wise work is one pass: the same numbers, and their own way elsewhere."""

from typing import Any

import pytest
import torch
from torch import Tensor

from kernels.elementwise_reference import PLAIN
from rotatek.inputs.request import make_request
from rotatek.models import fused
from rotatek.models.fused import fuse
from tests.families import EVERY
from tests.fixtures import Picture, inputs_of

PASSES = {
    "qwen2_5_vl": {"norm", "gate", "rotate"},
    "qwen2_vl": {"norm", "gate", "rotate"},
    "qwen3_vl": {"norm", "gate", "rotate"},
    "qwen3_5": {"gate", "rotate"},  # norms of another formula
    "qwen3_5_moe": {"gate", "rotate"},
    "gemma3": set(),  # norms and gates of another formula
    "gemma4": set(),
}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The element-wise kernels that ran, by plain PyTorch."""
    found: list[str] = []

    def run(work: str, *given: Any) -> Tensor:
        found.append(work)
        return PLAIN[work](*given)

    monkeypatch.setattr(fused, "elementwise", run)
    return found


def logits(vlm: Any, picture: Picture) -> list[Tensor]:
    """Of a prompt, and what the tower says."""
    request = make_request(picture(120, 90, seed=3), "what is it?", 1)
    with torch.inference_mode():
        prompt = vlm.prompt(request)
        return [vlm.model(**inputs_of(vlm, prompt)).logits, vlm.features(prompt.pixels)]


@pytest.mark.parametrize("family", EVERY)
def test_a_fused_model_says_the_same(family: str, picture: Picture, ran: list[str]) -> None:
    vlm = EVERY[family]()
    want = logits(vlm, picture)
    fuse(vlm.model)
    torch.testing.assert_close(logits(vlm, picture), want)
    assert set(ran) == PASSES.get(family, {"norm", "gate"})
