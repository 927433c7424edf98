"""Timetables and calendars: days across, hours down, an entry in some of the cells."""

import random
from typing import Final

from pocket.content import words
from pocket.content.colours import ink_on, series_colours
from pocket.document import Document, Question
from pocket.layouts.pillow.canvas import blank_page
from pocket.layouts.style import PageStyle
from pocket.questions.templates import absent, ask, worded, yes_no

DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ASKED: Final[dict[str, tuple[str, ...]]] = {
    "on": ("What is on {day} at {hour}?", "{day} {hour}?", "What happens {day} at {hour}?",
        "entry for {day}, {hour}"),
    "when": ("When is {text}?", "{text} is when?", "What day and time is {text}?"),
    "free": ("What is on {day} at {hour}?", "entry for {day}, {hour}"),
}  # fmt: skip


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One week or a few days of it."""
    canvas, t, m = blank_page(style), style.theme, style.margin
    face, bold = (
        style.family.regular(min(style.size, style.width / 34)),
        style.family.bold(min(style.size, style.width / 34)),
    )
    y, title = float(m), ""
    if rng.random() < 0.5:
        title = rng.choice(
            (words.title(rng), "Timetable", "Week plan", f"Week {rng.randint(1, 52)}")
        )
        big = style.heading.bold(face.size * 1.4)
        if big.width(title) < style.width - 2 * m:
            canvas.text(m, y, title, big, t.ink)
            y += big.line * 1.3
        else:
            title = ""
    short = rng.random() < 0.5
    days = [d[:3] if short else d for d in DAYS[: rng.choice((3, 5, 5, 7))]]
    start = rng.randint(6, 12)
    hours = [f"{start + i:02}:00" for i in range(rng.randint(3, 9))]
    left = m + face.width("00:00") + 8
    width = (style.width - m - left) / len(days)
    pitch = min((style.height - m - y) / (len(hours) + 1), face.line * 3)
    if pitch < face.line:
        hours = hours[:3]
        pitch = (style.height - m - y) / 4
    colours = series_colours(rng, 4)
    filled = rng.random() < 0.6
    for i, day in enumerate(days):
        canvas.text(
            left + (i + 0.5) * width,
            y,
            day if bold.width(day) < width else day[:3],
            bold,
            t.ink,
            "centre",
        )
        days[i] = day if bold.width(day) < width else day[:3]
    entries: list[tuple[str, str, str]] = []
    used: set[str] = set()
    for r, hour in enumerate(hours):
        top = y + (r + 1) * pitch
        canvas.text(m, top + 2, hour, face, t.muted)
        canvas.line([(m, top), (style.width - m, top)], t.rule)
        for c, day in enumerate(days):
            text = words.some(rng, 1, 1) if rng.random() < 0.7 else rng.choice(words.CATEGORIES)
            if rng.random() > 0.45 or face.width(text) > width - 8 or text.lower() in used:
                continue
            used.add(text.lower())
            colour = rng.choice(colours)[1]
            x = left + c * width
            if filled:
                canvas.box(
                    x + 1,
                    top + 1,
                    x + width - 2,
                    top + pitch - 2,
                    fill=colour,
                    radius=rng.choice((0, 4)),
                )
            canvas.text(x + 4, top + 2, text, face, ink_on(colour) if filled else t.ink)
            entries.append((day, hour, text))
    return canvas.document(_questions(rng, title, entries, days, hours))


def _questions(
    rng: random.Random,
    title: str,
    entries: list[tuple[str, str, str]],
    days: list[str],
    hours: list[str],
) -> list[Question]:
    out = [ask(rng, "title", title)] if title else []
    out.append(ask(rng, "list", ", ".join(days), n="days"))
    for day, hour, text in rng.sample(entries, min(4, len(entries))):
        out.append(worded(rng, "cell", text, *ASKED["on"], day=day, hour=hour))
        out.append(worded(rng, "reverse", f"{day} {hour}", *ASKED["when"], text=text))
    free = [(d, h) for d in days for h in hours if not any(e[:2] == (d, h) for e in entries)]
    if free:
        day, hour = rng.choice(free)
        out.append(worded(rng, "absent", "not in the image", *ASKED["free"], day=day, hour=hour))
    if entries:
        day = rng.choice(entries)[0]
        same = [e[2] for e in entries if e[0] == day]
        out.append(Question("list", f"What is on {day}?", ", ".join(same)))
        out.append(Question("count", f"How many entries are on {day}?", str(len(same))))
        out.append(yes_no(rng, "present", True, f=rng.choice(entries)[2]))
    other = words.some(rng, 1, 1)
    if not any(other.lower() == e[2].lower() for e in entries):
        out.append(yes_no(rng, "present", False, f=other))
        out.append(absent(rng, "value", f=other))
    return out
