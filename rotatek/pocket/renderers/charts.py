"""What the chart renderers share: data, axes, legends and questions."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

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

    def text(self, s: int, c: int) -> str:
        """Value ``c`` of series ``s`` as it is written."""
        return self.texts[s][c]


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
    for row in values:
        texts.append([f"{v:{',' * grouped}.{decimals}f}{suffix}" for v in row])
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
    jitter = rng.uniform(0.0, 0.015)
    return [top * (s / 50 + rng.uniform(0, jitter)) for s in steps]


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
    rng: random.Random,
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
    for _ in range(4 if shown else 0):
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
    if single:
        order = sorted(range(n), key=data.values[0].__getitem__)
        m = data.unit.lower()
        if n > 1:
            out.append(ask(rng, "highest", cats[order[-1]], n=noun, m=m))
            out.append(ask(rng, "lowest", cats[order[0]], n=noun, m=m))
            a, b = rng.sample(range(n), 2)
            out.append(
                yes_no(rng, "greater", data.values[0][a] > data.values[0][b], f=cats[a], g=cats[b])
            )
        if shown:
            out.append(ask(rng, "highest_value", data.text(0, order[-1]), n=noun, kind="value"))
    else:
        s = rng.randrange(len(data.series))
        order = sorted(range(n), key=data.values[s].__getitem__)
        name = data.series[s]
        if n > 1:
            out.append(
                Question(
                    "highest",
                    rng.choice(
                        (
                            f"Where is {name} highest?",
                            f"In which {noun} is {name} highest?",
                            f"{name} is highest for?",
                            f"peak of {name}?",
                        )
                    ),
                    cats[order[-1]],
                )
            )
            out.append(
                Question(
                    "lowest",
                    rng.choice(
                        (
                            f"Where is {name} lowest?",
                            f"In which {noun} is {name} lowest?",
                            f"{name} is lowest for?",
                            f"minimum of {name}?",
                        )
                    ),
                    cats[order[0]],
                )
            )
        out.append(
            ask(rng, "count", str(len(data.series)), n=rng.choice(("series", "legend entries")))
        )
        out.append(
            Question(
                "list",
                rng.choice(
                    ("Which series are shown?", "What is in the legend?", "list the legend entries")
                ),
                ", ".join(data.series),
            )
        )
        if coloured:
            colour = data.colours[s][0]
            out.append(ask(rng, "colour", colour, f=name))
            out.append(ask(rng, "by_colour", name, n="series", c=colour, kind="colour"))
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
