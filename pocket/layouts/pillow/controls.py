"""Forms of programs: labels with boxes, lists to choose from, switches, check marks, buttons."""

import random
from dataclasses import replace
from typing import Final

from pocket.content import formats, lexicon, program_output, words
from pocket.content.colours import hsv, ink_on
from pocket.document import Document
from pocket.layouts.fonts import Face
from pocket.layouts.pillow import chrome
from pocket.layouts.pillow.chrome import Screen
from pocket.layouts.style import PageStyle
from pocket.questions.panels import put
from pocket.questions.templates import ask

LABELS = (
    "Name|URL|Host|Port|Level|Timeout|User|Password|Email|Language|Time zone|Theme|Font size|"
    "Region|"
    "Interval|Path|Database|Version|Title|Description|Category|Country|City|Phone|Address|"
    "Start date|"
    "End date|Priority|Owner|Format|Resolution|Quality|Currency|Units|Retention|Token|Branch|"
    "Schedule"
).split("|")
SWITCHES = (
    "Spell check|Grid lines|Quiet hours|Ask before closing|Dark mode|Auto update|"
    "Send reports|"
    "Show hidden files|Enable cache|Wi-Fi|Bluetooth|Location|Compact view|Notifications|Sound|"
    "Default|"
    "Remember me|Public profile|Two-factor login|Use proxy|Debug mode|Sync|Autoplay|Wrap lines|"
    "Backups"
).split("|")
BUTTONS = "Save|Apply|Cancel|Save and close|Add new|Export|Create|Next|Back|Sign in|OK".split("|")
ASKED: Final[dict[str, tuple[str, ...]]] = {
    "set to": ("Which field says {value}?", "What is set to {value}?"),
    "count on": ("How many switches are on?", "How many options are turned on?"),
    "the one on": ("Which option is on?", "Which setting is turned on?", "What is enabled?"),
    "list on": ("Which options are on?", "List what is turned on."),
}  # fmt: skip


def draw(rng: random.Random, style: PageStyle) -> Document:
    """A page of settings."""
    screen = chrome.open_screen(rng, replace(style, size=min(style.size, style.width / 30)))
    chrome.surround(screen, bar=0.5, menu=0.35 if style.width > 480 else 0, head=0.6, tab=0.4)
    _sections(rng, screen)
    return screen.canvas.document(screen.questions)


def _value(rng: random.Random) -> str:
    return rng.choice((
        formats.host, formats.url, lambda r: str(r.randint(1, 65535)), words.person, words.email,
        formats.date,
        lambda r: words.some(r, 1, 2),
        lambda r: f"{r.randint(1, 90)} {r.choice(('days', 'min', 's', 'px', '%'))}",
        lambda r: f"/{program_output.short(r)}/{program_output.short(r)}",
        lambda r: r.choice(words.COUNTRIES),
        lambda r: f"{lexicon.word(r).capitalize()} ({program_output.short(r)})",
        lambda r: rng.choice(("On request", "English", "Automatic", "None", "Always",
        "Europe/Oslo", "UTC")),
    ))(rng)  # fmt: skip


def _sections(rng: random.Random, screen: Screen) -> None:
    """Rows of controls under small headings."""
    face, bold = screen.body(), screen.body(1.15, bold=True)
    x, y, right, foot = screen.box
    pitch = face.line * rng.uniform(1.7, 2.6)
    split = x + (right - x) * rng.uniform(0.25, 0.42)
    labels = words.unique(
        rng, lambda r: r.choice(LABELS) if r.random() < 0.75 else lexicon.word(r).capitalize(), 24
    )
    switches = words.unique(
        rng,
        lambda r: r.choice(SWITCHES) if r.random() < 0.75 else words.some(r, 1, 2).capitalize(),
        24,
    )
    taken: set[str] = set()
    on: list[tuple[str, bool]] = []
    fields: list[tuple[str, str]] = []
    look = rng.randrange(3)
    while y + pitch < foot - pitch and len(fields) + len(on) < 20:
        r = rng.random()
        name = (labels if r < 0.5 else switches).pop() if labels and switches else ""
        if not name or any(name.lower() in t or t in name.lower() for t in taken):
            if not labels or not switches:
                break
            continue
        if r > 0.94 and y > screen.box[1]:
            screen.text(x, y, name, bold, screen.ink)
            taken.add(name.lower())
            y += bold.line * 1.4
            continue
        if face.width(name) > split - x - 10:
            continue
        taken.add(name.lower())
        if r < 0.5:
            value = _value(rng)
            if face.width(value) < right - split - 30:
                _field(rng, screen, (split, y, right, pitch), face, name, value, look)
                fields.append((name, value))
                y += pitch
        else:
            state = rng.random() < 0.5
            at = split if rng.random() < 0.7 else right - face.ascent * 2.4
            screen.text(x, y + (pitch - face.line) / 2, name, face, screen.ink)
            toggle(rng, screen, (at, y + (pitch - face.ascent) / 2, face.ascent), state, look)
            on.append((name, state))
            y += pitch
    _button(rng, screen, (x, y, right, foot), face)
    _ask(rng, screen, fields, on)


def _field(
    rng: random.Random, screen: Screen, at: tuple[float, float, float, float], face: Face,
    name: str,
    value: str, look: int,
) -> None:  # fmt: skip
    """A label and the box with its value."""
    left, y, right, pitch = at
    canvas, x = screen.canvas, screen.box[0]
    top, low = y + pitch * 0.08, y + pitch * 0.92
    if look == 0:
        canvas.box(x, top, left - 6, low, fill=screen.panel, radius=2)
    screen.text(x + (6 if look == 0 else 0), y + (pitch - face.line) / 2, name, face, screen.ink)
    canvas.box(
        left, top, right, low, fill=screen.panel, outline=screen.rule, radius=rng.choice((0, 3, 6))
    )
    screen.text(left + 8, y + (pitch - face.line) / 2, value, face, screen.ink)
    if rng.random() < 0.3:  # a list to choose from
        s = face.ascent * 0.35
        at_x, middle = right - 14, y + pitch / 2
        canvas.line(
            [(at_x - s, middle - s / 2), (at_x, middle + s / 2), (at_x + s, middle - s / 2)],
            screen.muted,
            2,
        )


def toggle(
    rng: random.Random, screen: Screen, at: tuple[float, float, float], state: bool, look: int
) -> None:
    """A switch, a check box or a radio button at (left, top) of a side: on or off."""
    x, y, s = at
    canvas, tone = screen.canvas, screen.accent
    if look in (0, 1):
        off = screen.rule if look else screen.muted
        canvas.box(x, y, x + 2 * s, y + s, fill=tone if state else off, radius=round(s / 2))
        knob = x + s if state else x
        canvas.draw.ellipse((knob + 2, y + 2, knob + s - 2, y + s - 2), fill=(255, 255, 255))
        return
    canvas.box(
        x,
        y,
        x + s,
        y + s,
        fill=tone if state else None,
        outline=tone if state else screen.muted,
        radius=2,
    )
    if state:
        tick(screen, (x, y, s), ink_on(tone))


def tick(screen: Screen, at: tuple[float, float, float], ink: tuple[int, int, int]) -> None:
    """A check mark."""
    x, y, s = at
    screen.canvas.line(
        [(x + s * 0.2, y + s * 0.55), (x + s * 0.42, y + s * 0.78), (x + s * 0.82, y + s * 0.25)],
        ink,
        max(2, round(s / 8)),
    )


def _button(
    rng: random.Random, screen: Screen, at: tuple[float, float, float, float], face: Face
) -> None:
    x, y, right, foot = at
    text = rng.choice(BUTTONS) if rng.random() < 0.7 else words.some(rng, 1, 2).capitalize()
    wide, high = face.width(text) + face.ascent * 1.6, face.line * 1.5
    if y + high > foot:
        return
    left = x if rng.random() < 0.6 else right - wide
    tone = screen.accent if rng.random() < 0.8 else hsv(rng.random(), 0.7, 0.6)
    screen.canvas.box(
        left, y + 2, left + wide, y + 2 + high, fill=tone, radius=rng.choice((2, 4, 9))
    )
    screen.text(left + wide / 2, y + 2 + (high - face.line) / 2, text, face, ink_on(tone), "centre")
    screen.questions.append(put(rng, "button", text))


def _ask(
    rng: random.Random, screen: Screen, fields: list[tuple[str, str]], on: list[tuple[str, bool]]
) -> None:
    for name, value in rng.sample(fields, min(5, len(fields))):
        screen.ask("field", value, f"What is {name} set to?", f"What is the {name}?",
        f"{name}?",
             f"What does the field {name} contain?", f"value of {name}",
             f"Which {name.lower()} is set?")  # fmt: skip
        if [v for _, v in fields].count(value) == 1 and rng.random() < 0.3:
            screen.ask("reverse", name, *ASKED["set to"], value=value)
    for name, state in rng.sample(on, min(5, len(on))):
        screen.ask("yes_no", "yes" if state else "no", f"Is {name} turned on?",
        f"Is {name} on?",
             f"Is {name} enabled?", f"{name} on or off - is it on?",
             f"is {name} switched on")  # fmt: skip
    if len(on) > 1:
        lit = [n for n, s in on if s]
        screen.ask("count", str(len(lit)), *ASKED["count on"])
        if len(lit) == 1:
            screen.ask("find", lit[0], *ASKED["the one on"])
        dark = [n for n, s in on if not s]
        if len(dark) == 1:
            screen.ask("find", dark[0], "Which option is off?", "Which setting is turned off?")
        screen.ask("list", ", ".join(lit) if lit else "none", *ASKED["list on"])
    if fields or on:
        lines = [f"{n}: {v}" for n, v in fields] + [f"[{'x' if s else ' '}] {n}" for n, s in on]
        if not (fields and on):
            screen.questions.append(ask(rng, "lines", "\n".join(lines), kind="transcribe"))
        screen.questions.append(chrome.missing_label(rng, screen))
