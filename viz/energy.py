"""Energy captured against k: what a budget of channels buys under each method."""

from collections.abc import Mapping

import numpy as np

from .theme import ACCENT, Drawing, colour, compose, label, marker, percent

HEIGHT = 320


def channels_to_reach(curve: np.ndarray, share: float) -> int:
    """The smallest k at which `curve` [d + 1] (k = 0 first) reaches `share`."""
    reached = np.flatnonzero(curve >= share - 1e-9)
    return int(reached[0]) if reached.size else len(curve) - 1


def draw(curves: Mapping[str, np.ndarray], kept: int) -> Drawing:
    """One line a method; the chosen k is ruled and read off.

    Args:
        curves: method name -> share of the energy captured with k channels, float [d + 1],
            k = 0 first. "Energy" is the variation between visual Keys, weighted by the queries.
        kept: the chosen k.
    """
    d = len(next(iter(curves.values()))) - 1
    traces = []
    for method, curve in curves.items():
        traces += _line(method, np.asarray(curve, dtype=np.float64), kept)
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


def _line(method: str, curve: np.ndarray, kept: int) -> list[dict]:
    """A method's line, and the marker at the chosen k."""
    ours = method == "rotatek"
    dash = "solid" if ours else "dot" if method == "spark" else "dash"
    line = {
        "type": "scatter", "mode": "lines", "name": label(method),
        "x": np.arange(len(curve)), "y": 100.0 * curve,
        "line": {"color": colour(method), "width": 3 if ours else 2, "dash": dash},
        "hovertemplate": "%{y:.1f} %",
    }  # fmt: skip
    dot = {
        "type": "scatter", "mode": "markers", "showlegend": False, "hoverinfo": "skip",
        "x": [kept], "y": [100.0 * float(curve[kept])],
        "marker": {"color": colour(method), "size": 10 if ours else 8, "symbol": marker(method)},
    }  # fmt: skip
    return [line, dot]


def _reading(curves: Mapping[str, np.ndarray], kept: int, d: int) -> str:
    shares = {name: float(curve[kept]) for name, curve in curves.items()}
    if "rotatek" not in shares:
        best = max(shares, key=shares.__getitem__)
        return f"With {kept} of {d} channels {label(best)} captures {percent(shares[best])}."
    text = f"With {kept} of {d} channels RotateK captures {percent(shares['rotatek'])}"
    if "think" not in shares:
        return text + " of the energy."
    text += f" of the energy and ThinK {percent(shares['think'])}"
    needed = channels_to_reach(curves["think"], shares["rotatek"])
    return text + f"; ThinK would need {needed} channels for as much."


def _summary(curves: Mapping[str, np.ndarray], kept: int, d: int) -> str:
    parts = [
        f"{label(name)} captures {percent(float(curve[kept]))} at k = {kept} and reaches 90 % at "
        f"k = {channels_to_reach(curve, 0.9)}"
        for name, curve in curves.items()
    ]
    return f"Line chart of energy captured against k of {d} channels. " + "; ".join(parts) + "."
