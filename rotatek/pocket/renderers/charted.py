"""Charts about something: titles, units and categories that belong together, freely asked about."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from .. import topic, words
from ..document import Document
from . import bars, lines, pies, plots
from .charts import Data, Maker, make_data, nice_step
from .look import Look

ORDERED = ("months", "weekdays", "quarters", "years")
COARSE = 0.4  # share of charts whose values are round enough to be read off an axis
LEVELS = 10  # different values of such a chart


def draw(rng: random.Random, look: Look) -> Document:
    """One chart of any sort that suits its subject."""
    about = rng.choice(topic.charts())
    other = lines.draw if about["of"] in ORDERED else pies.draw
    return rng.choice((bars.draw, bars.draw, other))(rng, look, maker(about))


def draw_plot(rng: random.Random, look: Look) -> Document:
    """One by matplotlib, which takes ten times as long."""
    return plots.draw(rng, look, maker(rng.choice(topic.charts())))


def maker(about: Mapping[str, Any]) -> Maker:
    """What makes the data of a chart about this, in place of `make_data`."""

    def make(
        rng: random.Random,
        n: int,
        series: int = 1,
        kind: str = "bar chart",
        top: float | None = None,
    ) -> Data:
        data, fill = make_data(rng, n, series, kind, top), topic.Filler(rng)
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
    """``n`` different categories."""
    if isinstance(of, list):
        if n <= len(of):
            return rng.sample(of, n) if not of[0][-1].isdigit() else of[:n]
    elif of == "months" and n <= 12:
        start, short = rng.randrange(13 - n), rng.choice((3, None))
        return [m[:short] for m in words.MONTHS[start : start + n]]
    elif of == "weekdays" and n <= 7:
        short = rng.choice((3, 3, None))
        return [d[:short] for d in words.DAYS[:n]]
    elif of == "quarters":
        year = rng.randint(2000, 2030)
        return [f"Q{i % 4 + 1}" + (f" {year + i // 4}" if n > 4 else "") for i in range(n)]
    elif of == "years":
        start, step = rng.randint(1950, 2020), rng.choice((1, 1, 1, 2, 5, 10))
        return [str(start + i * step) for i in range(n)]
    elif of not in ORDERED:
        return words.unique(rng, lambda _: fill(of), n)
    return words.unique(rng, words.label, n)


def put_values(rng: random.Random, data: Data, about: Mapping[str, Any], n: int) -> None:
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
