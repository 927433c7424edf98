"""Patches are multiplied where a tower would fold them, and nothing else changes."""

import copy

import pytest
import torch
from torch import nn

from rotatek.bridge.patch_projection import PatchProjection, multiply_patches
from tests.tiny import tiny_qwen


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
        nn.Conv3d(3, 8, (2, 6, 6), (1, 6, 6)),
        nn.Conv3d(3, 8, 2, 2, padding=1),
        nn.Conv3d(4, 8, 2, 2, groups=2),
        nn.Conv3d(3, 8, 2, 2, dilation=2),
        nn.Conv2d(3, 8, 6, 6),
        nn.Linear(3, 8),
    ],
)
def test_what_overlaps_or_is_no_such_convolution_stays(other: nn.Module) -> None:
    kind = type(other)
    multiply_patches(other)
    assert type(other) is kind


def test_models_are_served_with_it() -> None:
    assert type(tiny_qwen().model.model.visual.patch_embed.proj) is PatchProjection
