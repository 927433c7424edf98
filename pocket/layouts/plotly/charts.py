"""Charts for plotly.js, described as data and layout; a browser draws them."""

import importlib.util
import json
import random
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from pocket.content import words
from pocket.content.charts import ChartData, make_chart
from pocket.content.colours import series_colours
from pocket.content.tables import Grid, make_grid
from pocket.document import Question
from pocket.layouts.html.parts import css
from pocket.layouts.style import PageStyle
from pocket.questions.charts import Asker, asker
from pocket.questions.tables import table_questions
from pocket.questions.templates import ask

TEMPLATES: Final = (
    "plotly", "plotly", "plotly", "plotly_white", "plotly_dark", "ggplot2", "seaborn",
    "simple_white", "presentation",
)  # fmt: skip
Figure = tuple[dict[str, Any], Asker]


def package_data() -> Path:
    """The folder of plotly.js and its templates in plotly's Python package, which is not
    imported."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise RuntimeError("Charts by plotly.js need the plotly package. Install it.")
    return Path(spec.origin).parent / "package_data"


@lru_cache(maxsize=1)
def templates() -> dict[str, Any]:
    """The named templates."""
    folder = package_data() / "templates"
    return {n: json.loads((folder / f"{n}.json").read_text("utf-8")) for n in set(TEMPLATES)}


def figure(rng: random.Random, style: PageStyle, font: str) -> Figure:
    """One chart that fills the page, and what asks about it once its texts are known."""
    make = rng.choice((_bars, _bars, _bars, _lines, _lines, _pie, _scatter, _heat, _sheet))
    traces, layout, ask_about = make(rng, style)
    layout["template"] = templates()[rng.choice(TEMPLATES)]
    layout |= {"width": style.width, "height": style.height}
    layout["font"] = {"size": round(max(10, style.size * 0.9))}
    if rng.random() < 0.5:
        layout["font"]["family"] = font
    if layout.get("title"):
        anchor = rng.choice(("left", "center"))
        layout["title"] |= {"x": 0.05 if anchor == "left" else 0.5, "xanchor": anchor}
    if rng.random() < 0.5:
        layout["margin"] = {side: rng.randint(30, 70) for side in "lrb"} | {"t": 60}
    legend = rng.choice(({}, {}, {"orientation": "h"}, {"x": 0.02, "y": 0.98}, {"x": 1.02}))
    layout["legend"] = dict(legend)
    return {"data": traces, "layout": layout}, ask_about


def _axes(rng: random.Random, data: ChartData, lying: bool = False) -> dict[str, Any]:
    """Layout of a chart with axes; notes their labels in `data`."""
    layout: dict[str, Any] = {}
    if rng.random() < 0.85:
        layout["title"] = {"text": data.title}
    else:
        data.title = ""
    one, other = ("y", "x") if lying else ("x", "y")
    layout[one + "axis"] = {"type": "category", "tickmode": "linear", "dtick": 1}
    layout[other + "axis"] = {"ticksuffix": data.suffix, "automargin": True}
    layout[one + "axis"]["automargin"] = True
    if rng.random() < 0.5:
        name = rng.choice(("Year", "Region", "Group", words.some(rng, 1, 2)))
        layout[one + "axis"]["title"] = {"text": name}
        layout[other + "axis"]["title"] = {"text": data.unit}
        pair = (data.unit, name) if lying else (name, data.unit)
        data.x_label, data.y_label = pair
    if rng.random() < 0.4:
        layout["xaxis"]["tickangle"] = rng.choice((0, -30, -45, -90, 45))
    if rng.random() < 0.15:
        layout[other + "axis"]["tickformat"] = rng.choice((",", ".0f", ",.1f"))
    if rng.random() < 0.2:
        layout[other + "axis"]["showgrid"] = False
    return layout


def _coloured(rng: random.Random, data: ChartData) -> bool:
    return rng.random() < 0.55 and len(data.series) <= len(data.colours)


def _bars(rng: random.Random, style: PageStyle) -> tuple[list[dict], dict, Asker]:
    series, lying = rng.choice((1, 1, 1, 2, 2, 3, 4)), rng.random() < 0.35
    stacked = series > 1 and rng.random() < 0.4
    side = style.height if lying else style.width
    n = rng.randint(2, max(2, min(10, int(side / (34 + 22 * series * (not stacked))))))
    kind = ("stacked " if stacked else "grouped " if series > 1 else "") + (
        "horizontal bar chart" if lying else "bar chart"
    )
    data = make_chart(rng, n, series, kind)
    layout, coloured = _axes(rng, data, lying), _coloured(rng, data)
    layout["barmode"] = "stack" if stacked else "group"
    layout["bargap"] = rng.uniform(0.1, 0.5)
    shown, traces = rng.random() < 0.7, []
    for s in range(series):
        cats, values, written = data.categories, data.values[s], data.texts[s]
        if lying:  # plotly counts upwards, people read downwards
            cats, values, written = cats[::-1], values[::-1], written[::-1]
        trace: dict[str, Any] = {"type": "bar", "name": data.series[s]}
        trace |= {"x": values, "y": cats, "orientation": "h"} if lying else {"x": cats, "y": values}
        if shown:
            place = "inside" if stacked else rng.choice(("outside", "auto", "outside"))
            trace |= {"text": written, "textposition": place, "constraintext": "none"}
            trace |= {"cliponaxis": False, "textangle": 0}
        if coloured:
            trace["marker"] = {"color": css(data.colours[s][1])}
        traces.append(trace)
    return traces, layout, asker(rng, data, shown, coloured and series > 1)


def _lines(rng: random.Random, style: PageStyle) -> tuple[list[dict], dict, Asker]:
    series, n = rng.choice((1, 2, 2, 3)), rng.randint(3, max(4, min(10, style.width // 60)))
    area = rng.random() < 0.2
    data = make_chart(rng, n, series, "area chart" if area else "line chart")
    start = rng.randint(1950, 2015)
    if rng.random() < 0.5:
        data.categories = [str(start + i) for i in range(n)]
    layout, coloured = _axes(rng, data), _coloured(rng, data)
    shown, traces = series == 1 and rng.random() < 0.5, []
    for s in range(series):
        mode = rng.choice(("lines", "lines+markers", "lines+markers"))
        line = {"shape": rng.choice(("linear", "linear", "spline")), "dash": "solid"}
        if rng.random() < 0.2:
            line["dash"] = rng.choice(("dot", "dash"))
        trace: dict[str, Any] = {"type": "scatter", "name": data.series[s], "line": line}
        trace |= {"x": data.categories, "y": data.values[s], "mode": mode + "+text" * shown}
        if shown:
            trace |= {"text": data.texts[s], "textposition": "top center", "cliponaxis": False}
        if coloured:
            line["color"] = css(data.colours[s][1])
        if area:
            trace["fill"] = "tozeroy"
        traces.append(trace)
    if series == 1 and area:
        layout["showlegend"] = False
    return traces, layout, asker(rng, data, shown, coloured and series > 1)


def _pie(rng: random.Random, style: PageStyle) -> tuple[list[dict], dict, Asker]:
    n = rng.randint(2, 7)
    data = make_chart(rng, n, 1, "pie chart", top=100)
    cuts = sorted(rng.sample(range(1, 33), n - 1))
    parts = [3 * (b - a) for a, b in zip([0, *cuts], [*cuts, 33], strict=True)]
    parts = [p + i for i, p in enumerate(sorted(parts))]
    parts[-1] += 100 - sum(parts)
    rng.shuffle(parts)
    if min(parts) < 3 or len(set(parts)) < n:
        return _pie(rng, style)
    data.values, data.texts = [[float(p) for p in parts]], [[f"{p}%" for p in parts]]
    data.colours = series_colours(rng, n)
    hole = rng.choice((0, 0, 0.3, 0.5))
    data.kind = "ring chart" if hole else "pie chart"
    beside = rng.random() < 0.35
    trace: dict[str, Any] = {"type": "pie", "labels": data.categories, "values": parts}
    trace |= {"hole": hole, "sort": False, "rotation": rng.randint(0, 359)}
    trace["textinfo"] = "label+percent" if beside else rng.choice(("percent", "percent", "none"))
    trace["textposition"] = rng.choice(("inside", "outside")) if not beside else "outside"
    if coloured := rng.random() < 0.8:
        trace["marker"] = {"colors": [css(c) for _, c in data.colours]}
    layout: dict[str, Any] = {"showlegend": not beside}
    if rng.random() < 0.8:
        layout["title"] = {"text": data.title}
    else:
        data.title = ""
    inner = asker(rng, data, trace["textinfo"] != "none", False)

    def build(texts: list[str]) -> list[Question]:
        parts_of = [p for t in texts for p in (t, t.removesuffix("%") and t)]
        out = inner(parts_of)
        for i in rng.sample(range(n), 2) if coloured and len(out) > 1 else ():
            name, colour = data.categories[i], data.colours[i][0]
            out.append(ask(rng, "colour", colour, f=name))
            out.append(ask(rng, "by_colour", name, n="slice", c=colour, kind="colour"))
        return out

    return [trace], layout, build


def _scatter(rng: random.Random, style: PageStyle) -> tuple[list[dict], dict, Asker]:
    groups = rng.choice((1, 2, 3, 4))
    data = make_chart(rng, 2, groups, "scatter plot")
    layout, coloured = _axes(rng, data), rng.random() < 0.7
    layout["xaxis"] |= {"type": "linear", "tickmode": "auto", "dtick": None}
    traces = []
    for s in range(groups):
        xs = [rng.uniform(0, 100) for _ in range(rng.randint(4, 25))]
        marker: dict[str, Any] = {"size": rng.randint(5, 14)}
        if coloured:
            marker["color"] = css(data.colours[s][1])
        trace = {"type": "scatter", "mode": "markers", "name": data.series[s], "marker": marker}
        traces.append(trace | {"x": xs, "y": [rng.uniform(0, 100) for _ in xs]})

    def build(texts: list[str]) -> list[Question]:
        out = [ask(rng, "kind", "scatter plot")]
        for form, slot, text in (
            ("title", "", data.title), ("axis", "x", data.x_label), ("axis", "y", data.y_label)
        ):  # fmt: skip
            if text and text in texts:
                out.append(ask(rng, form, text, kind="title", f=slot))
        if groups > 1 and set(data.series) <= set(texts):
            i = rng.randrange(groups)
            out.append(ask(rng, "count", str(groups), n=rng.choice(("series", "groups"))))
            out.append(ask(rng, "legend", ", ".join(data.series), kind="list"))
            if coloured:
                name, colour = data.series[i], data.colours[i][0]
                out.append(ask(rng, "colour", colour, f=name))
                out.append(ask(rng, "by_colour", name, n="group", c=colour, kind="colour"))
        return out

    return traces, layout, build


def _heat(rng: random.Random, style: PageStyle) -> tuple[list[dict], dict, Asker]:
    """A heat map with its figures printed: a table by other means."""
    n, rows = rng.randint(2, max(2, style.width // 110)), rng.randint(2, max(2, style.height // 90))
    n, rows = min(n, 6), min(rows, 7)
    grid = Grid(["Row", *words.unique(rng, words.label, n)], [], {})
    values = [[rng.randint(0, 999) / rng.choice((1, 10)) for _ in range(n)] for _ in range(rows)]
    for name, row in zip(words.unique(rng, words.label, rows), values, strict=True):
        grid.rows.append([name, *(f"{v:g}" for v in row)])
    trace: dict[str, Any] = {
        "type": "heatmap",
        "x": grid.headers[1:],
        "y": [r[0] for r in grid.rows][::-1],
    }
    trace |= {"z": values[::-1], "text": [r[1:] for r in grid.rows][::-1]}
    trace |= {"texttemplate": "%{text}", "showscale": rng.random() < 0.5}
    trace["colorscale"] = rng.choice(("Blues", "Viridis", "RdBu", "Greys", "YlGnBu", "Hot"))
    axis = {"type": "category", "automargin": True, "tickmode": "linear", "dtick": 1}
    layout: dict[str, Any] = {"xaxis": axis, "yaxis": dict(axis)}
    title = words.title(rng)
    layout["title"] = {"text": title}

    def build(texts: list[str]) -> list[Question]:
        if not {x for row in (grid.headers[1:], *grid.rows) for x in row} <= set(texts):
            return []
        out = [q for q in table_questions(rng, grid, title if title in texts else "")
               if q.kind in ("cell", "title", "absent", "reverse", "yes_no")]  # fmt: skip
        return [*out, ask(rng, "kind", "heat map")]

    return [trace], layout, build


def _sheet(rng: random.Random, style: PageStyle) -> tuple[list[dict], dict, Asker]:
    """plotly's own table."""
    columns = max(2, min(5, style.width // 130))
    grid = make_grid(rng, columns, rng.randint(2, max(2, min(9, style.height // 45))))
    body: dict[str, Any] = {"values": [[r[i] for r in grid.rows] for i in range(columns)]}
    trace: dict[str, Any] = {"type": "table", "cells": body, "header": {"values": grid.headers}}
    body["align"] = rng.choice(("left", "center", "right"))
    texts_of = {x for row in (grid.headers, *grid.rows) for x in row}

    def build(texts: list[str]) -> list[Question]:
        return table_questions(rng, grid, "") if texts_of <= set(texts) else []

    margin = dict.fromkeys("lrtb", 10)
    return [trace], {"margin": margin}, build
