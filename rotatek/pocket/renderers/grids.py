"""Fields side by side: each label above, below or beside its value, one to five in a row."""

from __future__ import annotations

import random
from dataclasses import dataclass

from .. import formats, words
from ..document import Canvas, Colour, Document, Question
from ..fonts import Face
from ..questions import ORDINALS, ask
from ..theme import SERIES_NAMES, shade
from . import forms
from .look import Look, number
from .tables import figures

FRAMES = ("none", "none", "none", "rows", "columns", "boxes", "panels", "under", "ledger")
WHERE = {
    "right": ("Which field is to the right of {f}?", "what stands right of {f}",
              "Which field follows {f} in its row?"),
    "left": ("Which field is to the left of {f}?", "what stands left of {f}",
             "Which field comes before {f} in its row?"),
}  # fmt: skip
VALUES = ("List all values.", "list the values in order", "Which values are given?",
          "Read the values only.")  # fmt: skip
LARGEST = ("Which figure is the highest?", "Which field has the highest value?", "highest figure?",
           "which one is the largest", "What has the highest value?")  # fmt: skip
SMALLEST = ("Which figure is the lowest?", "Which field has the lowest value?", "lowest figure?",
            "which one is the smallest", "What has the lowest value?")  # fmt: skip


@dataclass
class Contents:
    """Fields in reading order; ``numbers`` are set where all values are figures of one sort."""

    pairs: list[tuple[str, str]]
    numbers: list[float]


@dataclass(frozen=True)
class Style:
    """How every cell of one document is set."""

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
    def of(rng: random.Random, look: Look) -> Style:
        """Faces and frames; label and value differ in size, weight or ink."""
        t, s = look.theme, look.size
        place = rng.choice(("above", "above", "above", "above", "below", "below", "beside"))
        frame = rng.choice(FRAMES)
        value_face = rng.choice((look.family.bold, look.family.regular, look.heading.bold))
        key_face = rng.choice((look.family.regular, look.family.regular, look.family.bold))
        large = rng.uniform(1.2, 2) if rng.random() < 0.25 else rng.uniform(0.95, 1.15)
        ink = rng.choice((t.muted, t.muted, t.accent, t.ink))
        small = rng.uniform(0.7, 0.85) if place == "below" or ink == t.ink else rng.uniform(0.7, 1)
        pad = (
            s * rng.uniform(0.3, 0.8) if frame in ("boxes", "panels", "ledger", "columns") else 0.0
        )
        gap = s * rng.uniform(0.45, 1.6) if frame not in ("boxes", "ledger") else 0.0
        return Style(
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


def contents(rng: random.Random, n: int) -> Contents:
    """``n`` fields of any sort, or figures alone, at times all of one notation."""
    r = rng.random()
    if r < 0.6:
        return Contents(forms.pairs(rng, n), [])
    keys = words.unique(rng, lambda k: words.some(k, 1, 2) if k.random() < 0.7 else words.label(k),
                        n)  # fmt: skip
    if r < 0.8:
        made = [rng.choice((number, number, formats.measure, _cash))(rng) for _ in keys]
        return Contents(list(zip(keys, made, strict=True)), [])
    row = figures(rng, n)
    rng.shuffle(row)
    return Contents([(k, t) for k, (t, _) in zip(keys, row, strict=True)], [v for _, v in row])


def _cash(rng: random.Random) -> str:
    return words.money(rng)(rng.choice((9, 99, 9999)) * rng.random() + 1)


def draw(rng: random.Random, look: Look) -> Document:
    """A title and fields in rows of several."""
    canvas, m = look.canvas(), look.margin
    title, y = forms.put_title(rng, canvas, look)
    x0, x1 = float(m), float(look.width - m)
    if rng.random() < 0.25 and look.width > 330:
        x0, x1 = _picture(rng, canvas, look, x0, x1, y)
    elif rng.random() < 0.2:
        x1 = x0 + (x1 - x0) * rng.uniform(0.65, 1)
    style = Style.of(rng, look)
    made = contents(rng, 44 if rng.random() < 0.35 else rng.randint(2, 24))
    if rng.random() < 0.15:
        made.pairs = [(k.upper(), v) for k, v in made.pairs]
    rows = arrange(rng, style, made.pairs, (x0, x1, y, look.height - m))
    paint(rng, canvas, look, style, rows, (x0, x1))
    shown = [(c.key, c.value) for row in rows for c in row]
    kept = dict(zip([k for k, _ in made.pairs], made.numbers, strict=False))
    numbers = [kept[k] for k, _ in shown] if kept else []
    out = questions(rng, title, [[(c.key, c.value) for c in r] for r in rows], numbers)
    return canvas.document([q for q in out if len(q.answer.encode()) <= look.budget])


Place = tuple[float, float, float, float]  # left, right, top, bottom


def arrange(
    rng: random.Random, style: Style, items: list[tuple[str, str]], place: Place
) -> list[list[Cell]]:
    """Rows of cells in ``place``: equal columns, as many as a row likes, or as wide as the text."""
    x0, x1, y, bottom = place
    way = rng.choice(("even", "even", "even", "ragged", "flow", "flow"))
    columns, between = rng.randint(1, 5), style.gap if style.frame != "columns" else 0.0
    pitch = style.height + style.gap * (rng.uniform(1, 2.5) if rng.random() < 0.3 else 1)
    columns = max(1, min(columns, int((x1 - x0) / (style.value.line * 3.2))))
    stretch, queue, rows = rng.random() < 0.5, list(items), list[list[Cell]]()
    while queue and y + style.height <= bottom:
        row, x = list[Cell](), x0
        if way == "ragged" and rows:
            columns = max(1, min(5, columns + rng.choice((-1, 0, 1))))
        unit = (x1 - x0 + between) / columns
        while queue:
            key, value = queue[0]
            need = style.need(key, value)
            if need > x1 - x0:
                queue.pop(0)
                continue
            if way == "flow":
                width = need + style.value.line * 0.3
            else:
                width = unit * -(-(need + between) // unit) - between
            if x + width > x1 + 0.5:
                if row:
                    break
                width = x1 - x0
            queue.pop(0)
            row.append(Cell(key, value, x, y, width))
            x += width + max(
                between, 0.0 if style.pad else style.value.line * 0.7 * (way == "flow")
            )
        if row and stretch and way == "flow" and len(row) > 1:
            row = _stretched(row, x1)
        if row:
            rows.append(row)
        y += pitch
    return rows


def _stretched(row: list[Cell], x1: float) -> list[Cell]:
    """The cells of ``row`` widened until its last one ends at ``x1``."""
    more = (x1 - row[-1].x - row[-1].width) / len(row)
    return [Cell(c.key, c.value, c.x + i * more, c.y, c.width + more) for i, c in enumerate(row)]


def paint(
    rng: random.Random, canvas: Canvas, look: Look, style: Style, rows: list[list[Cell]],
    sides: tuple[float, float],
) -> None:  # fmt: skip
    """Draw the cells and what frames them; ``sides``: left and right end of whole rows."""
    t, h, (x0, x1) = look.theme, style.height, sides
    radius, ground = rng.choice((0, 0, 4, 8)), t.panel if t.panel != t.page else t.rule
    tints = [shade(rng, n) for n in rng.sample(SERIES_NAMES, 4)]
    for r, row in enumerate(rows):
        y = row[0].y
        if style.frame == "rows":
            canvas.line([(x0, y + h + style.gap / 2), (x1, y + h + style.gap / 2)], t.rule)
        elif style.frame == "ledger":
            canvas.box(x0, y, x1, y + h, ground if r % 2 else None, t.rule)
        for i, cell in enumerate(row):
            edge = cell.x + cell.width
            if style.frame == "boxes":
                canvas.box(cell.x, y, edge, y + h, outline=t.rule)
            elif style.frame == "panels":
                canvas.box(cell.x, y, edge, y + h, ground, t.rule, radius)
            elif style.frame == "under":
                canvas.line([(cell.x, y + h), (edge, y + h)], t.rule)
            elif style.frame in ("columns", "ledger") and i:
                canvas.line([(cell.x, y), (cell.x, y + h)], t.rule)
            _cell(canvas, look, style, cell, tints[(r + i) % 4])


def _cell(canvas: Canvas, look: Look, style: Style, cell: Cell, tint: Colour) -> None:
    """Label and value of one cell."""
    pad, key, value = style.pad, style.key, style.value
    left, right = cell.x + pad, cell.x + cell.width - pad
    y = cell.y + pad * (style.frame not in ("none", "columns"))
    if style.icons:
        side = value.line * 0.9
        canvas.box(left, y + 2, left + side, y + 2 + side, tint, radius=int(side / 4))
        left += value.line * 1.2
    if style.place == "beside":
        foot = max(key.ascent, value.ascent)
        canvas.text(left, y + foot - key.ascent, cell.key, key, style.key_ink)
        if style.align == "left":
            left += key.width(cell.key) + key.line * 0.6
        x, align = (left, "left") if style.align == "left" else (right, "right")
        canvas.text(x, y + foot - value.ascent, cell.value, value, look.theme.ink, align)
        return
    x = {"left": left, "centre": (left + right) / 2, "right": right}[style.align]
    first = style.place == "above"
    key_y, value_y = (y, y + key.line) if first else (y + value.line, y)
    canvas.text(x, key_y, cell.key, key, style.key_ink, style.align)
    canvas.text(x, value_y, cell.value, value, look.theme.ink, style.align)


def _picture(
    rng: random.Random, canvas: Canvas, look: Look, x0: float, x1: float, y: float
) -> tuple[float, float]:
    """A place for a photo at one side; returns what is left of the width."""
    wide, tall = look.width * rng.uniform(0.14, 0.28), look.height * rng.uniform(0.15, 0.4)
    left = x0 if rng.random() < 0.6 else x1 - wide
    tint = shade(rng, rng.choice(SERIES_NAMES))
    canvas.box(left, y, left + wide, y + tall, tint, look.theme.rule, rng.choice((0, 6)))
    if rng.random() < 0.6:
        mid, r, light = left + wide / 2, min(wide, tall) * 0.2, look.theme.panel
        canvas.draw.ellipse((mid - r, y + tall * 0.2, mid + r, y + tall * 0.2 + 2 * r), fill=light)
        canvas.box(mid - 1.6 * r, y + tall - 1.2 * r, mid + 1.6 * r, y + tall - 1, light)
    space = look.size
    return (x0 + wide + space, x1) if left == x0 else (x0, x1 - wide - space)


def questions(
    rng: random.Random, title: str, rows: list[list[tuple[str, str]]], numbers: list[float]
) -> list[Question]:
    """Questions about fields in rows; ``numbers`` (or none) are the values in reading order."""
    shown = [pair for row in rows for pair in row]
    out = forms.questions(rng, title, shown)
    values = [v for _, v in shown]
    for key, value in rng.sample(shown, min(3, len(shown))):
        out.append(ask(rng, "field", value, f=key))
        if values.count(value) == 1:
            out.append(ask(rng, "names", key, kind="reverse", v=value))
    out += _order(rng, shown)
    for row in rows:
        if len(row) > 1 and rng.random() < 0.5:
            i = rng.randrange(len(row) - 1)
            side, here, there = rng.choice((("right", i, i + 1), ("left", i + 1, i)))
            text = rng.choice(WHERE[side]).format(f=row[here][0])
            out.append(Question("find", text, row[there][0]))
    if len(numbers) == len(shown) > 1:
        out += _extremes(rng, shown, numbers)
    return out


def _order(rng: random.Random, shown: list[tuple[str, str]]) -> list[Question]:
    """Questions that count and list."""
    out, n = list[Question](), len(shown)
    if 10 < n <= 18:
        out.append(ask(rng, "list", ", ".join(k for k, _ in shown), n="fields"))
    if n > 12:
        out.append(ask(rng, "count", str(n), n="fields"))
    if 2 <= n <= 12:
        out.append(Question("list", rng.choice(VALUES), ", ".join(v for _, v in shown)))
    if n > 1:
        i = rng.randrange(min(n, len(ORDINALS)))
        out.append(ask(rng, "nth", shown[i][0], k=ORDINALS[i], n="field"))
        out.append(ask(rng, "nth", shown[-1][0], k="last", n="field"))
    return out


def _extremes(
    rng: random.Random, shown: list[tuple[str, str]], numbers: list[float]
) -> list[Question]:
    order, out = sorted(range(len(numbers)), key=numbers.__getitem__), list[Question]()
    if numbers[order[-1]] > numbers[order[-2]]:
        key, value = shown[order[-1]]
        out.append(Question("highest", rng.choice(LARGEST), key))
        out.append(ask(rng, "highest_value", value, kind="value", n="figure"))
    if numbers[order[0]] < numbers[order[1]]:
        out.append(Question("lowest", rng.choice(SMALLEST), shown[order[0]][0]))
    return out
