"""Lines that hold some facts each, to be cut out: by whom and when, a rating and its reviews."""

import random
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pocket.content import formats
from pocket.content.topic import Filler, figure, remark_templates
from pocket.document import Document, Question
from pocket.layouts.fonts import Face
from pocket.layouts.pillow.canvas import Canvas, blank_page, wrap
from pocket.layouts.style import PageStyle
from pocket.questions.templates import ABSENT, ORDINALS, ask, typed

ABSENT_SHARE: Final = 0.25
FIND_SHARE: Final = 0.5
NTH_SHARE: Final = 0.5
MOST_QUESTIONS: Final = 18
SLOT: Final = re.compile(r"\{([a-z]+)[^}]*\}")
UNCLEAR: Final = re.compile(r", |: | - | – | / |[()|#\"<>«»]|^No|^Nr|^ID |[.:;,-]$")
SORTS: Final = {"day": "date", "clock": "time", "first": "person", "last": "person"}
EXTRA: Final[dict[str, tuple[str, ...]]] = {
    "way": ("left", "right", "half left", "half right"),
    "sky": ("sunny", "cloudy", "light rain", "Snow", "Fog", "Clear", "showers", "Windy", "storms"),
    "unit": ("kg", "night", "piece", "hour", "person", "litre", "day", "box", "pair", "metre"),
    "floor": tuple(formats.ordinal(n) for n in range(1, 40)),
    "nth": tuple(formats.ordinal(n) for n in range(1, 200)),
    "lower": tuple("abcdefgh"),
    "thing": ("scarf", "mug", "chair", "jacket", "lamp", "rug", "tent", "cap", "kite", "vase"),
}
NAME_ASKED: Final = (
    "What is the name of the {s}?", "What is the {s} called?", "Which {s} is it?", "{s} name",
    "Which {s} is shown?", "name of the {s}", "what {s} is this", "What is the {s}?", "{s}?",
    "Tell me the {s}'s name.", "How is the {s} called?",
)  # fmt: skip
FOUND: Final = (
    "Which line mentions {v}?",
    "Read the line with {v}.",
    "Where does it say {v}? Whole line",
)


@dataclass
class Remark:
    """One line: its text, its facts as (value, sort or "", questions), its rows as drawn."""

    text: str
    facts: list[tuple[str, str, list[str]]]
    rows: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """The layout of a line: its rows' face, left and right, and the drawing behind it."""

    face: Face
    left: float
    right: float
    align: str
    mode: str


def draw(rng: random.Random, style: PageStyle) -> Document:
    """Two to nine lines below a name, or no name, as large as there is room for."""
    fill, n = Filler(rng), rng.choice((2, 3, 3, 4, 4, 5, 6, 7, 8, 9))
    most = min(2.2, style.height / (style.size * 2.3 * (n + 2)))
    scale = max(1.0, rng.uniform(0.8, max(1.0, most)))
    canvas, used = blank_page(style), set[str]()
    align = rng.choice(("left", "left", "left", "centre"))
    y = style.margin + rng.choice((0, 0, rng.uniform(0, 0.15))) * style.height
    head: tuple[str, str, str] | None = None
    if rng.random() < 0.65:
        head, y = _head(fill, canvas, style, y, align, used)
    mode = rng.choice(("free", "free", "cards", "rules", "bubbles", "dots"))
    shown = _lines(fill, canvas, style, (y, scale, align, mode), used, n)
    return canvas.document(_questions(rng, style, head, shown, used))


def _head(
    fill: Filler, canvas: Canvas, style: PageStyle, y: float, align: str, used: set[str]
) -> tuple[tuple[str, str, str] | None, float]:
    """Draw the name of something: (line, name, sort) or None, and where the rest begins."""
    rng, spec = fill.rng, fill.rng.choice(remark_templates()["head"])
    sort = rng.choice(spec["sorts"])
    name = fill(spec["v"], {"sort": sort.title()})
    text = fill(spec["say"], {"v": name})
    size, wide = style.size * rng.uniform(1, 2.4), style.width - 2 * style.margin
    pick = rng.choice((style.heading.bold, style.heading.bold, style.heading.regular))
    while size > 12 and pick(size).width(text) > wide:
        size *= 0.9
    face = pick(max(11.0, size))
    if face.width(text) > wide or UNCLEAR.search(name):
        return None, y
    used.update(spec["tags"].split())
    x = style.width / 2 if align == "centre" else style.margin
    canvas.text(x, y, text, face, rng.choice((style.theme.ink, style.theme.accent)), align)
    return (text, name, sort), y + face.line * rng.uniform(1.1, 1.6)


def _lines(
    fill: Filler,
    canvas: Canvas,
    style: PageStyle,
    setting: tuple[float, float, str, str],
    used: set[str],
    n: int,
) -> list[Remark]:
    """Draw up to `n` lines that share no tag; `style` is top, scale, alignment and mode."""
    rng, (y, scale, align, mode) = fill.rng, setting
    wide = (style.width - 2 * style.margin) * rng.choice((1, 1, 0.75, 0.55))
    pick = rng.choice((style.family.regular, style.family.regular, style.family.bold))
    pad = style.size * (0.25 if mode == "free" else rng.uniform(0.35, 0.6))
    gap, shown = style.size * rng.uniform(0.1, 0.9), list[Remark]()
    for spec in rng.sample(remark_templates()["line"], len(remark_templates()["line"])):
        tags = set(spec["tags"].split())
        if len(shown) == n or tags & used:
            continue
        face = pick(
            max(10.5, style.size * scale * (rng.uniform(0.8, 1.2) if mode == "free" else 1))
        )
        side = style.margin + (style.width - 2 * style.margin - wide) * (
            0.5 if align == "centre" else len(shown) % 2 if mode == "bubbles" else 0
        )
        remark = compose(fill, spec)
        remark.rows = wrap(
            remark.text, face, wide - 2 * pad - (style.size if mode == "dots" else 0)
        )
        tall = 2 * pad + face.line * len(remark.rows)
        fits = all(face.width(r) <= wide - 2 * pad - style.size for r in remark.rows)
        if len(remark.rows) > 2 or not fits or y + tall > style.height - 3:
            continue
        _paint(canvas, style, Place(face, side, side + wide, align, mode), remark.rows, y, pad)
        used |= tags
        shown.append(remark)
        y += tall + gap
    return shown


def _paint(
    canvas: Canvas, style: PageStyle, place: Place, rows: list[str], y: float, pad: float
) -> None:
    """Draw one line's rows, and a card, a rule or a dot."""
    t, face, left = style.theme, place.face, place.left
    bottom = y + 2 * pad + face.line * len(rows)
    if place.mode in ("cards", "bubbles"):
        canvas.box(left, y, place.right, bottom, t.panel, t.rule, radius=6)
    elif place.mode == "rules":
        canvas.line([(left, bottom), (place.right, bottom)], t.rule)
    elif place.mode == "dots" and place.align == "left":
        middle, r = y + pad + face.line / 2, max(2.0, face.line / 9)
        canvas.box(left, middle - r, left + 2 * r, middle + r, t.accent)
        left += style.size
    x = (left + place.right) / 2 if place.align == "centre" else left + pad
    for i, row in enumerate(rows):
        canvas.text(x, y + pad + i * face.line, row, face, t.ink, place.align)


def compose(fill: Filler, spec: Mapping[str, Any]) -> Remark:
    """A line from its template, whose values differ and cannot be taken for the words between."""
    say = fill.rng.choice(spec["say"])
    keys = SLOT.findall(say)
    while True:
        known = {key: _value(fill, spec[key][0]) for key in keys}
        if len({v.lower() for v in known.values()}) == len(keys):
            break
    if "old" in known and (figure(known["old"]) or 0) < (figure(known["new"]) or 0):
        known["old"], known["new"] = known["new"], known["old"]
    if spec.get("a", [""])[0] == spec.get("b", [""])[0] == "{time}":
        known["a"], known["b"] = sorted((known["a"], known["b"]))
    facts = [(known[key], _sort(spec[key][0]), spec[key][1:]) for key in keys]
    return Remark(fill(say, known), facts)


def _value(fill: Filler, template: str) -> str:
    """One value; drawn again where one could not tell its ends."""
    extra = {name: fill.rng.choice(some) for name, some in EXTRA.items()}
    extra["caps"] = formats.run(fill.rng, formats.LETTERS, 3, 7)
    whole = template in ("{file}", "{code}")
    if template.startswith("{money"):  # one currency in all the document, "Fr." too
        return fill(template)
    while True:
        text = fill(template, extra)
        if len(text) <= 34 and not UNCLEAR.search(text) and not (whole and " " in text):
            return text


def _sort(template: str) -> str:
    """The kind of a fact, if it is one generator's text: "time", "person"."""
    found = SLOT.fullmatch(template)
    return SORTS.get(found[1], found[1]) if found else ""


def _questions(
    rng: random.Random,
    style: PageStyle,
    head: tuple[str, str, str] | None,
    shown: list[Remark],
    used: set[str],
) -> list[Question]:
    """About each fact; at times about whole lines and what is not there."""
    any_, out = remark_templates()["any"], list[Question]()
    sorts = Counter(sort for remark in shown for _, sort, _ in remark.facts)
    sorts["city"] += bool(head and "city" in used)
    for remark in shown:
        for value, sort, ways in remark.facts:
            out += [typed(rng, w, value) for w in rng.sample(ways, rng.choice((1, 1, 2)))]
            if sorts[sort] == 1 and sort in any_ and rng.random() < 0.5:
                out.append(typed(rng, rng.choice(any_[sort]), value))
    rng.shuffle(out)
    out = out[:MOST_QUESTIONS]
    if head:
        out += [typed(rng, w.format(s=head[2]), head[1]) for w in rng.sample(NAME_ASKED, 2)]
        out.append(ask(rng, "title", head[0]))
    out += _whole(rng, head[0] if head else "", shown)
    free = [s for s in remark_templates()["line"] if not used & set(s["tags"].split())]
    if free and rng.random() < ABSENT_SHARE:
        missing = rng.choice(free)
        key = rng.choice(SLOT.findall(missing["say"][0]))
        out.append(typed(rng, rng.choice(missing[key][1:]), ABSENT, "absent"))
    return [q for q in out if len(q.answer.encode()) <= style.budget]


def _whole(rng: random.Random, head: str, shown: list[Remark]) -> list[Question]:
    """A line found by a value, a line by its place, and all the text."""
    rows = [row for remark in shown for row in remark.rows]
    text, out = "\n".join([head, *rows]).strip(), list[Question]()
    said = text.replace("\n", " ")
    values = [(v, r.text) for r in shown for v, _, _ in r.facts if said.count(v) == 1]
    if values and rng.random() < FIND_SHARE:
        value, line = rng.choice(values)
        out.append(typed(rng, rng.choice(FOUND).format(v=value), line, "find"))
    if not head and len(shown) > 1 and len(rows) == len(shown) and rng.random() < NTH_SHARE:
        i = rng.randrange(min(len(shown), len(ORDINALS)))
        out.append(ask(rng, "nth", shown[i].text, k=ORDINALS[i], n="line"))
    if text:
        out.append(ask(rng, "text", text, kind="transcribe"))
    return out
