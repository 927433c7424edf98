"""Rows set at tab stops without a rule: score sheets, logs, price boards, print-outs."""

import random
from dataclasses import dataclass

from pocket.content.colours import Colour, hsv, shade
from pocket.content.tables import Grid, make_grid
from pocket.document import Document
from pocket.layouts.fonts import Face, pick_family
from pocket.layouts.pillow.canvas import Canvas, blank_page
from pocket.layouts.pillow.titles import put_title
from pocket.layouts.style import PageStyle
from pocket.questions.tables import column_questions, table_questions


@dataclass(frozen=True)
class Stops:
    """Faces of heads and rows, the columns' widths and the gap between them, pixels."""

    head: Face
    body: Face
    widths: list[float]
    gap: float


def draw(rng: random.Random, style: PageStyle) -> Document:
    """A table of text alone: columns differ by position, at times by ink."""
    canvas = blank_page(style)
    title, y = put_title(rng, canvas, style)
    pitch = style.family.regular(style.size).line * rng.uniform(1.05, 2.0)
    room = int((style.height - style.margin - y) / pitch) - 1
    found = _fitting(rng, style, max(2, min(18, room)))
    if found is None or room < 2:
        return canvas.document([])
    grid = _write(rng, canvas, style, *found, (y, pitch))
    out = table_questions(rng, grid, title) + column_questions(rng, grid)
    return canvas.document([q for q in out if len(q.answer.encode()) <= style.budget])


def _fitting(rng: random.Random, style: PageStyle, room: int) -> tuple[Grid, Stops] | None:
    """Contents that fit the page's width, and where their columns stand."""
    family, size = style.family, style.size
    if rng.random() < 0.3:
        family = pick_family(rng, style.split, western=False, mono=True)
    heads, bodies = (rng.choice((family.bold, family.regular)) for _ in range(2))
    columns = max(2, min(6, int(style.width / (size * rng.uniform(6, 9)))))
    for _ in range(6):
        rows = max(rng.randint(2, room), rng.randint(2, room))
        grid = make_grid(rng, columns, rows, rng.choice((0.2, 0.9)))
        head, body = heads(size), bodies(size)
        widths = [max(head.width(h), *(body.width(r[i]) for r in grid.rows))
                  for i, h in enumerate(grid.headers)]  # fmt: skip
        gap = (style.width - 2 * style.margin - sum(widths)) / (columns - 1)
        if gap > size * 0.7:
            return grid, Stops(head, body, widths, min(gap, size * rng.uniform(0.7, 5)))
        columns, size = max(2, columns - 1), max(11.0, size * 0.93)
    return None


def _write(
    rng: random.Random, canvas: Canvas, style: PageStyle, grid: Grid, stops: Stops,
    place: tuple[float, float],
) -> Grid:  # fmt: skip
    """Heads and rows from `place` (top, pitch) down; returns those that found room."""
    right = [i in grid.values and rng.random() < 0.6 for i in range(len(grid.headers))]
    inks, (y, pitch) = _inks(rng, style, len(right)), place
    pause = rng.randint(3, 6) if rng.random() < 0.2 else 99
    for r, row in enumerate([grid.headers, *grid.rows]):
        x, face = float(style.margin), stops.body if r else stops.head
        top = y + (r + max(0, r - 1) // pause * 0.5) * pitch
        if r > 1 and top + face.line > style.height - 2:
            values = {i: v[: r - 1] for i, v in grid.values.items()}
            return Grid(grid.headers, grid.rows[: r - 1], values)
        for text, width, far, ink in zip(row, stops.widths, right, inks, strict=True):
            ink = ink if r else style.theme.muted
            canvas.text(x + width * far, top, text, face, ink, "right" if far else "left")
            x += width + stops.gap
    return grid


def _inks(rng: random.Random, style: PageStyle, n: int) -> list[Colour]:
    """An ink for each column: all alike, or one of its own."""
    t, inks = style.theme, [style.theme.ink] * n
    if rng.random() < 0.4:
        bright = hsv(rng.random(), 0.5, 1.0) if t.dark else shade(rng, "blue")
        inks[rng.randrange(n)] = rng.choice((bright, t.accent, t.muted))
    return inks
