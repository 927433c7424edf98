"""The contents of charts: series of values over categories, of no subject or of one from the
topics."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pocket.content import formats, topic, words
from pocket.content.colours import Colour, series_colours

ORDERED: Final = ("months", "weekdays", "quarters", "years")
COARSE: Final = 0.4  # share of charts whose values are round enough to be read off an axis
LEVELS: Final = 10  # different values of such a chart


@dataclass
class ChartData:
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
    about: Mapping[str, Any] | None = None  # a chart of `content.topic`: how people ask about it
    coarse: bool = False  # few round values, which can be read off an axis

    def text(self, s: int, c: int) -> str:
        """Value `c` of series `s` as it is written."""
        return self.texts[s][c]


ChartMaker = Callable[..., ChartData]  # as `make_data`


def make_chart(
    rng: random.Random, n: int, series: int = 1, kind: str = "bar chart", top: float | None = None
) -> ChartData:
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
    return ChartData(
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
    """`n` values in (0, top], no two closer than 2 % of the top."""
    if rng.random() < 0.35 and n <= 6:  # plain differences, to learn comparing from
        steps = [8 * (i + 1) + rng.randint(-2, 2) for i in range(n)]
        rng.shuffle(steps)
    else:
        steps = rng.sample(range(2, 50), n)
    jitter = rng.uniform(0.0, 0.008)
    return [top * (s / 50 + rng.uniform(0, jitter)) for s in steps]


def ranked(row: list[float], shown: bool) -> tuple[list[int], bool, bool]:
    """The order of a row's values, and whether the lowest and the highest are clear.

    Args:
        row: One value a category.
        shown: Whether the figures are printed. Where they are not, two values must differ by 2.5 %
            of the greatest.

    Returns:
        The indices from the lowest value to the highest; whether the lowest is clear; whether the
        highest is.
    """
    order = sorted(range(len(row)), key=row.__getitem__)
    gap = 0.0 if shown else 0.025 * max(map(abs, row))
    low = len(row) > 1 and row[order[1]] - row[order[0]] > gap
    return order, low, len(row) > 1 and row[order[-1]] - row[order[-2]] > gap


def nice_step(top: float, ticks: int) -> float:
    """A round distance between ticks so that about `ticks` of them reach `top`."""
    raw = top / max(1, ticks)
    power = 10 ** math.floor(math.log10(raw))
    return min((m * power for m in (1, 2, 2.5, 5, 10)), key=lambda s: abs(s - raw))


def chart_maker(about: Mapping[str, Any]) -> ChartMaker:
    """A function that makes the data of a chart about this, used instead of `make_data`."""

    def make(
        rng: random.Random,
        n: int,
        series: int = 1,
        kind: str = "bar chart",
        top: float | None = None,
    ) -> ChartData:
        data, fill = make_chart(rng, n, series, kind, top), topic.Filler(rng)
        data.about, data.title, data.unit = about, fill(about["titles"]), about["unit"]
        data.categories = categories(rng, fill, about["of"], n)
        fitting = [names for names in about.get("series", ()) if len(names) >= series]
        if series == 1:
            data.series = [data.unit]
        elif fitting:
            data.series = rng.choice(fitting)[:series]
        put_values(rng, data, about, n)
        return data

    return make


def categories(rng: random.Random, fill: topic.Filler, of: str | list[str], n: int) -> list[str]:
    """`n` different categories."""
    if isinstance(of, list):
        if n <= len(of):
            return rng.sample(of, n) if not of[0][-1].isdigit() else of[:n]
    elif of == "months" and n <= 12:
        start, short = rng.randrange(13 - n), rng.choice((3, None))
        return [m[:short] for m in formats.MONTHS[start : start + n]]
    elif of == "weekdays" and n <= 7:
        short = rng.choice((3, 3, None))
        return [d[:short] for d in formats.DAYS[:n]]
    elif of == "quarters":
        year = rng.randint(2000, 2030)
        return [f"Q{i % 4 + 1}" + (f" {year + i // 4}" if n > 4 else "") for i in range(n)]
    elif of == "years":
        start, step = rng.randint(1950, 2020), rng.choice((1, 1, 1, 2, 5, 10))
        return [str(start + i * step) for i in range(n)]
    elif of not in ORDERED:
        return words.unique(rng, lambda _: fill(of), n)
    return words.unique(rng, words.label, n)


def put_values(rng: random.Random, data: ChartData, about: Mapping[str, Any], n: int) -> None:
    """Values within the subject's range, at times few and round."""
    low, high = about["range"]
    top = min(high, low * 3 * (high / (low * 3)) ** rng.random()) if high > 3 * low else high
    decimals, plain = about.get("decimals", 0), "stacked" not in data.kind
    data.coarse = plain and n <= LEVELS and rng.random() < COARSE
    if data.coarse:
        step = max(nice_step(top, LEVELS), 10.0**-decimals)
        rows = [[k * step for k in rng.sample(range(1, LEVELS + 1), n)] for _ in data.series]
        decimals = min(decimals, 1) if step < 1 else 0
    else:
        scale = [top * rng.uniform(0.6, 1) / max(row) for row in data.values]
        rows = [[v * k for v in row] for row, k in zip(data.values, scale, strict=False)]
        while any(len({round(v, decimals) for v in row}) < n for row in rows):
            decimals += 1
    grouped = rng.random() < 0.5
    data.decimals, data.suffix = decimals, ""
    data.values = [[round(v, decimals) for v in row] for row in rows]
    data.texts = [
        [f"{v:,.{decimals}f}" if grouped else f"{v:.{decimals}f}" for v in row]
        for row in data.values
    ]
