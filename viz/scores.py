"""Exact attention scores against the ones computed from compressed Keys."""

import numpy as np

from .theme import GRID, Drawing, Style, compose, percent

HEIGHT = 320
MAX_POINTS = 1024


def relative_error(exact: np.ndarray, approximate: np.ndarray) -> float:
    """Root mean square of the error over that of the exact scores around their mean."""
    spread = np.asarray(exact, dtype=np.float64) - np.mean(exact, dtype=np.float64)
    error = np.asarray(approximate, dtype=np.float64) - exact
    return float(np.sqrt(np.square(error).sum() / max(np.square(spread).sum(), 1e-300)))


def draw(exact: np.ndarray, approximate: np.ndarray, style: Style) -> Drawing:
    """A scatter plot around the diagonal on which nothing would be lost.

    Args:
        exact: scores q.k / sqrt(d) of visual tokens with full Keys, float [n].
        approximate: the same scores from the compressed cache, float [n].
        style: of the method that holds them.
    """
    pick = np.linspace(0, len(exact) - 1, min(len(exact), MAX_POINTS)).astype(int)
    x, y = np.asarray(exact)[pick], np.asarray(approximate)[pick]
    low, high = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
    pad = 0.04 * max(high - low, 1e-6)
    ends = [low - pad, high + pad]
    diagonal = {
        "type": "scatter", "mode": "lines", "x": ends, "y": ends, "hoverinfo": "skip",
        "line": {"color": GRID, "width": 2},
    }  # fmt: skip
    points = {
        "type": "scatter", "mode": "markers", "x": x.astype(np.float32), "y": y.astype(np.float32),
        "marker": {"color": style.colour, "size": 6, "opacity": 0.55},
        "hovertemplate": "exact %{x:.2f}, compressed %{y:.2f}<extra></extra>",
    }  # fmt: skip
    figure = compose(
        [diagonal, points],
        HEIGHT,
        x={"title": "exact score", "range": ends},
        y={"title": f"score with {style.label}", "range": ends},
        left=58,
    )
    error = relative_error(exact, approximate)
    return Drawing(
        figure,
        f"A Key has one purpose: its product with the query is the score of a token, and scores "
        f"become attention. {style.label} is off the diagonal by {percent(error)} of their spread.",
        f"Scatter plot of {len(pick)} exact against {style.label} attention scores: relative "
        f"error {percent(error)}, scores between {low:.1f} and {high:.1f}.",
    )
