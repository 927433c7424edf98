"""Accuracy against KV budget, with intervals: what each method buys at each price."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .theme import Drawing, colour, compose, faded, label, marker, percent

HEIGHT = 400


class Points(NamedTuple):
    """One method's measurements, in step: shares in [0, 1], all float [p]."""

    budget: np.ndarray
    accuracy: np.ndarray
    low: np.ndarray
    high: np.ndarray


def draw(series: Mapping[str, Points], ceiling: float | None = None) -> Drawing:
    """Lines with interval bands.

    Args:
        series: method name -> its points.
        ceiling: accuracy of the uncompressed model, drawn as a rule across.
    """
    traces = []
    for method, points in series.items():
        traces += _band_and_line(method, points)
    figure = compose(
        traces,
        HEIGHT,
        x={"title": "KV cache kept", "ticksuffix": " %"},
        y={"title": "accuracy", "ticksuffix": " %"},
        legend=True,
        left=62,
        **({} if ceiling is None else _ceiling(100.0 * ceiling)),
    )
    return Drawing(figure, _reading(series), _summary(series, ceiling))


def _band_and_line(method: str, points: Points) -> list[dict]:
    """The interval as a band, and the measurements on it."""
    order = np.argsort(points.budget)
    x, y, low, high = (100.0 * np.asarray(part, dtype=np.float64)[order] for part in points)
    band = {
        "type": "scatter", "mode": "lines", "line": {"width": 0}, "fill": "toself",
        "x": np.concatenate([x, x[::-1]]), "y": np.concatenate([high, low[::-1]]),
        "fillcolor": faded(colour(method), 0.14), "hoverinfo": "skip", "showlegend": False,
    }  # fmt: skip
    line = {
        "type": "scatter", "mode": "lines+markers", "name": label(method), "x": x, "y": y,
        "line": {"color": colour(method), "width": 3 if method == "rotatek" else 2},
        "marker": {"symbol": marker(method), "size": 9},
        "customdata": np.stack([low, high], axis=1),
        "hovertemplate": "%{y:.1f} % (%{customdata[0]:.1f} to %{customdata[1]:.1f}) at %{x:.1f} % "
        "of the KV cache<extra>" + label(method) + "</extra>",
    }  # fmt: skip
    return [band, line]


def _ceiling(height: float) -> dict:
    """A rule across at the uncompressed model's accuracy, in percent."""
    rule = {
        "type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": height, "y1": height,
        "line": {"color": colour("full"), "dash": "dot"},
    }  # fmt: skip
    words = {
        "x": 1, "xref": "paper", "y": height, "text": "uncompressed", "showarrow": False,
        "xanchor": "right", "yanchor": "bottom",
    }  # fmt: skip
    return {"shapes": [rule], "annotations": [words]}


def _smallest(points: Points) -> tuple[float, float]:
    tight = int(np.argmin(points.budget))
    return float(points.budget[tight]), float(points.accuracy[tight])


def _reading(series: Mapping[str, Points]) -> str:
    ends = {method: _smallest(points) for method, points in series.items()}
    best = max(ends, key=lambda method: ends[method][1])
    budget, accuracy = ends[best]
    return (
        f"Further left is cheaper, higher is better: at its tightest {label(best)} keeps "
        f"{percent(accuracy)} accuracy with {percent(budget)} of the cache."
    )


def _summary(series: Mapping[str, Points], ceiling: float | None) -> str:
    parts = []
    for method, points in series.items():
        budget, accuracy = _smallest(points)
        parts.append(f"{label(method)} {percent(accuracy)} at {percent(budget)}")
    tail = "" if ceiling is None else f"; uncompressed {percent(ceiling)}"
    return "Line chart of accuracy against KV budget. Tightest points: " + "; ".join(parts) + tail
