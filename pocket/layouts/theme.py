"""Themes: the colours of one page."""

import random
from dataclasses import dataclass

from pocket.content.colours import Colour, hsv, shade


@dataclass(frozen=True)
class Theme:
    """The colours of one page."""

    dark: bool
    page: Colour
    panel: Colour
    ink: Colour
    muted: Colour
    rule: Colour
    accent: Colour


def pick_theme(rng: random.Random, dark_share: float = 0.25) -> Theme:
    """A light or dark theme around one accent colour."""
    hue, dark = rng.random(), rng.random() < dark_share
    accent = hsv(hue, rng.uniform(0.5, 0.95), rng.uniform(0.45, 0.8) if not dark else 0.9)
    if rng.random() < 0.3:
        accent = shade(rng, rng.choice(("blue", "green", "red", "purple", "orange")))
    tint = rng.choice((0.0, 0.02, 0.05, 0.1)) * rng.random()
    if dark:
        base = rng.uniform(0.05, 0.2)
        page, panel = hsv(hue, tint * 4, base), hsv(hue, tint * 4, base + rng.uniform(0.03, 0.08))
        ink, muted = hsv(hue, tint, rng.uniform(0.85, 1)), hsv(hue, tint, rng.uniform(0.58, 0.75))
        return Theme(True, page, panel, ink, muted, hsv(hue, tint * 2, base + 0.16), accent)
    page = hsv(hue, tint, rng.choice((1.0, 1.0, rng.uniform(0.9, 1))))
    panel = rng.choice(((255, 255, 255), hsv(hue, tint + 0.02, 0.96), page))
    ink = hsv(hue, rng.uniform(0, 0.6), rng.uniform(0.0, 0.25))
    muted, rule = hsv(hue, tint, rng.uniform(0.35, 0.55)), hsv(hue, tint, rng.uniform(0.7, 0.9))
    return Theme(False, page, panel, ink, muted, rule, accent)
