"""Type as simple printers have it: pulled wide, tall or narrow, and set from a coarse grid of dots.

A till prints one bitmap at single and double height and width; a shop's name is often set so.
"""

from functools import lru_cache
from typing import Any, Final

from PIL import Image, ImageDraw

from pocket.layouts.fonts import Face, slugs

STEP: Final = 0.1  # faces are kept for widths in steps of this


class Stretched(Face):
    """A font at one size, its letters `wide` times as wide.

    Args:
        slug: Of `fonts.slugs`.
        size: Height in pixels.
        wide: Width, as a share of the font's own.
        dots: Rows of dots that a letter is set from, or 0 for a smooth outline.
    """

    def __init__(self, slug: str, size: int, wide: float, dots: int = 0) -> None:
        super().__init__(slug, size)
        self.wide, self.dots = wide, dots
        self._coarse = Face(slug, dots) if dots else None

    def advances(self, text: str) -> list[float]:
        """Width of each character in whole pixels."""
        known = self._advance
        for ch in text:
            if ch not in known:
                known[ch] = max(1, round(self.font.getlength(ch) * self.wide))
        return [known[ch] for ch in text]

    def _draw(self, ch: str) -> tuple[Any, int, int, int]:
        """The letter, drawn at its own width or on few dots, and pulled to its size."""
        source = self._coarse or self
        pixels, (dx, dy) = source.font.getmask2(ch, "L")
        across, down = self.wide * self.size / source.size, self.size / source.size
        image = Image.new("L", pixels.size)
        if min(pixels.size) > 0:
            ImageDraw.Draw(image).draw.draw_bitmap((0, 0), pixels, 255)
            size = (max(1, round(image.width * across)), max(1, round(image.height * down)))
            if self.dots:
                image = image.point(_solid).resize(size, Image.Resampling.BOX)
            else:
                image = image.resize(size, Image.Resampling.BILINEAR)
        dx, dy = round(dx * across), round(dy * down)
        kept = self._glyph[ch] = image.im, dx, dy, int(self.advances(ch)[0])
        left, top, right, bottom = self._box
        right, bottom = max(right, dx + image.width), max(bottom, dy + image.height)
        self._box = min(left, dx), min(top, dy), right, bottom
        return kept


def _solid(level: int) -> int:
    return 255 if level > 100 else 0


@lru_cache(maxsize=900)
def _kept(slug: str, size: int, steps: int, dots: int) -> Stretched:
    return Stretched(slug, size, steps * STEP, dots)


def stretched(slug: str, size: float, wide: float = 1.0, dots: int = 0) -> Face:
    """A face of `slug` at `size` pixels, `wide` times as wide, on `dots` rows of dots if any."""
    return _kept(slug, max(7, round(size)), max(8, round(wide / STEP)), dots)


def find(*wanted: str) -> str:
    """The first of these slugs that there is."""
    return next(slug for slug in wanted if slug in slugs())
