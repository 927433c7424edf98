"""Full-screen programs of a terminal: framed tables, a chosen row, meters, lists to tick."""

import random
from typing import Final

from pocket.content import lexicon, program_output, words
from pocket.content.colours import Colour
from pocket.content.program_output import Column
from pocket.document import Document
from pocket.layouts.pillow.printouts import Screen, choose_columns, window
from pocket.layouts.style import PageStyle
from pocket.questions.printouts import cell_questions, figure_questions, row_questions
from pocket.questions.templates import ask, yes_no

GROUPS: Final = "remote virtual internal external active idle shared nightly public rented".split()
THINGS: Final = "disks hosts jobs services volumes queues nodes tables backups printers".split()
OPTIONS: Final = (
    "Show the clock|Ring the bell|Blink the cursor|Keep a history|Confirm on exit|Fold long lines|"
    "Sort folders first|"
    "Show kernel threads|Tree view|Highlight program names|Hide user threads|Update on changes|"
    "Line numbers|Word wrap|Mouse support|Auto indent|Count from zero|Detailed CPU time|"
    "Case sensitive"
).split("|")
METERS: Final = "CPU|MEM|SWP|TEMP|FAN|POW|IN|OUT|DISK|LOAD|BAT|NET|IO|HEAP|CORE 1|CORE 2".split("|")
CHOSEN: Final = (
    "Which row is chosen?", "Which row is selected?", "highlighted row?",
    "Where is the cursor?", "Which line is marked?", "What is selected?",
)  # fmt: skip
ASKED: Final[dict[str, tuple[str, ...]]] = {
    "menu": ("Which entry of the menu is selected?", "Which menu is open?",
        "Which section is active?"),
    "ticked": ("Is {option} ticked?", "Is {option} checked?", "is {option} on"),
    "count ticked": ("How many options are ticked?", "How many are checked?"),
    "list ticked": ("Which options are ticked?", "List the checked options."),
    "bar of": ("Which one has {f}?", "Where is the value {f}?"),
}  # fmt: skip


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One screen."""
    screen = window(rng, style)
    make = rng.choices((_framed, _viewer, _meters, _checks, _bars), (3, 4, 2, 2, 2))[0]
    make(rng, style, screen)
    out = [q for q in screen.questions if 0 < len(q.answer.encode()) <= style.budget]
    return screen.canvas.document(out)


def _across(screen: Screen, at: int) -> float:
    """Pixels of a column of characters."""
    return screen.x + at * screen.face.width("0")


def _widths(columns: list[Column]) -> list[int]:
    return [max(map(len, (c.head, *c.cells))) for c in columns]


def _draw_columns(
    rng: random.Random, screen: Screen, columns: list[Column], gap: int, chosen: int = -1
) -> list[float]:
    """Write heads and rows, `chosen` reversed; returns where each column begins, in characters."""
    widths = _widths(columns)
    starts = [sum(widths[:i]) + gap * i for i in range(len(columns))]
    tones = [rng.choice(screen.colours) if rng.random() < 0.4 else screen.ink for _ in columns]
    top = rng.choice((screen.ink, screen.colours[0], screen.colours[3]))
    rows = [[c.head for c in columns], *map(list, zip(*(c.cells for c in columns), strict=True))]
    for r, row in enumerate(rows):
        lit = r - 1 == chosen >= 0
        if lit or (r == 0 and chosen >= 0):
            ground = rng.choice((screen.colours[0], screen.ink)) if lit else (90, 95, 105)
            y = screen.y
            screen.canvas.box(screen.x - 2, y, screen.canvas.width, y + screen.step, fill=ground)
        parts = []
        for s, w, c, text, tone in zip(starts, widths, columns, row, tones, strict=True):
            ink = _dark(screen) if lit else (235, 235, 240) if r == 0 and chosen >= 0 else tone
            parts.append((s + (w - len(text)) * c.far, text, top if r == 0 and chosen < 0 else ink))
        screen.write(parts)
    return [float(s) for s in starts]


def _dark(screen: Screen) -> Colour:
    """Ink on a reversed line."""
    return (10, 10, 14) if sum(screen.ink) > 380 else (250, 250, 250)


def _framed(rng: random.Random, style: PageStyle, screen: Screen) -> None:
    """Tables in frames, one below the other, each under how many of what it lists."""
    face, canvas = screen.face, screen.canvas
    sorts = rng.sample(GROUPS, 3)
    noun = rng.choice(THINGS)
    for sort in sorts:
        rows = min(rng.randint(2, 9), screen.room - 5)
        if rows < 2:
            break
        columns, key = choose_columns(rng, screen.wide - 4, rows)
        if not columns:
            break
        spare = (screen.wide - 5 - sum(_widths(columns))) // max(1, len(columns) - 1)
        gap = max(2, min(rng.randint(2, 4), spare))
        top, start = screen.y, len(screen.questions)
        screen.x += face.width("0") * 2
        screen.y += screen.step * 0.4
        headed = rng.random() < 0.75
        if headed:
            named = rng.choice((f"{sort} {noun}", f"{noun}, {sort}", f"{noun.upper()}: {sort}"))
            counted = rng.choice((" ({n})", ", {n} in all", " [{n}]")).format(n=rows)
            screen.line(named + counted)
            screen.y += screen.step * 0.3
        starts = _draw_columns(rng, screen, columns, gap)
        screen.x -= face.width("0") * 2
        foot = screen.y + screen.step * 0.3
        right = _across(screen, sum(_widths(columns)) + gap * (len(columns) - 1) + 4)
        canvas.frame((screen.x, top, right, foot), screen.ink, rng.choice((0, 6)), 1)
        if rng.random() < 0.5:
            for s in starts[1:]:
                x = _across(screen, int(s) + 1) + face.width("0") * 0.2
                canvas.line(
                    [(x, top + screen.step * (1.7 if headed else 0.3)), (x, foot)], screen.ink
                )
        screen.y = foot + screen.step * rng.uniform(0.3, 0.9)
        screen.questions += cell_questions(rng, columns, key) + figure_questions(rng, columns, key)
        if headed:
            screen.ask("count", str(rows), f"How many {sort} {noun} does it list?",
                 f"number of {sort} {noun}", f"{sort} {noun}: how many?")  # fmt: skip
        if len(screen.questions) - start > 30:
            break


def _viewer(rng: random.Random, style: PageStyle, screen: Screen) -> None:
    """A table over the whole screen, a chosen row, and a status line that counts."""
    rows = min(rng.randint(4, 30), screen.room - 3)
    columns, key = choose_columns(rng, screen.wide, max(2, rows))
    if rows < 2 or not columns:
        return
    columns = [Column(c.head, c.cells[:rows], c.kind, c.far) for c in columns]
    spare = (screen.wide - sum(_widths(columns))) // max(1, len(columns) - 1)
    chosen = rng.randrange(rows) if rng.random() < 0.8 else -1
    _draw_columns(rng, screen, columns, rng.randint(2, max(2, min(spare, 5))), chosen)
    names = columns[key].cells
    if chosen >= 0:
        for _ in range(3):
            screen.ask("find", names[chosen], *CHOSEN)
    screen.questions += cell_questions(rng, columns, key) + row_questions(rng, columns, key, True)
    noun = rng.choice(("files", "rows", "items", "processes", "entries", "records", "lines"))
    count = str(rows if rng.random() < 0.4 else rng.randint(rows, 900))
    status = rng.choice(("{n} {w}", "{n} {w}", "{w}: {n}", "{n} of {n} {w}", "-- {n} {w} --"))
    line = status.format(n=count, w=noun)
    screen.y = screen.bottom - screen.step if rng.random() < 0.7 else screen.y + screen.step * 0.5
    place = rng.choice((0, max(0, screen.wide - len(line))))
    screen.write([(place, line, screen.ink)])
    screen.questions = [q for q in screen.questions if not (q.kind == "count" and "rows" in q.text)]
    screen.ask("count", count, f"How many {noun} are there?", f"number of {noun}",
         "What does the status line count?", f"total {noun}")  # fmt: skip
    screen.ask("find", line, "What does the last line say?", "Read the status line.")


def _meters(rng: random.Random, style: PageStyle, screen: Screen) -> None:
    """Devices with labels and figures in a line, and bars with a share at their end."""
    many = rng.randint(1, 4)
    blocks: list[tuple[str, list[tuple[str, str]]]] = []
    for d in range(many):
        if screen.room < 4:
            break
        name = f"{rng.choice(('Unit', 'Node', 'Core', 'Host', 'Disk', 'Pump'))} {d}"
        if any(name.split()[0] != b[0].split()[0] for b in blocks):
            name = f"{blocks[0][0].split()[0]} {d}"
        model = f"{lexicon.word(rng).title()} {program_output.short(rng).upper()}"
        pairs = [(label, _reading(rng, label)) for label in rng.sample(METERS, rng.randint(3, 7))]
        parts = [(0, name, screen.colours[0]), (len(name) + 1, model, screen.ink)]
        at = len(name) + len(model) + 3
        for label, value in pairs:
            need = len(label) + len(value) + 3
            if at + need > screen.wide:
                screen.write(parts)
                parts, at = [], 0
            parts += [(at, label, screen.colours[1]), (at + len(label) + 1, value, screen.ink)]
            at += need
        screen.write(parts)
        share = f"{rng.randint(0, 100)}%"
        _bar_line(rng, screen, rng.choice(("use", "load", "full ", "")), share)
        blocks.append((name, pairs))
        if rng.random() < 0.5:
            screen.y += screen.step * 0.5
    for name, pairs in blocks:
        for label, value in rng.sample(pairs, min(3, len(pairs))):
            known = {
                "TEMP": "temperature",
                "POW": "power",
                "MEM": "memory",
                "FAN": "fan speed",
                "BAT": "battery",
            }
            called = rng.choice((label, label.lower(), known.get(label, label)))
            screen.ask("cell", value, f"What is the {called} of {name}?",
            f"{called} of {name}?",
                 f"{name}: {called}", f"What does {name} show for {called}?")  # fmt: skip
    screen.ask("count", str(len(blocks)), "How many devices are shown?", "number of devices?")


def _reading(rng: random.Random, label: str) -> str:
    n = rng.randint(0, 100)
    return {
        "TEMP": f"{n}°C", "FAN": f"{n}%", "POW": f"{n} / {n + rng.randint(20, 200)} W",
        "IN": f"{rng.uniform(0, 900):.1f} kB/s", "OUT": f"{rng.uniform(0, 90):.2f} MB/s",
    }.get(label, rng.choice((f"{n}%", f"{n * 37}MHz", f"{n / 7:.1f}G", str(n))))  # fmt: skip


def _bar_line(rng: random.Random, screen: Screen, label: str, share: str) -> None:
    """A bar of characters in brackets, and how full it is."""
    long = max(6, min(40, screen.wide - len(label) - 12))
    full = round(long * int(share.rstrip("%")) / 100)
    mark, rest = rng.choice((("#", "."), ("|", " "), ("=", " "), ("#", "-"), ("*", " ")))
    tone = rng.choice(screen.colours)
    parts = [(0, label, screen.ink)] if label else []
    parts.append((len(label), "[", screen.ink))
    if full:
        parts.append((len(label) + 1, mark * full, tone))
    if rest.strip() and full < long:
        parts.append((len(label) + 1 + full, rest * (long - full), screen.ink))
    parts += [(len(label) + long + 1, "]", screen.ink), (len(label) + long + 3, share, screen.ink)]
    screen.write(parts)


def _checks(rng: random.Random, style: PageStyle, screen: Screen) -> None:
    """A menu at the left, one entry of it chosen, and a list to tick at the right; keys below."""
    menu = rng.sample(
        "General Display Colours Keys Meters Columns Editor Paths Network Sound".split(),
        rng.randint(3, 5),
    )
    options = words.unique(
        rng,
        lambda r: r.choice(OPTIONS) if r.random() < 0.7 else words.some(r, 1, 3),
        rng.randint(4, 12),
    )
    split = max(map(len, menu)) + rng.randint(3, 6)
    rows = min(len(options), screen.room - 2)
    if rows < 3:
        return
    chosen, lit, top = rng.randrange(len(menu)), rng.randrange(rows), screen.y
    mark = rng.choice(("*", "x", "X", "+"))
    state: list[tuple[str, bool]] = []
    for r, option in enumerate(options[:rows]):
        on = rng.random() < 0.4
        if split + len(option) + 5 > screen.wide:
            continue
        if r < len(menu):
            if r == chosen:
                wide = (split - 1) * screen.face.width("0")
                screen.canvas.box(
                    screen.x,
                    screen.y,
                    screen.x + wide,
                    screen.y + screen.step,
                    fill=screen.colours[1],
                )
            tone = _dark(screen) if r == chosen else screen.ink
            screen.canvas.text(screen.x, screen.y, menu[r], screen.face, tone)
        if r == lit:
            left = _across(screen, split)
            screen.canvas.box(
                left,
                screen.y,
                left + screen.face.width("0") * (len(option) + 4),
                screen.y + screen.step,
                fill=screen.colours[0],
            )
        tone = _dark(screen) if r == lit else screen.ink
        screen.write([(split, f"[{mark if on else ' '}]", tone), (split + 4, option, tone)])
        state.append((option, on))
    if screen.y == top or not state:
        return
    if chosen < len(state) and len(menu) <= len(state):
        screen.ask("find", menu[chosen], *ASKED["menu"])
    for option, on in rng.sample(state, min(5, len(state))):
        screen.questions.append(yes_no(rng, "checked", on, f=option))
        screen.ask("yes_no", "yes" if on else "no", *ASKED["ticked"], option=option)
    screen.ask("count", str(sum(on for _, on in state)), *ASKED["count ticked"])
    ticked = [option for option, on in state if on]
    if ticked:
        screen.ask("list", ", ".join(ticked), *ASKED["list ticked"])
    lines = "\n".join(f"[{'x' if on else ' '}] {option}" for option, on in state)
    screen.questions.append(ask(rng, "lines", lines, kind="transcribe"))


def _bars(rng: random.Random, style: PageStyle, screen: Screen) -> None:
    """A bar chart of characters: a label, a bar, its value."""
    n = min(rng.randint(3, 14), screen.room - 1)
    if n < 3:
        return
    kind = rng.randrange(3)
    start = rng.randint(0, 23)
    names = (
        [f"{(start + i) % 24:02}h" for i in range(n)] if kind == 0
        else words.unique(rng, program_output.short, n) if kind == 1
        else [f"{rng.randint(2000, 2010) + i}" for i in range(n)]
    )  # fmt: skip
    if len(set(names)) < n:
        return
    values = rng.sample(range(1, rng.choice((60, 100, 900))), n)
    front = max(map(len, names)) + 1
    room = screen.wide - front - 10
    if room < 8:
        return
    if rng.random() < 0.5:
        title = words.some(rng, 1, 2)
        screen.write([(max(0, (screen.wide - len(title)) // 2), title, screen.ink)])
        screen.ask("title", title, "What is the title?", "title?", "What is it called?")
    mark, tone = rng.choice(("#", "*", "=", "o", "box")), rng.choice(screen.colours)
    aligned = rng.random() < 0.5
    for name, value in zip(names, values, strict=True):
        long = max(1, round(room * value / max(values)))
        parts = [(0, name, screen.ink)]
        if mark == "box":
            x0, x1 = _across(screen, front), _across(screen, front + long)
            screen.canvas.box(x0, screen.y + 2, x1, screen.y + screen.step - 3, fill=tone)
        else:
            parts.append((front, mark * long, tone))
        parts.append((front + room + 2 if aligned else front + long + 1, str(value), screen.ink))
        screen.write(parts)
    for i in rng.sample(range(n), min(4, n)):
        screen.ask("value", str(values[i]), f"What is the value of {names[i]}?",
             f"Which figure has {names[i]}?",
             f"{names[i]}: how many?", f"figure of {names[i]}")  # fmt: skip
        screen.ask("reverse", names[i], *ASKED["bar of"], f=str(values[i]))
    when = ("In which hour is it highest?",) if kind == 0 else ("Which one is highest?",)
    screen.ask(
        "highest",
        names[values.index(max(values))],
        *when,
        "Where is the value highest?",
        "Which has the longest bar?",
    )
    when = ("In which hour is it lowest?",) if kind == 0 else ("Which one is lowest?",)
    screen.ask(
        "lowest",
        names[values.index(min(values))],
        *when,
        "Where is the value lowest?",
        "Which has the shortest bar?",
    )
    screen.ask("count", str(n), "How many bars are there?", "How many rows are there?")
