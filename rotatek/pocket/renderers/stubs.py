"""Passes, vouchers, labels and permits: small labels over values in panels of unequal width."""

from __future__ import annotations

import random
from dataclasses import replace

from ..document import Canvas, Document
from ..phrases import put
from ..theme import NAMED, on, shade
from . import forms, grids
from .look import Look

Area = tuple[float, float, float, float]  # left, right, top, bottom


def draw(rng: random.Random, look: Look) -> Document:
    """One sheet in one to three panels; a band, dashes between them, a bar code at times."""
    canvas, m = look.canvas(), look.margin
    title, y = _head(rng, canvas, look)
    areas = _panels(rng, canvas, look, y)
    style = grids.Style.of(rng, look)
    small = look.family.regular(max(10.0, look.size * rng.uniform(0.55, 0.85)))
    style = replace(style, key=small, place=rng.choice(("above", "above", "below", "beside")))
    pairs = [p for p in forms.pairs(rng, 30) if len(p[0]) < 24]
    rows: list[list[tuple[str, str]]] = []
    for area in areas:
        laid = grids.arrange(rng, style, pairs[: rng.randint(2, 9)], area)
        if not laid:
            continue
        grids.paint(rng, canvas, look, style, laid, area[:2])
        rows += [[(c.key, c.value) for c in row] for row in laid]
        shown = {c.key for row in laid for c in row}
        pairs = [p for p in pairs if p[0] not in shown]
        foot = laid[-1][0].y + style.height + style.gap
        if foot + 24 < area[3] and rng.random() < 0.4:
            _code(rng, canvas, look, (area[0], area[1], foot, min(area[3], foot + 3.0 * m + 14)))
    out = grids.questions(rng, title, rows, [])
    flat = [pair for row in rows for pair in row]
    values = [v for _, v in flat]
    for key, value in rng.sample(flat, min(4, len(flat))):
        out.append(put(rng, "field", value, "field", f=key.lower().rstrip(".")))
        if values.count(value) == 1:
            out.append(put(rng, "names", key, "reverse", v=value))
    return canvas.document([q for q in out if len(q.answer.encode()) <= look.budget])


def _head(rng: random.Random, canvas: Canvas, look: Look) -> tuple[str, float]:
    """A title on a coloured band or on the page."""
    if rng.random() < 0.5:
        return forms.put_title(rng, canvas, look)
    text, m = rng.choice(forms.TITLES), look.margin
    face = look.heading.bold(look.size * rng.uniform(1, 1.5))
    if face.width(text) > look.width - 2 * m:
        return "", float(m)
    tint = shade(rng, rng.choice(tuple(NAMED)))
    canvas.box(0, 0, look.width, m + face.line + 6, tint)
    x, align = rng.choice(((m, "left"), (look.width / 2, "centre"), (look.width - m, "right")))
    canvas.text(x, m / 2 + 3, text, face, on(tint), align)
    return text, m + face.line + 6 + look.size * 0.6


def _panels(rng: random.Random, canvas: Canvas, look: Look, y: float) -> list[Area]:
    """One to three panels beside or below each other, dashes between them."""
    m, t = float(look.margin), look.theme
    x0, x1, bottom = m, look.width - m, look.height - m
    n = rng.choice((1, 2, 2, 3)) if look.width > 300 else 1
    cuts = sorted(rng.uniform(0.25, 0.8) for _ in range(n - 1))
    beside = look.width > look.height or rng.random() < 0.3
    low, high = (x0, x1) if beside else (y, bottom)
    ends = [low, *(low + c * (high - low) for c in cuts), high]
    least = look.size * (8 if beside else 4)
    gap, areas = look.size * 0.6, list[Area]()
    for a, b in zip(ends, ends[1:], strict=False):
        if b - a < least:
            continue
        if b < high - 1:
            _dashes(canvas, (b, y, b, bottom) if beside else (x0, b, x1, b), t.muted)
        areas.append((a + gap, b - gap, y, bottom) if beside else (x0, x1, a + gap, b - gap))
    return areas or [(x0, x1, y, bottom)]


def _dashes(canvas: Canvas, ends: tuple[float, float, float, float], ink: tuple) -> None:
    """A dashed line along one axis."""
    x0, y0, x1, y1 = ends
    for i in range(0, int(max(x1 - x0, y1 - y0)), 9):
        at = (x0 + i, y0) if x1 > x0 else (x0, y0 + i)
        canvas.line([at, (at[0] + 5 * (x1 > x0), at[1] + 5 * (y1 > y0))], ink)


def _code(rng: random.Random, canvas: Canvas, look: Look, area: Area) -> None:
    """Black bars of unequal width across a part of ``area``."""
    x, end, top, bottom = area
    end = x + (end - x) * rng.uniform(0.4, 1)
    while x < end:
        step = rng.randint(1, 4)
        canvas.box(x, top, x + step - 1, bottom, fill=on(look.theme.page))
        x += step + rng.randint(1, 4)
