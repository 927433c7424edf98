"""Output of programs: tables in columns of spaces, comma-separated lines, settings, JSON."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pocket.content import program_output, words
from pocket.content.colours import Colour
from pocket.content.program_output import Column, Kind
from pocket.content.tables import Grid
from pocket.document import Document, Question
from pocket.layouts.fonts import Face, pick_family
from pocket.layouts.pillow import consoles
from pocket.layouts.pillow.canvas import Canvas, blank_page
from pocket.layouts.pillow.consoles import title_bar
from pocket.layouts.style import PageStyle
from pocket.questions.printouts import (
    cell_questions,
    figure_questions,
    row_questions,
    unseen_name,
    wordings,
)
from pocket.questions.templates import Asking, absent, ask, yes_no

DARK: Final = (
    (30, 30, 30),
    (13, 17, 23),
    (40, 42, 54),
    (0, 0, 0),
    (0, 43, 54),
    (48, 10, 36),
    (1, 36, 86),
)
LIGHT: Final = ((255, 255, 255), (250, 250, 245), (253, 246, 227), (238, 238, 238))
RAN: Final = (
    "Which command was run?", "What command was typed?", "Which command printed this?",
    "command line?", "Read the command that was entered.",
    "What was typed at the prompt?",
)  # fmt: skip
USERS: Final = (
    "Which user name is in the prompt?", "Who is logged in at the prompt?",
    "user name in the prompt", "Under which user name was it run?",
)  # fmt: skip
HOSTS: Final = (
    "Which host name is in the prompt?", "On which machine was it run?",
    "host in the prompt?", "What is the computer in the prompt called?",
)  # fmt: skip
SET_TO: Final = (
    "What is {f} set to?", "value of {f}?", "Which value does {f} have?", "{f}?",
    "What does it set {f} to?", "look up {f}",
)  # fmt: skip
SET_IN: Final = ("What is {f} in {g}?", "What is {f} set to under {g}?", "{g}: {f}?", "{f} of {g}")


Case = Callable[[str], str]


@dataclass
class Screen(Asking):
    """A window that is being written: where the pen is, the face, and what was asked so far."""

    rng: random.Random
    canvas: Canvas
    face: Face
    ink: Colour
    colours: tuple[Colour, ...]
    x: float
    y: float
    step: float  # from line to line, pixels
    wide: int  # characters in a line
    bottom: float
    lines: list[str] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)

    @property
    def room(self) -> int:
        """Lines that still fit."""
        return max(0, int((self.bottom - self.y) / self.step))

    def write(self, parts: list[tuple[int, str, Colour]]) -> None:
        """One line of (column of characters, text, ink)."""
        for at, text, ink in parts:
            self.canvas.text(self.x + at * self.face.width("0"), self.y, text, self.face, ink)
        self.lines.append(" ".join(text for _, text, _ in parts))
        self.y += self.step

    def line(self, text: str, ink: Colour | None = None) -> None:
        """One line of text, indented as it is."""
        self.write([(len(text) - len(text.lstrip()), text.strip(), ink or self.ink)])
        self.lines[-1] = text


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One window of what a program printed."""
    screen = window(rng, style)
    make = rng.choices((_table, _separated, _settings), (7, 1, 2))[0]
    _prompt(rng, screen)
    make(rng, style, screen)
    out = [q for q in screen.questions if 0 < len(q.answer.encode()) <= style.budget]
    return screen.canvas.document(out)


def window(rng: random.Random, style: PageStyle) -> Screen:
    dark = rng.random() < 0.65
    canvas = blank_page(style, rng.choice(DARK if dark else LIGHT))
    size = rng.uniform(10, max(11.0, min(style.size * 1.3, 20)))
    face = pick_family(rng, style.split, western=True, mono=True).regular(size)
    ink = rng.choice(((225, 225, 225), (200, 205, 210))) if dark else (30, 30, 35)
    green = (0, 230, 80) if dark else (0, 90, 30)
    ink = green if rng.random() < 0.06 else ink
    colours = consoles.BRIGHT if dark else consoles.DEEP
    m, step = style.margin, face.line * rng.uniform(1.0, 1.3)
    wide = int((style.width - 2 * m) / face.width("0"))
    screen = Screen(rng, canvas, face, ink, colours, m, m, step, wide, style.height - m)
    if rng.random() < 0.35:
        _bar(rng, screen, dark)
    return screen


def _bar(rng: random.Random, screen: Screen, dark: bool) -> None:
    """The window's title bar, with buttons and at times a title."""
    canvas, face = screen.canvas, screen.face
    high = face.line * rng.uniform(1.4, 2.0)
    title_bar(canvas, high, dark)
    title = words.some(rng, 1, 2)
    if rng.random() < 0.5 and face.width(title) < canvas.width - 150:
        canvas.text(canvas.width / 2, (high - face.line) / 2, title, face, screen.ink, "centre")
        screen.ask("title", title, "What is the window's title?", "title of the window?")
    screen.y = high + 6


def _prompt(rng: random.Random, screen: Screen) -> None:
    """The line that was typed, if it shows and fits."""
    if rng.random() < 0.35:
        return
    user, host, typed = (
        program_output.short(rng),
        rng.choice((program_output.short, _host))(rng),
        "",
    )
    where = rng.choice(
        ("~", "~", f"~/{program_output.short(rng)}", f"/{program_output.short(rng)}")
    )
    forms = (f"{user}@{host}:{where}$ ", f"[{user}@{host} {where}]$ ", f"{user}@{host} {where} % ",
             f"{user}@{host}:{where}# ", "$ ", "$ ", "> ", f"PS C:\\{user}> ")  # fmt: skip
    front = rng.choice(forms)
    for _ in range(6):
        typed = program_output.command(rng)
        if len(front + typed) <= screen.wide:
            break
    else:
        return
    tone = rng.choice((screen.ink, *screen.colours[:2]))
    screen.write([(0, front.rstrip(), tone), (len(front), typed, screen.ink)])
    for _ in range(2):
        screen.ask("find", typed, *RAN)
    if "@" in front:
        screen.ask("find", user, *USERS)
        screen.ask("find", host, *HOSTS)


def _host(rng: random.Random) -> str:
    return f"{program_output.short(rng)[:6]}-{rng.randint(1, 99)}"


def choose_columns(rng: random.Random, wide: int, rows: int) -> tuple[list[Column], int]:
    """Columns that fit into `wide` characters, and which of them names the rows."""
    for _ in range(20):
        key = rng.choice(program_output.KEYS)
        cells = words.unique(rng, key.scheme(rng), rows)
        notation: Case = rng.choices((str.upper, str.capitalize, str.lower), (6, 2, 1))[0]
        head = notation(rng.choice(key.heads.split("|")))
        if rng.random() < 0.1:
            head = notation(program_output.short(rng))
        found = [Column(head, cells, key, key.far and rng.random() < 0.6)]
        left = wide - max(map(len, (head, *cells)))
        wanted = rng.randint(2, 6)
        for kind in rng.sample(program_output.KINDS, len(program_output.KINDS)):
            column = _column(
                rng, program_output.other(rng) if rng.random() < 0.15 else kind, rows, notation
            )
            need = 2 + max(map(len, (column.head, *column.cells)))
            if _clash(column, found) or need > left:
                continue
            left -= need
            found.append(column)
            if len(found) > wanted:
                break
        if len(found) > 2 or (wide < 40 and len(found) == 2):
            place = rng.choice((0, 0, 0, len(found) - 1, rng.randrange(len(found))))
            found.insert(place, found.pop(0))
            return found, place
    return [], 0


def _column(rng: random.Random, kind: Kind, rows: int, notation: Case) -> Column:
    make = kind.scheme(rng)
    head = notation(rng.choice(kind.heads.split("|")))
    return Column(head, [make(rng) for _ in range(rows)], kind, kind.far and rng.random() < 0.7)


def _clash(column: Column, others: list[Column]) -> bool:
    """Whether a question for `column` could mean one of `others`."""
    mine = wordings(column)
    return any(mine & wordings(o) for o in others)


def _table(rng: random.Random, style: PageStyle, screen: Screen) -> None:
    """Columns of spaces, with headings or without, and perhaps a line below them."""
    headed, below = rng.random() < 0.86, rng.random() < 0.3
    rows = min(rng.choice((rng.randint(2, 8), rng.randint(3, 20))), screen.room - 2 - 2 * below)
    if rows < 2:
        return
    columns, key = choose_columns(rng, screen.wide, rows)
    if not columns:
        return
    while rows > 2 and len(_markdown(columns)) > style.budget and rng.random() < 0.9:
        rows -= 1
        columns = [Column(c.head, c.cells[:rows], c.kind, c.far) for c in columns]
    _print(rng, screen, columns, headed)
    if below:
        _ending(rng, screen, columns)
    if headed:
        text = _markdown(columns)
        screen.questions += [ask(rng, "table", text, kind="transcribe") for _ in range(2)]
        screen.questions += cell_questions(rng, columns, key) + figure_questions(rng, columns, key)
    else:
        screen.questions.append(ask(rng, "lines", "\n".join(screen.lines), kind="transcribe"))
    screen.questions += row_questions(rng, columns, key, headed)


def _markdown(columns: list[Column]) -> str:
    cells = [list(row) for row in zip(*(c.cells for c in columns), strict=True)]
    return Grid([c.head for c in columns], cells, {}).markdown()


def _print(rng: random.Random, screen: Screen, columns: list[Column], headed: bool) -> None:
    """Write the columns, apart by two spaces or as many as there are room for."""
    widths = [max(map(len, c.cells if not headed else (c.head, *c.cells))) for c in columns]
    spare = (screen.wide - sum(widths)) // (len(columns) - 1)
    gap = rng.randint(2, max(2, min(spare, rng.choice((3, 5, 9)))))
    starts = [sum(widths[:i]) + gap * i for i in range(len(columns))]
    tones = [rng.choice(screen.colours) if rng.random() < 0.12 else screen.ink for _ in columns]
    top = rng.choice((screen.ink, screen.ink, screen.colours[0]))
    if headed:
        screen.write([(s + (w - len(c.head)) * c.far, c.head, top)
                      for s, w, c in zip(starts, widths, columns, strict=True)])  # fmt: skip
        if rng.random() < 0.12 and screen.room > len(columns[0].cells):
            rule = rng.choice("-=")
            screen.write([(s, rule * w, top) for s, w in zip(starts, widths, strict=True)])
    for r in range(len(columns[0].cells)):
        line = zip(starts, widths, columns, tones, strict=True)
        screen.write([(s + (w - len(c.cells[r])) * c.far, c.cells[r], i) for s, w, c, i in line])


def _ending(rng: random.Random, screen: Screen, columns: list[Column]) -> None:
    """A line of totals, unless a cell of the table says what it counts."""
    text, found = program_output.summary(rng)
    cells = " ".join(c.head + " " + " ".join(c.cells) for c in columns).lower()
    if len(text) > screen.wide or any(w[:4] in cells for w in text.split() if w.isalpha()):
        return
    if screen.room > 1 and rng.random() < 0.5:
        screen.y += screen.step
    if screen.room:
        screen.line(text, rng.choice((screen.ink, *screen.colours)))
        for forms, answer in found:
            screen.ask("value", answer, *forms)


def _separated(rng: random.Random, style: PageStyle, screen: Screen) -> None:
    """Lines of cells between commas, semicolons or bars, headings first."""
    rows = min(rng.randint(2, 12), screen.room - 1)
    columns, key = choose_columns(rng, screen.wide, max(2, rows))
    if rows < 2 or not columns:
        return
    while rows > 2 and len(_markdown(columns)) > style.budget:
        rows -= 1
        columns = [Column(c.head, c.cells[:rows], c.kind, c.far) for c in columns]
    mark = rng.choice((",", ",", ";", ", ", ":"))
    if any(mark.strip() in cell for c in columns for cell in (c.head, *c.cells)):
        mark = ";"
    for line in zip(*((c.head, *c.cells) for c in columns), strict=True):
        screen.line(mark.join(line))
    screen.questions.append(ask(rng, "lines", "\n".join(screen.lines), kind="transcribe"))
    screen.questions.append(ask(rng, "table", _markdown(columns), kind="transcribe"))
    screen.questions += cell_questions(rng, columns, key) + figure_questions(rng, columns, key)
    screen.questions += row_questions(rng, columns, key, True)


def _settings(rng: random.Random, style: PageStyle, screen: Screen) -> None:
    """Names and what they are set to, in sections: as INI, as indented lines, or as JSON."""
    notation = rng.choice(("ini", "indented", "json", "flat"))
    parts = 0 if notation == "flat" else rng.randint(1, 4)
    heads = words.unique(rng, program_output.short, max(1, parts))
    left, budget = screen.room - 2, style.budget - 8
    found = list[tuple[str, str, str]]()
    joint = rng.choice((" = ", "=", ": ")) if notation in ("ini", "flat") else ": "
    shut = {"json": "}"}.get(notation, "")
    lines = ["{"] if notation == "json" else []
    for s, head in enumerate(heads):
        own = dict(program_output.setting(rng) for _ in range(rng.randint(2, 7)))
        block = [f"  {k}{joint}{v}" if notation == "indented" else f"{k}{joint}{v}"
                 for k, v in own.items()]  # fmt: skip
        if notation == "json":
            block = [f'    "{k}": "{v}"' + "," * (i < len(own) - 1)
                     for i, (k, v) in enumerate(own.items())]  # fmt: skip
        top = {"ini": f"[{head}]", "indented": f"{head}:", "json": f'  "{head}": {{'}.get(notation)
        whole = [*([top] if top else []), *block]
        whole += ["  }" + "," * (s < len(heads) - 1)] if shut else []
        cost = sum(len(x) + 1 for x in whole)
        if len(whole) > left or cost > budget or max(map(len, whole)) > screen.wide:
            continue
        left, budget = left - len(whole), budget - cost
        lines += whole
        found += [(head, k, v) for k, v in own.items()]
    if not found:
        return
    if shut:
        lines[-1] = lines[-1].rstrip(",")
        lines.append(shut)
    tone = rng.choice((screen.ink, screen.colours[1]))
    for line in lines:
        screen.line(line, tone if line.endswith(("]", ":", "{")) else screen.ink)
    screen.questions.append(ask(rng, "lines", "\n".join(screen.lines), kind="transcribe"))
    _about_settings(rng, screen, found, notation)


def _about_settings(
    rng: random.Random, screen: Screen, found: list[tuple[str, str, str]], notation: str
) -> None:
    """Questions for the value of a name, with its section where it comes twice, and for the name of
    a value."""
    names, values = [k for _, k, _ in found], [v for _, _, v in found]
    text = " ".join(screen.lines)
    for head, name, value in rng.sample(found, min(6, len(found))):
        if names.count(name) == 1 and name not in {h for h, _, _ in found}:
            screen.ask("value", value, *SET_TO, f=name)
        elif notation != "flat":
            screen.ask("value", value, *SET_IN, f=name, g=head)
        if values.count(value) == 1 and names.count(name) == 1:
            screen.questions.append(ask(rng, "names", name, kind="reverse", v=value))
    other = unseen_name(rng, [text])
    screen.questions.append(absent(rng, "field", f=other))
    screen.questions.append(yes_no(rng, "present", True, f=rng.choice(names)))
    screen.questions.append(yes_no(rng, "present", False, f=unseen_name(rng, [text])))
    if notation != "flat":
        heads = list(dict.fromkeys(h for h, _, _ in found))
        screen.questions.append(ask(rng, "count", str(len(heads)), n="sections"))
        screen.questions.append(ask(rng, "list", ", ".join(heads), n="sections"))
        inside = [k for h, k, _ in found if h == heads[0]]
        screen.questions.append(ask(rng, "count", str(len(inside)), n=f"settings in {heads[0]}"))
        if len(set(names)) == len(names):
            head, name, _ = rng.choice(found)
            screen.ask("find", head, "In which section is {f}?", "section of {f}?", f=name)
    else:
        screen.questions.append(ask(rng, "count", str(len(names)), n="settings"))
