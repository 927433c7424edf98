"""What every renderer starts from: size, theme, language and fonts, drawn from one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from .. import fonts, theme, words
from ..config import UNIT
from ..document import Canvas, Colour


@dataclass(frozen=True)
class Look:
    """The style of one document."""

    width: int
    height: int
    split: str
    lang: str
    theme: theme.Theme
    family: fonts.Family
    heading: fonts.Family
    size: float  # body text, pixels
    margin: int

    def canvas(self, background: Colour | None = None) -> Canvas:
        """An empty page."""
        return Canvas(self.width, self.height, background or self.theme.page)

    @property
    def budget(self) -> int:
        """The longest answer, in bytes, that training has room for at this size."""
        return text_length(self.width, self.height) - 84

    @property
    def room(self) -> float:
        """Lines of body text that fit, about."""
        return (self.height - 2 * self.margin) / (self.size * 1.45)


def text_length(width: int, height: int) -> int:
    """Text tokens of a training sequence whose image is ``width`` x ``height`` pixels."""
    return min(1024, 320 + width * height // UNIT**2 // 64 * 64)


def pick_look(
    rng: random.Random, width: int, height: int, split: str = "train", fancy: float = 0.04
) -> Look:
    """A look for a page of ``width`` x ``height`` pixels."""
    lang = words.language(rng)
    western = lang not in ("pl", "cs")
    mono = rng.random() < 0.08
    body = fonts.pick_family(rng, split, western, mono, rng.random() < fancy)
    heading = body if rng.random() < 0.7 else fonts.pick_family(rng, split, western)
    side = (width * height) ** 0.5
    small, large = 11.0, max(13.0, min(30.0, side / 22))
    size = small + (large - small) * rng.random() ** 1.6
    margin = round(rng.uniform(0.02, 0.07) * min(width, height)) + 3
    return Look(width, height, split, lang, theme.pick_theme(rng), body, heading, size, margin)


def number(rng: random.Random) -> str:
    """A figure as tables show it: plain, grouped, decimal, percent."""
    r = rng.random()
    if r < 0.3:
        return str(rng.randint(0, 99))
    if r < 0.5:
        return str(rng.randint(100, 9999))
    if r < 0.62:
        return f"{rng.randint(1000, 9_999_999):,}"
    if r < 0.8:
        return f"{rng.uniform(0, 100):.{rng.choice((1, 1, 2))}f}"
    if r < 0.92:
        return f"{rng.uniform(0, 100):.{rng.choice((0, 0, 1))}f}%"
    return f"{rng.choice('+-')}{rng.uniform(0, 30):.1f}"
