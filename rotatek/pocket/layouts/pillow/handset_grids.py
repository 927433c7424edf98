"""Telephones' grids: days to tick, tiles with a figure, hours with a temperature."""

import random
from typing import Final

from rotatek.pocket.content import formats, lexicon, panels, words
from rotatek.pocket.content.colours import hsv
from rotatek.pocket.document import Question
from rotatek.pocket.layouts.pillow.chrome import Screen
from rotatek.pocket.layouts.pillow.controls import tick
from rotatek.pocket.questions.panels import of_figure, put
from rotatek.pocket.questions.templates import careless

HABITS: Final = (
    "Wake up early|Read books|Run|Meditate|Learn French|Play chess|Practice guitar|Call a friend|"
    "Write|"
    "Drink water|Walk the dog|Cook dinner|Stretch|No sugar|Tidy up|Journal|Piano|Draw|Garden|Yoga"
).split("|")


def _say(rng: random.Random, screen: Screen, kind: str, answer: str, *forms: str) -> None:
    screen.questions.append(Question(kind, careless(rng, rng.choice(forms)), answer))


def days(rng: random.Random, screen: Screen) -> None:
    """Habits by days: ticks and crosses, or figures with a unit below them."""
    face, small = screen.body(0.95), screen.body(0.75)
    x, y, right, foot = screen.box
    n = rng.randint(3, 6)
    first, day = rng.randrange(7), rng.randint(8, 28)
    cell = max(small.width("pages") + 6, (right - x) * 0.62 / n)
    cell = min(cell, (right - x) * 0.66 / n)
    heads = [(formats.DAYS[(first - i) % 7], day - i) for i in range(n)]
    start, pitch = right - cell * n, face.line * rng.uniform(1.7, 2.3)
    for i, (name, number) in enumerate(heads):
        middle = start + cell * (i + 0.5)
        screen.text(middle, y, name[:3].upper(), small, screen.muted, "centre")
        screen.text(middle, y + small.line, str(number), small, screen.muted, "centre")
    y += small.line * 2.4
    names = [
        h
        for h in words.unique(
            rng,
            lambda r: r.choice(HABITS) if r.random() < 0.7 else words.some(r, 1, 2).capitalize(),
            12,
        )
        if face.width(h) < start - x - 8
    ]
    shown = 0
    for name in names:
        if y + pitch > foot:
            break
        tone = hsv(rng.random(), 0.7, 0.75 if not screen.style.theme.dark else 0.95)
        screen.text(x, y + (pitch - face.line) / 2, name, face, tone)
        counted = rng.random() < 0.3
        unit = rng.choice(("pages", "miles", "km", "min", "cups"))
        for i, (weekday, number) in enumerate(heads):
            middle = start + cell * (i + 0.5)
            when = rng.choice((f"{weekday} {number}", f"{weekday}"))
            if counted:
                value = rng.choice((str(rng.randint(1, 100)), f"{rng.uniform(0.1, 5):.1f}"))
                screen.text(middle, y + pitch / 2 - small.line, value, small, tone, "centre")
                screen.text(middle, y + pitch / 2, unit, small, tone, "centre")
                if rng.random() < 0.4:
                    _say(
                        rng,
                        screen,
                        "cell",
                        value,
                        f"How many {unit} for {name} on {when}?",
                        f"What is {name} on {when}?",
                        f"{name}, {when}?",
                    )
                continue
            done, s = rng.random() < 0.5, face.ascent * 0.7
            at = (middle - s / 2, y + (pitch - s) / 2, s)
            if done:
                tick(screen, at, tone)
            else:
                left, top, _ = at
                screen.canvas.line(
                    [(left + s * 0.25, top + s * 0.25), (left + s * 0.75, top + s * 0.75)],
                    screen.rule,
                    2,
                )
                screen.canvas.line(
                    [(left + s * 0.75, top + s * 0.25), (left + s * 0.25, top + s * 0.75)],
                    screen.rule,
                    2,
                )
            if rng.random() < 0.3:
                _say(
                    rng,
                    screen,
                    "yes_no",
                    "yes" if done else "no",
                    f"Was {name} done on {when}?",
                    f"Is {name} ticked on {when}?",
                    f"{name} on {when}: done?",
                )
        shown += 1
        y += pitch
    _say(
        rng, screen, "count", str(shown), "How many habits are listed?", "How many rows are there?"
    )
    _say(rng, screen, "count", str(n), "How many days are shown?", "number of days?")


def tiles(rng: random.Random, screen: Screen) -> None:
    """Two columns of tiles, round or square: a heading, a large figure, a word below it."""
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
    figures = panels.figures(rng, 8)
    i = 0
    while y + high < foot and i < len(figures):
        for c in range(2):
            if i >= len(figures):
                break
            figure, at = figures[i], x + c * (wide + gap)
            i += 1
            if max(head.width(figure.label), big.width(figure.value)) > wide - 16:
                continue
            round_ = rng.random() < 0.3
            canvas.box(
                at,
                y,
                at + wide,
                y + high,
                fill=screen.panel,
                radius=round(high / 2) if round_ else 14,
            )
            middle = at + wide / 2
            align = "centre" if round_ or rng.random() < 0.4 else "left"
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
                        "Fair",
                        "Good",
                        "From N",
                        "Moderate",
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
            _say(
                rng,
                screen,
                "cell",
                f"{degrees}{unit}",
                f"What temperature is forecast for {hour}?",
                f"How warm is it at {hour}?" if ":" in hour else f"How warm is it on {hour}?",
                f"temperature {hour}",
                f"{hour}?",
            )
    if len(set(times)) == n:
        if warm.count(max(warm)) == 1:
            _say(
                rng,
                screen,
                "highest",
                times[warm.index(max(warm))],
                "When is it warmest?",
                "Which is the warmest time?",
            )
        if warm.count(min(warm)) == 1:
            _say(
                rng,
                screen,
                "lowest",
                times[warm.index(min(warm))],
                "When is it coldest?",
                "Which is the coldest time?",
            )
    screen.box = (x, y + high + 10, right, foot)
    tiles(rng, screen)
