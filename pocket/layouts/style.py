"""The style of every layout: size, theme, language and fonts, drawn from one seed."""

import random
from dataclasses import dataclass

from pocket.content import words
from pocket.layouts import fonts, theme
from pocket.models.config import text_length


@dataclass(frozen=True)
class PageStyle:
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

    @property
    def budget(self) -> int:
        """The longest answer, in bytes, that training has room for at this size."""
        return text_length(self.width, self.height) - 84

    @property
    def room(self) -> float:
        """Lines of body text that fit, about."""
        return (self.height - 2 * self.margin) / (self.size * 1.45)


def pick_style(
    rng: random.Random, width: int, height: int, split: str = "train", fancy: float = 0.04
) -> PageStyle:
    """A style for a page of `width` x `height` pixels."""
    lang = words.language(rng)
    western = lang not in ("pl", "cs")
    mono = rng.random() < 0.08
    body = fonts.pick_family(rng, split, western, mono, rng.random() < fancy)
    heading = body if rng.random() < 0.7 else fonts.pick_family(rng, split, western)
    side = (width * height) ** 0.5
    small, large = 11.0, max(13.0, min(30.0, side / 22))
    size = small + (large - small) * rng.random() ** 1.6
    margin = round(rng.uniform(0.02, 0.07) * min(width, height)) + 3
    return PageStyle(width, height, split, lang, theme.pick_theme(rng), body, heading, size, margin)
