"""Labelled meters: progress bars, polls and scores in rows, the figure beside or inside the bar."""

import random

from pocket.content import words
from pocket.content.charts import make_chart
from pocket.content.colours import series_colours
from pocket.document import Document
from pocket.layouts.pillow.axes import put_title
from pocket.layouts.pillow.canvas import blank_page
from pocket.layouts.style import PageStyle
from pocket.questions.charts import chart_questions
from pocket.questions.templates import ask


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One panel of meters."""
    canvas, t, m = blank_page(style), style.theme, style.margin
    data = make_chart(rng, 2, 1, "progress bars", top=100)
    y = put_title(rng, canvas, style, data)
    face, small = style.family.regular(style.size), style.family.regular(max(10, style.size * 0.9))
    above = rng.random() < 0.5
    thick = rng.uniform(0.35, 1.1) * style.size
    pitch = (
        face.line * 1.1 + thick if above else max(face.line, thick)
    ) + style.size * rng.uniform(0.4, 1.4)
    n = max(1, min(10, int((style.height - m - y) / pitch)))
    n = rng.randint(max(1, n // 2), n)
    data.categories = words.unique(rng, words.label, n)
    data.values = [[float(v) for v in rng.sample(range(1, 100), n)]]
    percent = rng.random() < 0.7
    data.texts = [[f"{int(v)}%" if percent else f"{int(v)}/100" for v in data.values[0]]]
    data.suffix = "%" if percent else ""
    colours = series_colours(rng, min(n, 10)) if rng.random() < 0.35 else []
    names = 0 if above else max(face.width(c) for c in data.categories) + 10
    figures = max(small.width(x) for x in data.texts[0]) + 10
    x0, x1 = m + names, style.width - m - (0 if above else figures)
    if x1 - x0 < 40:
        x0, names, above = float(m), 0, True
        x1 = style.width - m
    radius = int(thick / 2) if rng.random() < 0.6 else 0
    for i, name in enumerate(data.categories):
        colour = colours[i % len(colours)][1] if colours else t.accent
        bar = y + (face.line * 1.1 if above else (max(face.line, thick) - thick) / 2)
        canvas.text(
            m, y if above else y + (max(face.line, thick) - face.line) / 2, name, face, t.ink
        )
        canvas.box(x0, bar, x1, bar + thick, fill=t.rule, radius=radius)
        end = x0 + (x1 - x0) * data.values[0][i] / 100
        canvas.box(x0, bar, max(end, x0 + 2 * radius + 1), bar + thick, fill=colour, radius=radius)
        canvas.text(
            style.width - m,
            y if above else y + (max(face.line, thick) - small.line) / 2,
            data.texts[0][i],
            small,
            t.ink,
            "right",
        )
        y += pitch
    if n == 1:
        return canvas.document([ask(rng, "value", data.texts[0][0], f=data.categories[0])])
    out = chart_questions(rng, data, True, coloured=False)
    if colours and n <= len(colours):
        i = rng.randrange(n)
        out.append(ask(rng, "colour", colours[i][0], f=f"the bar of {data.categories[i]}"))
    return canvas.document(out)
