"""HTML and SVG charts, as web libraries draw them."""

import math
import random

from pocket.content.charts import make_chart, nice_step
from pocket.content.colours import series_colours
from pocket.layouts.html.parts import E, Made, css, heading
from pocket.layouts.style import PageStyle
from pocket.questions.charts import chart_questions
from pocket.questions.templates import ask


def meters(rng: random.Random, style: PageStyle, size: float) -> Made:
    """Horizontal bars made of boxes."""
    n = max(2, min(9, int(size * style.room * 0.4)))
    data = make_chart(rng, n, 1, "horizontal bar chart", top=100)
    colours = [css(c) for _, c in series_colours(rng, n)] if rng.random() < 0.4 else []
    rows = ""
    for i, name in enumerate(data.categories):
        tint = f";background:{colours[i]}" if colours else ""
        bar = f"<div class=bar style='width:{data.values[0][i]:.0f}%{tint}'></div>"
        rows += (
            f"<tr><td style='width:1%;white-space:nowrap'>{E(name)}</td><td>"
            f"{bar}</td><td class=n style='width:1%;white-space:nowrap'>"
            f"{E(data.text(0, i))}</td></tr>"
        )
    return f"{heading(rng, data.title)}<table style='width:100%'>{rows}</table>", chart_questions(
        rng, data, True, coloured=False
    )


def columns(rng: random.Random, style: PageStyle, size: float) -> Made:
    """An SVG column or line chart with axis, grid and legend, as web libraries draw them."""
    series, n = rng.choice((1, 1, 2, 3)), rng.randint(3, max(3, min(8, style.width // 90)))
    line = rng.random() < 0.4
    data = make_chart(
        rng,
        n,
        series,
        "line chart" if line else "bar chart" if series == 1 else "grouped bar chart",
    )
    w, h = (
        style.width - 2 * style.margin,
        int((style.height - 2 * style.margin) * size) - int(style.size * 5),
    )
    x0, y1 = 20 + style.size * 0.6 * len(data.texts[0][0]), h - style.size * 1.8
    top = max(map(max, data.values)) * 1.18
    step = nice_step(top, 5)
    t, out, slot = style.theme, [], (w - x0) / n
    value = 0.0
    while value <= top:
        y = y1 * (1 - value / top) + 4
        mark = f"{value:,.0f}" if step == int(step) else f"{value:g}"
        out.append(
            f"<line x1={x0} x2={w} y1={y:.1f} y2={y:.1f} "
            f"stroke='{css(t.rule)}'/><text x={x0 - 6:.0f} "
            f"y={y + style.size * 0.35:.1f} text-anchor=end "
            f"fill='{css(t.muted)}'>{mark}{data.suffix}</text>"
        )
        value += step
    shown = rng.random() < 0.7 and (series == 1 or not line)
    letter, longest = style.size * (1 if series == 1 else 0.8), max(map(len, sum(data.texts, [])))
    shown = shown and longest * 0.62 * letter < slot * (1 if series == 1 else 0.75 / series)
    small = f"{letter:.1f}px"
    for s in range(series):
        colour, points = css(data.colours[s][1]), []
        for c in range(n):
            y = y1 * (1 - data.values[s][c] / top) + 4
            wide = slot * 0.75 / (1 if line else series)
            x = x0 + slot * (c + 0.5) if line else x0 + slot * (c + 0.125) + wide * (s + 0.5)
            points.append(f"{x:.1f},{y:.1f}")
            if line:
                out.append(f"<circle cx={x:.1f} cy={y:.1f} r=3 fill='{colour}'/>")
            else:
                out.append(
                    f"<rect x={x - wide / 2:.1f} y={y:.1f} "
                    f"width={wide * 0.92:.1f} height={y1 + 4 - y:.1f} "
                    f"fill='{colour}'/>"
                )
            if shown:
                out.append(
                    f"<text x={x:.1f} y={y - 5:.1f} text-anchor=middle "
                    f"font-size='{small}' fill='{css(t.ink)}'>"
                    f"{E(data.text(s, c))}</text>"
                )
        if line:
            out.append(
                f"<polyline points='{' '.join(points)}' fill=none "
                f"stroke='{colour}' stroke-width=2 />"
            )
    for c, name in enumerate(data.categories):
        out.append(
            f"<text x={x0 + slot * (c + 0.5):.1f} y={h - 4} text-anchor=middle "
            f"fill='{css(t.ink)}'>{E(name)}</text>"
        )
    legend = (
        "".join(
            f"<span style='margin-right:1em'><span style='display:inline-block;"
            f"width:.8em;height:.8em;background:{css(data.colours[s][1])}'>"
            f"</span> {E(name)}</span>"
            for s, name in enumerate(data.series)
        )
        if series > 1
        else ""
    )
    text = (
        f"{heading(rng, data.title)}<div class=small>{legend}</div><svg width={w} "
        f"height={h} style='display:block'>{''.join(out)}</svg>"
    )
    return text, chart_questions(rng, data, shown)


def pie(rng: random.Random, style: PageStyle, size: float) -> Made:
    """An SVG pie or ring with its legend."""
    n = rng.randint(2, 6)
    shares = sorted(rng.sample(range(1, 100), n - 1))
    parts = [b - a for a, b in zip([0, *shares], [*shares, 100], strict=True)]
    if len(set(parts)) < n or min(parts) < 3:
        return pie(rng, style, size)
    data = make_chart(rng, n, 1, "pie chart", top=100)
    data.values, data.texts = [[float(p) for p in parts]], [[f"{p}%" for p in parts]]
    data.colours = series_colours(rng, n)
    side = int(min(style.width * 0.5, style.height * 0.62) * size)
    r, at, slices = side / 2, rng.uniform(0, 6.28), ""
    for p, (_, colour) in zip(parts, data.colours, strict=True):
        end = at + p / 100 * 2 * math.pi
        x0, y0, x1, y1 = (r + r * f(a) for a in (at, end) for f in (math.cos, math.sin))
        slices += (
            f"<path "
            f"d='M{r},{r} L{x0:.1f},{y0:.1f} A{r},{r} 0 {int(p > 50)} 1 {x1:.1f},{y1:.1f} Z' "
            f"fill='{css(colour)}'/>"
        )
        at = end
    hole = (
        f"<circle cx={r} cy={r} r={r * 0.5} fill='{css(style.theme.page)}'/>"
        if rng.random() < 0.4
        else ""
    )
    rows = "".join(
        f"<div><span style='display:inline-block;width:.8em;height:.8em;"
        f"background:{css(c)}'></span> {E(name)} {p}%</div>"
        for name, p, (_, c) in zip(data.categories, parts, data.colours, strict=True)
    )
    text = (
        f"{heading(rng, data.title)}<div style='display:flex;gap:1em;"
        f"align-items:center;flex-wrap:wrap'><svg width={side} height={side}>"
        f"{slices}{hole}</svg><div>{rows}</div></div>"
    )
    out = chart_questions(rng, data, True, coloured=False)
    for i in rng.sample(range(n), 2):
        out.append(ask(rng, "colour", data.colours[i][0], f=data.categories[i]))
    return text, out
