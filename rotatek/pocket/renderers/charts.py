"""What the chart renderers share: data, axes, legends and questions."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .. import words
from ..document import Canvas, Colour, Question
from ..questions import absent, ask, careless, yes_no
from ..theme import series_colours
from .look import Look


@dataclass
class Data:
    """Categories and one or more series over them."""

    title: str
    unit: str
    categories: list[str]
    series: list[str]
    values: list[list[float]]  # [series][category]
    colours: list[tuple[str, Colour]]
    decimals: int = 0
    suffix: str = ""
    kind: str = "bar chart"
    x_label: str = ""
    y_label: str = ""
    texts: list[list[str]] = field(default_factory=list)
    about: Mapping[str, Any] | None = None  # a chart of `topic.py`: how people ask about it
    coarse: bool = False  # few round values, which can be read off an axis

    def text(self, s: int, c: int) -> str:
        """Value ``c`` of series ``s`` as it is written."""
        return self.texts[s][c]


Maker = Callable[..., Data]  # as `make_data`


def make_data(
    rng: random.Random, n: int, series: int = 1, kind: str = "bar chart", top: float | None = None
) -> Data:
    """Random data whose values differ enough to rank by eye."""
    unit = rng.choice(words.METRICS) if rng.random() < 0.6 else words.some(rng, 1, 2)
    top = top or rng.choice((10, 20, 50, 100, 100, 400, 1000, 5000, 20_000))
    decimals = rng.choice((0, 0, 0, 1)) if top <= 100 else 0
    if top <= 20 and rng.random() < 0.5:
        decimals = 1
    suffix = rng.choice(("", "", "", "", "%", "k", "M")) if top <= 400 else ""
    grouped = rng.random() < 0.5
    values, texts = [], []
    for _ in range(series):
        row = [round(v, decimals) for v in _spread(rng, n, top)]
        while len(set(row)) < n:  # a tie has no highest
            decimals += 1
            row = [round(v, decimals) for v in _spread(rng, n, top)]
        values.append(row)
        texts.append(
            [(f"{v:,.{decimals}f}" if grouped else f"{v:.{decimals}f}") + suffix for v in row]
        )
    colours = series_colours(rng, min(10, max(series, 1)))
    return Data(
        title=words.title(rng)
        if rng.random() < 0.6
        else f"{unit} {rng.choice(('by', 'per', 'of'))} {words.label(rng)}",
        unit=unit,
        categories=words.labels(rng, n),
        series=words.unique(rng, words.label, series) if series > 1 else [unit],
        values=values,
        colours=colours,
        decimals=decimals,
        suffix=suffix,
        kind=kind,
        texts=texts,
    )


def _spread(rng: random.Random, n: int, top: float) -> list[float]:
    """``n`` values in (0, top], no two closer than 2 % of the top."""
    if rng.random() < 0.35 and n <= 6:  # plain differences, to learn comparing from
        steps = [8 * (i + 1) + rng.randint(-2, 2) for i in range(n)]
        rng.shuffle(steps)
    else:
        steps = rng.sample(range(2, 50), n)
    jitter = rng.uniform(0.0, 0.008)
    return [top * (s / 50 + rng.uniform(0, jitter)) for s in steps]


def ranked(row: list[float], shown: bool) -> tuple[list[int], bool, bool]:
    """Places of ``row`` from lowest to highest; whether its lowest and its highest can be told.

    Where no figures are printed (``shown`` is false), 2.5 % of the greatest must lie between.
    """
    order = sorted(range(len(row)), key=row.__getitem__)
    gap = 0.0 if shown else 0.025 * max(map(abs, row))
    low = len(row) > 1 and row[order[1]] - row[order[0]] > gap
    return order, low, len(row) > 1 and row[order[-1]] - row[order[-2]] > gap


def nice_step(top: float, ticks: int) -> float:
    """A round distance between ticks so that about ``ticks`` of them reach ``top``."""
    raw = top / max(1, ticks)
    power = 10 ** math.floor(math.log10(raw))
    return min((m * power for m in (1, 2, 2.5, 5, 10)), key=lambda s: abs(s - raw))


@dataclass(frozen=True)
class Frame:
    """The plot area and its scale."""

    x0: float
    y0: float
    x1: float
    y1: float
    low: float
    high: float

    def y(self, value: float) -> float:
        """Height in the image of ``value``."""
        return self.y1 - (value - self.low) / (self.high - self.low) * (self.y1 - self.y0)

    def x(self, value: float) -> float:
        """Place in the image of ``value`` on a horizontal value axis."""
        return self.x0 + (value - self.low) / (self.high - self.low) * (self.x1 - self.x0)


def put_title(rng: random.Random, canvas: Canvas, look: Look, data: Data) -> float:
    """Draw the title if it fits (else it is dropped); returns where the rest begins."""
    y = float(look.margin)
    face = rng.choice((look.heading.bold, look.heading.regular))(look.size * rng.uniform(1.05, 1.5))
    if rng.random() < 0.12 or face.width(data.title) > look.width - 2 * look.margin:
        data.title = ""
        return y
    if rng.random() < 0.5:
        canvas.text(look.width / 2, y, data.title, face, look.theme.ink, "centre")
    else:
        canvas.text(look.margin, y, data.title, face, look.theme.ink)
    return y + face.line * 1.25


def put_legend(
    canvas: Canvas,
    look: Look,
    names: list[str],
    colours: list[Colour],
    y: float,
) -> float:
    """A legend in rows from ``y`` down; returns where it ends."""
    face = look.family.regular(max(10, look.size * 0.9))
    mark = face.ascent * 0.7
    x = float(look.margin)
    for name, colour in zip(names, colours, strict=True):
        width = mark + 6 + face.width(name) + look.size
        if x + width > look.width - look.margin and x > look.margin:
            x, y = float(look.margin), y + face.line * 1.15
        middle = y + face.ascent * 0.3
        canvas.box(x, middle, x + mark, middle + mark, fill=colour)
        canvas.text(x + mark + 6, y, name, face, look.theme.ink)
        x += width
    return y + face.line * 1.3


def side_legend(canvas: Canvas, look: Look, data: Data, y: float) -> tuple[Look, float]:
    """A legend at the right edge, or above if that is too wide: what is left, and its top."""
    face = look.family.regular(max(10, look.size * 0.9))
    mark = face.ascent * 0.7
    wide = mark + 14 + max(map(face.width, data.series))
    if wide > look.width * 0.38 or y + len(data.series) * face.line * 1.3 > look.height:
        return look, put_legend(canvas, look, data.series, [c for _, c in data.colours], y)
    x = look.width - look.margin - wide + 8
    for i, name in enumerate(data.series):
        top = y + i * face.line * 1.3
        middle = top + face.ascent * 0.3
        canvas.box(x, middle, x + mark, middle + mark, fill=data.colours[i][1])
        canvas.text(x + mark + 6, top, name, face, look.theme.ink)
    return replace(look, width=int(look.width - wide)), y


def ground(rng: random.Random, canvas: Canvas, look: Look, frame: Frame) -> Colour:
    """Tint the plot area at times, as web libraries do; returns the colour of its grid."""
    if rng.random() > 0.3:
        return look.theme.rule
    tint = (229, 236, 246) if not look.theme.dark and rng.random() < 0.6 else look.theme.panel
    canvas.box(frame.x0, frame.y0, frame.x1, frame.y1, fill=tint)
    return (255, 255, 255) if tint == (229, 236, 246) else look.theme.rule


def questions(rng: random.Random, data: Data, shown: bool, coloured: bool = True) -> list[Question]:
    """Questions about a chart; values are asked for only where they are written (``shown``)."""
    out = [ask(rng, "kind", data.kind)]
    single = len(data.series) == 1
    cats = data.categories
    n = len(cats)
    if data.title:
        out.append(ask(rng, "title", data.title))
    for label, axis in ((data.x_label, "x"), (data.y_label, "y")):
        if label:
            out.append(ask(rng, "axis", label, f=axis, kind="title"))
    noun = rng.choice(("category", "one", "entry", "group", "label"))
    for _ in range(4 if shown or data.coarse else 0):
        s, c = rng.randrange(len(data.series)), rng.randrange(n)
        if single and rng.random() < 0.4:
            unit, name = data.unit.lower(), cats[c]
            text = rng.choice(
                (
                    f"What is the {unit} for {name}?",
                    f"{unit} in {name}?",
                    f"What was the {unit} of {name}?",
                    f"How much {unit} does {name} have?",
                    f"what {unit} does {name} show",
                )
            )
            out.append(Question("value", careless(rng, text), data.text(s, c)))
        elif single:
            out.append(ask(rng, "value", data.text(s, c), f=cats[c]))
        else:
            out.append(
                ask(rng, "value2", data.text(s, c), f=data.series[s], g=cats[c], kind="value")
            )
    out += _comparisons(rng, data, shown, noun)
    if data.about is not None:
        out += _natural(rng, data, data.about, shown)
    if not single:
        s = rng.randrange(len(data.series))
        out.append(
            ask(rng, "count", str(len(data.series)), n=rng.choice(("series", "legend entries")))
        )
        out.append(ask(rng, "legend", ", ".join(data.series), kind="list"))
        if coloured:
            colour = data.colours[s][0]
            out.append(ask(rng, "colour", colour, f=data.series[s]))
            s = rng.randrange(len(data.series))
            colour = data.colours[s][0]
            out.append(ask(rng, "by_colour", data.series[s], n="series", c=colour, kind="colour"))
    out.append(
        ask(
            rng,
            "count",
            str(n),
            n=rng.choice(("categories", "groups"))
            if not single or "bar" not in data.kind
            else rng.choice(("bars", "categories")),
        )
    )
    if n <= 8:
        out.append(ask(rng, "list", ", ".join(cats), n=rng.choice(("categories", "labels"))))
    other = words.label(rng)
    everything = " ".join((*cats, *data.series, data.title)).lower()
    if other.lower() not in everything:
        out.append(yes_no(rng, "present", False, f=other))
        out.append(absent(rng, "value", f=other))
    out.append(yes_no(rng, "present", True, f=rng.choice(cats)))
    if shown and n * len(data.series) <= 24:
        head = (
            ["", *data.series]
            if not single
            else [data.unit if data.y_label == data.unit else "Category", "Value"]
        )
        rows = [[cats[c], *(data.text(s, c) for s in range(len(data.series)))] for c in range(n)]
        head[0] = "Category"
        lines = [head, ["---"] * len(head), *rows]
        text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        out.append(
            Question(
                "transcribe",
                rng.choice(
                    (
                        "Give the data as a Markdown table.",
                        "Convert the chart to a table.",
                        "chart to table",
                        "Write the values as a table.",
                        "transcribe the chart as a table",
                    )
                ),
                text,
            )
        )
    return out


def _natural(
    rng: random.Random, data: Data, about: Mapping[str, Any], shown: bool
) -> list[Question]:
    """Questions as people ask about this subject."""
    out, cats = list[Question](), data.categories
    single = len(data.series) == 1
    forms = about["value"] if single else about.get("value2", ())
    for _ in range(3 if forms and (shown or data.coarse) else 0):
        s, c = rng.randrange(len(data.series)), rng.randrange(len(cats))
        text = rng.choice(forms).replace("{c}", cats[c]).replace("{s}", data.series[s])
        out.append(Question("value", careless(rng, text), data.text(s, c)))
    if single:
        order, low, high = ranked(data.values[0], shown)
        for form, told, best in (("most", high, order[-1]), ("least", low, order[0])):
            if told:
                kind = "highest" if form == "most" else "lowest"
                out.append(Question(kind, careless(rng, rng.choice(about[form])), cats[best]))
    return out


def _comparisons(rng: random.Random, data: Data, shown: bool, noun: str) -> list[Question]:
    """Highest and lowest, of everything and of a series, ranks, and which entry has a value."""
    s = rng.randrange(len(data.series))
    row, cats, out = data.values[s], data.categories, list[Question]()
    order, low, high = ranked(row, shown)
    slots = {"n": noun, "m": data.unit.lower(), "s": data.series[s]}
    of = "" if len(data.series) == 1 else "_of"
    if high:
        out.append(ask(rng, "highest" + of, cats[order[-1]], kind="highest", **slots))
        if shown:
            top = data.text(s, order[-1])
            out.append(ask(rng, "highest_value" + of, top, kind="value", **slots))
    if low:
        out.append(ask(rng, "lowest" + of, cats[order[0]], kind="lowest", **slots))
    if len(row) > 3 and low and high and ranked([row[i] for i in order[:-1]], shown)[2]:
        out.append(ask(rng, "second" + of, cats[order[-2]], kind="highest", **slots))
    if len(row) > 1:
        a, b = rng.sample(range(len(row)), 2)
        if ranked([row[a], row[b]], shown)[2]:
            name = f"{data.series[s]} for " if of else ""
            pair = {"f": name + cats[a], "g": cats[b]}
            out.append(yes_no(rng, "greater", row[a] > row[b], **pair))
    if len(data.series) > 1 and ranked([r[order[0]] for r in data.values], shown)[2]:
        c = order[0]
        best = max(range(len(data.values)), key=lambda i: data.values[i][c])
        out.append(ask(rng, "series_at", data.series[best], kind="highest", f=cats[c]))
    texts = [t for line in data.texts[: len(data.series)] for t in line]
    once = [i for i in range(len(row)) if texts.count(data.text(s, i)) == 1]
    for i in rng.sample(once, min(2, len(once))) if shown else ():
        out.append(ask(rng, "reverse" + of, cats[i], kind="reverse", v=data.text(s, i), **slots))
    if shown and len(row) > 2 and not of:
        i = rng.choice(order[1:-1])
        above = str(sum(v > row[i] for v in row))
        out.append(ask(rng, "above", above, kind="count", v=data.text(s, i), **slots))
    return out
