"""Shared by figures of reports: heads, axis titles, ticks, a legend under a heading."""

import random
from dataclasses import dataclass, field
from typing import Final

from pocket.content import words
from pocket.content.colours import Colour
from pocket.document import Question
from pocket.layouts.fonts import Face
from pocket.layouts.pillow.canvas import Canvas, wrap
from pocket.layouts.style import PageStyle
from pocket.questions.templates import Asking

UNITS: Final = (
    "V mA kg g km m s ms h °C K % Hz GHz MB GB kW USD € mm nm Pa bar dB ppm years days mol "
    "thousands log10 a.u. px fps mol/l"
).split()
QUANTITIES: Final = (
    "Time|Temperature|Pressure|Distance|Accuracy|Loss|Mass|Speed|Frequency|Day|Resistance|Flow|"
    "Price|Revenue|Population|Energy|Power|Rainfall|Wavelength|Dose|Epoch|Year|"
    "Iterations|Throughput|Latency|Memory|Count|Share|Score|Depth|Age|Income|Yield|Density"
).split("|")
LEGENDS: Final = (
    "Batch|Model|Group|Country|Method|Type|Series|Region|Class|Species|Run|Version".split("|")
)
ASKED: Final[dict[str, tuple[str, ...]]] = {
    "title": ("What is the title of the chart?", "What is the title?", "title?",
        "What is the chart called?", "What does the heading say?"),
    "subtitle": ("What is the subtitle?", "What is written below the title?", "subtitle?"),
    "caption": ("What does the caption say?", "What is written at the bottom right?",
        "What is the source line?"),
    "axis": ("What is the label of the {a} axis?", "What is on the {a} axis?", "{a} axis label?",
        "What does the {way} axis show?", "What is the {a}-axis title?", "label of the {a} axis"),
    "legend": ("What is the title of the legend?", "What is the legend's heading?",
        "legend title?"),
    "colour": ("Which colour has the {thing} {name}?", "What colour is {name}?",
        "Which colour stands for {name}?", "colour of {noun} {name}?"),
    "by colour": ("Which {noun} is {colour}?", "What does {colour} stand for?",
        "Which one is drawn in {colour}?"),
    "legend's entries": ("Which entries does the legend have?", "List the legend.",
        "What is in the legend?"),
    "count": ("How many {thing}s are in the legend?", "How many series are there?"),
}  # fmt: skip


@dataclass
class Plot(Asking):
    """A figure in the making: the plot's box, its faces, what may be asked."""

    rng: random.Random
    canvas: Canvas
    style: PageStyle
    ink: Colour
    muted: Colour
    box: tuple[float, float, float, float]
    tick: Face
    label: Face
    questions: list[Question] = field(default_factory=list)

    def shrink(self, left: float = 0, top: float = 0, right: float = 0, low: float = 0) -> None:
        """Take room from the sides of the box."""
        x0, y0, x1, y1 = self.box
        self.box = (x0 + left, y0 + top, x1 - right, y1 - low)


def _quantity(rng: random.Random) -> str:
    """An axis title."""
    name = rng.choice(QUANTITIES) if rng.random() < 0.6 else words.some(rng, 1, 2).capitalize()
    r = rng.random()
    unit = rng.choice(UNITS)
    if r < 0.5:
        return f"{name} ({unit})"
    return f"{name} [{unit}]" if r < 0.62 else f"{name}, {unit}" if r < 0.68 else name


def put_heads(plot: Plot, size: float) -> None:
    """Title, subtitle and caption, where there are any."""
    rng, canvas, style = plot.rng, plot.canvas, plot.style
    x0, y, x1, y1 = plot.box
    left = rng.random() < 0.5
    x, align = (x0, "left") if left else ((x0 + x1) / 2, "centre")
    if rng.random() < 0.75:
        face = style.heading.bold(size * rng.uniform(1.15, 1.7))
        text = words.title(rng)
        if face.width(text) < x1 - x0:
            canvas.text(x, y, text, face, plot.ink, align)
            plot.ask("title", text, *ASKED["title"])
            y += face.line * 1.15
            if rng.random() < 0.35:
                second = words.some(rng, 4, 9).capitalize()
                lines = wrap(second, plot.tick, x1 - x0)[:2]
                for line in lines:
                    canvas.text(x, y, line, plot.tick, plot.muted, align)
                    y += plot.tick.line
                plot.ask("find", " ".join(lines), *ASKED["subtitle"])
    if rng.random() < 0.2:
        text = rng.choice(("Source: ", "Data: ", "")) + words.some(rng, 2, 4)
        if plot.tick.width(text) < x1 - x0:
            y1 -= plot.tick.line
            canvas.text(x1, y1, text, plot.tick, plot.muted, "right")
            plot.ask("find", text, *ASKED["caption"])
    plot.box = (x0, y + 4, x1, y1 - 2)


def put_axis_titles(plot: Plot, upright: bool = False) -> None:
    """The titles of both axes; they take room at the left and below."""
    rng, canvas = plot.rng, plot.canvas
    x_name, y_name = _quantity(rng), _quantity(rng)
    x0, y0, x1, y1 = plot.box
    face = plot.label
    place, across = rng.choice((("centre", 0.5), ("right", 1.0))), plot.tick.width("0000.0")
    if rng.random() < 0.88 and face.width(x_name) < (x1 - x0) * 0.8:
        at = x0 + across + (x1 - x0 - across) * place[1]
        canvas.text(at, y1 - face.line, x_name, face, plot.ink, place[0])
        plot.shrink(low=face.line * 1.05)
        for _ in range(2):
            plot.ask("find", x_name, *ASKED["axis"], a="x", way="horizontal")
    if y_name != x_name and rng.random() < 0.85 and face.width(y_name) < (y1 - y0) * 0.8:
        if upright:
            canvas.text(x0, y0, y_name, face, plot.ink)
            plot.shrink(top=face.line * 1.2)
        else:
            canvas.text_rotated(
                x0 + face.line / 2, (y0 + plot.box[3]) / 2 - face.line, y_name, face, plot.ink, 90
            )
            plot.shrink(left=face.line * 1.1)
        for _ in range(2):
            plot.ask("find", y_name, *ASKED["axis"], a="y", way="vertical")


def scale(rng: random.Random) -> tuple[float, float, int, str]:
    """Low end, step, number of steps and how its figures are written."""
    step = rng.choice((0.1, 0.2, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 250, 1000, 5000, 50000))
    low = rng.choice((0, 0, 0, -2, 1, 3, 10)) * step
    form = "{:.2f}" if step == 0.25 else "{:.1f}" if step < 1 else rng.choice(("{:.0f}", "{:,.0f}"))
    if step >= 5000 and rng.random() < 0.4:
        form = "k"
    return low, step, rng.randint(3, 6), form


def _write(value: float, form: str) -> str:
    return f"{value / 1000:.1f}k" if form == "k" else form.format(value)


def put_frame(plot: Plot, xs: tuple, ys: tuple) -> None:
    """Axes with ticks and figures: a box, an L, or lines of a grid."""
    rng, canvas = plot.rng, plot.canvas
    face = plot.tick
    wide = max(face.width(_write(ys[0] + ys[1] * i, ys[3])) for i in range(ys[2] + 1))
    plot.shrink(left=wide + 8, low=face.line + 4, right=face.width("000") / 2, top=face.line / 2)
    x0, y0, x1, y1 = plot.box
    look = rng.randrange(3)
    if look == 2:
        for i in range(ys[2] + 1):
            y = y1 - (y1 - y0) * i / ys[2]
            canvas.line([(x0, y), (x1, y)], plot.style.theme.rule)
    if look == 0:
        canvas.frame((x0, y0, x1, y1), plot.ink, 0, 1)
    else:
        canvas.line([(x0, y0), (x0, y1), (x1, y1)], plot.ink, rng.choice((1, 2)))
    inside = rng.choice((-5, 5))
    for i in range(ys[2] + 1):
        y = y1 - (y1 - y0) * i / ys[2]
        canvas.text(
            x0 - 7, y - face.line / 2, _write(ys[0] + ys[1] * i, ys[3]), face, plot.ink, "right"
        )
        if look != 2:
            canvas.line([(x0, y), (x0 - inside, y)], plot.ink)
    for i in range(xs[2] + 1):
        x = x0 + (x1 - x0) * i / xs[2]
        canvas.text(x, y1 + 4, _write(xs[0] + xs[1] * i, xs[3]), face, plot.ink, "centre")
        canvas.line([(x, y1), (x, y1 + inside)], plot.ink)


def put_legend(plot: Plot, entries: list[tuple[str, str, Colour]], line: bool) -> None:
    """A legend inside the plot or at its right, at times under a heading."""
    rng, canvas, face = plot.rng, plot.canvas, plot.tick
    head = rng.choice(LEGENDS) if rng.random() < 0.5 else ""
    wide = max([face.width(n) for n, _, _ in entries] + [face.width(head)]) + face.size * 3
    high = face.line * (len(entries) + bool(head)) * 1.1
    x0, y0, x1, y1 = plot.box
    if wide > (x1 - x0) * 0.5 or high > (y1 - y0) * 0.8:
        return
    x, y = (x0 + 10, y0 + 8) if rng.random() < 0.6 else (x1 - wide - 6, y0 + 8)
    if rng.random() < 0.6:
        ground = (255, 255, 255) if not plot.style.theme.dark else plot.style.theme.panel
        canvas.box(x - 4, y - 3, x + wide, y + high + 2, fill=ground, outline=plot.style.theme.rule)
    if head:
        canvas.text(
            x + face.size,
            y,
            head,
            plot.label if plot.label.size < face.size * 1.2 else face,
            plot.ink,
        )
        plot.ask("find", head, *ASKED["legend"])
        y += face.line * 1.1
    for name, _, tone in entries:
        middle = y + face.line / 2
        if line:
            canvas.line([(x, middle), (x + face.size * 1.8, middle)], tone, 3)
        else:
            canvas.box(
                x, middle - face.size / 3, x + face.size * 0.8, middle + face.size / 3, fill=tone
            )
        canvas.text(x + face.size * 2.2, y, name, face, plot.ink)
        y += face.line * 1.1
    noun = head.lower() if head else "series"
    name, colour, _ = rng.choice(entries)
    thing = "line" if line else "entry"
    plot.ask("colour", colour, *ASKED["colour"], thing=thing, name=name, noun=noun)
    name, colour, _ = rng.choice(entries)
    plot.ask("find", name, *ASKED["by colour"], noun=noun, colour=colour)
    plot.ask("list", ", ".join(e[0] for e in entries), *ASKED["legend's entries"])
    plot.ask("count", str(len(entries)), *ASKED["count"], thing=thing)


def series_names(rng: random.Random, n: int) -> list[str]:
    """Names of `n` series, at times bare figures."""
    r = rng.random()
    if r < 0.3:
        start, step = rng.choice((1, 5, 10, 20)), rng.choice((1, 5, 10))
        return [str(start + i * step) for i in range(n)]
    return words.unique(rng, lambda q: words.label(q)[:18].strip(), n)
