"""A vision tower's windows attend in one call, and say what they say one by one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from rotatek.bridge.packed_sequences import Segments
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from rotatek.models.base import Pixels
from tests.fixtures import Picture
from tests.launches import Launches
from tests.tiny import tiny_qwen


@pytest.fixture(scope="module")
def vlm() -> VisionLanguageModel:
    return tiny_qwen()


@contextmanager
def one_by_one(vlm: VisionLanguageModel) -> Iterator[None]:
    """The tower as transformers runs it."""
    held: list[tuple[Any, dict]] = []
    for block in vlm.model.model.visual.blocks:
        hooks = block.attn._forward_pre_hooks
        held.append((hooks, dict(hooks)))
        hooks.clear()
    try:
        yield
    finally:
        for hooks, mine in held:
            hooks.update(mine)


def shown(vlm: VisionLanguageModel, picture: Picture, case: str) -> Pixels:
    sizes = {"even": [(224, 224)], "edges": [(420, 300)], "several": [(230, 414), (100, 222)]}
    return vlm.preprocess([picture(*size, seed=n) for n, size in enumerate(sizes[case])])


@pytest.mark.parametrize("case", ["even", "edges", "several"])
def test_windows_side_by_side_are_those_one_by_one(
    vlm: VisionLanguageModel, picture: Picture, case: str
) -> None:
    pixels = shown(vlm, picture, case)
    with torch.inference_mode(), Launches() as together:
        found = vlm.features(pixels)
    with torch.inference_mode(), one_by_one(vlm), Launches() as apart:
        wanted = vlm.features(pixels)
    assert torch.allclose(found, wanted, atol=1e-5)
    assert together.count != apart.count


def test_a_pruner_sees_every_picture_by_itself(vlm: VisionLanguageModel, picture: Picture) -> None:
    pixels = shown(vlm, picture, "several")
    pruner = Settings.of(tokens="visionzip", keep_tokens=0.4).pruning
    found, kept = vlm.encode_images(pixels, pruner)
    with one_by_one(vlm):
        wanted, left = vlm.encode_images(pixels, pruner)
    assert kept is not None and left is not None
    assert torch.equal(kept, left) and torch.allclose(found, wanted, atol=1e-5)


def test_sequences_of_any_lengths_see_themselves_alone() -> None:
    lengths, calls = [5, 2, 5, 0, 3, 2, 1], []
    query, key, value = (torch.randn(1, 2, sum(lengths), 4) for _ in range(3))

    def full(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        calls.append(q.shape[0])
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)

    found = Segments(torch.tensor([0, *lengths]).cumsum(0)).attend(query, key, value, full)
    assert calls == [1, 2, 1, 2]
    parts = zip(*(t.split(lengths, 2) for t in (query, key, value)), strict=True)
    wanted = torch.cat([full(*part) for part in parts if part[0].numel()], 1)
    assert torch.allclose(found, wanted, atol=1e-6)
