"""Tables: columns of text and of figures, the first of which names the rows."""

import random
from collections.abc import Callable
from typing import Final

from pocket.content import formats, words

COLUMNS: Final[dict[str, Callable[[random.Random], str]]] = {
    "Name": words.person,
    "City": lambda r: r.choice(words.CITIES),
    "Code": formats.code,
    "Country": lambda r: r.choice(words.COUNTRIES),
    "Date": formats.date,
    "Product": words.product,
    "Company": words.company,
    "Owner": lambda r: r.choice(words.FIRST),
    "Time": formats.clock,
    "Status": lambda r: r.choice("Open Closed Paid Done Pending New Late".split()),
    "Grade": lambda r: r.choice("A B C D A+ B- F".split()),
    "Type": words.label,
    "Note": lambda r: words.some(r, 1, 2),
    "Email": words.email,
    "Phone": formats.phone,
    "Role": lambda r: words.some(r, 1, 1),
}
NUMERIC: Final = (
    "Points|Price|Units|Total|Age|Score|Qty|Weight|Cost|Sales|Rank|Share|Change|Hours|Stock|Goals|"
    "Wins|Losses|2019|2020|2021|2022|2023|2024|Q1|Q2|Q3|Q4|Min|Max|Mean|Amount|Visits|Rate|Year"
).split("|")


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

    Args:
        rng: Says which.
        columns: How many.
        rows: How many, below the head.
        numeric: Share of tables that hold mostly figures.
    """
    first, draw_first = rng.choice(
        (
            ("Name", words.person),
            ("Product", words.product),
            ("City", words.label),
            ("Item", words.label),
            ("Region", words.label),
            ("Team", words.label),
            ("Order", formats.code),
            ("Country", lambda r: r.choice(words.COUNTRIES)),
            ("", words.label),
            ("Code", formats.code),
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
