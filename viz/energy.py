"""Energy captured against k: what a budget of channels buys under each method."""

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from .theme import ACCENT, Drawing, canvas, colour, label, marker, percent

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
    figure = canvas(HEIGHT, legend=True, left=66)
    for method, curve in curves.items():
        ours = method == "rotatek"
        figure.add_trace(
            go.Scatter(
                x=np.arange(d + 1),
                y=100.0 * np.asarray(curve, dtype=np.float64),
                name=label(method),
                mode="lines",
                line={"color": colour(method), "width": 3 if ours else 2,
                      "dash": "solid" if ours else "dot" if method == "spark" else "dash"},
                hovertemplate="k = %{x}: %{y:.1f} %",
            )
        )  # fmt: skip
        figure.add_trace(
            go.Scatter(
                x=[kept], y=[100.0 * float(curve[kept])], mode="markers", showlegend=False,
                marker={"color": colour(method), "size": 10 if ours else 8,
                        "symbol": marker(method)},
                hoverinfo="skip",
            )
        )  # fmt: skip
    figure.add_vline(x=kept, line={"color": ACCENT, "width": 1, "dash": "dot"})
    figure.add_annotation(
        x=kept, y=3, text=f"k = {kept}", showarrow=False, yanchor="bottom",
        xanchor="left" if kept < 0.8 * d else "right", xshift=6 if kept < 0.8 * d else -6,
        font={"color": ACCENT, "size": 13},
    )  # fmt: skip
    figure.update_layout(hovermode="x unified")
    figure.update_xaxes(title_text="channels kept, k", range=[0, d], showgrid=False, nticks=9)
    figure.update_yaxes(title_text="energy captured", ticksuffix=" %", range=[0, 103], nticks=6)
    return Drawing(figure, _reading(curves, kept, d), _summary(curves, kept, d))


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
