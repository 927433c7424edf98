"""Questions that want a step of thought or another form of answer, from what a page holds.

Sums and differences of what is printed, two facts at once, conditions, yes or no in one word, whole
sentences. Only the third pocket learns them: the first two have no language for them. What is
reckoned is answered with its working ("12 + 30 = 42"): a model that writes the figures down first
reckons with text, a step for each token.
"""

import random
from typing import Final

from pocket.document import Question
from pocket.questions.derived import Table, called, fields, listed, numbers, table
from pocket.questions.reckoning import working
from pocket.questions.templates import phrased

KIND: Final = "free"
LONGEST: Final = 140  # bytes of an answer
TOGETHER: Final = (
    "How much are {a} and {b} together?", "What do {a} and {b} add up to in {g}?",
    "Add the {g} of {a} and {b}.", "What is the {g} of {a} plus that of {b}?",
    "{a} and {b} together: what {g}?",
)  # fmt: skip
APART: Final = (
    "How much more is the {g} of {a} than that of {b}?", "By how much does {a} exceed {b} in {g}?",
    "What is the difference in {g} between {a} and {b}?", "{a} minus {b}: what {g} is left?",
)  # fmt: skip
TIMES: Final = (
    "How much are {n} of {a}?", "I take {a}, {n} of them. What do I pay?", "What do {n} {a} cost?",
    "What would {n} x {a} come to?",
)  # fmt: skip
MANY: Final = {2: "two", 3: "three", 4: "four", 5: "five"}
ACROSS: Final = (
    "How many is that for {a} in all?", "What does the row {a} add up to?",
    "What is the sum for {a}, all columns together?", "{a} altogether?",
)  # fmt: skip
DOWN: Final = (
    "What do all {p} add up to in {g}?", "Add up the whole column {g}.",
    "What is the {g} of all {p} together?", "What is the sum of {g}?",
)  # fmt: skip
PART: Final = (
    "How many of {n} people are {a}?", "{a}: how many is that, of {n}?",
    "{n} were asked. How many does {a} stand for?", "What is the share of {a} out of {n}?",
)  # fmt: skip
OF: Final = (20, 50, 100, 200, 300, 400, 500, 1000)  # people that a percentage is of
SUMMED: Final = 2, 5  # figures of a sum, at least and at most
BOTH: Final = (
    "What are the {g} and the {h} of {a}?", "Give me the {g} and {h} of {a}.",
    "{a}: {g} and {h}?", "Tell me {g} and {h} for {a}.",
)  # fmt: skip
BELOW: Final = (
    "Which {p} have a {g} below {v}?", "Name the {p} with less {g} than {v}.",
    "Which of the {p} stay under {v} in {g}?",
)  # fmt: skip
WHETHER: Final = (
    "Is the {g} of {a} {v}? Answer in one word.", "Does {a} have the {g} {v}? Yes or no?",
    "Yes or no: the {g} of {a} is {v}.", "In one word: is {v} the {g} of {a}?",
)  # fmt: skip
SENTENCE: Final = (
    "What is the {f}? Answer in a full sentence.", "What is the {f}? Use a whole sentence.",
    "In a sentence, what is the {f}?", "Tell me the {f} in a complete sentence.",
)  # fmt: skip
CELL: Final = (
    "What is the {g} of {a}? Answer in a full sentence.",
    "In a whole sentence: which {g} does {a} have?",
)
PAIR: Final = (
    "What are the {f} and the {h}?", "Give me {f} and {h}.", "Tell me both the {f} and the {h}.",
)  # fmt: skip
RIGHT: Final = (
    "Is the {f} {v}? Answer in one word.", "Is it right that the {f} is {v}? Yes or no.",
    "The {f} is {v}, isn't it? One word, please.",
)  # fmt: skip
MOST_ASKED: Final = 6  # of them, of one document


def freeform(rng: random.Random, text: str) -> list[Question]:
    """Such questions about a page, from its transcription: few, or none."""
    found = table(text) or listed(text)
    out = _of_rows(rng, found) if found else _of_fields(rng, text)
    out = [q for q in out if q.answer and len(q.answer.encode()) <= LONGEST]
    return rng.sample(out, min(MOST_ASKED, len(out)))


def _put(rng: random.Random, forms: tuple[str, ...], answer: str, **slots: str) -> Question:
    return phrased(rng, KIND, answer, *forms, **slots)


def _of_rows(rng: random.Random, found: Table) -> list[Question]:
    """Of a table or of a list of cards."""
    heads, rows = found
    names, out = [row[0] for row in rows], list[Question]()
    if len(set(names)) < len(names) or len(rows) < 2:
        return out
    many = called(heads[0], "row")[1]
    columns = [i for i in range(1, len(heads)) if heads[i]]
    for i in columns:
        column, head = [row[i] for row in rows], heads[i]
        one, other = rng.sample(range(len(rows)), 2)
        slots = {"a": names[one], "b": names[other], "g": head, "p": many}
        out.append(_put(rng, CELL, f"The {head} of {names[one]} is {column[one]}.", **slots))
        claimed = column[rng.choice((one, other))]
        said = "yes" if claimed == column[one] else "no"
        out.append(_put(rng, WHETHER, said, v=claimed, **slots))
        out += _reckoned(rng, names, column, (one, other), slots)
    if len(columns) > 1:
        g, h = rng.sample(columns, 2)
        row = rng.choice(rows)
        answer = f"{row[g]} and {row[h]}"
        out.append(_put(rng, BOTH, answer, a=row[0], g=heads[g], h=heads[h]))
    row = rng.choice(rows)
    if SUMMED[0] <= len(row) - 1 <= SUMMED[1] and all(cell.isdecimal() for cell in row[1:]):
        out.append(_put(rng, ACROSS, working(row[1:], "+") or "", a=row[0]))
    return out


def _reckoned(
    rng: random.Random, names: list[str], column: list[str], pair: tuple[int, int],
    slots: dict[str, str],
) -> list[Question]:  # fmt: skip
    """Sums, differences, shares and limits, where all cells of a column are figures of one kind."""
    values, (one, other) = numbers(column), pair
    if values is None or working(column, "+") is None:
        return []
    out = list[Question]()

    def add(forms: tuple[str, ...], terms: list[str], sign: str, **n: str) -> None:
        if worked := working(terms, sign):
            out.append(_put(rng, forms, worked, **slots, **n))

    add(TOGETHER, [column[one], column[other]], "+")
    add(APART, [column[one], column[other]], "-")
    if SUMMED[0] < len(column) <= SUMMED[1]:
        add(DOWN, column, "+")
    if "price" in slots["g"].lower():
        n = rng.choice(tuple(MANY))
        add(TIMES, [str(n), column[one]], "x", n=rng.choice((str(n), MANY[n])))
    whole = [n for n in OF if column[one].endswith("%") and (n * values[one]) % 100 == 0]
    if whole:
        n = rng.choice(whole)
        worked = f"{column[one]} of {n} = {round(n * values[one] / 100)}"
        out.append(_put(rng, PART, worked, n=str(n), **slots))
    less = [name for name, value in zip(names, values, strict=True) if value < values[one]]
    if 0 < len(less) < 5:
        out.append(_put(rng, BELOW, ", ".join(less), v=column[one], **slots))
    return out


def _of_fields(rng: random.Random, text: str) -> list[Question]:
    """Of lines with a label, a colon and a value."""
    pairs, out = [(key.lower().rstrip("."), value) for key, value in fields(text)], list[Question]()
    keys = [key for key, _ in pairs]
    clear = [(key, value) for key, value in pairs if keys.count(key) == 1 and len(value) < 60]
    for key, value in rng.sample(clear, min(3, len(clear))):
        out.append(_put(rng, SENTENCE, f"The {key} is {value}.", f=key))
        claimed = rng.choice((value, rng.choice(clear)[1]))
        out.append(_put(rng, RIGHT, "yes" if claimed == value else "no", f=key, v=claimed))
    if len(clear) > 1:
        (f, v), (h, w) = rng.sample(clear, 2)
        out.append(_put(rng, PAIR, f"{v} and {w}", f=f, h=h))
    return out
