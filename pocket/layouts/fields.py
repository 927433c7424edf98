"""Soft and grained fields of grey, made small and scaled up: light, wear, texture, noise."""

import random
from functools import lru_cache
from typing import Final

import numpy as np
from PIL import Image, ImageChops

SIDE: Final = 512  # of the kept tile of noise
Size = tuple[int, int]


def generator(rng: random.Random) -> np.random.Generator:
    """A generator of arrays whose seed `rng` draws."""
    return np.random.default_rng(rng.getrandbits(32))


def spread(values: np.ndarray, size: Size) -> Image.Image:
    """A small array of levels, [rows, columns] of 0 to 255, spread smoothly over `size`."""
    levels = np.clip(values, 0, 255).astype(np.uint8)
    return Image.fromarray(levels).resize(size, Image.Resampling.BILINEAR)


def clouds(rng: random.Random, size: Size, cells: Size, low: float, high: float) -> Image.Image:
    """Random levels from `low` to `high` at `cells` (columns, rows) points, spread over `size`."""
    values = generator(rng).uniform(low, high, (max(2, cells[1]), max(2, cells[0])))
    return spread(values, size)


def octaves(rng: random.Random, size: Size, coarse: int = 3, levels: int = 4) -> Image.Image:
    """Noise of several sizes of grain, from 0 to 255, as of plaster or stone."""
    share = size[1] / size[0]
    out = clouds(rng, size, (coarse, max(2, round(coarse * share))), 0, 255)
    for i in range(1, levels):
        n = coarse * 4**i
        if n > size[0]:
            break
        finer = clouds(rng, size, (n, max(2, round(n * share))), 0, 255)
        out = Image.blend(out, finer, 0.3)
    return out


@lru_cache(maxsize=4)
def _tile(number: int) -> np.ndarray:
    return np.random.default_rng(number).normal(0, 1, (SIDE, SIDE)).astype(np.float32)


@lru_cache(maxsize=48)
def _grain(number: int, sigma: int) -> Image.Image:
    """A tile of noise around 128 of `sigma` tenths."""
    return Image.fromarray(np.clip(_tile(number) * sigma / 10 + 128, 0, 255).astype(np.uint8))


def tiled(tile: Image.Image, size: Size, offset: Size = (0, 0)) -> Image.Image:
    """`tile` side by side over `size`, beginning at `offset` inside it."""
    out = Image.new(tile.mode, size)
    for y in range(-offset[1], size[1], tile.height):
        for x in range(-offset[0], size[0], tile.width):
            out.paste(tile, (x, y))
    return out


def grained(rng: random.Random, image: Image.Image, sigma: float) -> Image.Image:
    """`image` (L or RGB) with noise of `sigma` levels, alike in all channels."""
    tile = _grain(rng.randrange(4), max(1, round(sigma * 2) * 5))
    if rng.random() < 0.5:
        tile = tile.transpose(Image.Transpose.ROTATE_90)
    noise = tiled(tile, image.size, (rng.randrange(SIDE), rng.randrange(SIDE)))
    if image.mode == "RGB":
        noise = Image.merge("RGB", (noise,) * 3)
    return ImageChops.add(image, noise, 1, -128)


def lit(image: Image.Image, light: Image.Image) -> Image.Image:
    """`image` under `light` (L, 255: as it is)."""
    if image.mode == "RGB":
        bands = [ImageChops.multiply(band, light) for band in image.split()]
        return Image.merge("RGB", bands)
    return ImageChops.multiply(image, light)


def scaled_levels(image: Image.Image, share: float) -> Image.Image:
    """Every level of an L image times `share`."""
    return image.point([min(255, round(i * share)) for i in range(256)])
