"""Scores over bytes: a line a method with its interval as a band."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .theme import NEUTRAL, Drawing, Style, compose, faded, percent

HEIGHT = 460
HALVES = 100.0 * 0.5 ** np.arange(0, 6.5, 0.5)  # ticks of the bytes: all ... a 64th
NEAR = 0.02  # of the uncompressed score: what is as good


class Line(NamedTuple):
    """One method's measurements, shares in [0, 1], each float [p] by rising bytes.

    score is the mean; low, high: its interval.
    """

    style: Style
    bytes: np.ndarray
    score: np.ndarray
    low: np.ndarray
    high: np.ndarray


def draw(lines: Sequence[Line], ceiling: float | None = None) -> Drawing:
    """Lines over bytes that double from left to right.

    Args:
        lines: at least one, in the order of the legend.
        ceiling: the uncompressed model's score, drawn as a rule across.
    """
    traces = [trace for line in lines for trace in _band_and_line(line)]
    figure = compose(
        traces,
        HEIGHT,
        x={
            "title": "KV cache's bytes, of the uncompressed one's", "type": "log",
            "tickvals": HALVES, "ticktext": [f"{half:.2g} %" for half in HALVES],
        },
        y={"title": "score", "ticksuffix": " %"},
        legend=True,
        left=62,
        margin={"l": 62, "r": 14, "t": 84, "b": 40},
        **({} if ceiling is None else _rule(100.0 * ceiling)),
    )  # fmt: skip
    points = [
        (float(x), float(y), line.style.label)
        for line in lines
        for x, y in zip(line.bytes, line.score, strict=True)
    ]
    top = max(y for _, y, _ in points) if ceiling is None else ceiling
    of = "the best score" if ceiling is None else "the uncompressed score"
    reading = f"Further left is cheaper, higher is better: nothing comes near {of} here."
    near = min((point for point in points if point[1] >= top - NEAR), default=None)
    if near is not None:
        share, score, name = near
        reading = (
            f"Further left is cheaper, higher is better: {name} is first within two points of "
            f"{of}, with {percent(score)} at {percent(share)} of the bytes."
        )
    said = "; ".join(
        f"{line.style.label}: "
        + ", ".join(
            f"{percent(float(y))} at {percent(float(x))}"
            for x, y in zip(line.bytes, line.score, strict=True)
        )
        for line in lines
    )
    whole = "" if ceiling is None else f"; uncompressed {percent(ceiling)}"
    return Drawing(figure, reading, f"Line chart of scores over bytes. {said}{whole}.")


def _band_and_line(line: Line) -> list[dict]:
    """The interval as a band, and the measurements on it; the legend hides both together."""
    style = line.style
    x, y, low, high = (100.0 * np.asarray(part, dtype=np.float64) for part in line[1:])
    band = {
        "type": "scatter", "mode": "lines", "line": {"width": 0}, "fill": "toself",
        "x": np.concatenate([x, x[::-1]]), "y": np.concatenate([high, low[::-1]]),
        "fillcolor": faded(style.colour, 0.1), "hoverinfo": "skip", "showlegend": False,
        "legendgroup": style.label,
    }  # fmt: skip
    measured = {
        "type": "scatter", "mode": "lines+markers", "name": style.label, "x": x, "y": y,
        "line": {"color": style.colour, "width": 3 if style.rotates else 2, "dash": style.dash},
        "marker": {"symbol": style.marker, "size": 9}, "legendgroup": style.label,
        "customdata": np.stack([low, high], axis=1),
        "hovertemplate": "%{y:.1f} % (%{customdata[0]:.1f} to %{customdata[1]:.1f}) in %{x:.1f} % "
        f"of the bytes<extra>{style.label}</extra>",
    }  # fmt: skip
    return [band, measured]


def _rule(height: float) -> dict:
    """A rule across at the uncompressed model's value, in percent."""
    rule = {
        "type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": height, "y1": height,
        "line": {"color": NEUTRAL, "dash": "dot"},
    }  # fmt: skip
    words = {
        "x": 0, "xref": "paper", "y": height, "text": "uncompressed", "showarrow": False,
        "xanchor": "left", "yanchor": "bottom",
    }  # fmt: skip
    return {"shapes": [rule], "annotations": [words]}
