"""A document of one topic: the facts and rows it shows, and the questions about them."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pocket.content.topic import SLOT, Filler, figure, topics
from pocket.document import Question
from pocket.questions.freeform import KIND
from pocket.questions.reckoning import working
from pocket.questions.templates import ABSENT, typed

LABELLED: Final = re.compile(r"^([^{}:]{1,32}): \{v\}$")
ABSENT_SHARE: Final = 0.25  # of the documents, and then one question of each
MOST_QUESTIONS: Final = 14


@dataclass(frozen=True)
class Fact:
    """One thing that a document says: as written, its label or none, the answer it gives."""

    text: str
    label: str
    value: str


@dataclass
class Plan:
    """The content of one document: title, facts in order, rows below their heads, questions."""

    topic: str
    layout: str
    head: str
    facts: list[Fact] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)  # the rows as one line each
    questions: list[Question] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """The lines below the title."""
        return [fact.text for fact in self.facts] + self.lines


def plan(rng: random.Random, room: int, held: bool = False) -> Plan:
    """A document of a random topic with at most `room` facts and rows."""
    topic = rng.choice(topics(held))
    made = Plan(topic["name"], rng.choice(topic["layouts"]), "")
    fill = Filler(rng)
    if rng.random() < 0.8 and topic.get("heads"):
        made.head = fill(topic["heads"])
    missing = _facts(fill, topic, made, room)
    if "records" in topic:
        _records(fill, topic["records"], made, max(2, room - len(made.facts)))
    if made.head and rng.random() < 0.5:
        made.questions.append(_title_question(rng, made))
    if made.head and topic.get("head_ask"):
        made.questions.append(typed(rng, rng.choice(topic["head_ask"]), made.head))
    if missing and rng.random() < ABSENT_SHARE:
        made.questions.append(typed(rng, rng.choice(missing), ABSENT, "absent"))
    rng.shuffle(made.questions)
    made.questions = _plain(made.questions)[:MOST_QUESTIONS]
    return made


def _plain(questions: list[Question]) -> list[Question]:
    """Without those that have two answers."""
    answers: dict[str, set[str]] = {}
    for q in questions:
        answers.setdefault(q.text.lower().rstrip("?. "), set()).add(q.answer)
    return [q for q in questions if len(answers[q.text.lower().rstrip("?. ")]) == 1]


def _title_question(rng: random.Random, made: Plan) -> Question:
    ways = ("What is the title?", "What is the headline?", "What is the heading?", "title?",
            "What is written at the top?", "headline?", "What does the heading say?")  # fmt: skip
    return typed(rng, rng.choice(ways), made.head, "title")


def _facts(fill: Filler, topic: Mapping[str, Any], made: Plan, room: int) -> list[str]:
    """Put facts into the plan; returns questions about those left out."""
    rng, pool = fill.rng, list(topic.get("facts", ()))
    count = min(room, rng.randint(min(2, len(pool)), len(pool))) if pool else 0
    chosen = set(rng.sample(range(len(pool)), count))
    known: dict[str, str] = {}
    shown = []
    for i, fact in enumerate(pool):
        if i in chosen:
            value = fill(fact["v"])
            shown.append((fact, value))
            if "id" in fact:
                known[fact["id"]] = value
    for fact, value in shown:
        made.facts.append(_write(fill, fact, value, made.layout))
        made.questions += _asked(fill, fact, value, known)
    made.questions += _reckoned(fill, topic.get("reckon", ()), known)
    return [
        text
        for i, fact in enumerate(pool)
        if i not in chosen
        for text in fact["ask"]
        if _known(text, known)
    ]


def _known(text: str, known: Mapping[str, str]) -> bool:
    return all(found[1] in known for found in SLOT.finditer(text))


def _write(fill: Filler, fact: Mapping[str, Any], value: str, layout: str) -> Fact:
    """The document's wording: pairs take a label, prose takes a sentence."""
    says = list(fact["say"])
    labelled = [s for s in says if LABELLED.match(s)]
    spoken = [s for s in says if s.endswith((".", "!", "?"))]
    if layout == "pairs":
        says = labelled or says
    elif layout in ("prose", "bubbles"):
        says = spoken or says
    elif len(labelled) < len(says) and fill.rng.random() < 0.6:
        says = [s for s in says if s not in labelled]
    say = fill.rng.choice(says)
    found = LABELLED.match(say)
    if say.endswith("{v}.") and value.endswith("."):
        say = say[:-1]
    return Fact(fill(say, {"v": value}), found[1] if found else "", value)


def _asked(
    fill: Filler, fact: Mapping[str, Any], value: str, known: Mapping[str, str]
) -> list[Question]:
    rng, ways = fill.rng, [text for text in fact["ask"] if _known(text, known)]
    out = [typed(rng, fill(text, known), value) for text in rng.sample(ways, min(2, len(ways)))]
    for text, truth in fact.get("check", ()):
        out.append(typed(rng, fill(text, known), "yes" if value == truth else "no", "yes_no"))
    return out


def _reckoned(
    fill: Filler, entries: Sequence[Mapping[str, Any]], known: Mapping[str, str]
) -> list[Question]:
    """What two or more of the shown facts come to."""
    out = []
    for entry in entries:
        terms = [
            known.get(term, "") if isinstance(term, str) else str(term) for term in entry["of"]
        ]
        if worked := working(terms, entry["by"]):
            out.append(typed(fill.rng, fill(entry["ask"], known), worked, KIND))
    return out


def _records(fill: Filler, spec: Mapping[str, Any], made: Plan, room: int) -> None:
    """Rows with different keys, and what may be asked about them."""
    rng, cols = fill.rng, list(spec["cols"])
    least, most = spec["n"]
    rows: dict[str, dict[str, str]] = {}
    for _ in range(min(rng.randint(least, most), room)):
        rank = {"rank": str(len(rows) + 1)}
        row = {c: fill(spec["cols"][c], rank) for c in cols}
        rows.setdefault(row[cols[0]].lower(), row)
    kept = list(rows.values())
    shown = _columns(rng, cols) if made.layout == "table" else cols
    made.heads = [rng.choice(spec["heads"][c]) for c in shown]
    made.rows = [[row[c] for c in shown] for row in kept]
    say = rng.choice(spec["say"])
    made.lines = [fill(say, row) for row in kept] if shown == cols else []
    _ask_records(fill, spec, made, kept, shown)


def _ask_records(
    fill: Filler,
    spec: Mapping[str, Any],
    made: Plan,
    rows: list[dict[str, str]],
    shown: list[str],
) -> None:
    """Questions about single rows, about all of them, and their number."""
    rng = fill.rng
    for text, answer in rng.sample(spec["ask"], min(7, len(spec["ask"]))):
        made.questions += _about(fill, rows, shown, text, answer)
    for form, sign in (("most", 1), ("least", -1)):
        for text, by, answer in spec.get(form, ()):
            made.questions += _extreme(fill, rows, shown, (text, by, answer), sign)
    if "count" in spec:
        made.questions.append(typed(rng, rng.choice(spec["count"]), str(len(rows)), "count"))


def _columns(rng: random.Random, cols: list[str]) -> list[str]:
    """The columns shown: all, mostly; a wide table loses one at times."""
    if len(cols) > 3 and rng.random() < 0.25:
        gone = rng.choice(cols[1:])
        return [c for c in cols if c != gone]
    return cols


def _about(
    fill: Filler, rows: list[dict[str, str]], shown: list[str], text: str, answer: str
) -> list[Question]:
    """The question about one row that its slots single out."""
    slots = [found[1] for found in SLOT.finditer(text) if found[1] in rows[0]] if rows else []
    if answer not in shown or any(s not in shown for s in slots):
        return []
    row = fill.rng.choice(rows)
    if sum(all(other[s] == row[s] for s in slots) for other in rows) > 1:
        return []
    return [typed(fill.rng, fill(text, row), row[answer])]


def _extreme(
    fill: Filler,
    rows: list[dict[str, str]],
    shown: list[str],
    spec: tuple[str, str, str],
    sign: int,
) -> list[Question]:
    """The row with the largest (sign 1) or smallest figure, if one alone has it."""
    text, by, answer = spec
    if by not in shown or answer not in shown or len(rows) < 2:
        return []
    figures = [figure(row[by]) for row in rows]
    if any(f is None for f in figures):
        return []
    best = max(sign * f for f in figures if f is not None)
    winners = [row for row, f in zip(rows, figures, strict=True) if f == sign * best]
    if len(winners) > 1:
        return []
    kind = "highest" if sign > 0 else "lowest"
    return [typed(fill.rng, fill(text), winners[0][answer], kind)]
