"""Full-size configurations without weights: parameters and bytes."""

from unittest import mock

import pytest
import torch

from rotatek.models import VisionLanguageModel
from rotatek.models.memory import weight_bytes
from tests.full_families import built

# Millions of parameters as published, and bytes of a bfloat16 cache a token.
PUBLISHED: dict[str, tuple[int, int]] = {
    "qwen2.5-vl-7b": (8_292, 2 * 28 * 4 * 128 * 2),
    "llava-next-8b": (8_355, 2 * 32 * 8 * 128 * 2),
    "qwen3.5-4b": (4_540, 2 * 8 * 4 * 256 * 2),
    "smolvlm-256m": (256, 2 * 30 * 3 * 64 * 2),
    "gemma-3-4b": (4_300, 2 * 34 * 4 * 256 * 2),
    # Without its audio tower; 18 of 42 layers borrow, and one owner in six has heads of 512.
    "gemma-4-e4b": (7_632, 2 * 2 * (20 * 256 + 4 * 512) * 2),
}
# Bytes of one prompt's states: layers of linear attention, and what their convolutions read.
STATES = {"qwen3.5-4b": 24 * (32 * 128 * 128 * 4 + (2 * 16 + 32) * 128 * 4 * 2)}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_configuration_is_the_published_one(name: str) -> None:
    millions, a_token = PUBLISHED[name]
    with mock.patch.object(VisionLanguageModel, "device", torch.device("cpu")):
        vlm = built(name, "meta")
    assert round(vlm.model.num_parameters() / 1e6) == pytest.approx(millions, abs=1)
    assert weight_bytes(vlm.model.config, torch.bfloat16) == 2 * vlm.model.num_parameters()
    assert vlm.full_bytes(1, states=0) == a_token
    assert vlm.state_bytes == STATES.get(name, 0)
