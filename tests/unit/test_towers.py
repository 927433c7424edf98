"""A vision tower does at once what transformers does one by one: windows, and patches."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from rotatek.bridge.packed_sequences import Segments
from rotatek.bridge.patch_projection import PatchProjection, multiply_patches
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


@pytest.mark.parametrize("bias", [True, False])
def test_product_is_the_convolution(bias: bool) -> None:
    torch.manual_seed(0)
    plain = nn.Conv3d(3, 24, (2, 6, 6), (2, 6, 6), bias=bias)
    made = copy.deepcopy(plain)
    multiply_patches(made)
    assert type(made) is PatchProjection
    patches = torch.randn(37, 3, 2, 6, 6)
    assert torch.allclose(made(patches), plain(patches), atol=1e-5)
    assert made(patches).shape == plain(patches).shape
    clip = torch.randn(2, 3, 4, 12, 18)  # not single patches
    assert torch.equal(made(clip), plain(clip))
    assert list(made.state_dict()) == list(plain.state_dict())


@pytest.mark.parametrize(
    "other",
    [
        nn.Conv3d(3, 8, (2, 6, 6), (1, 6, 6)), nn.Conv3d(3, 8, 2, 2, padding=1),
        nn.Conv3d(4, 8, 2, 2, groups=2), nn.Conv2d(3, 8, 6, 6),
    ],
)  # fmt: skip
def test_what_overlaps_or_is_no_such_convolution_stays(
    other: nn.Module, vlm: VisionLanguageModel
) -> None:
    kind = type(other)
    multiply_patches(other)
    assert type(other) is kind
    assert type(vlm.model.model.visual.patch_embed.proj) is PatchProjection
