"""Sets of cards: a name, one to three figures and at times a tag on each."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pocket.content import lexicon, words
from pocket.content.tables import figures

Draw = Callable[[random.Random], str]
NOUNS: Final[tuple[tuple[str, str, Draw], ...]] = (
    ("person", "people", words.person),
    ("member", "members", words.person),
    ("speaker", "speakers", words.person),
    ("project", "projects", lambda r: words.some(r, 1, 3)),
    ("task", "tasks", lambda r: words.some(r, 2, 4)),
    ("course", "courses", lambda r: words.some(r, 1, 3)),
    ("room", "rooms", lambda r: r.choice((words.label(r), f"Room {r.randint(1, 400)}"))),
    ("flat", "flats", words.address),
    ("event", "events", words.title),
    ("supplier", "suppliers", words.company),
    ("file", "files", lambda r: words.some(r, 1, 2)),
    ("device", "devices", words.product),
    ("place", "places", lambda r: r.choice((*words.CITIES, *words.COUNTRIES))),
    ("card", "cards", lambda r: words.some(r, 1, 3)),
    ("entry", "entries", words.label),
)
LABELS: Final = (
    "Points Hours Members Tasks Votes Stock Views Pages Age Floor Level Seats Beds Credits Guests "
    "Budget Rent Fee Share Progress Distance Weight Size Grade Stars Wins Visits Places Rank Load"
).split()
SUFFIXES: Final = {
    "Duration": (" min", " h", " days", " weeks"),
    "Distance": (" km", " m", " mi"),
    "Seats": (" seats",),
    "Area": (" m²", " sq ft"),
    "Grade": ("/10", " of 10", "/5"),
    "Progress": ("%", "% done"),
    "Votes": (" votes",),
    "Members": (" members",),
}
TAGS: Final = (
    "Open|Closed|Full|Draft|Done|Urgent|Paused|Online|Beta|Active|Late|Hybrid|Weekly|Free|"
    "Senior|Remote|Archived|Featured|Reserved|Shared"
).split("|")  # fmt: skip


@dataclass
class Field:
    """One figure of every card: its label, how it is written, texts and numbers card by card."""

    label: str
    pattern: str
    texts: list[str]
    values: list[float]

    def line(self, i: int) -> str:
        """The text on card `i`."""
        return self.pattern.format(v=self.texts[i], k=self.label)


@dataclass
class Deck:
    """Cards of one sort."""

    noun: str
    plural: str
    names: list[str]
    fields: list[Field]
    tags: list[str]

    def keep(self, which: list[int]) -> "Deck":
        """The cards `which` alone."""
        fields = [Field(f.label, f.pattern, [f.texts[i] for i in which],
                        [f.values[i] for i in which]) for f in self.fields]  # fmt: skip
        tags = [self.tags[i] for i in which] if self.tags else []
        return Deck(self.noun, self.plural, [self.names[i] for i in which], fields, tags)

    def markdown(self) -> str:
        """The cards as a list: name, figures, tag."""
        out = []
        for i, name in enumerate(self.names):
            parts = [f.line(i) for f in self.fields] + ([self.tags[i]] if self.tags else [])
            out.append(f"- {name}: " + ", ".join(parts))
        return "\n".join(out)


def make_deck(rng: random.Random, n: int, most: int = 3) -> Deck:
    """`n` cards with the same one to `most` figures."""
    noun, plural, name = rng.choice(NOUNS)
    if rng.random() < 0.3:
        name = rng.choice((words.product, words.label, words.person, words.company))
    names = words.unique(rng, name, n)
    fields: list[Field] = []
    for _ in range(rng.randint(1, most)):
        field = _field(rng, n)
        if not any(field.label.lower() == f.label.lower() for f in fields):
            fields.append(field)
    tags: list[str] = []
    if rng.random() < 0.4:
        few = rng.sample(TAGS, 3)
        few = words.unique(rng, lexicon.word, 3) if rng.random() < 0.3 else few
        tags = [rng.choice(few) for _ in range(n)]
    return Deck(noun, plural, names, fields, tags)


DeckMaker = Callable[[random.Random, int, int], Deck]


def caption(rng: random.Random) -> str:
    """A title over cards or fields, at times none."""
    r = rng.random()
    if r < 0.25:
        return ""
    return words.company(rng) if r < 0.4 else words.title(rng)


def _field(rng: random.Random, n: int) -> Field:
    """Figures in one notation, some with a unit that says what they are."""
    r = rng.random()
    if r < 0.25:
        cash, top = words.money(rng), rng.choice((20, 90, 500, 4000))
        made = [round(rng.uniform(top / 20, top), 2) for _ in range(n)]
        texts = [cash(v) for v in made]
        return Field("price", rng.choice(("{v}", "{v}", "Price: {v}", "from {v}")), texts, made)
    if r < 0.5:
        label = rng.choice(tuple(SUFFIXES))
        suffix, top = rng.choice(SUFFIXES[label]), 100 if label == "Progress" else 240
        top = 10 if label == "Grade" and "5" not in suffix else 5 if label == "Grade" else top
        made = [round(rng.uniform(1, top), top <= 10) for _ in range(n)]
        texts = [f"{v:.{int(top <= 10)}f}{suffix}" for v in made]
        return Field(label.lower(), "{v}", texts, [float(t.split(suffix)[0]) for t in texts])
    label = rng.choice(LABELS) if rng.random() < 0.6 else words.some(rng, 1, 1)
    column = figures(rng, n)
    rng.shuffle(column)
    pattern = rng.choice(("{k}: {v}", "{k} {v}", "{v} {k}", "{k} {v}"))
    return Field(label, pattern, [t for t, _ in column], [v for _, v in column])
