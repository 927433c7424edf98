"""A month's calendar: weekdays across, weeks down, entries on some of the days."""

import calendar
import random
from dataclasses import dataclass
from typing import Final

from pocket.content import words
from pocket.content.colours import ink_on, series_colours
from pocket.content.formats import ordinal
from pocket.document import Document, Question
from pocket.layouts.fonts import Face
from pocket.layouts.pillow.canvas import Canvas, blank_page
from pocket.layouts.style import PageStyle
from pocket.questions.templates import ABSENT, ask, phrased, yes_no

ENTRIES: Final = (
    "Exam Dentist Holiday Meeting Birthday Party Deadline Concert Football Yoga Dinner Lunch "
    "Interview Flight Doctor Shopping Cinema Rent Payday Cleaning Visit Workshop Trip Wedding "
    "Class Chess Choir Market Review Training Swim Haircut Garage Opera Picnic Call"
).split()
ON_DATE: Final = (
    "What is on {d}?", "What is on {d}?", "What happens on {d}?", "What's on {d}", "{d}?",
    "which entry is on {d}", "what is planned for {d}", "What is written on {d}?", "event on {d}",
)  # fmt: skip
WHEN: Final = (
    "When is {f}?", "On which date is {f}?", "What day is {f} on?", "date of {f}", "when is {f}",
    "On what date does {f} take place?",
)  # fmt: skip
WEEKDAY: Final = (
    "What day of the week is {d}?", "Which weekday is {d}?", "{d} is a what day",
    "On which day of the week is {d}?", "weekday of {d}",
)  # fmt: skip
MONTH: Final = (
    "Which month is shown?", "What month is it?", "which month", "What month is this calendar for?",
    "Which month does the calendar show?", "month?",
)  # fmt: skip


@dataclass(frozen=True)
class Month:
    """weeks: day numbers, 0 outside of the month; heads: the weekdays as printed."""

    name: str
    heads: list[str]
    weeks: list[list[int]]
    entries: dict[int, str]

    def dates(self, rng: random.Random, day: int) -> str:
        """A date as people write it."""
        month = self.name.split()[0].capitalize()
        forms = [f"{day} {month}", f"{month} {day}", f"the {ordinal(day)}", ordinal(day)]
        if len(self.head(day)) > 2:
            forms.append(f"{self.head(day)} the {ordinal(day)}")
        return rng.choice(forms)

    def head(self, day: int) -> str:
        """The weekday of `day` as printed."""
        return next(self.heads[w.index(day)] for w in self.weeks if day in w)


def _heads(rng: random.Random, first: int, wide: float) -> list[str]:
    names = [calendar.day_name[(first + i) % 7] for i in range(7)]
    length = rng.choice((1, 2, 3, 3, 3, 9))
    if length == 9 and wide < 95:
        length = 3
    cut = [name[:length] for name in names]
    return [name.upper() for name in cut] if rng.random() < 0.2 else cut


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One month, in a grid or without lines, with up to a dozen entries."""
    canvas, t, m = blank_page(style), style.theme, style.margin
    year, month, first = rng.randint(1960, 2060), rng.randint(1, 12), rng.choice((0, 0, 6))
    shape = rng.choice(("{m} {y}", "{m} {y}", "{m}", "{y} {m}"))
    name = calendar.month_name[month]
    title = shape.format(m=name.upper() if rng.random() < 0.2 else name, y=year)
    big = style.heading.bold(style.size * rng.uniform(1.1, 1.6))
    aligned = rng.choice(("left", "centre"))
    canvas.text(m if aligned == "left" else style.width / 2, m, title, big, t.ink, aligned)
    top, wide = m + big.line * 1.3, (style.width - 2 * m) / 7
    weeks = calendar.Calendar(first).monthdayscalendar(year, month)
    face = style.family.regular(min(style.size, wide / 4.2))
    made = Month(title if shape != "{y} {m}" else name, _heads(rng, first, wide), weeks, {})
    for i, head in enumerate(made.heads):
        canvas.text(m + (i + 0.5) * wide, top, head, face, t.muted, "centre")
    top += face.line * 1.3
    tall = min((style.height - m - top) / len(weeks), wide * rng.uniform(0.7, 1.2))
    marked = _grid(canvas, rng, style, made, face, (top, wide, tall))
    return canvas.document(_questions(rng, made, title, marked))


def _grid(
    canvas: Canvas,
    rng: random.Random,
    style: PageStyle,
    month: Month,
    face: Face,
    box: tuple[float, float, float],
) -> int:
    """Draw days and entries; returns the marked day, 0 without one."""
    (top, wide, tall), t, m = box, style.theme, style.margin
    small = style.family.regular(max(10.0, face.size * rng.choice((0.75, 0.85, 1))))
    colours, lines, filled = series_colours(rng, 3), rng.random() < 0.6, rng.random() < 0.4
    corner = rng.choice(("left", "left", "right"))
    days = [day for week in month.weeks for day in week if day]
    marked = rng.choice(days) if rng.random() < 0.3 else 0
    share = rng.choice((0.0, 0.1, 0.2, 0.3)) if tall > face.line + small.line + 2 else 0.0
    for r, week in enumerate(month.weeks):
        for c, day in enumerate(week):
            x, y = m + c * wide, top + r * tall
            if lines:
                canvas.box(x, y, x + wide, y + tall, outline=t.rule)
            if not day:
                continue
            ink = t.ink
            if day == marked:
                ink = ink_on(colours[0][1])
                at = x + 1 if corner == "left" else x + wide - face.size * 1.9
                canvas.box(at, y + 1, at + face.size * 1.8, y + face.line, colours[0][1], radius=4)
            canvas.text(x + 4 if corner == "left" else x + wide - 4, y, str(day), face, ink, corner)
            text = rng.choice(ENTRIES) if rng.random() < 0.7 else words.some(rng, 1, 1)
            if rng.random() < share and small.width(text) < wide - 8:
                if text.lower() in (e.lower() for e in month.entries.values()):
                    continue
                month.entries[day] = text
                shade = colours[rng.randrange(len(colours))][1]
                low = y + face.line + 1
                if filled:
                    canvas.box(x + 2, low, x + wide - 2, low + small.line, fill=shade, radius=2)
                canvas.text(x + 4, low, text, small, ink_on(shade) if filled else t.ink)
    return marked


def _questions(rng: random.Random, month: Month, title: str, marked: int) -> list[Question]:
    out = [ask(rng, "title", title), phrased(rng, "field", month.name, *MONTH)]
    entries = month.entries
    for day in rng.sample(sorted(entries), min(5, len(entries))):
        out.append(phrased(rng, "cell", entries[day], *ON_DATE, d=month.dates(rng, day)))
        date = f"{day} {month.name.split()[0].capitalize()}"
        out.append(phrased(rng, "reverse", date, *WHEN, f=entries[day]))
        if len(month.heads[0]) > 1:
            forms = ("What day of the week is {f}?", "On which weekday is {f}?")
            out.append(phrased(rng, "cell", month.head(day), *forms, f=entries[day]))
    days = [day for week in month.weeks for day in week if day]
    if len(month.heads[0]) > 1:
        plain = [f"the {d}th" for d in days if 4 <= d <= 20]
        for date in rng.sample(plain, 2):
            out.append(phrased(rng, "cell", month.head(int(date[4:-2])), *WEEKDAY, d=date))
        first = ("Which weekday is the 1st?", "On which day does the month begin?")
        out.append(phrased(rng, "cell", month.head(1), *first))
    out.append(Question("count", "How many days does the month have?", str(len(days))))
    if entries:
        many = ("How many entries are there?", "How many events are shown?", "number of events")
        out.append(phrased(rng, "count", str(len(entries)), *many))
        free = rng.choice([day for day in days if day not in entries])
        out.append(phrased(rng, "absent", ABSENT, *ON_DATE, d=month.dates(rng, free)))
        out.append(yes_no(rng, "present", True, f=rng.choice(list(entries.values()))))
        out.append(ask(rng, "list", ", ".join(entries[d] for d in sorted(entries)), n="events"))
    if marked:
        which = ("Which day is marked?", "What is today's date?", "which day is highlighted")
        out.append(phrased(rng, "field", str(marked), *which))
    return out
