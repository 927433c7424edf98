"""Grounds that nothing is read on: desks, walls, cloth, leaves, and lights out of focus."""

import random

import numpy as np
from PIL import Image, ImageDraw, ImageOps

from pocket.content.colours import Colour, hsv
from pocket.layouts.fields import Size, clouds, generator, grained, octaves


def backdrop(rng: random.Random, size: Size, dark: float = 0.3) -> Image.Image:
    """A ground of `size`, RGB; `dark` is the share of dark ones."""
    make = rng.choice((_wood, _wood, _plaster, _plaster, _cloth, _plain, _bricks, _leaves, _lights))
    return make(rng, size, rng.random() < dark)


def between(grey: Image.Image, low: Colour, high: Colour) -> Image.Image:
    """Grey levels as shades from one colour to another."""
    return ImageOps.colorize(grey, low, high)


def _pair(rng: random.Random, dark: bool, hue: float, depth: float) -> tuple[Colour, Colour]:
    """Two shades of one hue."""
    light = rng.uniform(0.12, 0.4) if dark else rng.uniform(0.5, 0.98)
    tint = rng.uniform(0, 0.35)
    return hsv(hue, tint, max(0.02, light - depth)), hsv(hue, tint * 0.9, min(1, light + depth / 2))


def _wood(rng: random.Random, size: Size, dark: bool) -> Image.Image:
    """Grain along one side, at times in boards."""
    w, h = size
    along = rng.random() < 0.5
    cells = (rng.randint(2, 5), max(8, h // rng.randint(5, 14)))
    grey = clouds(
        rng, size if along else (h, w), cells if along else (cells[0], max(8, w // 8)), 40, 255
    )
    grey = grey if along else grey.transpose(Image.Transpose.ROTATE_90)
    hue = rng.uniform(0.04, 0.11)
    light = rng.uniform(0.2, 0.45) if dark else rng.uniform(0.5, 0.9)
    tint = rng.uniform(0.2, 0.6)
    out = between(grey, hsv(hue, tint, light * 0.75), hsv(hue, tint * 0.9, light))
    if rng.random() < 0.4:
        pen, step = ImageDraw.Draw(out), rng.randint(60, 170)
        for at in range(rng.randrange(step), (h if along else w), step):
            pen.line(
                [(0, at), (w, at)] if along else [(at, 0), (at, h)], hsv(hue, tint, light * 0.45), 2
            )
    return out


def _plaster(rng: random.Random, size: Size, dark: bool) -> Image.Image:
    grey = octaves(rng, size, rng.randint(2, 4))
    return between(grey, *_pair(rng, dark, rng.random(), rng.uniform(0.04, 0.22)))


def _cloth(rng: random.Random, size: Size, dark: bool) -> Image.Image:
    """Threads: rows and columns of noise."""
    w, h = size
    make = generator(rng)
    rows, columns = make.integers(90, 256, (h // 2 + 1, 1)), make.integers(90, 256, (1, w // 2 + 1))
    grey = Image.fromarray(((rows + columns) // 2).astype(np.uint8)).resize(size)
    return between(grey, *_pair(rng, dark, rng.random(), rng.uniform(0.05, 0.25)))


def _plain(rng: random.Random, size: Size, dark: bool) -> Image.Image:
    """One colour under uneven light."""
    grey = clouds(rng, size, (2, 2), 0, 255)
    return grained(rng, between(grey, *_pair(rng, dark, rng.random(), rng.uniform(0.05, 0.3))), 3)


def _bricks(rng: random.Random, size: Size, dark: bool) -> Image.Image:
    """Courses of bricks or tiles."""
    w, h = size
    hue, tint = rng.choice((rng.uniform(0.0, 0.07), rng.random())), rng.uniform(0.05, 0.55)
    light = rng.uniform(0.25, 0.5) if dark else rng.uniform(0.5, 0.95)
    high = rng.randint(14, 60)
    wide, gap = round(high * rng.choice((1, 2, 2.4, 3))), rng.randint(1, 4)
    out = Image.new("RGB", size, hsv(hue, tint * 0.3, min(1, light * rng.choice((0.6, 1.25)))))
    pen, shift = ImageDraw.Draw(out), rng.choice((0, 0.5))
    for i, y in enumerate(range(0, h, high)):
        for x in range(-round(shift * wide * (i % 2)), w, wide):
            level = light * rng.uniform(0.88, 1.06)
            pen.rectangle(
                (x, y, x + wide - gap - 1, y + high - gap - 1), fill=hsv(hue, tint, min(1, level))
            )
    return Image.blend(out, between(octaves(rng, size), (0, 0, 0), (255, 255, 255)), 0.12)


def _leaves(rng: random.Random, size: Size, dark: bool) -> Image.Image:
    """Foliage, sky or water: coarse noise of two hues."""
    w, h = size
    n = rng.randint(8, 40)
    grey = octaves(rng, size, n, 3)
    hue = rng.choice((rng.uniform(0.2, 0.4), rng.uniform(0.5, 0.62), rng.uniform(0.05, 0.12)))
    light = rng.uniform(0.3, 0.5) if dark else rng.uniform(0.55, 0.95)
    return between(grey, hsv(hue, 0.6, light * 0.35), hsv(hue - 0.03, rng.uniform(0.2, 0.6), light))


def _lights(rng: random.Random, size: Size, dark: bool) -> Image.Image:
    """A street at night, or a shelf, out of focus: discs of light."""
    w, h = size
    small = (max(16, w // 4), max(16, h // 4))
    base = between(
        clouds(rng, small, (3, 3), 0, 255),
        *_pair(rng, dark or rng.random() < 0.6, rng.random(), 0.12),
    )
    pen = ImageDraw.Draw(base, "RGBA")
    for _ in range(rng.randint(6, 40)):
        x, y, r = rng.randrange(small[0]), rng.randrange(small[1]), rng.uniform(1.5, small[0] / 10)
        tone = hsv(rng.random(), rng.uniform(0.1, 0.8), rng.uniform(0.6, 1))
        pen.ellipse((x - r, y - r, x + r, y + r), fill=(*tone, rng.randint(50, 170)))
    return base.resize(size, Image.Resampling.BICUBIC)
