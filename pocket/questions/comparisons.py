"""Comparisons in words, from what a transcription holds: two rows, all beyond one, all alike.

The answer is a name, a count, a few names, or yes or no; only what is printed is compared.
"""

import random
import re
from typing import Final

from pocket.document import Question
from pocket.questions.derived import called, listed, numbers, table
from pocket.questions.templates import phrased

CLOCK: Final = re.compile(r"(\d{1,2}):(\d\d)")
MOST: Final = 14  # rows that are to be counted
LONGEST: Final = 120  # bytes of a list of names
PAIR: Final[dict[str, tuple[str, ...]]] = {
    "more": (
        "Which has more {g}, {a} or {b}?", "Which has the higher {g}: {a} or {b}?",
        "{a} or {b}: which {g} is greater?", "Is the {g} greater for {a} or for {b}?",
        "who or what has more {g}, {a} or {b}",
    ),
    "less": (
        "Which has less {g}, {a} or {b}?", "Which has the lower {g}: {a} or {b}?",
        "{a} or {b}: which {g} is smaller?", "Is the {g} smaller for {a} or for {b}?",
    ),
    "later": ("Which is later, {a} or {b}?", "Of {a} and {b}, which comes later?",
              "{a} or {b}: which has the later {g}?"),
    "sooner": ("Which is earlier, {a} or {b}?", "Of {a} and {b}, which comes first in time?",
               "{a} or {b}: which has the earlier {g}?"),
}  # fmt: skip
WHETHER: Final = (
    "Is the {g} of {a} higher than that of {b}?", "Does {a} have more {g} than {b}?",
    "Has {a} a greater {g} than {b}?",
)  # fmt: skip
BEYOND: Final = (
    "How many {p} have a {g} above {v}?", "How many {p} have more {g} than {v}?",
    "In how many {p} is the {g} over {v}?",
)  # fmt: skip
ALIKE: Final = (
    "Which {p} have the {g} {v}?", "Name all {p} whose {g} is {v}.", "{g} {v}: which {p}?",
)  # fmt: skip
COUNTED: Final = (
    "How many {p} have the {g} {v}?", "For how many {p} is the {g} {v}?", "{g} {v}: how many {p}?",
)  # fmt: skip
ENDS: Final[dict[str, tuple[str, ...]]] = {
    "later": ("Which {n} has the latest {g}?", "Which is the last by {g}?", "latest {g}: which?"),
    "sooner": ("Which {n} has the earliest {g}?", "Which is the first by {g}?",
               "earliest {g}: which?"),
}  # fmt: skip


def comparisons(rng: random.Random, text: str) -> list[Question]:
    """Questions that compare rows of a table or of a list of cards; none of anything else."""
    found, out = table(text) or listed(text), list[Question]()
    if found is None or found[0][0] == "Category":  # charts compare by themselves
        return out
    heads, rows = found
    names = [row[0] for row in rows]
    if len(set(names)) < len(names) or len(names) < 2:
        return out
    one, many = called(heads[0], "row")
    for i in rng.sample(range(1, len(heads)), min(3, len(heads) - 1)):
        column, slots = [row[i] for row in rows], {"n": one, "p": many, "g": heads[i]}
        if not heads[i]:
            continue
        hours, figures = clocks(column), numbers(column)
        if hours is not None:
            out += _pair(rng, names, hours, ("later", "sooner"), slots)
            out += _ends(rng, names, hours, slots)
        elif figures is not None:
            out += _pair(rng, names, figures, ("more", "less"), slots)
            out += _above(rng, figures, column, slots)
        else:
            out += _alike(rng, names, column, slots)
    return out


def clocks(column: list[str]) -> list[float] | None:
    """Minutes of the day where all cells are times of day, or None."""
    found = [CLOCK.fullmatch(text) for text in column]
    if not all(found):
        return None
    return [60.0 * int(m[1]) + int(m[2]) for m in found if m]


def _pair(
    rng: random.Random, names: list[str], values: list[float], ways: tuple[str, str],
    slots: dict[str, str],
) -> list[Question]:  # fmt: skip
    """Two rows, and at times whether one of them is above the other."""
    a, b = rng.sample(range(len(names)), 2)
    if values[a] == values[b]:
        return []
    more = rng.random() < 0.6
    best = a if (values[a] > values[b]) == more else b
    slots = slots | {"a": names[a], "b": names[b]}
    out = [phrased(rng, "compare", names[best], *PAIR[ways[0] if more else ways[1]], **slots)]
    if ways[0] == "more" and rng.random() < 0.5:
        out.append(
            phrased(rng, "yes_no", "yes" if values[a] > values[b] else "no", *WHETHER, **slots)
        )
    return out


def _ends(
    rng: random.Random, names: list[str], values: list[float], slots: dict[str, str]
) -> list[Question]:
    """The first and the last in time."""
    out = []
    for way, best, kind in (("later", max(values), "highest"), ("sooner", min(values), "lowest")):
        if values.count(best) == 1:
            out.append(phrased(rng, kind, names[values.index(best)], *ENDS[way], **slots))
    return out


def _above(
    rng: random.Random, values: list[float], column: list[str], slots: dict[str, str]
) -> list[Question]:
    """The number of rows above one of the figures."""
    if not 3 <= len(values) <= MOST:
        return []
    at = rng.randrange(len(values))
    count = sum(v > values[at] for v in values)
    return [phrased(rng, "count", str(count), *BEYOND, **slots, v=column[at])]


def _alike(
    rng: random.Random, names: list[str], column: list[str], slots: dict[str, str]
) -> list[Question]:
    """The rows that have the same word, or how many there are."""
    shared = sorted({v for v in column if column.count(v) > 1})
    if not shared or len(names) > MOST:
        return []
    value = rng.choice(shared)
    same = ", ".join(n for n, v in zip(names, column, strict=True) if v == value)
    slots = slots | {"v": value}
    out = [phrased(rng, "count", str(column.count(value)), *COUNTED, **slots)]
    if len(same.encode()) <= LONGEST:
        out.append(phrased(rng, "list", same, *ALIKE, **slots))
    return out
