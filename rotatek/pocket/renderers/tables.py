"""Tables: ruled, striped or bare, with a header row and optional caption."""

from __future__ import annotations

import random
from collections.abc import Callable

from .. import words
from ..document import Canvas, Document, Question
from ..questions import ORDINALS, absent, ask, yes_no
from ..theme import on
from .look import Look

COLUMNS: dict[str, Callable[[random.Random], str]] = {
    "Name": words.person,
    "City": lambda r: r.choice(words.CITIES),
    "Code": words.code,
    "Country": lambda r: r.choice(words.COUNTRIES),
    "Date": words.date,
    "Product": words.product,
    "Company": words.company,
    "Owner": lambda r: r.choice(words.FIRST),
    "Time": words.clock,
    "Status": lambda r: r.choice("Open Closed Paid Done Pending New Late".split()),
    "Grade": lambda r: r.choice("A B C D A+ B- F".split()),
    "Type": words.label,
    "Note": lambda r: words.some(r, 1, 2),
    "Email": words.email,
    "Phone": words.phone,
    "Role": lambda r: words.some(r, 1, 1),
}
NUMERIC = (
    "Points|Price|Units|Total|Age|Score|Qty|Weight|Cost|Sales|Rank|Share|Change|Hours|Stock|Goals|"
    "Wins|Losses|2019|2020|2021|2022|2023|2024|Q1|Q2|Q3|Q4|Min|Max|Mean|Amount|Visits|Rate|Year"
).split("|")
HIGHEST = (
    "Which {n} has the highest {c}?", "highest {c}?", "Who or what has the most {c}?",
    "which {n} has the largest {c}", "Which {n} is top by {c}?", "max {c}: which {n}?",
)  # fmt: skip
LOWEST = (
    "Which {n} has the lowest {c}?", "lowest {c}?", "which {n} has the smallest {c}",
    "Who or what has the least {c}?", "min {c}: which {n}?",
)  # fmt: skip

EXTREMES = ("What is the {w} {c}?", "{w} {c} in figures", "How much is the {w} {c}?",
            "What is the {w} figure under {c}?", "{w} value in the column {c}?")  # fmt: skip
SECOND = ("Which {n} has the second highest {c}?", "Which {n} comes second by {c}?")
ABOVE = ("How many rows have a {c} above {v}?", "In how many rows is {c} higher than {v}?",
         "count the rows with more {c} than {v}")  # fmt: skip


class Grid:
    """Headers, rows and, per numeric column, the values behind the text."""

    def __init__(self, headers: list[str], rows: list[list[str]], values: dict[int, list[float]]):
        self.headers, self.rows, self.values = headers, rows, values

    def markdown(self) -> str:
        """The table as Markdown."""
        lines = [self.headers, ["---"] * len(self.headers), *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def make_grid(rng: random.Random, columns: int, rows: int, numeric: float = 0.3) -> Grid:
    """Random contents: the first column names the rows, later ones hold text or figures.

    ``numeric`` is the share of tables that hold mostly figures.
    """
    first, draw_first = rng.choice(
        (
            ("Name", words.person),
            ("Product", words.product),
            ("City", words.label),
            ("Item", words.label),
            ("Region", words.label),
            ("Team", words.label),
            ("Order", words.code),
            ("Country", lambda r: r.choice(words.COUNTRIES)),
            ("", words.label),
            ("Code", words.code),
        )
    )
    body = [[name] for name in words.unique(rng, draw_first, rows)]
    if rng.random() < 0.3:
        first = words.some(rng, 1, 1)
    headers, values = [first or "Group"], {}
    wordy = rng.sample(tuple(COLUMNS), 2 if rng.random() < numeric else len(COLUMNS))
    pool = [c for c in (*wordy, *rng.sample(NUMERIC, 10)) if c != first]
    for name in rng.sample(pool, columns - 1):
        headers.append(name if rng.random() < 0.65 else words.some(rng, 1, rng.choice((1, 1, 2))))
        if name in COLUMNS:
            for row in body:
                row.append(COLUMNS[name](rng))
            continue
        column = figures(rng, rows)
        for row, (text, _) in zip(body, column, strict=True):
            row.append(text)
        values[len(headers) - 1] = [v for _, v in column]
    if len({h.lower() for h in headers}) < columns:
        return make_grid(rng, columns, rows, numeric)
    return Grid(headers, body, values)


def figures(rng: random.Random, n: int) -> list[tuple[str, float]]:
    """Figures in one notation, all different where that is easy."""
    kind = rng.random()
    top = rng.choice((20, 100, 1000, 50_000))
    out: dict[str, float] = {}
    cash = words.money(rng)
    for _ in range(40 * n):
        v = rng.uniform(0, top)
        if kind < 0.45:
            v = float(round(v))
            text = f"{int(v):,}" if top > 1000 else str(int(v))
        elif kind < 0.65:
            v = round(v, 1)
            text = f"{v:.1f}"
        elif kind < 0.8:
            v = round(v, 2)
            text = cash(v, cash.before)
        else:
            v = float(round(v % 100))
            text = f"{int(v)}%"
        out.setdefault(text, v)
        if len(out) == n:
            break
    while len(out) < n:
        out[str(len(out) + 101)] = float(len(out) + 101)
    return list(out.items())


def draw(rng: random.Random, look: Look) -> Document:
    """One table, as large as the page allows."""
    canvas, m = look.canvas(), look.margin
    y, caption = float(m), ""
    size = look.size
    if rng.random() < 0.5:
        caption = words.title(rng)
        face = look.heading.bold(size * rng.uniform(1.1, 1.6))
        if face.width(caption) > look.width - 2 * m:
            caption = ""
        else:
            canvas.text(m, y, caption, face, look.theme.ink)
            y += face.line * rng.uniform(1.1, 1.6)
    pitch = look.family.regular(size).line * rng.uniform(1.15, 1.9)
    room = int((look.height - m - y) / pitch) - 1
    columns = max(2, min(7, int((look.width - 2 * m) / (size * rng.uniform(6, 9)))))
    long = rng.random() < 0.3
    for _ in range(8):
        rows = rng.randint(8, 24) if long else rng.randint(2, 14)
        grid = make_grid(rng, columns, max(1, min(room, rows)))
        widths = _widths(look, grid, size)
        if sum(widths) <= look.width - 2 * m:
            break
        if columns > 2:
            columns -= 1
        elif size > 11:
            size -= 1
    else:
        grid = Grid(["A", "B"], [["1", words.code(rng)[:6]]], {0: [1.0]})
        widths = _widths(look, grid, size)
    spare = look.width - 2 * m - sum(widths)
    if rng.random() < 0.7 and spare > 0:
        widths = [w + spare / len(widths) for w in widths]
    paint(rng, canvas, look, grid, widths, pitch, y, size)
    out = questions(rng, grid, caption) + comparisons(rng, grid)
    return canvas.document([q for q in out if len(q.answer.encode()) <= look.budget])


def _widths(look: Look, grid: Grid, size: float) -> list[float]:
    bold, body = look.family.bold(size), look.family.regular(size)
    return [
        max([bold.width(h), *(body.width(r[i]) for r in grid.rows)]) + size * 1.1
        for i, h in enumerate(grid.headers)
    ]


def paint(
    rng: random.Random,
    canvas: Canvas,
    look: Look,
    grid: Grid,
    widths: list[float],
    pitch: float,
    y: float,
    size: float,
) -> None:
    """Draw ``grid`` at height ``y`` with the given column widths."""
    t, x0 = look.theme, float(look.margin)
    bold, body = look.family.bold(size), look.family.regular(size)
    x1 = x0 + sum(widths)
    style = rng.choice(("grid", "rows", "stripes", "bare", "header", "header"))
    filled = style in ("header", "stripes") or rng.random() < 0.3
    head_ground = t.accent if rng.random() < 0.5 else t.rule
    if filled:
        canvas.box(x0, y, x1, y + pitch, fill=head_ground)
    head_face = bold if rng.random() < 0.8 else body
    right = [i in grid.values and rng.random() < 0.7 for i in range(len(widths))]
    pad = size * 0.45
    bottom = y + pitch * (len(grid.rows) + 1)
    for r, row in enumerate([grid.headers, *grid.rows]):
        top = y + r * pitch
        if style == "stripes" and r and r % 2 == 0:
            canvas.box(x0, top, x1, top + pitch, fill=t.panel if t.panel != t.page else t.rule)
        x = x0
        for i, text in enumerate(row):
            face = head_face if r == 0 else body
            ink = on(head_ground) if r == 0 and filled else t.ink
            at = x + widths[i] - pad if right[i] else x + pad
            canvas.text(
                at, top + (pitch - face.line) / 2, text, face, ink, "right" if right[i] else "left"
            )
            x += widths[i]
        if style in ("grid", "rows") or (r == 0 and style != "stripes"):
            canvas.line([(x0, top + pitch), (x1, top + pitch)], t.rule if r else t.ink)
    if style == "grid":
        canvas.box(x0, y, x1, bottom, outline=t.rule)
        x = x0
        for w in widths[:-1]:
            x += w
            canvas.line([(x, y), (x, bottom)], t.rule)


def questions(rng: random.Random, grid: Grid, caption: str) -> list[Question]:
    """Questions about a table."""
    out = [ask(rng, "table", grid.markdown(), kind="transcribe")]
    names, rows = grid.headers, grid.rows
    for _ in range(5):
        row = rng.choice(rows)
        i = rng.randrange(1, len(names))
        column = names[i] if rng.random() < 0.5 else names[i].lower()
        out.append(ask(rng, "cell", row[i], f=row[0], g=column))
    out.append(ask(rng, "count", str(len(rows)), n=rng.choice(("rows", "entries", "data rows"))))
    out.append(ask(rng, "count", str(len(names)), n="columns"))
    if caption:
        out.append(ask(rng, "title", caption))
    out += _comparisons(rng, grid)
    name = words.invented(rng, 3).capitalize()
    if not any(name in row for row in rows):
        out.append(absent(rng, "cell", f=name, g=rng.choice(names[1:]).lower()))
        out.append(yes_no(rng, "present", False, f=name))
    out.append(yes_no(rng, "present", True, f=rng.choice(rows)[0]))
    i = rng.randrange(len(names))
    out.append(
        Question(
            "list",
            rng.choice(
                (
                    "What are the column names?",
                    "list the columns",
                    "Which columns does the table have?",
                    "column headers?",
                )
            ),
            ", ".join(names),
        )
    )
    row = rng.choice(rows)
    out.append(ask(rng, "in_row", ", ".join(row), f=row[0], kind="list"))
    if len(rows) <= 10:
        i = rng.choice((0, rng.randrange(len(names))))
        column = ", ".join(row[i] for row in rows)
        out.append(ask(rng, "in_column", column, f=names[i], kind="list"))
    return out


def _comparisons(rng: random.Random, grid: Grid) -> list[Question]:
    """Highest and lowest of a column of figures, and whose row it is that holds a value."""
    names, rows, out = grid.headers, grid.rows, list[Question]()
    noun = names[0].lower()
    for i, values in grid.values.items():
        if not i or len(values) < 2:
            continue
        order = sorted(range(len(values)), key=values.__getitem__)
        if values[order[-1]] > values[order[-2]]:
            top = rows[order[-1]]
            out.append(Question("highest", rng.choice(HIGHEST).format(n=noun, c=names[i]), top[0]))
            out.append(Question("value", f"What is the highest {names[i]}?", top[i]))
        if values[order[0]] < values[order[1]]:
            text = rng.choice(LOWEST).format(n=noun, c=names[i])
            out.append(Question("lowest", text, rows[order[0]][0]))
    for _ in range(3):
        i, row = rng.randrange(1, len(names)), rng.choice(rows)
        if sum(row[i] in other for other in rows) == 1:
            slots = {"n": noun, "g": names[i], "v": row[i]}
            out.append(ask(rng, "which_row", row[0], kind="reverse", **slots))
    return out


def comparisons(rng: random.Random, grid: Grid) -> list[Question]:
    """More questions that weigh a whole column: its ends in figures, ranks, counts, its cells."""
    names, rows, out = grid.headers, grid.rows, list[Question]()
    noun = names[0].lower()
    for i in rng.sample(sorted(grid.values), min(3, len(grid.values))):
        values = grid.values[i]
        order, n = sorted(range(len(values)), key=values.__getitem__), len(values)
        if not i or n < 3:
            continue
        for kind, end, word in (
            ("highest", order[-1], "largest"),
            ("lowest", order[0], "smallest"),
        ):
            if values.count(values[end]) == 1:
                asked = rng.choice(EXTREMES).format(w=rng.choice((kind, word)), c=names[i])
                out.append(Question(kind, asked, rows[end][i]))
        if len({values[j] for j in order[-3:]}) == 3:
            asked = rng.choice(SECOND).format(n=noun, c=names[i])
            out.append(Question("highest", asked, rows[order[-2]][0]))
        a, b = rng.sample(range(n), 2)
        if values[a] != values[b]:
            slots = {"f": f"{names[i]} of {rows[a][0]}", "g": f"that of {rows[b][0]}"}
            out.append(yes_no(rng, "greater", values[a] > values[b], **slots))
        middle = order[rng.randrange(1, n - 1)]
        above = str(sum(v > values[middle] for v in values))
        asked = rng.choice(ABOVE).format(c=names[i], v=rows[middle][i])
        out.append(Question("count", asked, above))
    out += _columns(rng, grid)
    return out


def _columns(rng: random.Random, grid: Grid) -> list[Question]:
    """Columns read out from top to bottom, and rows by their place."""
    names, rows, out = grid.headers, grid.rows, list[Question]()
    for i in rng.sample(range(len(names)), 2):
        if len(rows) <= 16:
            column = ", ".join(row[i] for row in rows)
            out.append(ask(rng, "in_column", column, f=names[i], kind="list"))
    r = rng.randrange(min(len(rows), len(ORDINALS)))
    out.append(ask(rng, "nth", rows[r][0], k=ORDINALS[r], n=f"entry of {names[0]}"))
    out.append(ask(rng, "nth", rows[-1][0], k="last", n=f"entry of {names[0]}"))
    if len(rows) > 1:
        r = rng.randrange(len(rows) - 1)
        if sum(row[0] == rows[r][0] for row in rows) == 1:
            asked = rng.choice(("Which row comes after {f}?", "what is listed below {f}",
                                "Which {n} stands right below {f}?"))  # fmt: skip
            slots = {"n": names[0].lower(), "f": rows[r][0]}
            out.append(Question("find", asked.format(**slots), rows[r + 1][0]))
    return out
