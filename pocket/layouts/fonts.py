"""The fonts that documents are set in, and which of them training never sees."""

import random
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from PIL import Image, ImageDraw, ImageFont

FOLDER: Final = Path(__file__).parents[2] / "assets" / "fonts"
HELD_OUT: Final = frozenset(
    "carlito lato vollkorn jetbrains cabin play yrsa manrope robotoslab clearsans lobster "
    "biolinum".split()
)
WESTERN_ONLY: Final = frozenset({"cabin", "dancing", "lobster", "comicneue", "inconsolata"})
MONO: Final = frozenset(
    "cousine dejavumono firacode hack inconsolata courierprime jetbrains".split()
)
FANCY: Final = frozenset("dancing lobster comicneue comfortaa spartan".split())


@lru_cache(maxsize=1)
def slugs() -> dict[str, Path]:
    """Every font by its slug (`family-style`), in a fixed order."""
    return {p.stem: p for p in sorted(FOLDER.glob("*.?tf"))}


def family(slug: str) -> str:
    """The family of a font's slug."""
    return slug.split("-", 1)[0]


@lru_cache(maxsize=16)
def families(split: str, western: bool, mono: bool) -> tuple[str, ...]:
    """Families of a split: `train`, `unseen` or `all`; `western` admits small sets."""
    found = dict.fromkeys(family(slug) for slug in slugs())
    keep = []
    for name in found:
        seen = name not in HELD_OUT
        if split != "all" and seen != (split == "train"):
            continue
        if (name in WESTERN_ONLY and not western) or (mono and name not in MONO):
            continue
        keep.append(name)
    return tuple(keep)


class Face:
    """One font at one size, with the advance and the pixels of every character it has drawn."""

    def __init__(self, slug: str, size: int) -> None:
        self.slug, self.size = slug, size
        self.font = ImageFont.truetype(
            str(slugs()[slug]), size, layout_engine=ImageFont.Layout.BASIC
        )
        self.ascent, self.descent = self.font.getmetrics()
        self._advance: dict[str, float] = {}
        self._glyph: dict[str, tuple[Any, int, int, int]] = {}  # pixels, left, top, advance
        self._box = (0, 0, 0, 0)  # holds all of them: left, top, right, bottom

    @property
    def line(self) -> int:
        """Height of a line of text in pixels."""
        return self.ascent + self.descent

    def advances(self, text: str) -> list[float]:
        """Width of each character in pixels; the fonts are shipped without kerning."""
        known = self._advance
        try:
            return [known[ch] for ch in text]
        except KeyError:
            for ch in text:
                known[ch] = self.font.getlength(ch)
            return [known[ch] for ch in text]

    def width(self, text: str) -> float:
        """Width of `text` in pixels."""
        return sum(self.advances(text))

    def mask(self, text: str) -> tuple[Image.Image, int, int]:
        """Pillow's drawing of one line, from characters it has drawn before: mask, left, top.

        Advances are whole pixels and there is no kerning, so a line is its characters side by
        side; kept, they cost a tenth of hinting and filling their outlines again.
        """
        try:
            glyphs = [self._glyph[ch] for ch in text]
        except KeyError:
            glyphs = [self._glyph.get(ch) or self._draw(ch) for ch in text]
        left, top, right, bottom = self._box
        width = sum([g[3] for g in glyphs])
        mask = Image.new("L", (width + right - left, bottom - top))
        put, x = ImageDraw.Draw(mask).draw.draw_bitmap, -left
        for pixels, dx, dy, advance in glyphs:
            put((x + dx, dy - top), pixels, 255)
            x += advance
        return mask, left, top

    def _draw(self, ch: str) -> tuple[Any, int, int, int]:
        """The pixels of `ch`, where they lie from the pen, and how far the pen moves on."""
        pixels, (dx, dy) = self.font.getmask2(ch, "L")
        kept = self._glyph[ch] = pixels, dx, dy, round(self.font.getlength(ch))
        left, top, right, bottom = self._box
        right, bottom = max(right, dx + pixels.size[0]), max(bottom, dy + pixels.size[1])
        self._box = min(left, dx), min(top, dy), right, bottom
        return kept


@lru_cache(maxsize=1500)
def face(slug: str, size: int) -> Face:
    """The font `slug` at `size` pixels."""
    return Face(slug, size)


class Family:
    """The styles of one family, falling back to the regular one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._styles = [slug for slug in slugs() if family(slug) == name]

    def regular(self, size: float) -> Face:
        """The body style."""
        return face(self._find("regular", "medium", "semibold", "bold"), max(8, round(size)))

    def bold(self, size: float) -> Face:
        """The heaviest style."""
        return face(self._find("bold", "semibold", "medium", "regular"), max(8, round(size)))

    def italic(self, size: float) -> Face:
        """The slanted style."""
        return face(self._find("italic", "light", "regular", "medium"), max(8, round(size)))

    def _find(self, *wanted: str) -> str:
        for style in wanted:
            if f"{self.name}-{style}" in self._styles:
                return f"{self.name}-{style}"
        return self._styles[0]


def pick_family(
    rng: random.Random, split: str, western: bool = True, mono: bool = False, fancy: bool = False
) -> Family:
    """A family of `split`; script and display faces only when `fancy`."""
    names = [n for n in families(split, western, mono) if fancy or n not in FANCY]
    return Family(rng.choice(names))
