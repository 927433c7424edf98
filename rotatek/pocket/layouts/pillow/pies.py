"""Pie and ring charts with a legend or labels around."""

import math
import random

from rotatek.pocket.content.charts import ChartData, ChartMaker, make_chart
from rotatek.pocket.content.colours import ink_on, series_colours
from rotatek.pocket.document import Document, Question
from rotatek.pocket.layouts.fonts import Face
from rotatek.pocket.layouts.pillow.axes import put_title
from rotatek.pocket.layouts.pillow.canvas import Canvas, blank_page
from rotatek.pocket.layouts.style import PageStyle
from rotatek.pocket.questions.charts import chart_questions
from rotatek.pocket.questions.templates import ask


def draw(rng: random.Random, style: PageStyle, make: ChartMaker = make_chart) -> Document:
    """One pie; its shares are written on the slices or in the legend."""
    canvas, t = blank_page(style), style.theme
    n = rng.randint(2, 6 if style.width > 300 else 4)
    data = make(rng, n, 1, "pie chart", top=100)
    parts = [rng.uniform(1, 4) ** 1.5 + 0.5 * i for i in range(n)]
    rng.shuffle(parts)
    shares = [round(100 * p / sum(parts)) for p in parts]
    shares[shares.index(max(shares))] += 100 - sum(shares)
    if len(set(shares)) < n:
        shares = [s + i * 0 for i, s in enumerate(_distinct(n, rng))]
    data.values = [[float(s) for s in shares]]
    data.texts = [[f"{s}%" for s in shares]]
    data.colours = series_colours(rng, n)
    ring = rng.random() < 0.3
    data.kind = "ring chart" if ring else "pie chart"
    y = put_title(rng, canvas, style, data)
    small = style.family.regular(max(10, style.size))
    mode = rng.choice(("slices", "legend", "slices"))
    wide = style.width >= style.height
    names = max(small.width(c + " (100%)") for c in data.categories) + small.line
    bottom = style.height - style.margin
    if wide and names < style.width * 0.5:
        radius = min((style.width - names - 2 * style.margin) / 2.15, (bottom - y) / 2.05)
        cx, cy = style.margin + radius, (y + bottom) / 2
        lx, ly = cx + radius + small.line * 0.8, cy - n * small.line * 0.65
    else:
        radius = min(style.width / 2.3, (bottom - y - n * small.line * 1.3) / 2.1)
        cx, cy = style.width / 2, y + radius
        lx, ly = max(style.margin, style.width / 2 - names / 2), y + 2 * radius + 6
    about = _free_radius(style, small, data.categories, bottom - y)
    if rng.random() < 0.3 and about >= 45 and min(shares) >= 6:
        mode, radius, cx, cy = "around", about, style.width / 2, (y + bottom) / 2
    radius = max(radius, 20)
    angle = rng.uniform(0, 360)
    for i, share in enumerate(shares):
        end = angle + share * 3.6
        box = (cx - radius, cy - radius, cx + radius, cy + radius)
        canvas.draw.pieslice(box, angle, end, fill=data.colours[i][1], outline=t.page)
        angle = end
    if ring:
        hole = radius * rng.uniform(0.35, 0.5)
        canvas.draw.ellipse((cx - hole, cy - hole, cx + hole, cy + hole), fill=t.page)
    shown = mode in ("legend", "around")
    if mode == "around":
        _name_around(canvas, style, small, data, shares, (cx, cy, radius, angle))
    if mode == "slices":
        shown = all(s >= 6 for s in shares) and radius > small.width("100%") * 1.5
        angle_now = angle
        for i, share in enumerate(shares):
            if not shown:
                break
            middle = math.radians(angle_now + share * 1.8)
            at = radius * (0.72 if ring else 0.66)
            px, py = cx + at * math.cos(middle), cy + at * math.sin(middle)
            canvas.text(
                px, py - small.line / 2, f"{share}%", small, ink_on(data.colours[i][1]), "centre"
            )
            angle_now += share * 3.6
    mark = small.ascent * 0.7
    for i, name in enumerate(data.categories if mode != "around" else ()):
        text = f"{name} ({shares[i]}%)" if mode == "legend" else name
        top = ly + i * small.line * 1.3
        canvas.box(
            lx,
            top + small.ascent * 0.3,
            lx + mark,
            top + small.ascent * 0.3 + mark,
            data.colours[i][1],
        )
        canvas.text(lx + mark + 6, top, text, small, t.ink)
    out = chart_questions(rng, data, shown, coloured=False)
    for i in rng.sample(range(n), 2 if shown else 0):
        colour = data.colours[i][0]
        out.append(ask(rng, "coloured", data.text(0, i), kind="value", n="slice", c=colour))
    for i in rng.sample(range(n), 2):
        out.append(ask(rng, "colour", data.colours[i][0], f=data.categories[i]))
        out.append(
            ask(
                rng, "by_colour", data.categories[i], n="slice", c=data.colours[i][0], kind="colour"
            )
        )
    out.append(
        Question(
            "count",
            rng.choice(
                (
                    "How many slices are there?",
                    "how many slices",
                    "How many parts does the chart have?",
                )
            ),
            str(n),
        )
    )
    return canvas.document(out)


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
