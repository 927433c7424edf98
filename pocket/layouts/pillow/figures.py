"""Figures of papers and reports: axis titles, a legend with a heading, a subtitle, a caption."""

import math
import random
from typing import Final

from pocket.content import formats, lexicon, words
from pocket.content.colours import ink_on, series_colours
from pocket.content.tables import Grid
from pocket.document import Document
from pocket.layouts.pillow.canvas import blank_page
from pocket.layouts.pillow.figure_parts import (
    Plot,
    put_axis_titles,
    put_frame,
    put_heads,
    put_legend,
    scale,
    series_names,
)
from pocket.layouts.style import PageStyle
from pocket.questions.templates import ask

ASKED: Final[dict[str, tuple[str, ...]]] = {
    "value": ("What is the value for {f}?", "What is the value of {f}?", "How much is {f}?",
        "{f}?"),
    "lowest bar": ("Which category is the lowest?", "Which one is lowest?",
        "Which bar is the shortest?"),
    "higher": ("Is {f} higher than {g}?", "Is the bar of {f} longer than that of {g}?"),
    "higher of two": ("Which is higher, {f} or {g}?", "Which has more, {f} or {g}?"),
    "highest": ("Which point is highest?", "Which one is at the top?",
        "Which label stands highest?", "Which is the highest on the y axis?"),
    "lowest": ("Which point is lowest?", "Which one is at the bottom?",
        "Which is the lowest on the y axis?"),
    "rightmost": ("Which point is furthest to the right?", "Which is the largest on the x axis?"),
    "leftmost": ("Which point is furthest to the left?", "Which is the smallest on the x axis?"),
    "list": ("List the labels from top to bottom.", "Name the points, the highest first."),
}  # fmt: skip


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One figure."""
    t = style.theme
    ground = (255, 255, 255) if not t.dark and rng.random() < 0.7 else t.page
    canvas = blank_page(style, ground)
    size = max(9.5, min(style.size, style.width / 26))
    m = float(style.margin)
    box = (m, m, style.width - m, style.height - m)
    plot = Plot(
        rng,
        canvas,
        style,
        t.ink,
        t.muted,
        box,
        style.family.regular(size * 0.9),
        style.family.regular(size * rng.uniform(1.0, 1.2)),
    )
    put_heads(plot, size)
    whole = rng.choices((_curves, _bars, _points), (4, 4, 2))[0](plot)
    return canvas.document(plot.questions if whole else [])


def _curves(plot: Plot) -> bool:
    """Smooth lines of different colours."""
    rng, canvas = plot.rng, plot.canvas
    put_axis_titles(plot)
    put_frame(plot, scale(rng), scale(rng))
    x0, y0, x1, y1 = plot.box
    n = rng.randint(1, 6)
    tones = series_colours(rng, n)
    names = series_names(rng, n)
    shape, width = rng.randrange(4), rng.choice((1, 2, 2, 3))
    for i, (_, tone) in enumerate(tones):
        a, b, c = rng.uniform(0.5, 6), rng.uniform(0.1, 0.9), rng.uniform(0.2, 0.95)
        points = []
        for k in range(61):
            u = k / 60
            v = (
                1 / (1 + math.exp(-a * 6 * (u - b)))
                if shape == 0
                else math.exp(-a * u)
                if shape == 1
                else 0.5 + 0.45 * math.sin(a * 2 * u + i)
                if shape == 2
                else u**b
            )
            wobble = rng.gauss(0, 0.006) if shape == 3 else 0
            points.append(
                (x0 + (x1 - x0) * u, y1 - (y1 - y0) * min(1, max(0, v * c + 0.02 + wobble)))
            )
        canvas.line(points, tone, width)
    entries = [(name, colour, tone) for name, (colour, tone) in zip(names, tones, strict=True)]
    if n > 1 or rng.random() < 0.6:
        put_legend(plot, entries, True)
    plot.ask("count", str(n), "How many lines are in the chart?", "How many curves are there?")
    return True


def _bars(plot: Plot) -> bool:
    """Bars with their values printed: lying or standing, in one colour or several."""
    rng, canvas, face = plot.rng, plot.canvas, plot.tick
    lying = rng.random() < 0.5
    put_axis_titles(plot, upright=lying and rng.random() < 0.4)
    n = rng.randint(2, 9)
    names = words.unique(rng, words.label, n)
    step = rng.choice((1, 10, 1000, 1000, 0.1, 0.001))
    values = [v * step for v in rng.sample(range(3, 150), n)]
    if rng.random() < 0.4:
        values.sort(reverse=True)
    form = (
        "{:.1f}"
        if step == 0.1
        else "{:.3f}"
        if step == 0.001
        else rng.choice(("{:,.0f}", "{:.0f}"))
    )
    shown = [form.format(v) for v in values]
    top = max(values)
    x0, y0, x1, y1 = plot.box
    tones = series_colours(rng, min(n, 9)) if rng.random() < 0.4 else series_colours(rng, 1) * n
    if lying:
        left = max(face.width(name) for name in names) + 8
        room = x1 - x0 - left - max(face.width(s) for s in shown) - 10
        pitch = (y1 - y0) / n
        if room < 60 or pitch < face.line:
            return False
        for i, (name, value, text) in enumerate(zip(names, values, shown, strict=True)):
            y = y0 + pitch * i
            canvas.text(x0 + left - 6, y + (pitch - face.line) / 2, name, face, plot.ink, "right")
            end = x0 + left + room * value / top
            canvas.box(x0 + left, y + pitch * 0.12, end, y + pitch * 0.88, fill=tones[i][1])
            canvas.text(end + 5, y + (pitch - face.line) / 2, text, face, plot.ink)
    else:
        slot = (x1 - x0) / n
        if max(face.width(t) for t in (*names, *shown)) > slot - 3:
            return False
        high = y1 - y0 - face.line * 2.4
        inside = rng.random() < 0.35
        for i, (name, value, text) in enumerate(zip(names, values, shown, strict=True)):
            middle, up = x0 + slot * (i + 0.5), y1 - face.line * 1.2 - high * value / top
            canvas.box(
                middle - slot * 0.38,
                up,
                middle + slot * 0.38,
                y1 - face.line * 1.2,
                fill=tones[i][1],
            )
            below = inside and high * value / top > face.line * 1.3
            tone = ink_on(tones[i][1]) if below else plot.ink
            canvas.text(middle, up + 3 if below else up - face.line, text, face, tone, "centre")
            canvas.text(middle, y1 - face.line * 1.1, name, face, plot.ink, "centre")
    for i in rng.sample(range(n), min(4, n)):
        plot.ask("value", shown[i], *ASKED["value"], f=names[i])
        plot.ask(
            "reverse", names[i], f"Which one has {shown[i]}?", f"Which category is at {shown[i]}?"
        )
    order = sorted(range(n), key=values.__getitem__)
    plot.ask(
        "highest",
        names[order[-1]],
        "Which category is the highest?",
        "Which one is highest?",
        "Which bar is the longest?" if lying else "Which bar is the tallest?",
    )
    plot.ask("lowest", names[order[0]], *ASKED["lowest bar"])
    plot.ask("count", str(n), "How many bars are there?", "How many categories are there?")
    a, b = rng.sample(range(n), 2)
    plot.ask(
        "yes_no", "yes" if values[a] > values[b] else "no", *ASKED["higher"], f=names[a], g=names[b]
    )
    plot.ask(
        "find",
        names[a] if values[a] > values[b] else names[b],
        *ASKED["higher of two"],
        f=names[a],
        g=names[b],
    )
    rows = [list(row) for row in zip(names, shown, strict=True)]
    table = Grid(["Category", "Value"], rows, {}).markdown()
    plot.questions.append(ask(rng, "table", table, kind="transcribe"))
    return True


def _place(rng: random.Random) -> str:
    make = rng.choice((words.label, lexicon.word, formats.code, lambda r: r.choice(words.CITIES)))
    return make(rng)[:18].strip()


def _points(plot: Plot) -> bool:
    """Labelled points, at times joined: who is on top, who is furthest right."""
    rng, canvas, face = plot.rng, plot.canvas, plot.tick
    put_axis_titles(plot)
    put_frame(plot, scale(rng), scale(rng))
    x0, y0, x1, y1 = plot.box
    n = rng.randint(3, 9)
    names = words.unique(rng, _place, n)
    rows = rng.sample(range(1, 14), n)
    placed: list[tuple[str, float, float]] = []
    tone = series_colours(rng, 1)[0][1]
    for name, row in zip(names, rows, strict=True):
        y = y0 + (y1 - y0) * (row + 0.2) / 14.6
        x = rng.uniform(x0 + 12, max(x0 + 14, x1 - face.width(name) - 12))
        canvas.draw.ellipse((x - 4, y - 4, x + 4, y + 4), fill=tone)
        canvas.text(x + 7, y - face.line / 2, name, face, plot.ink)
        placed.append((name, x, y))
    by_x, by_y = sorted(placed, key=lambda p: p[1]), sorted(placed, key=lambda p: p[2])
    plot.ask("highest", by_y[0][0], *ASKED["highest"])
    plot.ask("lowest", by_y[-1][0], *ASKED["lowest"])
    if by_x[-1][1] - by_x[-2][1] > 12:
        plot.ask("highest", by_x[-1][0], *ASKED["rightmost"])
    if by_x[1][1] - by_x[0][1] > 12:
        plot.ask("lowest", by_x[0][0], *ASKED["leftmost"])
    plot.ask("count", str(n), "How many points are labelled?", "How many points are there?")
    plot.ask("list", ", ".join(p[0] for p in by_y), *ASKED["list"])
    return True
