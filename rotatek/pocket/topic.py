"""Topics: what a document is about, how its facts are written, and how people ask for them.

``topics/*.toml`` holds them. A topic has ``name``, ``layouts`` (of `LAYOUTS`), ``heads`` (titles;
``head_ask`` has questions that the title answers), and ``facts`` or ``records`` or both:

- a fact has ``v`` (what is to be read: a template or several), ``say`` (how the document writes it,
  ``{v}`` in a label and a colon, a line of its own, or a sentence with a full stop) and ``ask``;
  ``check`` has pairs of a yes-no question and the value for which the answer is yes. ``ask`` may
  use ``{other}`` for the value of the fact whose ``id`` is ``other``, if that is shown, too;
- records are rows of a table or list: ``n`` (least, most), ``noun`` (their plural), ``cols`` (a
  template each), ``heads`` (column headings), ``say`` (a row as one line), ``ask`` (question and
  the column of its answer; ``{col}`` is the row's value), ``most`` and ``least`` (question, column
  compared, column of the answer) and ``count``.

``charts.toml`` holds subjects of charts: ``titles``, ``unit``, ``noun``, ``of`` (a list of entries,
a template, or months, weekdays, quarters, years), ``range`` of the values and their ``decimals``,
``series``, and the questions ``value``, ``value2``, ``most`` and ``least``.

Templates hold generators in braces, ``{person}`` or ``{int 1 40}``; see `GENERATORS`. A topic with
``held = true`` is never trained on.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import formats, words
from .document import Question
from .questions import ABSENT, careless

LAYOUTS = ("lines", "pairs", "prose", "bubbles", "table")
SLOT = re.compile(r"\{([a-z]+)((?: [0-9.]+)*)\}")
LABELLED = re.compile(r"^([^{}:]{1,32}): \{v\}$")
ABSENT_SHARE = 0.25  # of the documents, and then one question of each
MOST_QUESTIONS = 14

FOODS = (
    "Tomato soup|Garlic bread|Grilled salmon|Mushroom risotto|Beef burger|Caesar salad|Apple pie|"
    "Lentil curry|Fish and chips|Pumpkin ravioli|Onion rings|Chicken wings|Vegetable stew|Pancakes|"
    "Goulash|Spring rolls|Fried rice|Lamb kebab|Potato salad|Cheesecake|Brownie|Fruit bowl"
).split("|")
INGREDIENTS = (
    "flour sugar butter salt eggs milk yeast onions garlic rice oats cream honey cinnamon carrots "
    "tomatoes beans cheese lemon basil pepper oil vinegar spinach"
).split()
JOBS = (
    "Engineer|Sales manager|Head of design|Accountant|Photographer|Dentist|Architect|Translator|"
    "Florist|Data analyst|Plumber|Solicitor|Consultant|Editor|Chef|Chief scientist|Nurse|Teacher|"
    "Project lead|Electrician|Librarian|Product owner|Managing director|Researcher|Carpenter"
).split("|")
ANIMALS = "dog cat horse goat owl fox bear whale parrot rabbit turtle lion wolf eagle deer".split()
SPORTS = "tennis football chess rowing hockey judo swimming golf cycling volleyball rugby".split()
SUBJECTS = "Maths History Biology Physics Chemistry Art Music Latin French Geography Ethics".split()
LANGUAGES = "English German French Spanish Polish Swedish Italian Dutch Czech Portuguese".split()
COLOURS = "red blue green black white yellow orange purple brown grey silver navy pink".split()


def _int(rng: random.Random, low: float = 1, high: float = 99) -> str:
    return str(rng.randint(int(low), int(high)))


def _big(rng: random.Random, low: float = 100, high: float = 99_999) -> str:
    value = int(10 ** rng.uniform(len(str(int(low))) - 1, len(str(int(high)))))
    value = min(int(high), max(int(low), value))
    return f"{value:,}" if rng.random() < 0.6 else str(value)


def _decimal(rng: random.Random, low: float = 0, high: float = 100) -> str:
    return f"{rng.uniform(low, high):.{rng.choice((1, 2))}f}"


def _score(rng: random.Random) -> str:
    return f"{rng.randint(0, 9)}{rng.choice((' - ', ':', ' : ', '-'))}{rng.randint(0, 9)}"


def _title(rng: random.Random) -> str:
    return words.some(rng, 2, 4)


def _name(rng: random.Random) -> str:
    """A proper name: of a house, a café, a boat, a product."""
    return " ".join(words.word(rng).capitalize() for _ in range(rng.choice((1, 1, 2))))


GENERATORS: dict[str, Callable[..., str]] = {
    "person": words.person,
    "first": lambda r: r.choice(words.FIRST),
    "last": lambda r: r.choice(words.LAST),
    "firm": words.company,
    "city": lambda r: r.choice(words.CITIES),
    "country": lambda r: r.choice(words.COUNTRIES),
    "address": words.address,
    "email": words.email,
    "phone": words.phone,
    "url": formats.url,
    "handle": formats.handle,
    "file": formats.file_name,
    "version": formats.version,
    "date": words.date,
    "day": lambda r: f"{r.randint(1, 28)} {r.choice(words.MONTHS)}",
    "weekday": lambda r: r.choice(words.DAYS),
    "month": lambda r: r.choice(words.MONTHS),
    "year": lambda r: str(r.randint(1900, 2039)),
    "clock": words.clock,
    "time": lambda r: f"{r.randint(0, 23):02}:{r.choice((0, 5, 10, 15, 20, 30, 40, 45, 50)):02}",
    "int": _int,
    "big": _big,
    "decimal": _decimal,
    "number": lambda r: r.choice((_int, _big, _decimal))(r),
    "percent": lambda r: f"{r.randint(1, 99)}{r.choice(('%', '%', ' %'))}",
    "rating": lambda r: f"{r.uniform(1, 5):.1f}",
    "score": _score,
    "code": words.code,
    "letter": lambda r: r.choice(formats.LETTERS),
    "product": words.product,
    "food": lambda r: r.choice(FOODS) if r.random() < 0.5 else words.product(r),
    "ingredient": lambda r: r.choice(INGREDIENTS) if r.random() < 0.7 else words.word(r),
    "job": lambda r: r.choice(JOBS),
    "animal": lambda r: r.choice(ANIMALS),
    "sport": lambda r: r.choice(SPORTS),
    "subject": lambda r: r.choice(SUBJECTS),
    "language": lambda r: r.choice(LANGUAGES),
    "colour": lambda r: r.choice(COLOURS),
    "word": words.word,
    "name": _name,
    "title": _title,
    "measure": formats.measure,
}
SPECIAL = ("money", "rank")  # alike through a document: one currency, places in order


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
        """What is written below the title, line by line."""
        return [fact.text for fact in self.facts] + self.lines


@lru_cache(maxsize=2)
def topics(held: bool = False) -> tuple[Mapping[str, Any], ...]:
    """The topics to train on, or those held out."""
    found: list[Mapping[str, Any]] = []
    for path in sorted(Path(__file__).with_name("topics").glob("*.toml")):
        found += tomllib.loads(path.read_text(encoding="utf-8")).get("topic", [])
    return tuple(t for t in found if t.get("held", False) == held)


@lru_cache(maxsize=1)
def charts() -> tuple[Mapping[str, Any], ...]:
    """What charts are about."""
    path = Path(__file__).with_name("topics") / "charts.toml"
    return tuple(tomllib.loads(path.read_text(encoding="utf-8"))["chart"])


class Filler:
    """Fills the templates of one document, whose amounts are all of one currency."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.cash = rng, words.money(rng)

    def __call__(self, template: str | list[str], known: Mapping[str, str] | None = None) -> str:
        """One of the templates with ``known`` values and generators put in."""
        text = template if isinstance(template, str) else self.rng.choice(template)
        return SLOT.sub(lambda found: self.one(found[1], found[2], known or {}), text)

    def one(self, name: str, bounds: str, known: Mapping[str, str]) -> str:
        """The text for one slot."""
        if name in known:
            return known[name]
        limits = [float(x) for x in bounds.split()]
        if name == "money":
            return self.cash(self.rng.uniform(*(limits or (1, 400))))
        return GENERATORS[name](self.rng, *limits)


def figure(text: str) -> float | None:
    """The number that a cell shows, or None: "1,250", "12.5 kg", "€ 3,20"."""
    found = re.search(r"\d[\d., ']*", text)
    if not found or len(re.findall(r"\d[\d., ']*", text)) > 1:
        return None
    digits = found[0].strip(" .,'")
    whole, mark, cents = re.fullmatch(r"(.*?)(?:([.,])(\d{1,2}))?", digits).groups()  # type: ignore[union-attr]
    whole = re.sub(r"[ ,.']", "", whole)
    sign = -1 if text[: found.start()].rstrip().endswith(("-", "−")) else 1
    return sign * float(f"{whole}.{cents}" if mark else whole)


def plan(rng: random.Random, room: int, held: bool = False) -> Plan:
    """A document of a random topic with at most ``room`` facts and rows."""
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


def typed(rng: random.Random, text: str, answer: str, kind: str = "fact") -> Question:
    """A question as somebody types it, at times carelessly."""
    return Question(kind, careless(rng, text), answer)


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
    """How the document says it: a label is what pairs want, a sentence what prose wants."""
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
