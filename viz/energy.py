"""Energy captured against k: what a budget of channels buys under each method."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .theme import ACCENT, Drawing, Style, compose, percent, thickness

HEIGHT = 320


class Curve(NamedTuple):
    """One method's line.

    style: the method's. held: float [d + 1], the share of the energy captured with k channels,
    k = 0 first. "Energy" is the variation between visual Keys, weighted by the queries.
    """

    style: Style
    held: np.ndarray

    def at(self, k: int) -> float:
        """The share captured with k channels."""
        return float(self.held[k])


def channels_to_reach(curve: np.ndarray, share: float) -> int:
    """The smallest k at which `curve` [d + 1] (k = 0 first) reaches `share`."""
    reached = np.flatnonzero(curve >= share - 1e-9)
    return int(reached[0]) if reached.size else len(curve) - 1


def draw(curves: Sequence[Curve], kept: int) -> Drawing:
    """One line a method; the chosen k is ruled and read off.

    Args:
        curves: at least one. The reading compares the first that rotates with the first that
            does not.
        kept: the chosen k, from 0 to d.
    """
    d = len(curves[0].held) - 1
    traces = [trace for curve in curves for trace in _line(curve, kept)]
    rule = {
        "type": "line", "x0": kept, "x1": kept, "y0": 0, "y1": 1, "yref": "paper",
        "line": {"color": ACCENT, "width": 1, "dash": "dot"},
    }  # fmt: skip
    right = kept < 0.8 * d
    words = {
        "x": kept, "y": 3, "text": f"k = {kept}", "showarrow": False, "yanchor": "bottom",
        "xanchor": "left" if right else "right", "xshift": 6 if right else -6,
        "font": {"color": ACCENT, "size": 13},
    }  # fmt: skip
    figure = compose(
        traces,
        HEIGHT,
        x={"title": "channels kept, k", "range": [0, d], "showgrid": False, "nticks": 9},
        y={"title": "energy captured", "ticksuffix": " %", "range": [0, 103], "nticks": 6},
        legend=True,
        left=66,
        hovermode="x unified",
        shapes=[rule],
        annotations=[words],
    )
    return Drawing(figure, _reading(curves, kept, d), _summary(curves, kept, d))


def _line(curve: Curve, kept: int) -> list[dict]:
    """A method's line, and the marker at the chosen k."""
    style = curve.style
    held = np.asarray(curve.held, dtype=np.float64)
    line = {
        "type": "scatter", "mode": "lines", "name": style.label,
        "x": np.arange(len(held)), "y": 100.0 * held,
        "line": {"color": style.colour, "width": thickness(style), "dash": style.dash},
        "hovertemplate": "%{y:.1f} %",
    }  # fmt: skip
    size = 10 if style.rotates else 8
    dot = {
        "type": "scatter", "mode": "markers", "showlegend": False, "hoverinfo": "skip",
        "x": [kept], "y": [100.0 * curve.at(kept)],
        "marker": {"color": style.colour, "size": size, "symbol": style.marker},
    }  # fmt: skip
    return [line, dot]


def _reading(curves: Sequence[Curve], kept: int, d: int) -> str:
    ours = next((curve for curve in curves if curve.style.rotates), None)
    if ours is None:
        best = max(curves, key=lambda curve: curve.at(kept))
        return f"With {kept} of {d} channels {best.style.label} captures {percent(best.at(kept))}."
    text = f"With {kept} of {d} channels {ours.style.label} captures {percent(ours.at(kept))}"
    text += " of the energy"
    other = next((curve for curve in curves if not curve.style.rotates), None)
    if other is None:
        return text + "."
    name, needed = other.style.label, channels_to_reach(other.held, ours.at(kept))
    return (
        f"{text} and {name} {percent(other.at(kept))}; {name} would need {needed} channels for as "
        "much."
    )


def _summary(curves: Sequence[Curve], kept: int, d: int) -> str:
    parts = [
        f"{curve.style.label} captures {percent(curve.at(kept))} at k = {kept} and reaches 90 % at "
        f"k = {channels_to_reach(curve.held, 0.9)}"
        for curve in curves
    ]
    return f"Line chart of energy captured against k of {d} channels. " + "; ".join(parts) + "."
