"""Questions about tables: cells, rows, columns, and comparisons within a column."""

import random
from typing import Final

from pocket.content import lexicon
from pocket.content.tables import Grid
from pocket.document import Question
from pocket.questions.templates import ORDINALS, absent, ask, worded, yes_no

HIGHEST: Final = (
    "Which {n} has the highest {c}?", "highest {c}?", "Who or what has the most {c}?",
    "which {n} has the largest {c}", "Which {n} is top by {c}?", "max {c}: which {n}?",
)  # fmt: skip
LOWEST: Final = (
    "Which {n} has the lowest {c}?", "lowest {c}?", "which {n} has the smallest {c}",
    "Who or what has the least {c}?", "min {c}: which {n}?",
)  # fmt: skip

EXTREMES: Final = (
    "What is the {w} {c}?", "{w} {c} in figures", "How much is the {w} {c}?",
    "What is the {w} figure under {c}?", "{w} value in the column {c}?",
)  # fmt: skip
SECOND: Final = ("Which {n} has the second highest {c}?", "Which {n} comes second by {c}?")
ABOVE: Final = (
    "How many rows have a {c} above {v}?", "In how many rows is {c} higher than {v}?",
    "count the rows with more {c} than {v}",
)  # fmt: skip


def table_questions(rng: random.Random, grid: Grid, caption: str) -> list[Question]:
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
    name = lexicon.invented(rng, 3).capitalize()
    if not any(name in row for row in rows):
        out.append(absent(rng, "cell", f=name, g=rng.choice(names[1:]).lower()))
        out.append(yes_no(rng, "present", False, f=name))
    out.append(yes_no(rng, "present", True, f=rng.choice(rows)[0]))
    i = rng.randrange(len(names))
    out.append(
        worded(
            rng,
            "list",
            ", ".join(names),
            "What are the column names?",
            "list the columns",
            "Which columns does the table have?",
            "column headers?",
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


def column_questions(rng: random.Random, grid: Grid) -> list[Question]:
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
