"""Pixel work for training, in less time than Pillow takes: the same, off by a level or two."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

Size = tuple[int, int]
MODES: Final = {Image.Resampling.BILINEAR: "bilinear", Image.Resampling.BICUBIC: "bicubic"}


def resized(image: Image.Image, sizes: Sequence[Size], method: Image.Resampling) -> Image.Image:
    """`image` (RGB) at the last of `sizes` (width, height), by way of the others."""
    pixels = torch.from_numpy(np.array(image))[None].permute(0, 3, 1, 2)  # channels stay last
    for width, height in sizes:
        pixels = F.interpolate(
            pixels, (height, width), mode=MODES[method], antialias=True, align_corners=False
        )
    return Image.fromarray(pixels.permute(0, 2, 3, 1)[0].numpy())


def blurred(image: Image.Image, side: float) -> Image.Image:
    """`image` under the weights side : 1 : side along both axes; the border stays as it is."""
    outer = round(128 * side / (1 + 2 * side))  # of 128: 255 times that fits into int16
    before = np.array(image)
    pixels = before.astype(np.int16)
    for turned in (pixels, pixels.swapaxes(0, 1)):
        beside = turned[:-2] + turned[2:]
        beside *= outer
        turned[1:-1] *= 128 - 2 * outer
        turned[1:-1] += beside
        turned[1:-1] += 64
        turned[1:-1] >>= 7
    before[1:-1, 1:-1] = pixels[1:-1, 1:-1]
    return Image.fromarray(before)
