"""What answers are worth at each price: lines with interval bands."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .theme import Drawing, colour, compose, faded, label, marker, percent

HEIGHT = 400
DASHES = ("solid", "dash", "dot", "dashdot")


class Points(NamedTuple):
    """One line's measurements, in step: shares in [0, 1], all float [p]."""

    budget: np.ndarray
    accuracy: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Axes(NamedTuple):
    """What the axes are called."""

    budget: str = "KV cache kept"
    accuracy: str = "accuracy"


def draw(
    series: Mapping[str, Points],
    ceiling: float | None = None,
    *,
    methods: Mapping[str, str] | None = None,
    axes: Axes = Axes(),  # noqa: B008  # immutable
) -> Drawing:
    """Lines with interval bands.

    Args:
        series: line name -> its points; a method's name stands for its label.
        ceiling: the uncompressed model's value, drawn as a rule across.
        methods: line name -> the method whose colour it takes, where the name is none itself.
    """
    methods = methods or {}
    traces, used = [], dict.fromkeys(methods.values(), 0)
    for name, points in series.items():
        method = methods.get(name, name)
        dash = DASHES[used.get(method, 0) % len(DASHES)]
        used[method] = used.get(method, 0) + 1
        traces += _band_and_line(name, method, dash, points, axes)
    figure = compose(
        traces,
        HEIGHT,
        x={"title": axes.budget, "ticksuffix": " %"},
        y={"title": axes.accuracy, "ticksuffix": " %"},
        legend=True,
        left=62,
        **({} if ceiling is None else _ceiling(100.0 * ceiling)),
    )
    return Drawing(figure, _reading(series, axes), _summary(series, ceiling, axes))


def _band_and_line(name: str, method: str, dash: str, points: Points, axes: Axes) -> list[dict]:
    """The interval as a band, and the measurements on it; the legend hides both together."""
    order = np.argsort(points.budget)
    x, y, low, high = (100.0 * np.asarray(part, dtype=np.float64)[order] for part in points)
    band = {
        "type": "scatter", "mode": "lines", "line": {"width": 0}, "fill": "toself",
        "x": np.concatenate([x, x[::-1]]), "y": np.concatenate([high, low[::-1]]),
        "fillcolor": faded(colour(method), 0.14), "hoverinfo": "skip", "showlegend": False,
        "legendgroup": name,
    }  # fmt: skip
    ours = method == "rotatek" and dash == "solid"
    line = {
        "type": "scatter", "mode": "lines+markers", "name": label(name), "x": x, "y": y,
        "line": {"color": colour(method), "width": 3 if ours else 2, "dash": dash},
        "marker": {"symbol": marker(method), "size": 9}, "legendgroup": name,
        "customdata": np.stack([low, high], axis=1),
        "hovertemplate": "%{y:.1f} % (%{customdata[0]:.1f} to %{customdata[1]:.1f}) at %{x:.1f} % "
        f"{axes.budget}<extra>{label(name)}</extra>",
    }  # fmt: skip
    return [band, line]


def _ceiling(height: float) -> dict:
    """A rule across at the uncompressed model's value, in percent."""
    rule = {
        "type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": height, "y1": height,
        "line": {"color": colour("full"), "dash": "dot"},
    }  # fmt: skip
    words = {
        "x": 0, "xref": "paper", "y": height, "text": "uncompressed", "showarrow": False,
        "xanchor": "left", "yanchor": "bottom",
    }  # fmt: skip
    return {"shapes": [rule], "annotations": [words]}


def _smallest(points: Points) -> tuple[float, float]:
    tight = int(np.argmin(points.budget))
    return float(points.budget[tight]), float(points.accuracy[tight])


def _reading(series: Mapping[str, Points], axes: Axes) -> str:
    ends = {name: _smallest(points) for name, points in series.items()}
    best = max(ends, key=lambda name: ends[name][1])
    budget, accuracy = ends[best]
    return (
        f"Further left is cheaper, higher is better: of the tightest settings {label(best)} does "
        f"best, {percent(accuracy)} {axes.accuracy} at {percent(budget)} {axes.budget}."
    )


def _summary(series: Mapping[str, Points], ceiling: float | None, axes: Axes) -> str:
    parts = []
    for name, points in series.items():
        order = np.argsort(-np.asarray(points.budget))
        pairs = zip(points.budget[order], points.accuracy[order], strict=True)
        said = ", ".join(f"{percent(float(y))} at {percent(float(x))}" for x, y in pairs)
        parts.append(f"{label(name)}: {said}")
    tail = "" if ceiling is None else f"; uncompressed {percent(ceiling)}"
    return f"Line chart of {axes.accuracy} against {axes.budget}. " + "; ".join(parts) + tail + "."
