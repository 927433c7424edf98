"""Line charts: one to four series over ordered categories, with markers and point labels."""

import random

from pocket.content import formats
from pocket.content.charts import ChartMaker, make_chart, nice_step
from pocket.document import Document
from pocket.layouts.pillow.axes import Frame, ground, put_legend, put_title, side_legend
from pocket.layouts.pillow.bars import tick
from pocket.layouts.pillow.canvas import blank_page
from pocket.layouts.style import PageStyle
from pocket.questions.charts import chart_questions


def draw(rng: random.Random, style: PageStyle, make: ChartMaker = make_chart) -> Document:
    """One line chart; a series is named in a legend or at its end."""
    canvas, t = blank_page(style), style.theme
    series = rng.choice((1, 1, 2, 3)) if style.width >= 280 else 1
    small = style.family.regular(max(10, style.size * rng.uniform(0.8, 1)))
    n = max(3, min(rng.randint(3, 9), int(style.width / (small.width("000000") + 8))))
    data = make(rng, n, series, "line chart")
    start, step = rng.randint(1960, 2020), rng.choice((1, 1, 2, 5))
    if data.about is not None:
        pass  # its categories are the subject's
    elif rng.random() < 0.5:
        data.categories = [str(start + i * step) for i in range(n)]
    elif rng.random() < 0.5:
        data.categories = [formats.MONTHS[i % 12][:3] for i in range(n)]
    y = put_title(rng, canvas, style, data)
    if series > 1 and rng.random() < 0.4:
        style, y = side_legend(canvas, style, data, y)
    elif series > 1:
        y = put_legend(canvas, style, data.series, [c for _, c in data.colours], y)
    top = max(max(row) for row in data.values) * 1.15
    gap = nice_step(top, rng.choice((4, 5)))
    top = (int(top / gap) + 1) * gap
    x0 = style.margin + small.width(tick(top, gap, data.suffix)) + 6
    frame = Frame(
        x0,
        y + small.line,
        style.width - style.margin - 4,
        style.height - style.margin - small.line * 1.4,
        0,
        top,
    )
    value = 0.0
    rule = ground(rng, canvas, style, frame)
    grid = rng.random() < 0.7
    while value <= top + 1e-6:
        height = frame.y(value)
        if grid:
            canvas.line([(x0, height), (frame.x1, height)], rule)
        canvas.text(
            x0 - 4, height - small.line / 2, tick(value, gap, data.suffix), small, t.muted, "right"
        )
        value += gap
    slot = (frame.x1 - frame.x0) / n
    xs = [frame.x0 + slot * (i + 0.5) for i in range(n)]
    shown = series == 1 and rng.random() < 0.75
    thick, radius = rng.choice((1, 2, 2, 3)), rng.choice((0, 2, 3, 4))
    for s in range(series):
        colour = data.colours[s][1]
        points = [(xs[i], frame.y(data.values[s][i])) for i in range(n)]
        if series == 1 and rng.random() < 0.2:
            fill = tuple((a + 2 * b) // 3 for a, b in zip(colour, t.page, strict=True))
            canvas.draw.polygon([*points, (xs[-1], frame.y1), (xs[0], frame.y1)], fill=fill)
        canvas.line(points, colour, thick)
        for x, height in points:
            if radius:
                canvas.draw.ellipse(
                    (x - radius, height - radius, x + radius, height + radius), fill=colour
                )
        if shown:
            for i, (x, height) in enumerate(points):
                canvas.text(
                    x, height - small.line - radius - 2, data.text(s, i), small, t.ink, "centre"
                )
    canvas.line([(frame.x0, frame.y1), (frame.x1, frame.y1)], t.ink)
    fits = max(small.width(c) for c in data.categories) < slot
    for x, name in zip(xs, data.categories, strict=True):
        if fits:
            canvas.text(x, frame.y1 + 3, name, small, t.ink, "centre")
        else:
            canvas.text_rotated(x, frame.y1 - small.width(name) / 2 - 4, name, small, t.muted, 90)
    return canvas.document(chart_questions(rng, data, shown))
