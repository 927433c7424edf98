"""Bar charts: upright or lying, one series or grouped, with values on the bars or on an axis."""

import random

from pocket.content import lexicon
from pocket.content.charts import ChartData, ChartMaker, make_chart, nice_step
from pocket.content.colours import Colour, ink_on, series_colours
from pocket.document import Document
from pocket.layouts.fonts import Face
from pocket.layouts.pillow.axes import Frame, ground, put_legend, put_title, side_legend
from pocket.layouts.pillow.canvas import Canvas, blank_page
from pocket.layouts.style import PageStyle
from pocket.questions.charts import chart_questions
from pocket.questions.templates import ask


def draw(rng: random.Random, style: PageStyle, make: ChartMaker = make_chart) -> Document:
    """One bar chart."""
    canvas = blank_page(style)
    series = rng.choice((1, 1, 1, 2, 2, 3)) if style.width >= 280 else 1
    lying = rng.random() < 0.35
    side = style.height if lying else style.width
    n = max(2, min(rng.randint(2, 10), int(side / (style.size * (3.2 + series)))))
    if style.height < 260 and not lying:
        n = min(n, 4)
    kind = "horizontal bar chart" if lying else "bar chart"
    stacked = series > 1 and not lying and rng.random() < 0.35
    sort = "stacked " if stacked else "grouped " if series > 1 else ""
    data = make(rng, n, series, sort + kind)
    if series == 1 and rng.random() < 0.5:
        data.colours = data.colours * n
    elif series == 1:
        data.colours = series_colours(rng, n) if n <= 10 else data.colours * n
    y = put_title(rng, canvas, style, data)
    shown, rest = rng.random() < 0.75, style
    if series > 1 and rng.random() < 0.4:
        rest, y = side_legend(canvas, style, data, y)
    elif series > 1:
        y = put_legend(canvas, style, data.series, [c for _, c in data.colours], y)
    if lying:
        _lying(rng, canvas, rest, data, y, shown)
    else:
        shown = _upright(rng, canvas, rest, data, y, shown, stacked)
    out = chart_questions(rng, data, shown, coloured=series > 1)
    if series == 1 and len({c for c, _ in data.colours[:n]}) == n:
        for i in rng.sample(range(n), min(n, 2)):
            name, colour = data.categories[i], data.colours[i][0]
            out.append(ask(rng, "colour", colour, f=f"the bar for {name}"))
            out.append(ask(rng, "by_colour", name, n="bar", c=colour, kind="colour"))
            if shown:
                out.append(ask(rng, "coloured", data.text(0, i), kind="value", n="bar", c=colour))
    return canvas.document(out)


def _scale(data: ChartData, rng: random.Random) -> tuple[float, float]:
    """Top of the axis and distance between ticks."""
    piled = data.kind.startswith("stacked")
    each = [sum(c) for c in zip(*data.values, strict=True)] if piled else map(max, data.values)
    top = max(each) * rng.uniform(1.08, 1.25)
    step = nice_step(top, rng.choice((4, 5, 6)))
    return (int(top / step) + 1) * step, step


def tick(value: float, step: float, suffix: str) -> str:
    """A tick label."""
    return (f"{value:,.0f}" if step == int(step) else f"{value:,.4g}") + suffix


def _upright(
    rng: random.Random,
    canvas: Canvas,
    style: PageStyle,
    data: ChartData,
    y: float,
    shown: bool,
    stacked: bool,
) -> bool:
    """Draw upright bars; returns whether their figures are written."""
    t, small = style.theme, style.family.regular(max(10, style.size * rng.uniform(0.8, 1)))
    top, step = _scale(data, rng)
    axis = rng.random() < (0.6 if shown else 1)
    m = style.margin
    n, k = len(data.categories), len(data.series)
    wide = (style.width - 2.5 * m - 30) / n
    widest = max(small.width(c) for c in data.categories)
    turn = 0 if widest < wide * 0.98 else rng.choice((90, 45))
    below = small.line * 1.4 if not turn else widest * (1 if turn == 90 else 0.72) + small.line
    y1 = style.height - m - below
    names_y = y1 + small.line * 0.2
    if rng.random() < 0.3:
        data.x_label = rng.choice(
            ("Year", "Region", "Group", "Category", "Month", lexicon.invented(rng))
        )
        canvas.text(
            style.width / 2, style.height - m - small.line, data.x_label, small, t.muted, "centre"
        )
        y1 -= small.line * 1.2
        names_y = y1 + small.line * 0.2
    x0 = m + (small.width(tick(top, step, data.suffix)) + 6 if axis else 2)
    if axis and rng.random() < 0.35:
        data.y_label = data.unit
        canvas.text_rotated(m + small.line / 2, (y + y1) / 2, data.y_label, small, t.muted, 90)
        x0 += small.line * 1.1
    frame = Frame(x0, y + small.line * 1.1, style.width - m, y1, 0, top)
    rule = ground(rng, canvas, style, frame)
    if axis:
        _value_axis(rng, canvas, frame, (step, data.suffix), (small, t.muted), rule)
    if stacked:
        shown = _pile(rng, canvas, style, data, frame, small, shown)
    slot = (frame.x1 - frame.x0) / n
    fill = rng.uniform(0.5, 0.9)
    width = slot * fill / k
    outline = t.ink if rng.random() < 0.2 else None
    inside = rng.random() < 0.15
    for c, name in enumerate(data.categories):
        left = frame.x0 + slot * (c + (1 - fill) / 2)
        for s in range(0 if stacked else k):
            colour = data.colours[s if k > 1 else c][1]
            bar_top = frame.y(data.values[s][c])
            canvas.box(
                left + s * width, bar_top, left + (s + 1) * width - 1, frame.y1, colour, outline
            )
            if not shown:
                continue
            text, middle = data.text(s, c), left + (s + 0.5) * width
            if small.width(text) > slot / k * 1.02:
                at = bar_top - small.width(text) / 2 - 4
                canvas.text_rotated(middle, max(at, small.width(text) / 2), text, small, t.ink, 90)
            elif inside and frame.y1 - bar_top > small.line * 1.3:
                canvas.text(middle, bar_top + 2, text, small, ink_on(colour), "centre")
            else:
                canvas.text(middle, bar_top - small.line * 1.02, text, small, t.ink, "centre")
        middle = frame.x0 + slot * (c + 0.5)
        if turn == 90:
            canvas.text_rotated(middle, names_y + small.width(name) / 2 + 2, name, small, t.ink, 90)
        elif turn == 45:
            half = small.width(name) * 0.354
            canvas.text_rotated(
                middle - half, names_y + half + small.line / 3, name, small, t.ink, 45
            )
        else:
            canvas.text(middle, names_y, name, small, t.ink, "centre")
    canvas.line([(frame.x0, frame.y1), (frame.x1, frame.y1)], t.ink)
    return shown


def _pile(
    rng: random.Random,
    canvas: Canvas,
    style: PageStyle,
    data: ChartData,
    frame: Frame,
    face: Face,
    shown: bool,
) -> bool:
    """Bars upon each other; returns whether every figure found room inside its part."""
    slot, fill = (frame.x1 - frame.x0) / len(data.categories), rng.uniform(0.45, 0.85)
    pixels = (frame.y1 - frame.y0) / frame.high
    least = min(map(min, data.values)) * pixels
    widest = max(face.width(t) for row in data.texts for t in row)
    shown = shown and least > face.line and widest < slot * fill
    for c in range(len(data.categories)):
        x0, foot = frame.x0 + slot * (c + (1 - fill) / 2), 0.0
        for s, (_, colour) in zip(range(len(data.series)), data.colours, strict=False):
            value = data.values[s][c]
            top = frame.y(foot + value)
            canvas.box(x0, top, x0 + slot * fill, frame.y(foot), fill=colour)
            if shown:
                middle = (top + frame.y(foot) - face.line) / 2
                at = x0 + slot * fill / 2
                canvas.text(at, middle, data.text(s, c), face, ink_on(colour), "centre")
            foot += value
    return shown


def _value_axis(
    rng: random.Random,
    canvas: Canvas,
    frame: Frame,
    ticks: tuple[float, str],
    pen: tuple[Face, Colour],
    rule: Colour,
) -> None:
    """Figures beside the plot area: `ticks` is their distance and suffix; at times a grid."""
    (step, suffix), (face, ink) = ticks, pen
    grid = rng.random() < 0.6
    value = frame.low
    while value <= frame.high + step * 1e-6:
        y = frame.y(value)
        if grid:
            canvas.line([(frame.x0, y), (frame.x1, y)], rule)
        text = tick(value, step, suffix)
        canvas.text(frame.x0 - 4, y - face.line / 2, text, face, ink, "right")
        value += step


def _lying(
    rng: random.Random, canvas: Canvas, style: PageStyle, data: ChartData, y: float, shown: bool
) -> None:
    t, small = style.theme, style.family.regular(max(10, style.size * rng.uniform(0.85, 1)))
    top, step = _scale(data, rng)
    m, n, k = style.margin, len(data.categories), len(data.series)
    names = max(small.width(c) for c in data.categories)
    axis = rng.random() < (0.4 if shown else 1)
    reserve = max(small.width(x) for row in data.texts for x in row) + 8 if shown else 8
    frame = Frame(
        m + names + 8,
        y,
        style.width - m - reserve,
        style.height - m - (small.line * 1.3 if axis else 2),
        0,
        top * 0.9,
    )
    if axis:
        value = 0.0
        while value <= frame.high + 1e-6:
            x = frame.x(value)
            canvas.line([(x, frame.y0), (x, frame.y1)], t.rule)
            canvas.text(x, frame.y1 + 2, tick(value, step, data.suffix), small, t.muted, "centre")
            value += step * (2 if (frame.x1 - frame.x0) * step / frame.high < 50 else 1)
    slot = (frame.y1 - frame.y0) / n
    fill = rng.uniform(0.5, 0.9)
    width = slot * fill / k
    for c, name in enumerate(data.categories):
        edge = frame.y0 + slot * (c + (1 - fill) / 2)
        canvas.text(
            frame.x0 - 6, frame.y0 + slot * (c + 0.5) - small.line / 2, name, small, t.ink, "right"
        )
        for s in range(k):
            x = frame.x(data.values[s][c])
            canvas.box(
                frame.x0,
                edge + s * width,
                x,
                edge + (s + 1) * width - 1,
                data.colours[s if k > 1 else c][1],
            )
            if shown and width > small.ascent * 0.8:
                canvas.text(
                    x + 4, edge + (s + 0.5) * width - small.line / 2, data.text(s, c), small, t.ink
                )
            elif shown:
                canvas.text(
                    x + 4,
                    edge + (s + 0.5) * width - 7,
                    data.text(s, c),
                    style.family.regular(10),
                    t.ink,
                )
    canvas.line([(frame.x0, frame.y0), (frame.x0, frame.y1)], t.ink)
