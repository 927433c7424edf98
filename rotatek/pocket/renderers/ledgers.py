"""Rows set at tab stops without a rule: score sheets, logs, price boards, print-outs."""

from __future__ import annotations

import random
from dataclasses import dataclass

from ..document import Canvas, Colour, Document
from ..fonts import Face, pick_family
from ..theme import hsv, shade
from . import forms, tables
from .look import Look
from .tables import Grid


@dataclass(frozen=True)
class Stops:
    """Faces of heads and rows, the columns' widths and the gap between them, pixels."""

    head: Face
    body: Face
    widths: list[float]
    gap: float


def draw(rng: random.Random, look: Look) -> Document:
    """A table of text alone: its columns show by their places, at times by their inks."""
    canvas = look.canvas()
    title, y = forms.put_title(rng, canvas, look)
    pitch = look.family.regular(look.size).line * rng.uniform(1.05, 2.0)
    room = int((look.height - look.margin - y) / pitch) - 1
    found = _fitting(rng, look, max(2, min(18, room)))
    if found is None or room < 2:
        return canvas.document([])
    grid = _write(rng, canvas, look, *found, (y, pitch))
    out = tables.questions(rng, grid, title) + tables.comparisons(rng, grid)
    return canvas.document([q for q in out if len(q.answer.encode()) <= look.budget])


def _fitting(rng: random.Random, look: Look, room: int) -> tuple[Grid, Stops] | None:
    """Contents that fit the page's width, and where their columns stand."""
    family, size = look.family, look.size
    if rng.random() < 0.3:
        family = pick_family(rng, look.split, western=False, mono=True)
    heads, bodies = (rng.choice((family.bold, family.regular)) for _ in range(2))
    columns = max(2, min(6, int(look.width / (size * rng.uniform(6, 9)))))
    for _ in range(6):
        rows = max(rng.randint(2, room), rng.randint(2, room))
        grid = tables.make_grid(rng, columns, rows, rng.choice((0.2, 0.9)))
        head, body = heads(size), bodies(size)
        widths = [max(head.width(h), *(body.width(r[i]) for r in grid.rows))
                  for i, h in enumerate(grid.headers)]  # fmt: skip
        gap = (look.width - 2 * look.margin - sum(widths)) / (columns - 1)
        if gap > size * 0.7:
            return grid, Stops(head, body, widths, min(gap, size * rng.uniform(0.7, 5)))
        columns, size = max(2, columns - 1), max(11.0, size * 0.93)
    return None


def _write(
    rng: random.Random, canvas: Canvas, look: Look, grid: Grid, stops: Stops,
    place: tuple[float, float],
) -> Grid:  # fmt: skip
    """Heads and rows from ``place`` (top, pitch) down; returns those that found room."""
    right = [i in grid.values and rng.random() < 0.6 for i in range(len(grid.headers))]
    inks, (y, pitch) = _inks(rng, look, len(right)), place
    pause = rng.randint(3, 6) if rng.random() < 0.2 else 99
    for r, row in enumerate([grid.headers, *grid.rows]):
        x, face = float(look.margin), stops.body if r else stops.head
        top = y + (r + max(0, r - 1) // pause * 0.5) * pitch
        if r > 1 and top + face.line > look.height - 2:
            values = {i: v[: r - 1] for i, v in grid.values.items()}
            return Grid(grid.headers, grid.rows[: r - 1], values)
        for text, width, far, ink in zip(row, stops.widths, right, inks, strict=True):
            ink = ink if r else look.theme.muted
            canvas.text(x + width * far, top, text, face, ink, "right" if far else "left")
            x += width + stops.gap
    return grid


def _inks(rng: random.Random, look: Look, n: int) -> list[Colour]:
    """An ink for each column: all alike, or one of its own."""
    t, inks = look.theme, [look.theme.ink] * n
    if rng.random() < 0.4:
        bright = hsv(rng.random(), 0.5, 1.0) if t.dark else shade(rng, "blue")
        inks[rng.randrange(n)] = rng.choice((bright, t.accent, t.muted))
    return inks
