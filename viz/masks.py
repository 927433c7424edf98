"""Which Key channels a method keeps, token by token."""

import numpy as np

from .theme import VEIL, Drawing, Style, compose, percent

MAX_ROWS = 320
HEIGHT = 300


def agreement(mask: np.ndarray) -> float:
    """Agreement of tokens on their channels: mean overlap of a token's kept set with the
    head-wide most common one, 1 where all tokens keep the same. `mask` is bool [n, d]."""
    votes = mask.sum(axis=0)
    kept = int(mask[0].sum()) if len(mask) else 0
    if kept == 0:
        return 1.0
    common = np.argsort(-votes, kind="stable")[:kept]
    return float(mask[:, common].sum() / (kept * len(mask)))


def draw(mask: np.ndarray, style: Style, *, tokens: int | None = None) -> Drawing:
    """A mask, kept cells in the colour of its method.

    Args:
        mask: True where the channel of that token is kept, bool [n, d].
        style: the method's.
        tokens: visual tokens that the n rows represent; n where none was left out.
    """
    n, d = mask.shape
    shared_by_all = n > 0 and bool((mask == mask[0]).all())
    rows = 1 if shared_by_all else min(n, MAX_ROWS)
    shown = mask[np.linspace(0, max(n - 1, 0), rows).astype(int)]
    step = (tokens or n) / max(len(shown), 1)
    cells = {
        "type": "heatmap",
        "z": shown.astype(np.uint8),
        "y0": 0.5 * (step - 1.0),
        "dy": step,
        "zmin": 0,
        "zmax": 1,
        "showscale": False,
        "colorscale": [(0, VEIL), (1, style.colour)],
        "hovertemplate": "channel %{x}, "
        + ("every token" if shared_by_all else "token %{y:.0f}")
        + "<extra></extra>",
    }
    figure = compose(
        [cells],
        HEIGHT,
        x={
            "title": "rotated channel" if style.rotates else "channel",
            "showgrid": False,
            "nticks": 9,
        },
        y={"title": "visual token", "autorange": "reversed", "showgrid": False, "nticks": 5},
    )
    kept = percent(float(mask.mean()) if mask.size else 0.0)
    shared = percent(agreement(mask))
    basis = "rotated channels" if style.rotates else "channels"
    return Drawing(
        figure,
        style.reading or f"Filled cells are the channels that {style.label} keeps.",
        f"{style.label} mask over {n} visual tokens and {d} {basis}: {kept} of the cells are kept, "
        f"and tokens agree on {shared} of their kept channels.",
    )
