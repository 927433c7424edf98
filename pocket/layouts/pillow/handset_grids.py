"""Telephones' grids: days to tick, tiles with a figure, hours with a temperature."""

import random
from typing import Final

from pocket.content import formats, lexicon, panels, words
from pocket.content.colours import hsv
from pocket.layouts.pillow.chrome import Screen
from pocket.layouts.pillow.controls import tick
from pocket.questions.panels import of_figure, put

SHIFTS: Final = ("E", "L", "N", "F", "8-16", "14-22", "off")
ASKED: Final[dict[str, tuple[str, ...]]] = {
    "warmest": ("When is it warmest?", "Which is the warmest time?"),
    "coldest": ("When is it coldest?", "Which is the coldest time?"),
}  # fmt: skip


def days(rng: random.Random, screen: Screen) -> None:
    """People or things by days of a week: ticks, shifts or figures, some of them empty."""
    face, small = screen.body(0.95), screen.body(0.75)
    x, y, right, foot = screen.box
    n, first = rng.randint(3, 6), rng.randrange(7)
    cell = min(max(small.width("14-22") + 6, (right - x) * 0.6 / n), (right - x) * 0.66 / n)
    heads = [formats.DAYS[(first + i) % 7] for i in range(n)]
    start, pitch = right - cell * n, face.line * rng.uniform(1.4, 2.2)
    letters = rng.choice((2, 3))
    for i, name in enumerate(heads):
        middle = start + cell * (i + 0.5)
        screen.text(middle, y, name[:letters], small, screen.muted, "centre")
    y += small.line * 1.5
    make = rng.choice((lambda r: r.choice(words.FIRST), lambda r: words.some(r, 1, 2).capitalize()))
    names = [h for h in words.unique(rng, make, 12) if face.width(h) < start - x - 8]
    sort, noun = rng.choice(("ticks", "shifts", "figures")), rng.choice(("rows", "names", "lines"))
    shown = list[str]()
    for name in names:
        if y + pitch > foot:
            break
        screen.text(x, y + (pitch - face.line) / 2, name, face, screen.ink)
        for i, day in enumerate(heads):
            _mark_day(rng, screen, (start + cell * (i + 0.5), y + pitch / 2), sort, (name, day))
        shown.append(name)
        y += pitch
        screen.canvas.line([(x, y), (right, y)], screen.rule)
    screen.ask("count", str(len(shown)), f"How many {noun} are there?", f"number of {noun}?")
    screen.ask("count", str(n), "How many days are shown?", "number of days?")


def _mark_day(
    rng: random.Random, screen: Screen, at: tuple[float, float], sort: str, about: tuple[str, str]
) -> None:
    """The content of one field of the week, and at times a question about it."""
    (x, y), (name, day), small = at, about, screen.body(0.8)
    if sort == "ticks":
        done, side = rng.random() < 0.5, small.ascent * 0.9
        if done:
            tick(screen, (x - side / 2, y - side / 2, side), screen.accent)
        if rng.random() < 0.3:
            screen.ask("yes_no", "yes" if done else "no", f"Is {name} ticked on {day}?",
                 f"{day}, {name}: ticked?", f"Is there a tick for {name} on {day}?")  # fmt: skip
        return
    if rng.random() < 0.15:
        return
    value = rng.choice(SHIFTS) if sort == "shifts" else panels.count(rng)
    if small.width(value) > (screen.box[2] - x) * 2:
        return
    screen.text(x, y - small.line / 2, value, small, screen.ink, "centre")
    if rng.random() < 0.3:
        screen.ask("cell", value, f"What stands for {name} on {day}?", f"{name}, {day}?",
             f"{day}: what does {name} have?")  # fmt: skip


def tiles(rng: random.Random, screen: Screen) -> None:
    """Two columns of tiles: a heading, a large figure, a word below it."""
    canvas, style = screen.canvas, screen.style
    x, y, right, foot = screen.box
    gap = style.size * 0.6
    wide = (right - x - gap) / 2
    high = wide * rng.uniform(0.6, 0.95)
    head, big, small = (
        screen.body(0.9, bold=True),
        style.family.regular(max(12.0, min(wide / 4.5, style.size * 2.6))),
        screen.body(0.8),
    )
    figures, corner = panels.figures(rng, 8), rng.choice((0, 6, 14))
    i = 0
    while y + high < foot and i < len(figures):
        for c in range(2):
            if i >= len(figures):
                break
            figure, at = figures[i], x + c * (wide + gap)
            i += 1
            if max(head.width(figure.label), big.width(figure.value)) > wide - 16:
                continue
            canvas.box(
                at,
                y,
                at + wide,
                y + high,
                fill=screen.panel,
                radius=corner,
            )
            middle = at + wide / 2
            align = "centre" if rng.random() < 0.4 else "left"
            left = middle if align == "centre" else at + 12
            top = y + high * 0.14
            screen.text(left, top, figure.label, head, screen.ink, align)
            number, _, unit = figure.value.partition(" ")
            mid = y + high * 0.42
            if unit and rng.random() < 0.6 and align == "left":
                width = screen.text(left, mid, number, big, screen.ink)
                screen.text(
                    left + width + 5, mid + big.ascent - small.ascent, unit, small, screen.muted
                )
            else:
                screen.text(left, mid, figure.value, big, screen.ink, align)
            screen.questions.append(of_figure(rng, figure.label, figure.value, figure.sort))
            if high * 0.5 > big.line + small.line * 1.6 and rng.random() < 0.6:
                word = rng.choice(
                    (
                        "Good",
                        "So far",
                        "Rising",
                        "Today",
                        "Normal",
                        lexicon.word(rng).capitalize(),
                    )
                )
                screen.text(left, y + high - small.line * 1.5, word, small, screen.muted, align)
                screen.questions.append(put(rng, "below", word, f=figure.value))
        y += high + gap


def hours(rng: random.Random, screen: Screen) -> None:
    """A row of hours with a figure each, then tiles."""
    face, small = screen.body(0.95), screen.body(0.85)
    x, y, right, foot = screen.box
    n = max(3, min(7, int((right - x) / (face.width("00:00") + 14))))
    step, start = (right - x) / n, rng.randint(0, 16)
    high = face.line * 3.4
    screen.canvas.box(x - 4, y, right + 4, y + high, fill=screen.panel, radius=8)
    times = (
        [f"{start + i}:00" for i in range(n)]
        if rng.random() < 0.6
        else [formats.DAYS[(start + i) % 7][:3] for i in range(n)]
    )
    warm = [rng.randint(-9, 36) for _ in range(n)]
    unit = rng.choice(("°", "°C", "°"))
    for i, (hour, degrees) in enumerate(zip(times, warm, strict=True)):
        middle = x + step * (i + 0.5)
        screen.text(middle, y + 4, hour, small, screen.muted, "centre")
        screen.canvas.draw.ellipse(
            (middle - 7, y + 6 + face.line, middle + 7, y + 20 + face.line),
            fill=hsv(rng.choice((0.13, 0.6)), 0.5, 0.9),
        )
        screen.text(
            middle, y + high - face.line - 4, f"{degrees}{unit}", face, screen.ink, "centre"
        )
        if times.count(hour) == 1:
            screen.ask(
                "cell",
                f"{degrees}{unit}",
                f"How warm will it be: {hour}?",
                f"How warm is it at {hour}?" if ":" in hour else f"How warm is it on {hour}?",
                f"temperature {hour}",
                f"{hour}?",
            )
    if len(set(times)) == n:
        if warm.count(max(warm)) == 1:
            screen.ask("highest", times[warm.index(max(warm))], *ASKED["warmest"])
        if warm.count(min(warm)) == 1:
            screen.ask("lowest", times[warm.index(min(warm))], *ASKED["coldest"])
    screen.box = (x, y + high + 10, right, foot)
    tiles(rng, screen)
