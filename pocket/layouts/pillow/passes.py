"""Passes, vouchers, labels and permits: small labels over values in panels of unequal width."""

import random
from dataclasses import replace

from pocket.content.colours import NAMED, ink_on, shade
from pocket.content.fields import TITLES, field_pairs
from pocket.document import Document
from pocket.layouts.pillow import grids
from pocket.layouts.pillow.canvas import Canvas, blank_page
from pocket.layouts.pillow.titles import put_title
from pocket.layouts.style import PageStyle
from pocket.questions.fields import grid_questions
from pocket.questions.paraphrases import put

Area = tuple[float, float, float, float]  # left, right, top, bottom


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One sheet in one to three panels; a band, dashes between them, a bar code at times."""
    canvas, m = blank_page(style), style.margin
    title, y = _head(rng, canvas, style)
    areas = _panels(rng, canvas, style, y)
    cell_style = grids.CellStyle.of(rng, style)
    small = style.family.regular(max(10.0, style.size * rng.uniform(0.55, 0.85)))
    cell_style = replace(
        cell_style, key=small, place=rng.choice(("above", "above", "below", "beside"))
    )
    pairs = [p for p in field_pairs(rng, 30) if len(p[0]) < 24]
    rows: list[list[tuple[str, str]]] = []
    for area in areas:
        laid = grids.arrange(rng, cell_style, pairs[: rng.randint(2, 9)], area)
        if not laid:
            continue
        grids.paint(rng, canvas, style, cell_style, laid, area[:2])
        rows += [[(c.key, c.value) for c in row] for row in laid]
        shown = {c.key for row in laid for c in row}
        pairs = [p for p in pairs if p[0] not in shown]
        foot = laid[-1][0].y + cell_style.height + cell_style.gap
        if foot + 24 < area[3] and rng.random() < 0.4:
            _code(rng, canvas, style, (area[0], area[1], foot, min(area[3], foot + 3.0 * m + 14)))
    out = grid_questions(rng, title, rows, [])
    flat = [pair for row in rows for pair in row]
    values = [v for _, v in flat]
    for key, value in rng.sample(flat, min(4, len(flat))):
        out.append(put(rng, "field", value, "field", f=key.lower().rstrip(".")))
        if values.count(value) == 1:
            out.append(put(rng, "names", key, "reverse", v=value))
    return canvas.document([q for q in out if len(q.answer.encode()) <= style.budget])


def _head(rng: random.Random, canvas: Canvas, style: PageStyle) -> tuple[str, float]:
    """A title on a coloured band or on the page."""
    if rng.random() < 0.5:
        return put_title(rng, canvas, style)
    text, m = rng.choice(TITLES), style.margin
    face = style.heading.bold(style.size * rng.uniform(1, 1.5))
    if face.width(text) > style.width - 2 * m:
        return "", float(m)
    tint = shade(rng, rng.choice(tuple(NAMED)))
    canvas.box(0, 0, style.width, m + face.line + 6, tint)
    x, align = rng.choice(((m, "left"), (style.width / 2, "centre"), (style.width - m, "right")))
    canvas.text(x, m / 2 + 3, text, face, ink_on(tint), align)
    return text, m + face.line + 6 + style.size * 0.6


def _panels(rng: random.Random, canvas: Canvas, style: PageStyle, y: float) -> list[Area]:
    """One to three panels beside or below each other, dashes between them."""
    m, t = float(style.margin), style.theme
    x0, x1, bottom = m, style.width - m, style.height - m
    n = rng.choice((1, 2, 2, 3)) if style.width > 300 else 1
    cuts = sorted(rng.uniform(0.25, 0.8) for _ in range(n - 1))
    beside = style.width > style.height or rng.random() < 0.3
    low, high = (x0, x1) if beside else (y, bottom)
    ends = [low, *(low + c * (high - low) for c in cuts), high]
    least = style.size * (8 if beside else 4)
    gap, areas = style.size * 0.6, list[Area]()
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


def _code(rng: random.Random, canvas: Canvas, style: PageStyle, area: Area) -> None:
    """Black bars of unequal width across a part of `area`."""
    x, end, top, bottom = area
    end = x + (end - x) * rng.uniform(0.4, 1)
    while x < end:
        step = rng.randint(1, 4)
        canvas.box(x, top, x + step - 1, bottom, fill=ink_on(style.theme.page))
        x += step + rng.randint(1, 4)
