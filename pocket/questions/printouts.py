"""Questions about tables that programs print."""

import random
from typing import Final

from pocket.content import program_output
from pocket.content.program_output import Column
from pocket.content.tables import Grid
from pocket.document import Question
from pocket.questions import derived
from pocket.questions.paraphrases import denied, put
from pocket.questions.tables import column_questions
from pocket.questions.templates import ORDINALS, absent, ask, careless, yes_no

IN_ROW: Final = (
    "What is the {g} in the {k} row?", "{k} row, {g}?", "{g} of the {k} row",
    "In the {k} row, what is the {g}?",
)  # fmt: skip
AFTER: Final = (
    "Which {n} comes right after {f}?",
    "What {n} is listed below {f}?",
    "{n} after {f}?",
)
BEFORE: Final = (
    "Which {n} comes right before {f}?",
    "What {n} is listed above {f}?",
    "{n} before {f}?",
)


def wordings(column: Column) -> set[str]:
    """All that a column may be called, in small letters."""
    heads = {h.lower() for h in column.kind.heads.split("|")} if column.kind.called else set()
    return {column.head.lower(), *heads, *map(str.lower, column.kind.called)}


def _name(rng: random.Random, column: Column) -> str:
    """A column as people call it: as printed, in small letters, or in words of their own."""
    own = column.kind.called or (column.head.lower(),)
    return rng.choice((column.head, column.head.lower(), rng.choice(own), rng.choice(own)))


def _noun(column: Column) -> str:
    """The name of a row, by the column that names it."""
    known = column.head.lower() in column.kind.heads.lower().split("|")
    return column.kind.called[0] if known else column.head.lower()


def cell_questions(rng: random.Random, columns: list[Column], key: int) -> list[Question]:
    """Questions for a row's value in a column, for the row of a value, and for missing columns."""
    names, out, noun = columns[key].cells, list[Question](), _noun(columns[key])
    rest = [c for i, c in enumerate(columns) if i != key]
    for _ in range(8):
        column, r = rng.choice(rest), rng.randrange(len(names))
        slots = {"f": names[r], "g": _name(rng, column)}
        if column.kind.asked and rng.random() < 0.35:
            asked = careless(rng, rng.choice(column.kind.asked).format(**slots))
            out.append(Question("cell", asked, column.cells[r]))
        elif rng.random() < 0.5:
            out.append(put(rng, "of", column.cells[r], "cell", **slots))
        else:
            out.append(ask(rng, "cell", column.cells[r], **slots))
    every = [cell for c in columns for cell in c.cells]
    for _ in range(3):
        column, r = rng.choice(rest), rng.randrange(len(names))
        if every.count(column.cells[r]) == 1:
            slots = {"n": noun, "g": _name(rng, column), "v": column.cells[r]}
            out.append(ask(rng, "which_row", names[r], kind="reverse", **slots))
    said = set[str]().union(*map(wordings, columns))
    missing = rng.choice(program_output.KINDS)
    if not said & wordings(Column(missing.called[0], [], missing, False)):
        out.append(denied(rng, "of", f=rng.choice(names), g=missing.called[0]))
    out.append(absent(rng, "cell", f=unseen_name(rng, every), g=_name(rng, rng.choice(rest))))
    heads = ", ".join(c.head for c in columns)
    asked = rng.choice(("What are the column names?", "list the columns", "column headings?"))
    out.append(Question("list", careless(rng, asked), heads))
    return [*out, ask(rng, "count", str(len(columns)), n="columns")]


def unseen_name(rng: random.Random, every: list[str]) -> str:
    """A name that no cell holds."""
    text = " ".join(every)
    while (name := program_output.short(rng)) in text:
        pass
    return name


def figure_questions(rng: random.Random, columns: list[Column], key: int) -> list[Question]:
    """The ends of the columns of figures, and whole columns read downwards."""
    rest = [c for i, c in enumerate(columns) if i != key]
    ordered, names, noun = [columns[key], *rest], columns[key].cells, _noun(columns[key])
    values, out = dict[int, list[float]](), list[Question]()
    for i, column in enumerate(rest, 1):
        found = derived.numbers(column.cells)
        if found is None:
            continue
        values[i] = found
        for form, kind, best in (("most", "highest", max(found)), ("least", "lowest", min(found))):
            if found.count(best) == 1:
                slots = {
                    "n": noun,
                    "p": noun + ("es" if noun.endswith(("s", "ch")) else "s"),
                    "g": _name(rng, column),
                }
                out.append(put(rng, form, names[found.index(best)], kind, **slots))
    rows = [list(row) for row in zip(*(c.cells for c in ordered), strict=True)]
    out = rng.sample(out, min(4, len(out)))
    return out + column_questions(rng, Grid([c.head for c in ordered], rows, values))


def row_questions(
    rng: random.Random, columns: list[Column], key: int, headed: bool
) -> list[Question]:
    """Rows by their place and by their neighbours."""
    names, out = columns[key].cells, list[Question]()
    noun, n = _noun(columns[key]) if headed else "line", len(columns[key].cells)
    out.append(ask(rng, "count", str(n), n="rows"))
    at = rng.randrange(n)
    row = ", ".join(c.cells[at] for c in columns)
    if headed:
        out.append(ask(rng, "in_row", row, f=names[at], kind="list"))
        for r in rng.sample(range(min(n, len(ORDINALS))), min(2, n)):
            column = rng.choice(columns)
            asked = rng.choice(IN_ROW).format(k=ORDINALS[r], g=_name(rng, column))
            out.append(Question("nth", careless(rng, asked), column.cells[r]))
    else:
        for _ in range(4):
            r, i = rng.randrange(n), rng.randrange(len(columns))
            if i != key:
                slots = {"f": names[r], "g": f"{ORDINALS[i]} column"}
                out.append(put(rng, "of", columns[i].cells[r], "cell", **slots))
    if headed and n > 1:
        r = rng.randrange(n - 1)
        asked = rng.choice(AFTER).format(n=noun, f=names[r])
        out.append(Question("find", careless(rng, asked), names[r + 1]))
        asked = rng.choice(BEFORE).format(n=noun, f=names[r + 1])
        out.append(Question("find", careless(rng, asked), names[r]))
    out.append(yes_no(rng, "present", True, f=rng.choice(names)))
    missing = unseen_name(rng, [cell for c in columns for cell in (c.head, *c.cells)])
    return [*out, yes_no(rng, "present", False, f=missing)]
