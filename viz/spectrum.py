"""The eigenvalue spectrum of one head: why a few rotated channels are enough."""

from typing import Any

import numpy as np

from .theme import ACCENT, NEUTRAL, SECOND, Drawing, compose, faded, percent

HEIGHT = 320
FLOOR = 1e-6  # of all energy; smaller eigenvalues are drawn at this height


def effective_rank(eigenvalues: np.ndarray) -> float:
    """Participation ratio (sum of eigenvalues)^2 / sum of their squares, between 1 and d."""
    values = np.clip(np.asarray(eigenvalues, dtype=np.float64), 0.0, None)
    return float(values.sum() ** 2 / max(np.square(values).sum(), 1e-300))


def draw(
    eigenvalues: np.ndarray, kept: int, of: str = "Keys", level: float | None = None
) -> Drawing:
    """Steps on a logarithmic scale, the kept ones in the accent.

    Args:
        eigenvalues: of the (weighted) covariance, largest first, float [d].
        kept: k, how many of them the cache keeps.
        of: what the eigenvalues are of, as the reading says it.
        level: share of the energy below which a direction gets no bits, drawn as a line.
    """
    values = np.clip(np.asarray(eigenvalues, dtype=np.float64), 0.0, None)
    d = len(values)
    share = values / max(values.sum(), 1e-300)
    rank = effective_rank(values)
    edges = np.arange(d + 1) + 0.5  # one step a direction; bars would be 128 shapes of their own
    heights = np.maximum(share, FLOOR)
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines", "name": name, "fill": "tozeroy", "fillcolor": fill,
            "line": {"shape": "hv", "width": 0, "color": fill},
            "x": edges[part.start : part.stop + 1],
            "y": np.append(heights[part], heights[part][-1:]),
            "customdata": np.append(np.arange(1, d + 1)[part], part.stop),
            "hovertemplate": "direction %{customdata}: %{y:.2%}<extra></extra>",
        }
        for name, part, fill in (
            (f"kept ({kept})", slice(0, kept), ACCENT),
            (f"dropped ({d - kept})", slice(kept, d), faded(NEUTRAL, 0.5)),
        )
        if part.stop > part.start
    ]  # fmt: skip
    if level is not None:
        traces.append({
            "type": "scatter", "mode": "lines", "name": f"water level ({percent(level)})",
            "line": {"width": 2, "dash": "dash", "color": SECOND}, "hoverinfo": "skip",
            "x": [0, d + 1], "y": [max(level, FLOOR)] * 2,
        })  # fmt: skip
    smallest = float(share[share > 0].min()) if (share > 0).any() else FLOOR
    decades = np.arange(int(np.floor(np.log10(max(smallest, FLOOR)))), 1)
    figure = compose(
        traces,
        HEIGHT,
        x={"title": "direction, by eigenvalue", "showgrid": False, "range": [0, d + 1]},
        y={
            "title": "share of energy", "type": "log", "range": [decades[0], 0.1],
            "tickvals": 10.0**decades,
            "ticktext": [f"{10.0 ** (e + 2):g} %" for e in decades.tolist()],
        },
        legend=True,
        left=66,
    )  # fmt: skip
    lost = percent(float(share[kept:].sum()))
    line = "" if level is None else f" The water level is at {percent(level)} a direction."
    return Drawing(
        figure,
        f"The {d - kept} dropped directions together hold {lost} of the energy; the {of} behave "
        f"as if they had about {rank:.0f} channels, not {d}.",
        f"Chart of {d} eigenvalues on a logarithmic scale. The largest holds "
        f"{percent(float(share[0]))}, the {kept} kept ones {percent(float(share[:kept].sum()))}, "
        f"the dropped ones {lost}. Effective rank {rank:.1f}.{line}",
    )
