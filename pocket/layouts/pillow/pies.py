"""Pie and ring charts with a legend or labels around."""

import math
import random
from dataclasses import dataclass, replace
from typing import Final

from pocket.content.charts import ChartData, ChartMaker, make_chart
from pocket.content.colours import Colour, ink_on, series_colours
from pocket.document import Document, Question
from pocket.layouts.fonts import Face
from pocket.layouts.pillow.axes import put_title
from pocket.layouts.pillow.canvas import Canvas, blank_page
from pocket.layouts.style import PageStyle
from pocket.questions.charts import chart_questions
from pocket.questions.templates import ask, worded

SLICES: Final = (
    "How many slices are there?", "how many slices", "How many parts does the chart have?",
)  # fmt: skip


def draw(rng: random.Random, style: PageStyle, make: ChartMaker = make_chart) -> Document:
    """One pie; its shares are written on the slices or in the legend."""
    canvas = blank_page(style)
    n = rng.randint(2, 6 if style.width > 300 else 4)
    data = make(rng, n, 1, "pie chart", top=100)
    shares = _shares(rng, n)
    data.values = [[float(s) for s in shares]]
    data.texts = [[f"{s}%" for s in shares]]
    data.colours = series_colours(rng, n)
    ring = rng.random() < 0.3
    data.kind = "ring chart" if ring else "pie chart"
    y = put_title(rng, canvas, style, data)
    small = style.family.regular(max(10, style.size))
    mode = rng.choice(("slices", "legend", "slices"))
    pie, legend = _places(style, small, data.categories, y)
    about = _free_radius(style, small, data.categories, style.height - style.margin - y)
    if rng.random() < 0.3 and about >= 45 and min(shares) >= 6:
        middle = (y + style.height - style.margin) / 2
        mode, pie = "around", Pie(style.width / 2, middle, about)
    pie = replace(pie, radius=max(pie.radius, 20), start=rng.uniform(0, 360))
    end = _slices(canvas, style, data, shares, pie)
    if ring:
        hole = pie.radius * rng.uniform(0.35, 0.5)
        canvas.draw.ellipse(pie.square(hole), fill=style.theme.page)
    shown = mode in ("legend", "around")
    if mode == "around":
        _name_around(canvas, style, small, data, shares, (pie.x, pie.y, pie.radius, end))
    if mode == "slices":
        shown = all(s >= 6 for s in shares) and pie.radius > small.width("100%") * 1.5
        if shown:
            _figures(canvas, small, data, replace(pie, start=end), 0.72 if ring else 0.66)
    if mode != "around":
        _legend(canvas, small, data, legend, style.theme.ink, mode == "legend")
    return canvas.document(_questions(rng, data, shown))


@dataclass(frozen=True)
class Pie:
    """A pie's geometry: its centre and radius in pixels, and the start of its first slice."""

    x: float
    y: float
    radius: float
    start: float = 0.0  # degrees

    def square(self, radius: float) -> tuple[float, float, float, float]:
        """The square around a circle of `radius` in its middle."""
        return self.x - radius, self.y - radius, self.x + radius, self.y + radius


def _shares(rng: random.Random, n: int) -> list[int]:
    """`n` different percentages that add up to 100."""
    parts = [rng.uniform(1, 4) ** 1.5 + 0.5 * i for i in range(n)]
    rng.shuffle(parts)
    shares = [round(100 * p / sum(parts)) for p in parts]
    shares[shares.index(max(shares))] += 100 - sum(shares)
    return shares if len(set(shares)) == n else _distinct(n, rng)


def _places(
    style: PageStyle, face: Face, names: list[str], y: float
) -> tuple[Pie, tuple[float, float]]:
    """The pie below `y` with its legend beside it where there is room, else under it."""
    n, bottom = len(names), style.height - style.margin
    wide = max(face.width(name + " (100%)") for name in names) + face.line
    if style.width >= style.height and wide < style.width * 0.5:
        radius = min((style.width - wide - 2 * style.margin) / 2.15, (bottom - y) / 2.05)
        x, middle = style.margin + radius, (y + bottom) / 2
        return Pie(x, middle, radius), (x + radius + face.line * 0.8, middle - n * face.line * 0.65)
    radius = min(style.width / 2.3, (bottom - y - n * face.line * 1.3) / 2.1)
    left = max(style.margin, style.width / 2 - wide / 2)
    return Pie(style.width / 2, y + radius, radius), (left, y + 2 * radius + 6)


def _slices(
    canvas: Canvas, style: PageStyle, data: ChartData, shares: list[int], pie: Pie
) -> float:
    """Draw the slices; returns the angle at which the last one ends."""
    angle = pie.start
    for i, share in enumerate(shares):
        end = angle + share * 3.6
        ink = data.colours[i][1]
        canvas.draw.pieslice(pie.square(pie.radius), angle, end, ink, style.theme.page)
        angle = end
    return angle


def _figures(canvas: Canvas, face: Face, data: ChartData, pie: Pie, out: float) -> None:
    """Write each share on its slice, at a share `out` of the radius."""
    angle, at = pie.start, pie.radius * out
    for i, share in enumerate(data.values[0]):
        middle = math.radians(angle + share * 1.8)
        x, y = pie.x + at * math.cos(middle), pie.y + at * math.sin(middle) - face.line / 2
        canvas.text(x, y, data.text(0, i), face, ink_on(data.colours[i][1]), "centre")
        angle += share * 3.6


def _legend(
    canvas: Canvas,
    face: Face,
    data: ChartData,
    corner: tuple[float, float],
    ink: Colour,
    figures: bool,
) -> None:
    """The names beside their colours, from `corner` down, with their shares or without."""
    (x, y), mark = corner, face.ascent * 0.7
    for i, name in enumerate(data.categories):
        top = y + i * face.line * 1.3
        middle = top + face.ascent * 0.3
        canvas.box(x, middle, x + mark, middle + mark, data.colours[i][1])
        text = f"{name} ({data.text(0, i)})" if figures else name
        canvas.text(x + mark + 6, top, text, face, ink)


def _questions(rng: random.Random, data: ChartData, shown: bool) -> list[Question]:
    n, out = len(data.categories), chart_questions(rng, data, shown, coloured=False)
    for i in rng.sample(range(n), 2 if shown else 0):
        colour = data.colours[i][0]
        out.append(ask(rng, "coloured", data.text(0, i), kind="value", n="slice", c=colour))
    for i in rng.sample(range(n), 2):
        name, colour = data.categories[i], data.colours[i][0]
        out.append(ask(rng, "colour", colour, f=name))
        out.append(ask(rng, "by_colour", name, kind="colour", n="slice", c=colour))
    return [*out, worded(rng, "count", str(n), *SLICES)]


def _free_radius(style: PageStyle, face: Face, names: list[str], height: float) -> float:
    """The radius of a pie that leaves room for `names` and shares at both sides of it."""
    wide = max(face.width(name + " 100%") for name in names) + 8
    return min((style.width - 2 * style.margin) / 2 - wide, height / 2 - face.line * 1.4)


def _name_around(
    canvas: Canvas, style: PageStyle, face: Face, data: ChartData, shares: list[int],
    pie: tuple[float, float, float, float],
) -> None:  # fmt: skip
    """Each name and share outside its slice; pie: centre, radius, first angle in degrees."""
    cx, cy, radius, angle = pie
    for name, share in zip(data.categories, shares, strict=True):
        middle = math.radians(angle + share * 1.8)
        x, y = cx + radius * 1.06 * math.cos(middle), cy + radius * 1.06 * math.sin(middle)
        top = y - face.line * (0.5 - 0.5 * math.sin(middle))
        align = "left" if math.cos(middle) >= 0 else "right"
        canvas.text(x, top, f"{name} {share}%", face, style.theme.ink, align)
        angle += share * 3.6


def _distinct(n: int, rng: random.Random) -> list[int]:
    """`n` different shares that add up to 100."""
    base = [100 // n + 2 * (i - n // 2) for i in range(n)]
    base[-1] += 100 - sum(base)
    rng.shuffle(base)
    return base
