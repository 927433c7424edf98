"""More questions for training, derived from a document's own questions and answers.

A transcription has the complete content. Tables give comparisons whose answer is a name; fields
give questions in other words than the printed ones, and questions for values that are not there.
Rows or cards with figures give sorting questions: a model of this size is worst at finding the
greatest of many, and a sorted list trains every rank. Stored pages get them, too.
"""

import os
import random
import re
from dataclasses import replace
from typing import Final

from pocket.document import Question
from pocket.questions.paraphrases import denied, put, reworded
from pocket.questions.templates import FORMS, ask

# words of a column's heading: what its greatest and its least are called
SUPERLATIVES: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "price": (("most expensive", "dearest", "priciest"), ("cheapest", "least expensive")),
    "cost": (("most expensive", "dearest"), ("cheapest", "least expensive")),
    "age": (("oldest",), ("youngest",)),
    "year": (("most recent", "latest", "newest"), ("earliest", "oldest")),
    "hours": (("longest",), ("shortest",)),
    "duration": (("longest",), ("shortest",)),
    "distance": (("farthest",), ("nearest", "closest")),
    "weight": (("heaviest",), ("lightest",)),
    "height": (("tallest",), ("shortest",)),
    "speed": (("fastest",), ("slowest",)),
    "score": (("best", "top"), ("worst",)),
    "points": (("best", "top"), ("worst",)),
    "rating": (("best rated",), ("worst rated",)),
}
WHICH: Final = (
    "Which {n} is the {w}?", "What is the {w} {n}?", "the {w} {n}?", "Name the {w} {n}.",
    "Which of the {p} is {w}?", "{w} {n}",
)  # fmt: skip
OTHERWISE: Final[dict[str, tuple[str, ...]]] = {
    "amount": ("What is the total?", "How much is to be paid?", "How much is it?"),
    "balance": ("How much money is on the account?", "How much is left?"),
    "due date": ("When does it have to be paid?", "What is the deadline?"),
    "order date": ("When was it ordered?", "On which day was the order placed?"),
    "issued": ("When was it issued?", "On which date was this made out?"),
    "date of birth": ("When was this person born?", "birthday?", "What is the birthday?"),
    "place of birth": ("Where was this person born?", "In which town were they born?"),
    "customer": ("Who is the customer?", "Who ordered this?", "Who is it made out to?"),
    "contact": ("Who can I contact?", "Whom should I ask?", "Who is the contact person?"),
    "manager": ("Who is in charge?", "Who is the manager?", "Who manages it?"),
    "doctor": ("Who is the doctor?", "Which doctor is it?", "Who treats the patient?"),
    "teacher": ("Who teaches?", "Who is the teacher?", "Who gives the lesson?"),
    "website": ("What is the web address?", "Where can I find more online?"),
    "email": ("Where can I write to?", "What is the mail address?", "Which email is given?"),
    "phone": ("Where can I call?", "What is the telephone number?", "How can I ring them?"),
    "weight": ("How heavy is it?", "What does it weigh?"),
    "duration": ("How long does it take?", "How long is it?"),
    "distance": ("How far is it?", "How many kilometres is it?"),
    "temperature": ("How warm is it?", "How hot or cold is it?"),
    "start": ("When does it start?", "At what time does it begin?"),
    "departure": ("When does it depart?", "At what time does it leave?"),
    "arrival": ("When does it get there?", "At what time does it arrive?"),
    "room": ("Which room is it?", "In which room?", "Where do I have to go?"),
    "quantity": ("How many were ordered?", "How many pieces are there?"),
    "model": ("Which model is it?", "What model do they have?"),
    "language": ("In which language is it?", "Which language do they speak?"),
    "size": ("Which size is it?", "How large is it?"),
    "priority": ("How urgent is it?", "How important is it?"),
    "job title": ("What is their job?", "What do they work as?", "Which profession is given?"),
    "file": ("What is the file called?", "Which file is it?"),
    "user": ("Who is the user?", "What is the user name?", "Who is logged in?"),
    "version": ("Which version is it?", "What version do I have?"),
}  # fmt: skip
COLUMNS: Final = (
    "address", "weight", "deadline", "colour", "length", "discount", "volume", "postcode", "floor",
    "password", "birthday", "warranty", "species", "signature", "depth", "material", "insurance",
)  # fmt: skip
MONEY: Final = ("total", "price", "balance", "subtotal", "tax", "betrag", "importe")
NUMBER: Final = re.compile(r"(\D*?)([-+−]?)(\d[\d.,' ]*?)(\D*)")
WHOLE: Final = re.compile(r"\d+|\d{1,3}(?:[.,' ]\d{3})+")
WHOLLY: Final = frozenset(form.lower().rstrip(".?") for form in FORMS["page"])
LINED: Final = 0.85  # share of plain lines that are not asked for as a page would be
SHORT: Final = 12  # characters of a wording that is part of others, too
MARKED: Final = re.compile(r"\n\n|^(#|\|)", re.MULTILINE)
SHARE: Final = 0.7  # of the documents get such questions
RANKED: Final = 3, 10  # rows, at least and at most, that are asked for in their order
LONGEST: Final = 240  # bytes of such an answer

Table = tuple[list[str], list[list[str]]]


def revised(rng: random.Random, questions: list[Question]) -> list[Question]:
    """The questions of a document to train on: clear ones, more of them, in more words."""
    out = [_lined(rng, q) for q in questions if not unclear(q)]
    if rng.random() < SHARE:
        for q in questions:
            if q.kind == "transcribe":
                out += from_table(rng, q.answer) or from_fields(rng, q.answer)
                out += rankings(rng, q.answer)
                out += near_misses(rng, q.answer)
    return [q if q.kind == "transcribe" else reworded(rng, _placed(q)) for q in out]


def _lined(rng: random.Random, question: Question) -> Question:
    """Plain lines, asked for as such: what asks for a page is answered with Markdown.

    Some documents are still asked for in any words.
    """
    plain = "\n" in question.answer and not MARKED.search(question.answer)
    if question.kind != "transcribe" or not plain or rng.random() > LINED:
        return question
    asked = question.text.lower()
    if not any(form in asked if len(form) > SHORT else form == asked for form in WHOLLY):
        return question
    return ask(rng, "lines", question.answer, kind="transcribe")


def _placed(question: Question) -> Question:
    """A question for the second of many, as a kind of its own: it is harder than one for the first.

    Only what training needs of each kind depends on it.
    """
    second = question.kind in ("highest", "lowest") and "second" in question.text.lower()
    return replace(question, kind="second") if second else question


def unclear(question: Question) -> bool:
    """Whether some documents answer it with a name and others with a figure."""
    asked = question.text.lower().rstrip("?. ")
    bare = asked.endswith(("highest price", "lowest price")) and not asked.startswith(
        ("which", "what", "name")
    )
    return bare and not any(c.isdigit() for c in question.answer)


def table(text: str) -> Table | None:
    """Heads and rows of a Markdown table, None if `text` is anything else."""
    lines = text.split("\n")
    if len(lines) < 4 or not all(x.startswith("| ") and x.endswith(" |") for x in lines):
        return None
    cells = [line[2:-2].split(" | ") for line in lines]
    wide = len(cells[0])
    whole = all(len(row) == wide for row in cells) and set(cells[1]) == {"---"}
    return (cells[0], cells[2:]) if whole else None


def numbers(column: list[str]) -> list[float] | None:
    """The figures of a column all written in one way, or None."""
    out, around = list[float](), set[tuple[str, str]]()
    for text in column:
        found = NUMBER.fullmatch(text)
        if not found:
            return None
        before, sign, digits, after = found.groups()
        around.add((before.strip(), after.strip()))
        cents = re.fullmatch(r"(.*)[.,](\d{1,2})", digits.strip())
        whole, part = cents.groups() if cents else (digits.strip(), "0")
        if not WHOLE.fullmatch(whole) or len(around) > 1:
            return None
        value = float(re.sub(r"\D", "", whole) + "." + part)
        out.append(-value if sign in ("-", "−") else value)
    return out


def from_table(rng: random.Random, text: str) -> list[Question]:
    """Which row has the greatest and the least of a column; the answer is the row's name."""
    found, out = table(text), list[Question]()
    if found is None or found[0][0] == "Category":  # charts compare by themselves
        return out
    heads, rows = found
    names = [row[0] for row in rows]
    if len(set(names)) < len(names):
        return out
    one, many = called(heads[0], "row")
    for i in rng.sample(range(1, len(heads)), min(3, len(heads) - 1)):
        values = numbers([row[i] for row in rows])
        if values is None:
            continue
        slots = {"n": one, "p": many, "g": heads[i]}
        for end, (kind, best) in enumerate((("highest", max(values)), ("lowest", min(values)))):
            if values.count(best) > 1:
                continue
            name = names[values.index(best)]
            out.append(put(rng, ("most", "least")[end], name, kind, **slots))
            superlatives = SUPERLATIVES.get(heads[i].lower())
            if superlatives:
                asked = rng.choice(WHICH).format(w=rng.choice(superlatives[end]), **slots)
                out.append(Question(kind, asked, name))
            rest = sorted(values, reverse=kind == "highest")[1:]
            if len(rest) > 2 and rest[0] != rest[1]:
                name = names[values.index(rest[0])]
                out.append(put(rng, ("second_most", "second_least")[end], name, "second", **slots))
    return out


def called(head: str, otherwise: str) -> tuple[str, str]:
    """The name of a row by its column's head, singular and plural."""
    one = head.lower() if head.isalpha() else otherwise
    return one, re.sub(r"(?<![aeiou])y$", "ie", one) + "s"


def listed(text: str) -> Table | None:
    """Heads and rows of a list of cards ("- Soap: Price 4.20, Stock 7"), None if it is none.

    What all cards begin a part with is that part's head; a bare amount of money is a price.
    """
    lines = [line[2:].split(": ", 1) for line in text.split("\n") if line.startswith("- ")]
    if not lines or any(len(line) != 2 for line in lines):
        return None
    parts = [rest.split(", ") for _, rest in lines]
    if len({len(row) for row in parts}) > 1:
        return None
    heads, columns = ["entry"], [[name for name, _ in lines]]
    for column in zip(*parts, strict=True):
        found = re.match(r"[^\d+−-]*", os.path.commonprefix(column))
        head = (found.group() if found else "").rstrip(": ")
        heads.append(head.strip("$€£¥: ") or ("price" if head else ""))
        columns.append([text[len(head) :].lstrip(": ") for text in column])
    return heads, [list(row) for row in zip(*columns, strict=True)]


def rankings(rng: random.Random, text: str) -> list[Question]:
    """The rows of a table, a chart or a list of cards, in the order of some of their figures."""
    found = table(text) or listed(text)
    if found is None or not RANKED[0] <= len(found[1]) <= RANKED[1]:
        return []
    heads, rows = found
    names, out = [row[0] for row in rows], list[Question]()
    if len(set(names)) < len(names):
        return out
    many = called(heads[0], "entry")[1]
    for i in rng.sample(range(1, len(heads)), len(heads) - 1):
        values = numbers([row[i] for row in rows]) if heads[i] else None
        if values is None or len(set(values)) < len(rows):
            continue
        form = rng.choice(("falling", "rising"))
        order = sorted(range(len(rows)), key=values.__getitem__, reverse=form == "falling")
        answer = ", ".join(names[place] for place in order)
        if len(answer.encode()) <= LONGEST:
            out.append(put(rng, form, answer, "ranking", p=many, g=heads[i]))
    return out[:2]


def fields(text: str) -> list[tuple[str, str]]:
    """The lines of a transcription that are a label, a colon and a value."""
    pairs = [line.split(": ") for line in text.split("\n")]
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2 and not pair[0].startswith("-")]


def from_fields(rng: random.Random, text: str) -> list[Question]:
    """Questions in other words than the labels', where one label alone can be meant."""
    pairs, out = fields(text), list[Question]()
    keys = [key.lower().rstrip(".") for key, _ in pairs]
    for key, (_, value) in zip(keys, pairs, strict=True):
        if key == "amount" and any(word in other for other in keys for word in MONEY):
            continue
        if key in OTHERWISE and sum(key in other for other in keys) == 1:
            out.append(Question("field", rng.choice(OTHERWISE[key]), value))
    return out


def near_misses(rng: random.Random, text: str) -> list[Question]:
    """A label made of two shown ones; a column that is not there, of a row that is."""
    found, low = table(text), text.lower()
    if found:
        heads, rows = found
        name, column = rng.choice(rows)[0], rng.choice(COLUMNS)
        wanted = "" if column in low or heads[0] == "Category" else column
        return [denied(rng, "of", f=name, g=wanted)] if wanted else []
    keys = [key.split() for key, _ in fields(text) if " " in key]
    if len(keys) < 2:
        return []
    one, other = rng.sample(keys, 2)
    label = f"{one[0]} {other[-1]}".lower()
    return [] if label in low else [denied(rng, "field", f=label)]
