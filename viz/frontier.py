"""Scores over bytes: lines with interval bands."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .theme import NEUTRAL, THIN, Drawing, Style, compose, faded, percent, thickness

HEIGHT = 350
DASHES = ("solid", "dash", "dot", "dashdot")


class Points(NamedTuple):
    """One line's measurements, in step: shares in [0, 1], all float [p]."""

    budget: np.ndarray
    accuracy: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Line(NamedTuple):
    """A measured setting of one method: its name, the method's style, bytes and score."""

    name: str
    style: Style
    points: Points


class Axes(NamedTuple):
    """The names of the axes."""

    budget: str = "KV cache kept"
    accuracy: str = "accuracy"


def draw(lines: Sequence[Line], ceiling: float | None = None, axes: Axes | None = None) -> Drawing:
    """Lines with interval bands.

    Args:
        lines: in the order of the legend; those of one method differ in their dashes.
        ceiling: the uncompressed model's value, drawn as a rule across.
        axes: what the axes are called.
    """
    axes = axes or Axes()
    traces: list[dict] = []
    used: Counter[str] = Counter()
    for line in lines:
        dash = DASHES[used[line.style.label] % len(DASHES)]
        used[line.style.label] += 1
        traces += _band_and_line(line, dash, axes)
    figure = compose(
        traces,
        HEIGHT,
        x={"title": axes.budget, "ticksuffix": " %"},
        y={"title": axes.accuracy, "ticksuffix": " %"},
        legend=True,
        left=62,
        **({} if ceiling is None else _ceiling(100.0 * ceiling)),
    )
    return Drawing(figure, _reading(lines, axes), _summary(lines, ceiling, axes))


def _band_and_line(line: Line, dash: str, axes: Axes) -> list[dict]:
    """The interval as a band, and the measurements on it; the legend hides both together."""
    name, style, points = line
    order = np.argsort(points.budget)
    x, y, low, high = (100.0 * np.asarray(part, dtype=np.float64)[order] for part in points)
    band = {
        "type": "scatter", "mode": "lines", "line": {"width": 0}, "fill": "toself",
        "x": np.concatenate([x, x[::-1]]), "y": np.concatenate([high, low[::-1]]),
        "fillcolor": faded(style.colour, 0.14), "hoverinfo": "skip", "showlegend": False,
        "legendgroup": name,
    }  # fmt: skip
    width = thickness(style) if dash == DASHES[0] else THIN
    measured = {
        "type": "scatter", "mode": "lines+markers", "name": name, "x": x, "y": y,
        "line": {"color": style.colour, "width": width, "dash": dash},
        "marker": {"symbol": style.marker, "size": 9}, "legendgroup": name,
        "customdata": np.stack([low, high], axis=1),
        "hovertemplate": "%{y:.1f} % (%{customdata[0]:.1f} to %{customdata[1]:.1f}) at %{x:.1f} % "
        f"{axes.budget}<extra>{name}</extra>",
    }  # fmt: skip
    return [band, measured]


def _ceiling(height: float) -> dict:
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


def _smallest(points: Points) -> tuple[float, float]:
    tight = int(np.argmin(points.budget))
    return float(points.budget[tight]), float(points.accuracy[tight])


def _reading(lines: Sequence[Line], axes: Axes) -> str:
    ends = {line.name: _smallest(line.points) for line in lines}
    best = max(ends, key=lambda name: ends[name][1])
    budget, accuracy = ends[best]
    return (
        f"Further left is cheaper, higher is better: of the tightest settings {best} does "
        f"best, {percent(accuracy)} {axes.accuracy} at {percent(budget)} {axes.budget}."
    )


def _summary(lines: Sequence[Line], ceiling: float | None, axes: Axes) -> str:
    parts = []
    for name, _, points in lines:
        order = np.argsort(-np.asarray(points.budget))
        pairs = zip(points.budget[order], points.accuracy[order], strict=True)
        said = ", ".join(f"{percent(float(y))} at {percent(float(x))}" for x, y in pairs)
        parts.append(f"{name}: {said}")
    tail = "" if ceiling is None else f"; uncompressed {percent(ceiling)}"
    return f"Line chart of {axes.accuracy} against {axes.budget}. " + "; ".join(parts) + tail + "."
