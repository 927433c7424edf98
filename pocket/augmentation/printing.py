"""Faults of printers: faded heat, worn ribbons, lost toner, dots and bands.

A page comes as grey levels (0: ink) and leaves as such; where ink goes missing, paper shows.
"""

import random
from functools import lru_cache

import numpy as np
from PIL import Image, ImageChops, ImageFilter

from pocket.layouts.fields import clouds, generator, scaled_levels, spread, tiled


def printed(rng: random.Random, page: Image.Image, printer: str, severity: float) -> Image.Image:
    """`page` (L) as `printer` puts it on paper, the worse the higher `severity`."""
    ink = ImageChops.invert(page)
    ink = _PRINTERS[printer](rng, ink, severity)
    if rng.random() < 0.15 * severity:
        ink = _bled(rng, ink)
    return ImageChops.invert(ink)


def _strength(rng: random.Random, ink: Image.Image, low: float, high: float) -> Image.Image:
    """Ink of uneven strength, between two shares, over the page."""
    cells = rng.randint(2, 5), rng.randint(3, 14)
    return ImageChops.multiply(ink, clouds(rng, ink.size, cells, 255 * low, 255 * high))


def _thermal(rng: random.Random, ink: Image.Image, severity: float) -> Image.Image:
    """Heat: faded in parts, with columns that no longer print."""
    r = rng.random()
    if r < 0.45:
        low = 1 - severity * rng.uniform(0.1, 0.58)
        ink = _strength(rng, ink, low, min(1.0, low + rng.uniform(0.05, 0.5)))
    if rng.random() < 0.3 * severity:
        ink = _streaks(rng, ink)
    if rng.random() < 0.25:  # a head too hot: letters grow
        ink = scaled_levels(ink.filter(ImageFilter.BoxBlur(0.6)), 1.35)
    return ink


def _streaks(rng: random.Random, ink: Image.Image) -> Image.Image:
    """Thin lines along the paper's way without ink."""
    width = ink.width
    row = np.full(width, 255.0)
    for _ in range(rng.randint(1, 6)):
        x = rng.randrange(width)
        row[x : x + rng.choice((1, 1, 2))] = rng.uniform(0, 190)
    if rng.random() < 0.4:
        row *= np.interp(
            np.arange(width), np.linspace(0, width, 12), generator(rng).uniform(0.6, 1, 12)
        )
    return ImageChops.multiply(ink, Image.fromarray(row.astype(np.uint8)[None]).resize(ink.size))


@lru_cache(maxsize=12)
def _pins(across: int, down: int) -> Image.Image:
    """Dots `across` and `down` pixels apart."""
    y, x = np.mgrid[0:down, 0:across]
    far = ((x - (across - 1) / 2) / across) ** 2 + ((y - (down - 1) / 2) / down) ** 2
    level = 255 * np.clip(1.25 - 2.2 * far - 0.25 * (far > 0.2), 0.25, 1)
    tile = Image.fromarray(level.astype(np.uint8))
    return tiled(tile, (across * 24, down * 24))


def _matrix(rng: random.Random, ink: Image.Image, severity: float) -> Image.Image:
    """Pins through a ribbon that dries from one side to the other."""
    dots = tiled(_pins(rng.choice((2, 2, 3)), rng.choice((2, 3))), ink.size)
    if rng.random() < 0.7:
        ink = ImageChops.multiply(ink, dots)
    low = 1 - severity * rng.uniform(0.15, 0.6)
    ramp = np.array([rng.uniform(low, 1), rng.uniform(low, 1), rng.uniform(low, 1)])[None] * 255
    ink = ImageChops.multiply(ink, spread(np.repeat(ramp, 2, 0), ink.size))
    if rng.random() < 0.3:  # both directions of the head are not quite in line
        ink = _sheared_lines(rng, ink)
    return ink


def _sheared_lines(rng: random.Random, ink: Image.Image) -> Image.Image:
    """Every other band of rows a pixel aside."""
    pixels = np.array(ink)
    high = rng.randint(9, 17)
    for top in range(rng.randrange(high), pixels.shape[0], 2 * high):
        pixels[top : top + high, 1:] = pixels[top : top + high, :-1].copy()
    return Image.fromarray(pixels)


def _laser(rng: random.Random, ink: Image.Image, severity: float) -> Image.Image:
    """Toner: dense, but for holes, a light side, and dust."""
    if rng.random() < 0.3 * severity:
        holes = clouds(rng, ink.size, (ink.width // 3, ink.height // 3), 120, 420)
        ink = ImageChops.multiply(ink, holes)
    if rng.random() < 0.25 * severity:
        ink = _strength(rng, ink, rng.uniform(0.45, 0.8), 1.0)
    return ink


def _inkjet(rng: random.Random, ink: Image.Image, severity: float) -> Image.Image:
    """Ink that runs a little, in bands where nozzles are shut."""
    if rng.random() < 0.5:
        ink = scaled_levels(ink.filter(ImageFilter.BoxBlur(0.5)), 1.1)
    if rng.random() < 0.3 * severity:
        rows = np.full(ink.height, 255.0)
        step, at = rng.randint(7, 23), rng.randrange(7)
        rows[at::step] = rng.uniform(60, 190)
        ink = ImageChops.multiply(
            ink, Image.fromarray(rows.astype(np.uint8)[:, None]).resize(ink.size)
        )
    return ink


def _fax(rng: random.Random, ink: Image.Image, severity: float) -> Image.Image:
    """Few lines, black or white, and lost ones. Only what measures is sent by fax."""
    w, h = ink.size
    coarse = ink.resize((round(w * 0.94), round(h * 0.84)), Image.Resampling.BOX)
    level = rng.randint(60, 95)
    coarse = coarse.point([255 if i > level else 0 for i in range(256)])
    pixels = np.array(coarse.resize((w, h), Image.Resampling.BILINEAR))
    for _ in range(int(3 * severity)):
        y = rng.randrange(h)
        pixels[y] //= 2
    return Image.fromarray(pixels)


def _ribbon(rng: random.Random, ink: Image.Image, severity: float) -> Image.Image:
    """Struck twice through a dry ribbon. Only what measures is printed so."""
    again = ImageChops.offset(ink, 1, 0)
    ink = ImageChops.lighter(scaled_levels(ink, rng.uniform(0.8, 1.0)), scaled_levels(again, 0.5))
    comb = np.array([255, 225, 150, 225], np.uint8)[:, None]
    comb = np.tile(comb, (ink.height // 4 + 1, 1))[: ink.height]
    ink = ImageChops.multiply(ink, Image.fromarray(comb).resize(ink.size))
    return _strength(rng, ink, 1 - 0.3 * severity, 1.0)


def _bled(rng: random.Random, ink: Image.Image) -> Image.Image:
    """The print of the back, faint and mirrored."""
    back = ink.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    back = ImageChops.offset(back, rng.randint(-40, 40), rng.randint(20, 200))
    back = scaled_levels(back.filter(ImageFilter.BoxBlur(1)), rng.uniform(0.05, 0.16))
    return ImageChops.lighter(ink, back)


_PRINTERS = {
    "thermal": _thermal,
    "matrix": _matrix,
    "laser": _laser,
    "inkjet": _inkjet,
    "fax": _fax,
    "ribbon": _ribbon,
}
