"""Answers of the first and third pocket models, which read a picture of any size as it is."""

from typing import Any, Final

import numpy as np
import torch
from PIL import Image

from pocket.evaluation.greedy import greedy, prompts
from pocket.evaluation.measures import Pair, note
from pocket.models import tokenizer
from pocket.models.config import MIN_PIXELS, UNIT, scaled
from pocket.models.forward import colour_scale, patchify
from pocket.models.tokenizer import Codec

SIZES: Final = ((224, 224), (448, 448), (336, 588), (672, 448), (728, 728), (896, 896))
SHORT_BYTES: Final = 96


def enlarged(images: np.ndarray) -> np.ndarray:
    """Small images [B, H, W, 3] as the shipped processor scales them up; others as they are."""
    height, width = images.shape[1:3]
    if height * width >= MIN_PIXELS:
        return images
    size, how = scaled(width, height), Image.Resampling.BICUBIC
    return np.stack([np.asarray(Image.fromarray(x).resize(size, how)) for x in images])


@torch.no_grad()
def answer(
    model: Any,
    images: np.ndarray,
    questions: list[str],
    max_new: int,
    codec: Codec = tokenizer,
) -> list[tuple[str, float]]:
    """Greedy answers and their confidences. `images` uint8 [B, H, W, 3]: one a question."""
    device, images = model.device, enlarged(images)
    rows, columns = images.shape[1] // UNIT, images.shape[2] // UNIT
    ids = prompts(questions, rows * columns, device, codec)
    patches = patchify(torch.from_numpy(images).to(device), *colour_scale(device))  # one frame
    both = patches.unflatten(-1, (3, 1, 196)).expand(-1, -1, 3, 2, 196)
    return greedy(
        model,
        ids,
        max_new,
        codec,
        mm_token_type_ids=(ids == codec.IMAGE_PAD).int(),
        pixel_values=both.reshape(-1, 1176).to(model.dtype),
        image_grid_thw=torch.tensor([[1, 2 * rows, 2 * columns]] * len(ids), device=device),
    )


def run(model: Any, pairs: list[Pair], batch: int, longest: int, codec: Codec = tokenizer) -> None:
    """Answer every item (images of one size) and fill it in, in batches of `batch`."""
    short = [p for p in pairs if len(p[1].truth.encode()) <= SHORT_BYTES]
    long = sorted(
        (p for p in pairs if len(p[1].truth.encode()) > SHORT_BYTES),
        key=lambda p: len(p[1].truth.encode()),
    )
    for group, limit in ((short, SHORT_BYTES + 16), (long, longest)):
        for i in range(0, len(group), batch):
            part = group[i : i + batch]
            images = np.stack([image for image, _ in part])
            most = min(limit, max(len(item.truth.encode()) for _, item in part) + 24)
            asked = [item.question for _, item in part]
            note(part, answer(model, images, asked, most, codec))
