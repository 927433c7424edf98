"""Small type in columns: an index, a glossary, departures, offers, parts, results, small print.

Dozens to hundreds of entries are close together, and questions ask for one of them: by its name, by
the text beside it, by its neighbour, or one that is not there.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from pocket.content import formats, lexicon, words
from pocket.content.colours import Colour, ink_on
from pocket.document import Document, Question
from pocket.layouts.fonts import Face, Family, pick_family
from pocket.layouts.pillow.canvas import Canvas, blank_page, wrap
from pocket.layouts.style import PageStyle
from pocket.questions.templates import ABSENT, ORDINALS, phrased

SMALLEST, LARGEST = 8.6, 13.5  # pixels of a letter's size
NARROWEST: Final = 4.6  # pixels of a figure's width, at least
SECTIONED: Final = 0.55  # share of pages with headings between the entries
Make = Callable[[random.Random], str]
ASKED: Final[dict[str, tuple[str, ...]]] = {
    "section": ("In which section is {shown}?", "Which heading stands over {shown}?",
        "{shown} is listed under what?", "What heading is {shown} under?", "heading above {shown}",
        "Under which heading does {shown} stand?", "Which heading is nearest above {shown}?"),
}  # fmt: skip


@dataclass(frozen=True)
class Sort:
    """A sort of list.

    Attributes:
        titles: What may stand above it; invented words do, too.
        name: Makes what an entry is called.
        parts: What else an entry has: how it is called, asked for and made.
        way: How an entry is set, of `WAYS`.
        noun: One entry.
    """

    titles: str
    name: Make
    parts: tuple[tuple[str, str, Make], ...]
    way: str
    noun: str


def _pages(rng: random.Random) -> str:
    first = rng.randint(2, 600)
    return rng.choice((str(first), str(first), f"{first}, {first + rng.randint(1, 90)}",
                       f"{first}–{first + rng.randint(1, 9)}"))  # fmt: skip


def _hour(rng: random.Random) -> str:
    return f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"


def _price(rng: random.Random) -> str:
    return f"{rng.uniform(0.3, 99):.2f}"


def _number(least: int, most: int) -> Make:
    return lambda rng: str(rng.randint(least, most))


def _share(rng: random.Random) -> str:
    unit = rng.choice(("%", " g", " mg", " ml", " kJ"))
    return f"{rng.choice((str(rng.randint(1, 99)), f'{rng.uniform(0.1, 20):.1f}'))}{unit}"


def _some(least: int, most: int) -> Make:
    return lambda rng: words.some(rng, least, most)


def _lower(rng: random.Random) -> str:
    return words.some(rng, 1, 2).lower()


SORTS: Final = (
    Sort("Index|Subject index|Index of names", _lower,
         (("page", "On which page is {f}?", _pages),), "run", "entry"),
    Sort("Glossary|Abbreviations|Terms", lambda r: lexicon.word(r).capitalize(),
         (("meaning", "What does {f} mean?", _some(2, 5)),), "hang", "term"),
    Sort("Departures|Arrivals|Programme|Broadcasts today", _some(1, 3),
         (("time", "At what time is {f}?", _hour),), "lead", "entry"),
    Sort("Parts|Spare parts|Stock|Inventory", lambda r: words.product(r),
         (("code", "Which code has {f}?", lambda r: formats.run(r, "ABCDEFGH0123456789", 4, 7)),
          ("quantity", "How many {f} are there?", _number(0, 999))), "table", "part"),
    Sort("Results|Standings|Members|Scores", words.person,
         (("rank", "Which rank has {f}?", _number(1, 400)),
          ("points", "How many points has {f}?", _number(0, 999))), "table", "name"),
    Sort("Timetable|Opening hours|Sessions", _some(1, 2),
         (("first", "When is the first for {f}?", _hour), ("last", "When is the last for {f}?",
          _hour)), "table", "line"),
    Sort("Classified|Notices|Small ads|Wanted and offered", _some(2, 3),
         (("price", "What is asked for {f}?", _price),
          ("telephone", "Which number belongs to {f}?",
           lambda r: formats.run(r, "0123456789", 5, 8))), "hang", "advertisement"),
    Sort("Ingredients|Composition|Contents|Analysis", _lower,
         (("share", "How much {f} is in it?", _share),), "stream", "ingredient"),
    Sort("Specification|Technical data|Settings|Properties", lambda r: words.label(r)[:24].strip(),
         (("value", "What is the {f}?", formats.measure),), "box", "property"),
    Sort("Notes|References|Footnotes|Clues", _some(3, 6),
         (("number", "Which number has the note {f}?", _number(1, 300)),), "lead", "note"),
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One entry: its name, what else it has, its column, and the heading above it, if any."""

    name: str
    values: list[str]
    column: int
    heading: str


@dataclass
class Page:
    """A page in the making: faces, columns, and the entries that stand on it."""

    rng: random.Random
    style: PageStyle
    canvas: Canvas
    sort: Sort
    faces: tuple[Face, Face, Face]  # of the text, of headings, of the title
    ink: Colour
    pitch: float
    stops: list[float] = field(default_factory=list)  # left ends of the columns
    wide: float = 0.0  # of a column
    look: int = 0  # which way out of four, where a list may be set in several
    sectioned: bool = False
    plain: bool = False  # headings stand at the left, on no ground of their own
    entries: list[Entry] = field(default_factory=list)
    named: str = ""  # their names in small letters, each behind a line's end

    def add(self, entry: Entry) -> None:
        """Note an entry that has been set."""
        self.entries.append(entry)
        self.named += f"\n{entry.name.lower()}"

    @property
    def body(self) -> Face:
        """The face of the text."""
        return self.faces[0]


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One page of small type."""
    page = _open(rng, style)
    title = rng.choice(page.sort.titles.split("|")) if rng.random() < 0.5 else words.some(rng, 1, 3)
    top = _title(page, title)
    for number, x in enumerate(page.stops):
        _column(page, number, x, top)
    if len(page.entries) < 4:
        return page.canvas.document([])
    return page.canvas.document(_questions(rng, page, title))


def _open(rng: random.Random, style: PageStyle) -> Page:
    """An empty page: what is listed, how large, in how many columns."""
    white = rng.random() < 0.6
    canvas = blank_page(style, (255, 255, 255) if white else None)
    family, sort = pick_family(rng, style.split, western=True), rng.choice(SORTS)
    size = rng.triangular(SMALLEST, LARGEST, 9.6)
    make = _light(rng, family)
    size *= max(1.0, NARROWEST / (make(40).width("0") * size / 40))
    body = make(size)
    faces = body, family.bold(size * rng.uniform(1.0, 1.2)), family.bold(size * rng.uniform(1.3, 2))
    ink: Colour = (20, 20, 24) if white else style.theme.ink
    page = Page(rng, style, canvas, sort, faces, ink, body.line * rng.uniform(0.98, 1.4))
    letters = {"table": (36, 60), "stream": (40, 80), "box": (30, 52)}.get(sort.way, (26, 46))
    need = body.width("0") * rng.uniform(*letters)
    inside = style.width - 2 * style.margin
    count = max(1, int(inside / need))
    gap = size * rng.uniform(0.8, 2.4)
    page.wide = (inside - gap * (count - 1)) / count
    page.look, page.sectioned = rng.randrange(4), rng.random() < SECTIONED
    page.plain = rng.random() < 0.4 and sort.way != "hang"  # whose names are bold, too
    page.stops = [style.margin + c * (page.wide + gap) for c in range(count)]
    if rng.random() < 0.3:
        for x in page.stops[1:]:
            foot = style.height - style.margin
            canvas.line([(x - gap / 2, style.margin * 3), (x - gap / 2, foot)], style.theme.rule)
    return page


def _light(rng: random.Random, family: Family) -> Callable[[float], Face]:
    """Mostly the body style; at times all of it slanted or heavy."""
    return rng.choices((family.regular, family.italic, family.bold), (8, 1, 1))[0]


def _title(page: Page, title: str) -> float:
    """The heading of the page; returns where the columns begin."""
    style, face = page.style, page.faces[2]
    y = float(style.margin)
    if face.width(title) > style.width - 2 * style.margin:
        face = page.faces[1]
    centred = page.rng.random() < 0.3
    x = style.width / 2 if centred else style.margin
    page.canvas.text(x, y, title, face, page.ink, "centre" if centred else "left")
    return y + face.line * page.rng.uniform(1.1, 1.6)


def _made(page: Page) -> Iterator[tuple[str, list[str]]]:
    """Entries, none of whose names is within another's on the page."""
    for _ in range(500):
        name = page.sort.name(page.rng)
        low = name.lower()
        if low and low not in page.named and not any(n in low for n in page.named.split("\n")[1:]):
            yield name, [make(page.rng) for _, _, make in page.sort.parts]


def _column(page: Page, number: int, x: float, top: float) -> None:
    """One column of entries, down to the foot or shorter."""
    rng, foot = page.rng, float(page.style.height - page.style.margin)
    if rng.random() < 0.2:
        foot -= (foot - top) * rng.uniform(0, 0.5)
    y, heading, due = top, "", 0
    if page.sort.way == "table":
        y = _heads(page, x, y)
    for name, values in _made(page):
        if page.sectioned and len(page.entries) >= due and y + page.pitch * 4 < foot:
            heading, y = _section(page, (x, y))
            due = len(page.entries) + rng.randint(2, 14)
        if y + page.pitch > foot:
            break
        taken = WAYS[page.sort.way](page, (x, y, foot), name, values)
        if taken:
            page.add(Entry(name, values, number, heading))
            y += taken
            if page.sort.way == "stream":
                _more(page, (x, y - page.pitch), page.entries[-1])


def _heads(page: Page, x: float, y: float) -> float:
    """The heads of a table's figures; returns the start of its rows."""
    face = page.body
    for i, (what, _, _) in enumerate(page.sort.parts):
        text = what.title() if page.look % 3 else what.upper()
        page.canvas.text(_slot(page, x, i), y, text, face, page.ink)
    page.canvas.line([(x, y + page.pitch), (x + page.wide, y + page.pitch)], page.ink)
    return y + page.pitch + 3


def _slot(page: Page, x: float, i: int) -> float:
    """The position of figure `i` of a row: before the name or at the row's end."""
    if page.look % 2 == 0:
        return x + _wide(page) * i
    return x + page.wide - _wide(page) * (len(page.sort.parts) - i)


def _wide(page: Page) -> float:
    """Room for one figure of a table and what is above it."""
    heads = [what.upper() for what, _, _ in page.sort.parts]
    return max(map(page.body.width, (*heads, "BD0GH0B"))) + page.body.size * 0.7


def _section(page: Page, at: tuple[float, float]) -> tuple[str, float]:
    """A heading across a column; returns it, and where the entries go on."""
    (x, y), face = at, page.faces[1]
    heading = lexicon.word(page.rng)[:14].upper() if page.look % 2 else words.some(page.rng, 1, 2)
    if face.width(heading) > page.wide:
        return "", y
    if page.plain:
        page.canvas.text(x, y, heading, face, page.ink)
    elif page.look < 2:
        page.canvas.text(x + page.wide / 2, y, heading, face, page.ink, "centre")
    else:
        ground = page.style.theme.rule
        page.canvas.box(x, y, x + page.wide, y + face.line, fill=ground)
        page.canvas.text(x + 3, y, heading, face, ink_on(ground))
    return heading, y + face.line * 1.15


def _run(page: Page, at: tuple[float, float, float], name: str, values: list[str]) -> float:
    """A name, a comma or some room, and its figure."""
    joint = ", " if page.rng.random() < 0.7 else "  "
    text = f"{name}{joint}{values[0]}"
    if page.body.width(text) > page.wide:
        return 0.0
    page.canvas.text(at[0], at[1], text, page.body, page.ink)
    return page.pitch


def _lead(page: Page, at: tuple[float, float, float], name: str, values: list[str]) -> float:
    """A figure first, what it belongs to behind it."""
    x, y, _ = at
    inset = page.body.width("00:000")
    if inset + page.body.width(name) > page.wide:
        return 0.0
    page.canvas.text(x, y, values[0], page.body, page.ink)
    page.canvas.text(x + inset, y, name, page.body, page.ink)
    return page.pitch


def _hang(page: Page, at: tuple[float, float, float], name: str, values: list[str]) -> float:
    """A name in bold and what is said of it, wrapped below it."""
    x, y, foot = at
    bold = page.faces[1] if page.faces[1].width(name) < page.wide * 0.7 else page.body
    first = bold.width(name + " ")
    text = " ".join(values)
    inset = page.body.size * 0.8
    head = next(iter(wrap(text, page.body, page.wide - first)), "")
    if page.body.width(head) > page.wide - first:
        return 0.0
    rest = wrap(text[len(head) :].strip(), page.body, page.wide - inset)
    if y + page.pitch * (1 + len(rest)) > foot:
        return 0.0
    page.canvas.text(x, y, name, bold, page.ink)
    page.canvas.text(x + first, y, head, page.body, page.ink)
    for i, line in enumerate(rest):
        page.canvas.text(x + inset, y + page.pitch * (i + 1), line, page.body, page.ink)
    return page.pitch * (1 + len(rest)) + page.pitch * 0.15


def _table(page: Page, at: tuple[float, float, float], name: str, values: list[str]) -> float:
    """A row: figures in columns of their own, before the name or behind it."""
    x, y, _ = at
    slot = _wide(page)
    if page.body.width(name) > page.wide - slot * len(values) - 4:
        return 0.0
    for i, value in enumerate(values):
        page.canvas.text(_slot(page, x, i), y, value, page.body, page.ink)
    inset = slot * len(values) if page.look % 2 == 0 else 0
    page.canvas.text(x + inset, y, name, page.body, page.ink)
    if page.look > 1:
        under = y + page.pitch - 1
        page.canvas.line([(x, under), (x + page.wide, under)], page.style.theme.rule)
    return page.pitch


def _stream(page: Page, at: tuple[float, float, float], name: str, values: list[str]) -> float:
    """The first entry of a line of running text; `_more` puts others behind it."""
    text = f"{name} {values[0]},"
    if page.body.width(text) > page.wide:
        return 0.0
    page.canvas.text(at[0], at[1], text, page.body, page.ink)
    return page.pitch


def _more(page: Page, at: tuple[float, float], first: Entry) -> None:
    """One or two more entries behind the first of a line."""
    x = at[0] + page.body.width(f"{first.name} {first.values[0]}, ")
    for (name, values), _ in zip(_made(page), range(page.rng.randint(0, 2)), strict=False):
        text = f"{name} {values[0]},"
        if x + page.body.width(text) > at[0] + page.wide:
            return
        page.canvas.text(x, at[1], text, page.body, page.ink)
        page.add(Entry(name, values, first.column, first.heading))
        x += page.body.width(f"{text} ")


def _box(page: Page, at: tuple[float, float, float], name: str, values: list[str]) -> float:
    """A ruled field: a name at the left, its value in a field of its own."""
    x, y, foot = at
    split = page.wide * 0.62
    high = page.pitch + 3
    if page.body.width(name) > split - 6 or page.body.width(values[0]) > page.wide - split - 6:
        return 0.0
    if y + high > foot:
        return 0.0
    page.canvas.frame((x, y, x + page.wide, y + high), page.style.theme.rule, 0, 1)
    page.canvas.line([(x + split, y), (x + split, y + high)], page.style.theme.rule)
    page.canvas.text(x + 3, y + 1, name, page.body, page.ink)
    page.canvas.text(x + split + 3, y + 1, values[0], page.body, page.ink)
    return high


WAYS: Final = {
    "run": _run, "lead": _lead, "hang": _hang, "table": _table, "stream": _stream, "box": _box,
}  # fmt: skip


def _questions(rng: random.Random, page: Page, title: str) -> list[Question]:
    """About entries all over the page, and about one or two that are not there."""
    sort, entries, out = page.sort, page.entries, list[Question]()
    say = lambda kind, answer, *forms, **slots: out.append(  # noqa: E731
        phrased(rng, kind, answer, *forms, **slots)
    )
    say("title", title, "What is the title?", "heading of the page?", "What is the page called?")
    for entry in rng.sample(entries, min(9, len(entries))):
        i = rng.randrange(len(sort.parts))
        (what, form, _), value = sort.parts[i], entry.values[i]
        shown = entry.name if rng.random() < 0.8 else entry.name.lower()
        say("value", value, *(text.format(f=shown) for text in (
            form, form, f"{what} of {{f}}?", f"{{f}}: {what}?", f"look up the {what} of {{f}}",
        )))  # fmt: skip
        if sum(value in e.values for e in entries) == 1 and rng.random() < 0.6:
            say("reverse", entry.name, f"Which {sort.noun} has the {what} {value}?",
                f"What is listed with {value}?", f"{what} {value}: which {sort.noun}?")  # fmt: skip
        if entry.heading and rng.random() < 0.75:
            say("find", entry.heading, *ASKED["section"], shown=shown)
    if sort.way != "stream":
        _about_neighbours(rng, page, say)
    _about_missing(rng, page, say)
    return out


def _about_neighbours(rng: random.Random, page: Page, say: Callable[..., None]) -> None:
    """Entries above or below, at the top of a column, or in a section."""
    entries, noun = page.entries, page.sort.noun
    for k in rng.sample(range(len(entries) - 1), min(3, len(entries) - 1)):
        one, two = entries[k], entries[k + 1]
        if (one.column, one.heading) == (two.column, two.heading):
            say("find", two.name, f"Which {noun} stands below {one.name}?",
                f"What follows {one.name}?", f"the {noun} after {one.name}",
                f"Which {noun} is next after {one.name}?")  # fmt: skip
            say("find", one.name, f"Which {noun} stands above {two.name}?",
                f"What comes before {two.name}?")  # fmt: skip
    if len(page.stops) > 1:
        number = rng.randrange(len(page.stops))
        column = [e.name for e in entries if e.column == number]
        order = ORDINALS[number] if number < len(ORDINALS) else ""
        if column and order:
            say("nth", column[0], f"Which {noun} is at the top of the {order} column?",
                f"first {noun} of the {order} column")  # fmt: skip
            if len(column) >= 5:
                say("list", ", ".join(column[:5]), f"{order} column: the first five",
                    f"Read the first five names of the {order} column.")  # fmt: skip
    heads = [e.heading for e in entries if e.heading]
    for heading in rng.sample(sorted(set(heads)), min(2, len(set(heads)))):
        names = [e.name for e in entries if e.heading == heading]
        if len(names) < 9 and len({e.column for e in entries if e.heading == heading}) == 1:
            say("list", ", ".join(names), f"What is listed under {heading}?",
                f"Name all that stands under {heading}.")  # fmt: skip
            say("count", str(len(names)), f"How many stand under {heading}?",
                f"number of entries under {heading}")  # fmt: skip


def _about_missing(rng: random.Random, page: Page, say: Callable[..., None]) -> None:
    """One or two that are not there."""
    whole = "\n".join(page.canvas.content).lower()
    for _ in range(2):
        name = page.sort.name(rng)
        if name and name.lower() not in whole:
            what, form, _ = rng.choice(page.sort.parts)
            say("absent", ABSENT, form.format(f=name), f"{what} of {name}?")
