"""Cards in rows and columns: a name, one to three figures, at times a tag and a picture."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from .. import words
from ..document import Canvas, Colour, Document, Question, wrap
from ..fonts import Face
from ..questions import ORDINALS, absent, ask, yes_no
from ..theme import SERIES_NAMES, on, shade
from . import forms
from .look import Look
from .tables import figures

Draw = Callable[[random.Random], str]
NOUNS: tuple[tuple[str, str, Draw], ...] = (
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
LABELS = (
    "Points Hours Members Tasks Votes Stock Views Pages Age Floor Level Seats Beds Credits Guests "
    "Budget Rent Fee Share Progress Distance Weight Size Grade Stars Wins Visits Places Rank Load"
).split()
SUFFIXES = {
    "Duration": (" min", " h", " days", " weeks"),
    "Distance": (" km", " m", " mi"),
    "Seats": (" seats",),
    "Area": (" m²", " sq ft"),
    "Grade": ("/10", " of 10", "/5"),
    "Progress": ("%", "% done"),
    "Votes": (" votes",),
    "Members": (" members",),
}
TAGS = ("Open|Closed|Full|Draft|Done|Urgent|Paused|Online|Beta|Active|Late|Hybrid|Weekly|Free|"
        "Senior|Remote|Archived|Featured|Reserved|Shared").split("|")  # fmt: skip
TOP = ("Which {n} has the highest {c}?", "highest {c}?", "Which {n} has the most {c}?",
       "which {n} has the largest {c}", "Who or what leads by {c}?",
       "{c}: which is the highest")  # fmt: skip
FOOT = ("Which {n} has the lowest {c}?", "lowest {c}?", "Which {n} has the least {c}?",
        "which {n} has the smallest {c}", "{c}: which is the lowest",
        "min {c}: which {n}?")  # fmt: skip
DEAREST = ("Which {n} costs the most?", "dearest {n}?", "Which {n} is the most expensive?")
CHEAPEST = ("Which {n} costs the least?", "cheapest {n}?", "Which {n} is the cheapest?")
ALSO = ("What is the {w} {c}?", "{w} {c} in figures", "How much is the {w} {c}?")
TAGGED = ("Which {n} is marked {t}?", "which one is {t}", "Which {n} has the tag {t}?")
MANY = ("How many {p} are marked {t}?", "how many are {t}", "number of {p} marked {t}?")


@dataclass
class Field:
    """One figure of every card: its label, how it is written, texts and numbers card by card."""

    label: str
    pattern: str
    texts: list[str]
    values: list[float]

    def line(self, i: int) -> str:
        """The text on card ``i``."""
        return self.pattern.format(v=self.texts[i], k=self.label)


@dataclass
class Deck:
    """Cards of one sort."""

    noun: str
    plural: str
    names: list[str]
    fields: list[Field]
    tags: list[str]

    def keep(self, which: list[int]) -> Deck:
        """The cards ``which`` alone."""
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


def deck(rng: random.Random, n: int, most: int = 3) -> Deck:
    """``n`` cards with the same one to ``most`` figures."""
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
        few = words.unique(rng, words.word, 3) if rng.random() < 0.3 else few
        tags = [rng.choice(few) for _ in range(n)]
    return Deck(noun, plural, names, fields, tags)


Maker = Callable[[random.Random, int, int], Deck]


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


def draw(rng: random.Random, look: Look) -> Document:
    """Cards in a grid, or one below the other as strips."""
    canvas = look.canvas()
    title, y = forms.put_title(rng, canvas, look)
    if look.width > 300 and rng.random() < 0.3:
        made = strips(rng, canvas, look, y)
    else:
        made = grid(rng, canvas, look, y)
    return canvas.document(questions(rng, title, made, look.budget))


@dataclass(frozen=True)
class Card:
    """How each card of a grid is set."""

    name: Face
    body: Face
    big: Face
    lead: bool  # the first figure stands in large type
    top: bool  # ... and above the name
    mini: bool  # labels above figures, side by side
    picture: float
    pad: float
    centre: bool


def _card(rng: random.Random, look: Look) -> Card:
    s, f = look.size, look.family
    lead = rng.random() < 0.35
    return Card(
        name=rng.choice((f.bold, f.bold, look.heading.bold, f.regular))(s * rng.uniform(1, 1.2)),
        body=f.regular(max(10, s * rng.uniform(0.8, 1))),
        big=rng.choice((f.bold, f.regular))(s * rng.uniform(1.15, 1.7)),
        lead=lead,
        top=lead and rng.random() < 0.25,
        mini=not lead and rng.random() < 0.35,
        picture=s * rng.uniform(1.5, 5) if rng.random() < 0.25 else 0.0,
        pad=s * rng.uniform(0.35, 0.9),
        centre=rng.random() < 0.2,
    )


def grid(rng: random.Random, canvas: Canvas, look: Look, y: float, make: Maker = deck) -> Deck:
    """Equal cards in one to four columns, as many as the page holds."""
    style, m = _card(rng, look), look.margin
    made = make(rng, 28, 3)
    gap = look.size * rng.uniform(0.3, 1)
    if style.mini:
        for f in made.fields:
            f.pattern = "{k}: {v}"  # how it is read out; drawn are label and figure apart
            f.label = f.label.capitalize() if f.label.islower() else f.label
    columns = max(1, min(rng.randint(2, 4), int((look.width - 2 * m) / (look.size * 6.5))))
    while True:
        width = (look.width - 2 * m - gap * (columns - 1)) / columns
        fits = [i for i in range(28) if _height(style, made, i, width - 2 * style.pad) > 0]
        if len(fits) > 12 or columns == 1:
            break
        columns -= 1
    inner = width - 2 * style.pad
    tall = max([_height(style, made, i, inner) for i in fits], default=0.0) + 2 * style.pad
    rows = int((look.height - m - y + gap) / (tall + gap)) if fits else 0
    if not rows:
        return made.keep([])
    most = min(len(fits), rows * columns)
    count = most if rng.random() < 0.6 else rng.randint(min(2, most), most)
    made = made.keep(fits[:count])
    frame = rng.choice(("panel", "panel", "outline", "bare", "edge"))
    radius, tints = rng.choice((0, 4, 8, 12)), _tints(rng, made)
    for i in range(count):
        x, top = m + i % columns * (width + gap), y + i // columns * (tall + gap)
        _ground(canvas, look, frame, (x, top, x + width, top + tall), radius)
        _fill(rng, canvas, look, style, made, i, (x + style.pad, top + style.pad, inner), tints)
    return made


def _tints(rng: random.Random, made: Deck) -> dict[str, Colour]:
    """A colour for each tag, the same on every card."""
    names = rng.sample(SERIES_NAMES, len(set(made.tags)) + 1)
    plain, one = shade(rng, names[0]), rng.random() < 0.4
    tags = sorted(set(made.tags))
    return {"": plain} | {t: plain if one else shade(rng, n)
                          for t, n in zip(tags, names[1:], strict=True)}  # fmt: skip


def _ground(
    canvas: Canvas, look: Look, frame: str, box: tuple[float, float, float, float], radius: int
) -> None:
    t = look.theme
    if frame == "panel":
        canvas.box(*box, t.panel, t.rule, radius)
    elif frame == "outline":
        canvas.box(*box, None, t.rule, radius)
    elif frame == "edge":
        canvas.box(box[0], box[1], box[0] + 2, box[3], t.accent)


def _lines(style: Card, made: Deck, i: int) -> list[tuple[str, Face, bool]]:
    """The lines of figures on card ``i``: text, face, whether it leads; without the mini ones."""
    if style.mini:
        return []
    rest = [(f.line(i), style.body, False) for f in made.fields]
    if style.lead:
        rest[0] = (rest[0][0], style.big, True)
    return rest


def _height(style: Card, made: Deck, i: int, width: float) -> float:
    """Height of what card ``i`` holds, 0 if something is wider than ``width``."""
    name = wrap(made.names[i], style.name, width)
    lines = _lines(style, made, i)
    texts = [(x, style.name) for x in name] + [(x, face) for x, face, _ in lines]
    if len(name) > 2 or any(face.width(x) > width for x, face in texts):
        return 0.0
    tall = style.picture + style.name.line * len(name) + sum(f.line * 1.08 for _, f, _ in lines)
    if style.mini:
        if sum(_mini_widths(style, made, i)) > width:
            return 0.0
        tall += style.body.line * 2.3
    if made.tags:
        if style.body.width(made.tags[i]) + 12 > width:
            return 0.0
        tall += style.body.line * 1.4
    return tall


def _mini_widths(style: Card, made: Deck, i: int) -> list[float]:
    gap = style.body.line * 0.6
    return [max(style.body.width(f.label), style.body.width(f.texts[i])) + gap for f in made.fields]


def _fill(
    rng: random.Random, canvas: Canvas, look: Look, style: Card, made: Deck, i: int,
    place: tuple[float, float, float], tints: dict[str, Colour],
) -> None:  # fmt: skip
    """Everything on card ``i``; place: left, top and width of its inside."""
    (left, y, width), t = place, look.theme
    x, align = (left + width / 2, "centre") if style.centre else (left, "left")
    if style.picture:
        canvas.box(
            left, y, left + width, y + style.picture * 0.9, shade(rng, rng.choice(SERIES_NAMES))
        )
        y += style.picture
    lines = _lines(style, made, i)
    if style.top:
        text, face, _ = lines.pop(0)
        canvas.text(x, y, text, face, t.accent, align)
        y += face.line * 1.08
    for text in wrap(made.names[i], style.name, width):
        canvas.text(x, y, text, style.name, t.ink, align)
        y += style.name.line
    for text, face, lead in lines:
        canvas.text(x, y, text, face, t.accent if lead else t.muted, align)
        y += face.line * 1.08
    if style.mini:
        at = left
        for field, wide in zip(made.fields, _mini_widths(style, made, i), strict=True):
            canvas.text(at, y + 2, field.label, style.body, t.muted)
            canvas.text(at, y + 2 + style.body.line, field.texts[i], style.body, t.ink)
            at += max(wide, width / len(made.fields) * 0.98 if style.centre else wide)
        y += style.body.line * 2.3
    if made.tags:
        start = x - (style.body.width(made.tags[i]) + 12) / 2 if style.centre else x
        _pill(canvas, start, y + style.body.line * 0.15, made.tags[i], style.body, tints)


def _pill(
    canvas: Canvas, x: float, y: float, tag: str, face: Face, tints: dict[str, Colour]
) -> float:
    """A tag on its ground; returns its width."""
    wide, tint = face.width(tag) + 12, tints[tag]
    canvas.box(x, y - 1, x + wide, y + face.line + 1, tint, radius=face.line // 2)
    canvas.text(x + 6, y, tag, face, on(tint))
    return wide


def strips(rng: random.Random, canvas: Canvas, look: Look, y: float, make: Maker = deck) -> Deck:
    """Cards one below the other: the name left, its figures and tag at the right."""
    t, m, s = look.theme, look.margin, look.size
    name, body = look.family.bold(s), look.family.regular(max(10, s * 0.9))
    made, left = make(rng, 24, 2), m + 6.0
    under = rng.random() < 0.5 and len(made.fields) > 1  # the second figure stands below the name
    tall = name.line + body.line * under + s * rng.uniform(0.5, 1.4)
    face, mark = rng.random() < 0.35, tall * 0.7
    left += mark + 8 if face else 0
    right, frame = look.width - m - 6.0, rng.choice(("rule", "panel", "bare"))
    beside = made.fields[:1] if under else made.fields
    tag_wide = max((body.width(x) + 20 for x in made.tags), default=0.0)
    wides = [max(body.width(f.line(i)) for i in range(24)) + s for f in beside]
    reach = right - tag_wide - sum(wides) - left - 8
    fits = [i for i in range(24) if name.width(made.names[i]) < reach]
    fits = [i for i in fits if not under or body.width(made.fields[1].line(i)) < reach]
    made = made.keep(fits[: max(0, int((look.height - m - y) / (tall + 4)))])
    tints = _tints(rng, made)
    for i, text in enumerate(made.names):
        if frame == "panel":
            canvas.box(m, y, look.width - m, y + tall, t.panel, t.rule, 4)
        elif frame == "rule":
            canvas.line([(m, y + tall + 2), (look.width - m, y + tall + 2)], t.rule)
        top = y + (tall - name.line - body.line * under) / 2
        if face:
            box = (m + 5, y + tall * 0.15, m + 5 + mark, y + tall * 0.85)
            canvas.draw.ellipse(box, fill=shade(rng, rng.choice(SERIES_NAMES)))
        canvas.text(left, top, text, name, t.ink)
        if under:
            canvas.text(left, top + name.line, made.fields[1].line(i), body, t.muted)
        middle, at = y + (tall - body.line) / 2, right - tag_wide
        if made.tags:
            _pill(canvas, at + 8, middle, made.tags[i], body, tints)
        for wide, field in zip(reversed(wides), reversed(made.fields[: len(wides)]), strict=True):
            canvas.text(at, middle, field.line(i), body, t.ink, "right")
            at -= wide
        y += tall + 4
    return made


def questions(rng: random.Random, title: str, made: Deck, budget: int) -> list[Question]:
    """Questions about cards; a transcription of more than ``budget`` bytes is not asked for."""
    names, n = made.names, len(made.names)
    out = [ask(rng, "title", title)] if title else []
    if not n:
        return out
    for field in made.fields:
        out += _field_questions(rng, made, field)
    text = (f"# {title}\n\n" if title else "") + made.markdown()
    if len(text.encode()) <= budget:
        out.append(ask(rng, "page", text, kind="transcribe"))
    out.append(ask(rng, "count", str(n), n=rng.choice((made.plural, "cards", "entries"))))
    if n <= 14:
        out.append(ask(rng, "list", ", ".join(names), n=rng.choice((made.plural, "names"))))
    i = rng.randrange(min(n, len(ORDINALS)))
    out.append(ask(rng, "nth", names[i], k=ORDINALS[i], n=rng.choice((made.noun, "card"))))
    out.append(ask(rng, "nth", names[-1], k="last", n=rng.choice((made.noun, "card"))))
    out.append(yes_no(rng, "present", True, f=rng.choice(names)))
    other = words.invented(rng, 3)
    if not any(other in name.lower() for name in names):
        out.append(yes_no(rng, "present", False, f=other))
        out.append(absent(rng, "cell", f=other, g=made.fields[0].label.lower()))
    for tag in sorted(set(made.tags)):
        times = made.tags.count(tag)
        out.append(Question("count", rng.choice(MANY).format(p=made.plural, t=tag), str(times)))
        if times == 1:
            name = names[made.tags.index(tag)]
            out.append(Question("reverse", rng.choice(TAGGED).format(n=made.noun, t=tag), name))
    if made.tags:
        i = rng.randrange(n)
        out.append(ask(rng, "cell", made.tags[i], f=names[i], g=rng.choice(("tag", "status"))))
    return out


def _field_questions(rng: random.Random, made: Deck, field: Field) -> list[Question]:
    """Look-ups and comparisons in one figure of the cards."""
    label, n, out = field.label.lower(), len(made.names), list[Question]()
    for i in rng.sample(range(n), min(3, n)):
        form = "price" if label == "price" and rng.random() < 0.6 else "cell"
        slots = {"f": made.names[i], "g": label}
        out.append(ask(rng, form, field.texts[i], kind="value", **slots))
        if sum(field.texts[i] in x for f in made.fields for x in f.texts) == 1:
            slots = {"n": made.noun, "g": label, "v": field.texts[i]}
            out.append(ask(rng, "which_row", made.names[i], kind="reverse", **slots))
    if n < 2:
        return out
    order = sorted(range(n), key=field.values.__getitem__)
    ends = (("highest", order[-1], order[-2], (*TOP, *DEAREST * (label == "price"))),
            ("lowest", order[0], order[1], (*FOOT, *CHEAPEST * (label == "price"))))  # fmt: skip
    for kind, end, beside, asked in ends:
        if field.values[end] != field.values[beside]:
            for text in rng.sample(asked, 2):
                out.append(Question(kind, text.format(n=made.noun, c=label), made.names[end]))
            text = rng.choice(ALSO).format(w=kind, c=label)
            out.append(Question(kind, text, field.texts[end]))
    a, b = rng.sample(range(n), 2)
    if field.values[a] != field.values[b]:
        more = field.values[a] > field.values[b]
        slots = {"f": f"the {label} of {made.names[a]}", "g": f"that of {made.names[b]}"}
        text = rng.choice(("Is {f} higher than {g}?", "is {f} greater than {g}"))
        out.append(Question("yes_no", text.format(**slots), "yes" if more else "no"))
    return out
