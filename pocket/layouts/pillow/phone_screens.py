"""Telephones' screens: lists with two lines and a figure, grids of days, tiles."""

import random
from dataclasses import replace
from typing import Final

from pocket.content import formats, lexicon, panels, words
from pocket.content.colours import hsv, ink_on
from pocket.document import Document
from pocket.layouts.backdrops import backdrop
from pocket.layouts.pillow import chrome
from pocket.layouts.pillow.chrome import Screen, fitting
from pocket.layouts.pillow.handset_grids import days, hours, tiles
from pocket.layouts.style import PageStyle
from pocket.questions.templates import ask

TOURS: Final = "tour lesson meeting shift game delivery flight swim visit call climb race".split()
PACKS: Final = ("{a} x {b} ml", "{b} g", "box of {a}", "{a} pcs", "roll, {a} m", "{b} ml")
ASKED: Final[dict[str, tuple[str, ...]]] = {
    "headline": ("What is the headline?", "What does the large text say?", "title?"),
    "below headline": ("What is written below the headline?", "What stands under {text}?"),
    "title": ("What is the title?", "Which screen is it?", "What is the heading?",
        "Which app is it?"),
    "figure": ("What is the {f} of {name}?", "{name}: {f}?", "{f} for {name}"),
    "second line": ("What is the {f} of {name}?", "What is written below {name}?",
        "{f} of {name}?"),
    "count": ("How many entries are listed?", "How many rows are there?"),
    "first": ("What is the first entry?", "Which {noun} is listed first?"),
}  # fmt: skip


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One screen, filling the picture or as a shop's page shows it: smaller, under a headline."""
    screen = chrome.open_screen(
        rng, replace(style, size=max(11.0, min(style.size, style.width / 20)))
    )
    if rng.random() < 0.15 and style.width > 400:
        _advertised(rng, screen)
    else:
        _status(rng, screen)
        _title(rng, screen)
    rng.choice((_list, _list, days, tiles, hours))(rng, screen)
    if len(screen.questions) > 2:
        screen.questions.append(chrome.missing_label(rng, screen))
    return screen.canvas.document(screen.questions)


def _advertised(rng: random.Random, screen: Screen) -> None:
    """A headline above a smaller screen on a coloured ground."""
    canvas, style = screen.canvas, screen.style
    canvas.replace(
        backdrop(rng, (style.width, style.height), 0.2) if rng.random() < 0.3 else canvas.image
    )
    tone = hsv(rng.random(), rng.uniform(0.2, 0.8), rng.uniform(0.5, 1))
    canvas.box(0, 0, style.width, style.height, fill=tone)
    face = style.heading.bold(style.size * 1.8)
    text = words.some(rng, 1, 3).capitalize()
    y = style.height * 0.04
    if face.width(text) < style.width * 0.9:
        canvas.text(style.width * 0.06, y, text, face, ink_on(tone))
        screen.ask("title", text, *ASKED["headline"])
        y += face.line
        small, line = screen.body(1.0), words.some(rng, 3, 6).capitalize()
        if small.width(line) < style.width * 0.9:
            canvas.text(style.width * 0.06, y, line, small, ink_on(tone))
            screen.ask("find", line, *ASKED["below headline"], text=text)
            y += small.line
    side, top = style.width * rng.uniform(0.06, 0.18), y + style.height * 0.04
    canvas.box(side, top, style.width - side, style.height - 10, fill=screen.panel, radius=10)
    screen.box = (side + 10, top + 10, style.width - side - 10, style.height - 20.0)


def _status(rng: random.Random, screen: Screen) -> None:
    """The line of the clock and the battery."""
    if rng.random() < 0.4:
        return
    face, style = screen.body(0.8), screen.style
    clock = f"{rng.randint(0, 23)}:{rng.randint(0, 59):02}"
    screen.text(style.margin, 3, clock, face, screen.ink)
    share = f"{rng.randint(1, 100)}%"
    x = style.width - style.margin
    if rng.random() < 0.5:
        screen.text(x, 3, share, face, screen.ink, "right")
        screen.ask("field", share, "How full is the battery?", "battery?")
    else:
        screen.canvas.box(x - 18, 5, x, 5 + face.ascent * 0.7, fill=screen.ink)
    screen.ask("field", clock, "What time does the phone show?", "What time is it?", "clock?")
    left, _, right, foot = screen.box
    screen.box = (left, face.line + 8.0, right, foot)


def _title(rng: random.Random, screen: Screen) -> None:
    """The app's bar: a title, icons at the sides."""
    canvas, style = screen.canvas, screen.style
    face = style.heading.bold(style.size * rng.uniform(1.1, 1.5))
    text = rng.choice(chrome.MENU) if rng.random() < 0.6 else words.some(rng, 1, 2).capitalize()
    left, y, right, foot = screen.box
    high = face.line * 1.7
    ground = rng.choice((screen.panel, screen.accent, None))
    if ground:
        canvas.box(0, y - 4, style.width, y + high, fill=ground)
    ink = ink_on(ground) if ground else screen.ink
    x, side = left, face.ascent * 0.8
    if rng.random() < 0.5:
        chrome.mark(rng, canvas, (x, y + (high - side) / 2, side), ink)
        x += side * 2
    if x + face.width(text) < right - side * 3:
        screen.text(x, y + (high - face.line) / 2, text, face, ink)
        screen.ask("title", text, *ASKED["title"])
        chrome.mark(rng, canvas, (right - side, y + (high - side) / 2, side), ink)
    screen.box = (left, y + high + style.size * 0.4, right, foot)
    if rng.random() < 0.25:
        chrome.tabs(rng, screen)


def _entries(
    rng: random.Random, n: int
) -> tuple[str, list[tuple[str, str, str, str]], tuple[str, ...]]:
    """A noun, entries (name, second line, figure, small line), and what each part is called."""
    sort = rng.randrange(5)
    if sort == 0:
        rows = [
            (
                words.product(rng),
                rng.choice(PACKS).format(a=rng.randint(2, 60), b=rng.randint(5, 90) * 10),
                f"{rng.randint(1, 400)} left",
                "",
            )
            for _ in range(n)
        ]
        return "product", rows, ("pack", "left", "")
    if sort == 1:
        unit = rng.choice(("km", "mi", "stops", "laps"))
        rows = [
            (
                f"{lexicon.word(rng).capitalize()} {rng.choice(TOURS)}",
                f"{rng.randint(2, 90)} {unit}, {rng.randint(5, 200)} min",
                f"{rng.choice(formats.DAYS)[:3]} {rng.randint(1, 28)}",
                f"{rng.randint(5, 22):02}:{rng.randint(0, 59):02}",
            )
            for _ in range(n)
        ]
        return "entry", rows, ("length", "day", "time")
    if sort == 2:
        cash = words.money(rng)
        rows = [
            (
                words.company(rng),
                formats.date(rng),
                cash(rng.uniform(1, 400) * rng.choice((1, -1)), True),
                "",
            )
            for _ in range(n)
        ]
        return "payment", rows, ("date", "amount", "")
    if sort == 3:
        rows = [
            (
                words.person(rng),
                words.some(rng, 2, 5).capitalize(),
                f"{rng.randint(0, 23)}:{rng.randint(0, 59):02}",
                "",
            )
            for _ in range(n)
        ]
        return "contact", rows, ("message", "time", "")
    rows = [
        (words.some(rng, 1, 3).capitalize(), words.some(rng, 1, 3), panels.count(rng), "")
        for _ in range(n)
    ]
    return "entry", rows, ("second line", "number", "")


def _list(rng: random.Random, screen: Screen) -> None:
    """Rows: a picture or icon, a name, a second line below it, a figure at the right."""
    canvas, style = screen.canvas, screen.style
    face, small = screen.body(1.0), screen.body(0.8)
    x, y, right, foot = screen.box
    pitch = face.line + small.line + style.size * rng.uniform(0.4, 1.3)
    n = int((foot - y) / pitch)
    noun, made, called = _entries(rng, max(2, min(n, rng.randint(3, 14))))
    thumbs, ruled = rng.randrange(3), rng.random() < 0.6
    rows: list[tuple[str, str, str, str]] = []
    for row in made:
        name, second, figure, below = row
        at = x + (pitch * 1.05 if thumbs else 0)
        if y + pitch > foot or face.width(name) > right - at - small.width(figure) - 10:
            continue
        if words.overlaps(name, (shown[0] for shown in rows)):
            continue
        if thumbs == 1:
            canvas.image.paste(backdrop(rng, (round(pitch * 0.85),) * 2), (round(x), round(y)))
        elif thumbs == 2:
            chrome.mark(
                rng, canvas, (x + pitch * 0.1, y + pitch * 0.15, pitch * 0.5), screen.accent
            )
        screen.text(at, y, name, face, screen.ink)
        screen.text(at, y + face.line, fitting(small, second, right - at - 60), small, screen.muted)
        screen.text(
            right,
            y + (0 if below else face.line * 0.3),
            figure,
            small,
            screen.ink if below == "" else screen.muted,
            "right",
        )
        if below:
            screen.text(right, y + small.line, below, small, screen.muted, "right")
        if fitting(small, second, right - at - 60) == second:
            rows.append(row)
        y += pitch
        if ruled:
            canvas.line([(at, y - style.size * 0.2), (right, y - style.size * 0.2)], screen.rule)
    _about_list(rng, screen, noun, rows, called)


def _about_list(
    rng: random.Random,
    screen: Screen,
    noun: str,
    rows: list[tuple[str, str, str, str]],
    called: tuple[str, ...],
) -> None:
    for row in rng.sample(rows, min(5, len(rows))):
        name, second, figure, below = row
        value = figure
        if called[1] == "left":
            bare = figure.split()[0]
            screen.ask("cell", bare, f"How many {name} are left?", f"{name}: how many left?",
                 f"stock of {name.lower()}")  # fmt: skip
            screen.ask("cell", second, f"In which pack is {name}?", f"pack of {name}?",
                 f"What size is {name}?")  # fmt: skip
        elif below:
            far, long = second.split(", ")
            screen.ask("cell", far, f"How far for {name}?", f"{name}: how far?")
            screen.ask("cell", long, f"How long did {name} take?", f"{name}: how long?")
            screen.ask("cell", figure, f"Which day was {name}?", f"day of {name}")
            screen.ask("cell", below, f"When did {name} begin?", f"{name}: what time?")
        else:
            screen.ask("cell", value, *ASKED["figure"], f=called[1], name=name)
            screen.ask("cell", second, *ASKED["second line"], f=called[0], name=name)
            if [r[2] for r in rows].count(value) == 1:
                screen.ask("reverse", name, f"Which {noun} has {value}?", f"What has {value}?")
    if called[1] == "left" and len(rows) > 2:
        order = sorted(rows, key=lambda r: int(r[2].split()[0]))
        if order[-1][2] != order[-2][2]:
            screen.ask("highest", order[-1][0], "Of which product are most left?",
                 "Which has the most left?")  # fmt: skip
        if order[0][2] != order[1][2]:
            screen.ask("lowest", order[0][0], "Of which product are fewest left?",
                 "Which has the fewest left?")  # fmt: skip
    if rows:
        screen.ask("count", str(len(rows)), *ASKED["count"])
        screen.ask("nth", rows[0][0], *ASKED["first"], noun=noun)
        text = "\n".join(f"{a}\n{b}\n{c}" + (f" {d}" if d else "") for a, b, c, d in rows)
        if len(text.encode()) < screen.style.budget:
            screen.questions.append(ask(rng, "lines", text, kind="transcribe"))
