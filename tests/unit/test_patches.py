"""A picture's patches are what the image processor makes, from an eighth of the bytes."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from rotatek.models.patches import patches_of

CASES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "enlarged": {"size": {"shortest_edge": 400 * 784, "longest_edge": 500 * 784}},
    "scaled down": {"size": {"shortest_edge": 56 * 56, "longest_edge": 20 * 784}},
    "patches of 16": {"patch_size": 16, "image_mean": [0.5] * 3, "image_std": [0.25, 0.5, 1]},
    "not normalised": {"do_normalize": False},
    "neither": {"do_normalize": False, "do_rescale": False},
    "linear": {"resample": Image.Resampling.BILINEAR},
}


def noise(width: int, height: int) -> Image.Image:
    levels = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    levels.flat[:256] = np.arange(256)  # every level there is
    return Image.fromarray(levels)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [(168, 112), (90, 400)])
def test_numbers_are_the_processors_own(case: str, size: tuple[int, int]) -> None:
    processor, image = Qwen2VLImageProcessorPil(**CASES[case]), noise(*size)
    wanted = processor(images=[image], return_tensors="pt")
    found, rows, columns = patches_of(processor, image, torch.device("cpu"))
    assert [[1, rows, columns]] == wanted["image_grid_thw"].tolist()
    assert found.dtype == torch.float32 and torch.equal(found, wanted["pixel_values"])
