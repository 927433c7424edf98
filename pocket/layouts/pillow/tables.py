"""Tables: ruled, striped or bare, with a header row and optional caption."""

import random
from dataclasses import dataclass

from pocket.content import formats, words
from pocket.content.colours import ink_on
from pocket.content.tables import Grid, make_grid
from pocket.document import Document
from pocket.layouts.pillow.canvas import Canvas, blank_page
from pocket.layouts.style import PageStyle
from pocket.questions.tables import column_questions, table_questions


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One table, as large as the page allows."""
    canvas, m = blank_page(style), style.margin
    y, caption = float(m), ""
    size = style.size
    if rng.random() < 0.5:
        caption = words.title(rng)
        face = style.heading.bold(size * rng.uniform(1.1, 1.6))
        if face.width(caption) > style.width - 2 * m:
            caption = ""
        else:
            canvas.text(m, y, caption, face, style.theme.ink)
            y += face.line * rng.uniform(1.1, 1.6)
    pitch = style.family.regular(size).line * rng.uniform(1.15, 1.9)
    room = int((style.height - m - y) / pitch) - 1
    columns = max(2, min(7, int((style.width - 2 * m) / (size * rng.uniform(6, 9)))))
    long = rng.random() < 0.3
    for _ in range(8):
        rows = rng.randint(8, 24) if long else rng.randint(2, 14)
        grid = make_grid(rng, columns, max(1, min(room, rows)))
        widths = _widths(style, grid, size)
        if sum(widths) <= style.width - 2 * m:
            break
        if columns > 2:
            columns -= 1
        elif size > 11:
            size -= 1
    else:
        grid = Grid(["A", "B"], [["1", formats.code(rng)[:6]]], {0: [1.0]})
        widths = _widths(style, grid, size)
    spare = style.width - 2 * m - sum(widths)
    if rng.random() < 0.7 and spare > 0:
        widths = [w + spare / len(widths) for w in widths]
    paint(rng, canvas, style, grid, Setting(y, widths, pitch, size))
    out = table_questions(rng, grid, caption) + column_questions(rng, grid)
    return canvas.document([q for q in out if len(q.answer.encode()) <= style.budget])


def _widths(style: PageStyle, grid: Grid, size: float) -> list[float]:
    bold, body = style.family.bold(size), style.family.regular(size)
    return [
        max([bold.width(h), *(body.width(r[i]) for r in grid.rows)]) + size * 1.1
        for i, h in enumerate(grid.headers)
    ]


@dataclass(frozen=True)
class Setting:
    """A table's position and type, in pixels."""

    top: float
    widths: list[float]  # of its columns
    pitch: float  # from row to row
    size: float  # of its type


def paint(
    rng: random.Random, canvas: Canvas, style: PageStyle, grid: Grid, setting: Setting
) -> None:
    """Draw `grid`, ruled, striped or bare, its head on a ground or not."""
    y, widths, pitch, size = setting.top, setting.widths, setting.pitch, setting.size
    t, x0 = style.theme, float(style.margin)
    bold, body = style.family.bold(size), style.family.regular(size)
    x1 = x0 + sum(widths)
    ruling = rng.choice(("grid", "rows", "stripes", "bare", "header", "header"))
    filled = ruling in ("header", "stripes") or rng.random() < 0.3
    head_ground = t.accent if rng.random() < 0.5 else t.rule
    if filled:
        canvas.box(x0, y, x1, y + pitch, fill=head_ground)
    head_face = bold if rng.random() < 0.8 else body
    right = [i in grid.values and rng.random() < 0.7 for i in range(len(widths))]
    pad = size * 0.45
    bottom = y + pitch * (len(grid.rows) + 1)
    for r, row in enumerate([grid.headers, *grid.rows]):
        top = y + r * pitch
        if ruling == "stripes" and r and r % 2 == 0:
            canvas.box(x0, top, x1, top + pitch, fill=t.panel if t.panel != t.page else t.rule)
        x = x0
        for i, text in enumerate(row):
            face = head_face if r == 0 else body
            ink = ink_on(head_ground) if r == 0 and filled else t.ink
            at = x + widths[i] - pad if right[i] else x + pad
            canvas.text(
                at, top + (pitch - face.line) / 2, text, face, ink, "right" if right[i] else "left"
            )
            x += widths[i]
        if ruling in ("grid", "rows") or (r == 0 and ruling != "stripes"):
            canvas.line([(x0, top + pitch), (x1, top + pitch)], t.rule if r else t.ink)
    if ruling == "grid":
        canvas.box(x0, y, x1, bottom, outline=t.rule)
        x = x0
        for w in widths[:-1]:
            x += w
            canvas.line([(x, y), (x, bottom)], t.rule)
