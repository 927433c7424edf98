"""Boards of columns with cards, and lists of entries with a title, a source and an age."""

import random
from dataclasses import replace
from typing import Final

from pocket.content import formats, lexicon, words
from pocket.content.colours import hsv
from pocket.document import Document
from pocket.layouts.pillow import chrome
from pocket.layouts.pillow.canvas import wrap
from pocket.layouts.pillow.chrome import Screen
from pocket.layouts.style import PageStyle
from pocket.questions.templates import ask

STAGES = (
    "To do|Next|In progress|Doing|Review|Inbox|Assigned|Testing|Blocked|Done|Later|"
    "This week|"
    "Ideas|Waiting|Approved|Released|New|Planned|Closed|Archive"
).split("|")
TASKS = (
    "Fix|Update|Improve|Write|Remove|Add|Check|Plan|Review|Replace|Test|Move|Translate|Draw".split(
        "|"
    )
)
ASKED: Final[dict[str, tuple[str, ...]]] = {
    "number": ("Which number has the task {name}?", "What is the number of {name}?"),
    "tag": ("Which tag does {label} have?", "What is {label} tagged with?"),
    "age": ("How old is {title}?", "When was {title} posted?", "age of {title}"),
    "from": ("Which entry is from {source}?", "What is the title from {source}?"),
    "first": ("What is the first entry?", "title of the first entry?",
        "Which entry is at the top?"),
    "last": ("What is the last entry?", "Which entry is at the bottom?"),
    "count": ("How many entries are listed?", "How many titles are there?"),
    "list": ("List the titles.", "Which entries are there?"),
    "chosen": ("Which entry is selected?", "Which entry is framed?", "Which one is highlighted?"),
    "after": ("What comes after {f}?", "Which entry is below {f}?"),
}  # fmt: skip


def draw(rng: random.Random, style: PageStyle) -> Document:
    """A board, or a list of entries."""
    screen = chrome.open_screen(rng, replace(style, size=min(style.size, style.width / 36)))
    chrome.surround(screen, bar=0.5, menu=0, head=0.35, tab=0.35)
    rng.choice((_board, _feed, _feed))(rng, screen)
    return screen.canvas.document(screen.questions)


def _task(rng: random.Random) -> str:
    tail = words.some(rng, 1, 3).lower()
    return f"{rng.choice(TASKS)} {tail}" if rng.random() < 0.7 else tail.capitalize()


def _board(rng: random.Random, screen: Screen) -> None:
    """Columns with a heading and a count; cards with a number, a title and tags."""
    style, canvas = screen.style, screen.canvas
    face, head, small = screen.body(0.95), screen.body(1.0, bold=True), screen.body(0.78)
    columns = max(2, min(rng.randint(2, 5), int(screen.wide / (face.width("0") * 15))))
    gap = style.size * 0.6
    wide = (screen.wide - gap * (columns - 1)) / columns
    number, counted = rng.randint(1, 900), rng.random() < 0.7
    tinted, tagged = rng.random() < 0.5, rng.random() < 0.7
    stages, text = rng.sample(STAGES, columns), list[str]()
    own = f"{formats.run(rng, formats.LETTERS, 2, 3)}-{{}}"
    mark = rng.choice(("#{}", "{}", "T-{}", "No. {}", own, own))
    for c, stage in enumerate(stages):
        x, y = screen.box[0] + c * (wide + gap), screen.box[1]
        want, cards = rng.randint(0, 5), list[tuple[str, str, list[str]]]()
        body = y + head.line * 1.5
        for _ in range(want):
            number += rng.randint(1, 3)
            name, tags = (
                _task(rng),
                rng.sample([lexicon.word(rng) for _ in range(3)], rng.randint(0, 2)),
            )
            lines = wrap(name, face, wide - 12)
            high = (
                small.line
                + len(lines) * face.line
                + (small.line * 1.4 if tagged and tags else 0)
                + 12
            )
            if body + high > screen.box[3]:
                break
            ground = (
                hsv(rng.random(), 0.25, 0.97) if tinted and not style.theme.dark else screen.panel
            )
            canvas.box(x, body, x + wide, body + high, fill=ground, outline=screen.rule, radius=3)
            label = mark.format(number)
            screen.text(x + 6, body + 3, label, small, screen.ink if tinted else screen.muted)
            for i, line in enumerate(lines):
                screen.text(
                    x + 6,
                    body + 5 + small.line + i * face.line,
                    line,
                    face,
                    screen.ink if not tinted or style.theme.dark else (25, 25, 30),
                )
            at, drawn = x + 6, list[str]()
            for tag in tags if tagged else []:
                if at + small.width(tag) + 8 < x + wide:
                    top = body + high - small.line - 5
                    canvas.box(
                        at,
                        top,
                        at + small.width(tag) + 6,
                        top + small.line,
                        outline=screen.muted,
                        radius=3,
                    )
                    screen.text(
                        at + 3,
                        top,
                        tag,
                        small,
                        (40, 40, 45) if tinted and not style.theme.dark else screen.ink,
                    )
                    at += small.width(tag) + 12
                    drawn.append(tag)
            cards.append((label, name, drawn))
            body += high + 5
        title = f"{stage} ({len(cards)})" if counted else stage
        screen.text(x + 2, y + 2, title, head, screen.ink)
        text.append("\n".join([f"## {title}", *(f"- {label} {name}" for label, name, _ in cards)]))
        _about_column(rng, screen, stage, cards)
    screen.ask("count", str(columns), "How many columns are there?", "number of columns?")
    screen.ask("list", ", ".join(stages), "Which columns are there?", "List the columns.")
    whole = "\n".join(text)
    if len(whole.encode()) < style.budget:
        screen.questions.append(ask(rng, "page", whole, kind="transcribe"))


def _about_column(
    rng: random.Random, screen: Screen, stage: str, cards: list[tuple[str, str, list[str]]]
) -> None:
    screen.ask("count", str(len(cards)), f"How many tasks are under {stage}?",
         f"How many cards are in {stage}?", f"{stage}: how many?",
         f"number of tasks in {stage}")  # fmt: skip
    for label, name, tags in rng.sample(cards, min(3, len(cards))):
        ask_for = rng.choice((label, name))
        screen.ask("find", stage, f"Where on the board is {ask_for}?",
        f"In which column is {ask_for}?",
             f"What is the stage of {ask_for}?", f"task {ask_for} is in which column")  # fmt: skip
        screen.ask("cell", name, f"What does card {label} say?",
        f"What is task {label} about?",
             f"title of task {label}?", f"What does {label} say?")  # fmt: skip
        screen.ask("reverse", label, *ASKED["number"], name=name)
        if len(tags) == 1:
            screen.ask("cell", tags[0], *ASKED["tag"], label=label)


def _feed(rng: random.Random, screen: Screen) -> None:
    """Entries: a title, below it source, age and small links; at times one is framed."""
    style, canvas = screen.style, screen.canvas
    face, small = screen.body(1.05, bold=rng.random() < 0.6), screen.body(0.8)
    x, y, right, foot = screen.box
    link = hsv(0.61, 0.45, 1.0) if style.theme.dark else hsv(0.61, 0.75, 0.75)
    if rng.random() < 0.5:
        n = str(rng.randint(2, 900))
        label = rng.choice(("Inbox", "Results", "Entries", "Posts", "All", "New"))
        head = screen.body(1.5, bold=True)
        screen.text(x, y, f"{label} ({n})", head, screen.ink)
        screen.ask("value", n, f"Which count does {label} show?",
        f"What number is beside {label}?",
             f"{label.lower()} count?", f"How many are {label.lower()}?")  # fmt: skip
        y += head.line * 1.4
    joint, marked = rng.choice((" / ", " · ", "  ", " - ")), rng.random() < 0.5
    rows: list[tuple[str, str, str]] = []
    pitch = face.line + small.line * 1.3 + style.size * rng.uniform(0.5, 1.2)
    chosen = rng.randrange(5) if rng.random() < 0.4 else -1
    while y + pitch < foot and len(rows) < 14:
        title = words.title(rng) if rng.random() < 0.5 else words.some(rng, 3, 6)
        if face.width(title) > right - x - 24:
            title = " ".join(title.split()[:2])
            if face.width(title) > right - x - 24:
                continue
        source, age = (
            formats.host(rng),
            rng.choice(
                (
                    f"{rng.randint(2, 30)} days ago",
                    f"{rng.randint(1, 23)}h ago",
                    f"{rng.randint(2, 59)} min",
                    f"{rng.randint(1, 28)} {rng.choice(formats.MONTHS)[:3]}",
                )
            ),
        )
        if any(title in r[0] or r[0] in title for r in rows):
            continue
        if len(rows) == chosen:
            canvas.box(x - 4, y - 4, right, y + pitch - 6, fill=screen.panel, outline=link)
        at = x
        if marked:
            chrome.mark(
                rng,
                canvas,
                (x, y + face.ascent * 0.2, face.ascent * 0.8),
                hsv(rng.random(), 0.7, 0.7),
            )
            at += face.ascent * 1.2
        screen.text(at, y, title, face, link)
        links = rng.sample(("Open", "Reply", "Hide", "Copy", "Print", "Edit"), rng.randint(0, 3))
        line = joint.join((source, age, *links))
        screen.text(at, y + face.line, line, small, screen.muted)
        rows.append((title, source, age))
        y += pitch
    _about_feed(rng, screen, rows, chosen)


def _about_feed(
    rng: random.Random, screen: Screen, rows: list[tuple[str, str, str]], chosen: int
) -> None:
    for title, source, age in rng.sample(rows, min(4, len(rows))):
        screen.ask("cell", source, f"Which site has {title}?",
        f"Where is {title} from?",
             f"source of {title}?", f"Which website published {title}?")  # fmt: skip
        screen.ask("cell", age, *ASKED["age"], title=title)
        if [r[1] for r in rows].count(source) == 1:
            screen.ask("reverse", title, *ASKED["from"], source=source)
    if rows:
        screen.ask("nth", rows[0][0], *ASKED["first"])
        screen.ask("nth", rows[-1][0], *ASKED["last"])
        screen.ask("count", str(len(rows)), *ASKED["count"])
        screen.ask("list", ", ".join(r[0] for r in rows), *ASKED["list"])
        if 0 <= chosen < len(rows):
            screen.ask("find", rows[chosen][0], *ASKED["chosen"])
        screen.questions.append(chrome.missing_label(rng, screen))
    if len(rows) > 1:
        i = rng.randrange(len(rows) - 1)
        screen.ask("find", rows[i + 1][0], *ASKED["after"], f=rows[i][0])
