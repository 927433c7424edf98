"""Answers of the second pocket model, which reads a picture as a base view and tiles.

Its documents have up to 672 pixels a side: larger ones lose their small type to the tiling.
"""

from typing import Any, Final

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pocket.evaluation.greedy import greedy, prompts
from pocket.evaluation.measures import Pair, note
from pocket.models.config import MEAN, STD
from pocket.models.llava_tiles import join, order, tiling, views

SIZES: Final = ((224, 224), (336, 336), (560, 336), (448, 448), (448, 672), (672, 672))
SHORT_BYTES: Final = 96
LONGEST_TRUTH: Final = 560  # bytes; longer pages never occur in training


@torch.no_grad()
def answer(
    model: Any, images: list[np.ndarray], questions: list[str], max_new: int
) -> list[tuple[str, float]]:
    """Greedy answers and their confidences.

    Args:
        model: The second pocket, as transformers loads it.
        images: uint8 [H, W, 3], all of one size: one a question.
        questions: As they are typed.
        max_new: Tokens at most.
    """
    height, width = images[0].shape[:2]
    pixels, count = pixel_values(images, model.config.vision_config.image_size)
    return greedy(
        model,
        prompts(questions, count, model.device),
        max_new,
        pixel_values=pixels.to(model.device, model.dtype),
        image_sizes=torch.tensor([[height, width]] * len(questions), device=model.device),
    )


def pixel_values(images: list[np.ndarray], side: int) -> tuple[Tensor, int]:
    """The stock processor's result for images of one size, [B, tiles, 3, side, side]; N of one."""
    height, width = images[0].shape[:2]
    plan = tiling(width, height, side)
    made = [views(Image.fromarray(image), plan) for image in images]
    base, grid = (torch.from_numpy(np.stack(column)) for column in zip(*made, strict=True))
    tiles = join(base, grid, plan).permute(0, 1, 4, 2, 3).float() / 255
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    return (tiles - mean) / std, len(order(plan))


def run(model: Any, pairs: list[Pair], batch: int, longest: int) -> None:
    """Answer every item (images of one size) and fill it in, in batches of `batch`."""
    pairs = sorted(pairs, key=lambda p: len(p[1].truth.encode()))
    for i in range(0, len(pairs), batch):
        part = pairs[i : i + batch]
        most = len(part[-1][1].truth.encode())
        room = min(longest, most + 24) if most > SHORT_BYTES else SHORT_BYTES
        questions = [item.question for _, item in part]
        note(part, answer(model, [image for image, _ in part], questions, room))
