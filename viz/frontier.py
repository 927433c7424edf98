"""Accuracy against KV budget, with intervals: what each method buys at each price."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from .theme import Drawing, canvas, colour, faded, label, marker, percent

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
    figure = canvas(HEIGHT, legend=True, left=62)
    for method, points in series.items():
        order = np.argsort(points.budget)
        x, y, low, high = (100.0 * np.asarray(part, dtype=np.float64)[order] for part in points)
        figure.add_trace(
            go.Scatter(
                x=np.concatenate([x, x[::-1]]), y=np.concatenate([high, low[::-1]]),
                mode="lines", line={"width": 0}, fill="toself",
                fillcolor=faded(colour(method), 0.14), hoverinfo="skip", showlegend=False,
            )
        )  # fmt: skip
        figure.add_trace(
            go.Scatter(
                x=x, y=y, name=label(method), mode="lines+markers",
                line={"color": colour(method), "width": 3 if method == "rotatek" else 2},
                marker={"symbol": marker(method), "size": 9},
                customdata=np.stack([low, high], axis=1),
                hovertemplate="%{y:.1f} % (%{customdata[0]:.1f} to %{customdata[1]:.1f}) at "
                "%{x:.1f} % of the KV cache<extra>" + label(method) + "</extra>",
            )
        )  # fmt: skip
    if ceiling is not None:
        figure.add_hline(y=100.0 * ceiling, line={"color": colour("full"), "dash": "dot"})
        figure.add_annotation(
            x=1, xref="paper", y=100.0 * ceiling, text="uncompressed", showarrow=False,
            xanchor="right", yanchor="bottom",
        )  # fmt: skip
    figure.update_xaxes(title_text="KV cache kept", ticksuffix=" %")
    figure.update_yaxes(title_text="accuracy", ticksuffix=" %")
    return Drawing(figure, _reading(series), _summary(series, ceiling))


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
