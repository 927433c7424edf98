"""Titles at the top of a page."""

import random

from pocket.content import words
from pocket.content.colours import ink_on
from pocket.content.fields import TITLES
from pocket.layouts.pillow.canvas import Canvas
from pocket.layouts.style import PageStyle


def put_title(rng: random.Random, canvas: Canvas, style: PageStyle) -> tuple[str, float]:
    """Draw a title at the top, or none: its text, and where the rest begins."""
    t, m = style.theme, style.margin
    y = float(m)
    if rng.random() < 0.12:
        return "", y
    r = rng.random()
    text = rng.choice(TITLES) if r < 0.3 else words.company(rng) if r < 0.55 else words.title(rng)
    face = style.heading.bold(style.size * rng.uniform(1.1, 1.9))
    if face.width(text) > style.width - 2 * m:
        face = style.heading.bold(style.size)
    if face.width(text) > style.width - 2 * m:
        return "", y
    ink, foot = t.ink, 0
    if rng.random() < 0.3:
        foot = m + face.line + m // 2
        canvas.box(0, 0, style.width, foot, fill=t.accent)
        ink = ink_on(t.accent)
    elif rng.random() < 0.4:
        ink = t.accent
    if rng.random() < 0.25:
        canvas.text(style.width / 2, y, text, face, ink, "centre")
    else:
        canvas.text(m, y, text, face, ink)
    return text, max(y + face.line + style.size * rng.uniform(0.6, 1.4), foot + style.size * 0.5)
