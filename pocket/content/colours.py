"""Colours that questions may name, and ink that can be read on them."""

import colorsys
import random
from typing import Final

Colour = tuple[int, int, int]

# name -> a typical shade; drawn shades vary a little around it
NAMED: Final[dict[str, tuple[Colour, ...]]] = {
    "red": ((214, 39, 40), (220, 38, 38), (200, 16, 30), (239, 68, 68)),
    "orange": ((255, 127, 14), (249, 115, 22), (245, 140, 40)),
    "yellow": ((250, 204, 21), (255, 215, 0), (242, 200, 40)),
    "green": ((44, 160, 44), (22, 163, 74), (34, 139, 34), (16, 150, 90)),
    "blue": ((31, 119, 180), (37, 99, 235), (29, 78, 216), (30, 100, 200)),
    "purple": ((148, 103, 189), (126, 34, 206), (124, 58, 237)),
    "pink": ((227, 119, 194), (236, 72, 153), (244, 114, 182)),
    "brown": ((140, 86, 75), (120, 72, 40), (139, 69, 19)),
    "grey": ((127, 127, 127), (107, 114, 128), (150, 150, 150)),
    "cyan": ((23, 190, 207), (6, 182, 212), (34, 200, 220)),
    "black": ((15, 15, 15), (25, 25, 28)),
    "white": ((255, 255, 255), (248, 248, 248)),
}
SERIES_NAMES: Final = tuple(n for n in NAMED if n not in ("black", "white"))


def shade(rng: random.Random, name: str) -> Colour:
    """A shade that people call `name`."""
    base = rng.choice(NAMED[name])
    return tuple(min(255, max(0, c + rng.randint(-8, 8))) for c in base)  # type: ignore[return-value]


def luminance(colour: Colour) -> float:
    """Perceived lightness, 0 to 1."""
    r, g, b = colour
    return (0.299 * r + 0.587 * g + 0.114 * b) / 255


def ink_on(colour: Colour) -> Colour:
    """Black or white, whichever reads better on `colour`."""
    return (20, 20, 24) if luminance(colour) > 0.55 else (255, 255, 255)


def hsv(h: float, s: float, v: float) -> Colour:
    """An RGB colour from hue, saturation and value in [0, 1]."""
    r, g, b = colorsys.hsv_to_rgb(h % 1.0, s, v)
    return int(r * 255), int(g * 255), int(b * 255)


def series_colours(rng: random.Random, n: int) -> list[tuple[str, Colour]]:
    """`n` colours with different names, for the series of a chart."""
    names = rng.sample(SERIES_NAMES, n)
    return [(name, shade(rng, name)) for name in names]
