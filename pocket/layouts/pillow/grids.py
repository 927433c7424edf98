"""Fields side by side: each label above, below or beside its value, one to five in a row."""

import random
from dataclasses import dataclass
from typing import Final

from pocket.content.colours import SERIES_NAMES, Colour, shade
from pocket.content.fields import make_fields
from pocket.document import Document
from pocket.layouts.fonts import Face
from pocket.layouts.pillow.canvas import Canvas, blank_page
from pocket.layouts.pillow.titles import put_title
from pocket.layouts.style import PageStyle
from pocket.questions.fields import grid_questions

FRAMES: Final = ("none", "none", "none", "rows", "columns", "boxes", "panels", "under", "ledger")


@dataclass(frozen=True)
class CellStyle:
    """The style of every cell of one document."""

    key: Face
    value: Face
    key_ink: Colour
    place: str
    align: str
    frame: str
    pad: float
    gap: float
    icons: bool

    @staticmethod
    def of(rng: random.Random, style: PageStyle) -> "CellStyle":
        """Faces and frames; label and value differ in size, weight or ink."""
        t, s = style.theme, style.size
        place = rng.choice(("above", "above", "above", "above", "below", "below", "beside"))
        frame = rng.choice(FRAMES)
        value_face = rng.choice((style.family.bold, style.family.regular, style.heading.bold))
        key_face = rng.choice((style.family.regular, style.family.regular, style.family.bold))
        large = rng.uniform(1.2, 2) if rng.random() < 0.25 else rng.uniform(0.95, 1.15)
        ink = rng.choice((t.muted, t.muted, t.accent, t.ink))
        small = rng.uniform(0.7, 0.85) if place == "below" or ink == t.ink else rng.uniform(0.7, 1)
        pad = (
            s * rng.uniform(0.3, 0.8) if frame in ("boxes", "panels", "ledger", "columns") else 0.0
        )
        gap = s * rng.uniform(0.45, 1.6) if frame not in ("boxes", "ledger") else 0.0
        return CellStyle(
            key=key_face(max(10, s * small)),
            value=value_face(max(11, s * large)),
            key_ink=ink,
            place=place,
            align=rng.choice(("left", "left", "left", "centre", "right")),
            frame=frame,
            pad=pad + (2 if frame == "under" else 0),
            gap=gap,
            icons=rng.random() < 0.1,
        )

    def need(self, key: str, value: str) -> float:
        """Width in pixels that a cell takes at least."""
        wide = self.key.width(key), self.value.width(value)
        text = sum(wide) + self.key.line * 0.6 if self.place == "beside" else max(wide)
        return text + 2 * self.pad + self.icons * self.value.line * 1.2

    @property
    def height(self) -> float:
        """Height in pixels of a cell without the gap below it."""
        both = max(self.key.line, self.value.line)
        lines = both if self.place == "beside" else self.key.line + self.value.line
        return lines + 2 * self.pad * (self.frame not in ("none", "columns"))


@dataclass(frozen=True)
class Cell:
    """A field and its place."""

    key: str
    value: str
    x: float
    y: float
    width: float


def draw(rng: random.Random, style: PageStyle) -> Document:
    """A title and fields in rows of several."""
    canvas, m = blank_page(style), style.margin
    title, y = put_title(rng, canvas, style)
    x0, x1 = float(m), float(style.width - m)
    if rng.random() < 0.25 and style.width > 330:
        x0, x1 = _picture(rng, canvas, style, x0, x1, y)
    elif rng.random() < 0.2:
        x1 = x0 + (x1 - x0) * rng.uniform(0.65, 1)
    cell_style = CellStyle.of(rng, style)
    made = make_fields(rng, 44 if rng.random() < 0.35 else rng.randint(2, 24))
    if rng.random() < 0.15:
        made.pairs = [(k.upper(), v) for k, v in made.pairs]
    rows = arrange(rng, cell_style, made.pairs, (x0, x1, y, style.height - m))
    paint(rng, canvas, style, cell_style, rows, (x0, x1))
    shown = [(c.key, c.value) for row in rows for c in row]
    kept = dict(zip([k for k, _ in made.pairs], made.numbers, strict=False))
    numbers = [kept[k] for k, _ in shown] if kept else []
    out = grid_questions(rng, title, [[(c.key, c.value) for c in r] for r in rows], numbers)
    return canvas.document([q for q in out if len(q.answer.encode()) <= style.budget])


Place = tuple[float, float, float, float]  # left, right, top, bottom


def arrange(
    rng: random.Random, cell_style: CellStyle, items: list[tuple[str, str]], place: Place
) -> list[list[Cell]]:
    """Rows of cells in `place`: equal columns, as many as a row likes, or as wide as the text."""
    x0, x1, y, bottom = place
    way = rng.choice(("even", "even", "even", "ragged", "flow", "flow"))
    columns, between = rng.randint(1, 5), cell_style.gap if cell_style.frame != "columns" else 0.0
    pitch = cell_style.height + cell_style.gap * (rng.uniform(1, 2.5) if rng.random() < 0.3 else 1)
    columns = max(1, min(columns, int((x1 - x0) / (cell_style.value.line * 3.2))))
    stretch, queue, rows = rng.random() < 0.5, list(items), list[list[Cell]]()
    while queue and y + cell_style.height <= bottom:
        row, x = list[Cell](), x0
        if way == "ragged" and rows:
            columns = max(1, min(5, columns + rng.choice((-1, 0, 1))))
        unit = (x1 - x0 + between) / columns
        while queue:
            key, value = queue[0]
            need = cell_style.need(key, value)
            if need > x1 - x0:
                queue.pop(0)
                continue
            if way == "flow":
                width = need + cell_style.value.line * 0.3
            else:
                width = unit * -(-(need + between) // unit) - between
            if x + width > x1 + 0.5:
                if row:
                    break
                width = x1 - x0
            queue.pop(0)
            row.append(Cell(key, value, x, y, width))
            x += width + max(
                between, 0.0 if cell_style.pad else cell_style.value.line * 0.7 * (way == "flow")
            )
        if row and stretch and way == "flow" and len(row) > 1:
            row = _stretched(row, x1)
        if row:
            rows.append(row)
        y += pitch
    return rows


def _stretched(row: list[Cell], x1: float) -> list[Cell]:
    """The cells of `row` widened until its last one ends at `x1`."""
    more = (x1 - row[-1].x - row[-1].width) / len(row)
    return [Cell(c.key, c.value, c.x + i * more, c.y, c.width + more) for i, c in enumerate(row)]


def paint(
    rng: random.Random, canvas: Canvas, style: PageStyle, cell_style: CellStyle,
    rows: list[list[Cell]], sides: tuple[float, float],
) -> None:  # fmt: skip
    """Draw the cells and what frames them; `sides`: left and right end of whole rows."""
    t, h, (x0, x1) = style.theme, cell_style.height, sides
    radius, ground = rng.choice((0, 0, 4, 8)), t.panel if t.panel != t.page else t.rule
    tints = [shade(rng, n) for n in rng.sample(SERIES_NAMES, 4)]
    for r, row in enumerate(rows):
        y = row[0].y
        if cell_style.frame == "rows":
            canvas.line(
                [(x0, y + h + cell_style.gap / 2), (x1, y + h + cell_style.gap / 2)], t.rule
            )
        elif cell_style.frame == "ledger":
            canvas.box(x0, y, x1, y + h, ground if r % 2 else None, t.rule)
        for i, cell in enumerate(row):
            edge = cell.x + cell.width
            if cell_style.frame == "boxes":
                canvas.box(cell.x, y, edge, y + h, outline=t.rule)
            elif cell_style.frame == "panels":
                canvas.box(cell.x, y, edge, y + h, ground, t.rule, radius)
            elif cell_style.frame == "under":
                canvas.line([(cell.x, y + h), (edge, y + h)], t.rule)
            elif cell_style.frame in ("columns", "ledger") and i:
                canvas.line([(cell.x, y), (cell.x, y + h)], t.rule)
            _cell(canvas, style, cell_style, cell, tints[(r + i) % 4])


def _cell(
    canvas: Canvas, style: PageStyle, cell_style: CellStyle, cell: Cell, tint: Colour
) -> None:
    """Label and value of one cell."""
    pad, key, value = cell_style.pad, cell_style.key, cell_style.value
    left, right = cell.x + pad, cell.x + cell.width - pad
    y = cell.y + pad * (cell_style.frame not in ("none", "columns"))
    if cell_style.icons:
        side = value.line * 0.9
        canvas.box(left, y + 2, left + side, y + 2 + side, tint, radius=int(side / 4))
        left += value.line * 1.2
    if cell_style.place == "beside":
        foot = max(key.ascent, value.ascent)
        canvas.text(left, y + foot - key.ascent, cell.key, key, cell_style.key_ink)
        if cell_style.align == "left":
            left += key.width(cell.key) + key.line * 0.6
        x, align = (left, "left") if cell_style.align == "left" else (right, "right")
        canvas.text(x, y + foot - value.ascent, cell.value, value, style.theme.ink, align)
        return
    x = {"left": left, "centre": (left + right) / 2, "right": right}[cell_style.align]
    first = cell_style.place == "above"
    key_y, value_y = (y, y + key.line) if first else (y + value.line, y)
    canvas.text(x, key_y, cell.key, key, cell_style.key_ink, cell_style.align)
    canvas.text(x, value_y, cell.value, value, style.theme.ink, cell_style.align)


def _picture(
    rng: random.Random, canvas: Canvas, style: PageStyle, x0: float, x1: float, y: float
) -> tuple[float, float]:
    """A place for a photo at one side; returns what is left of the width."""
    wide, tall = style.width * rng.uniform(0.14, 0.28), style.height * rng.uniform(0.15, 0.4)
    left = x0 if rng.random() < 0.6 else x1 - wide
    tint = shade(rng, rng.choice(SERIES_NAMES))
    canvas.box(left, y, left + wide, y + tall, tint, style.theme.rule, rng.choice((0, 6)))
    if rng.random() < 0.6:
        mid, r, light = left + wide / 2, min(wide, tall) * 0.2, style.theme.panel
        canvas.draw.ellipse((mid - r, y + tall * 0.2, mid + r, y + tall * 0.2 + 2 * r), fill=light)
        canvas.box(mid - 1.6 * r, y + tall - 1.2 * r, mid + 1.6 * r, y + tall - 1, light)
    space = style.size
    return (x0 + wide + space, x1) if left == x0 else (x0, x1 - wide - space)
