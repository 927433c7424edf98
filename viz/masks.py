"""Which Key channels a method keeps, token by token."""

import numpy as np

from .theme import VEIL, Drawing, colour, compose, label, percent

MAX_ROWS = 320
HEIGHT = 300

SEE = {
    "think": "ThinK keeps the same channels for every token: easy to store, but a token whose "
    "weight lies elsewhere loses it.",
    "spark": "SparK lets each token choose its own channels: faithful, but so ragged that the "
    "Keys must be rebuilt before they can be used.",
    "rotatek": "RotateK rotates first, so the same few channels serve every token and the cut "
    "is one straight line.",
}


def agreement(mask: np.ndarray) -> float:
    """How far tokens agree on their channels: mean overlap of a token's kept set with the
    head-wide most common one, 1 where all tokens keep the same. `mask` is bool [n, d]."""
    votes = mask.sum(axis=0)
    kept = int(mask[0].sum()) if len(mask) else 0
    if kept == 0:
        return 1.0
    common = np.argsort(-votes, kind="stable")[:kept]
    return float(mask[:, common].sum() / (kept * len(mask)))


def draw(mask: np.ndarray, method: str, *, tokens: int | None = None) -> Drawing:
    """A mask, kept cells in the colour of its method.

    Args:
        mask: True where the channel of that token is kept, bool [n, d].
        method: name of the channel method, as in the registry.
        tokens: visual tokens that the n rows stand for; n where nothing was left out.
    """
    n, d = mask.shape
    shared_by_all = n > 0 and bool((mask == mask[0]).all())
    rows = 1 if shared_by_all else min(n, MAX_ROWS)
    shown = mask[np.linspace(0, max(n - 1, 0), rows).astype(int)]
    step = (tokens or n) / max(len(shown), 1)
    rotated = method == "rotatek"
    cells = {
        "type": "heatmap",
        "z": shown.astype(np.uint8),
        "y0": 0.5 * (step - 1.0),
        "dy": step,
        "zmin": 0,
        "zmax": 1,
        "showscale": False,
        "colorscale": [(0, VEIL), (1, colour(method))],
        "hovertemplate": "channel %{x}, "
        + ("every token" if shared_by_all else "token %{y:.0f}")
        + "<extra></extra>",
    }
    figure = compose(
        [cells],
        HEIGHT,
        x={"title": "rotated channel" if rotated else "channel", "showgrid": False, "nticks": 9},
        y={"title": "visual token", "autorange": "reversed", "showgrid": False, "nticks": 5},
    )
    kept = percent(float(mask.mean()) if mask.size else 0.0)
    shared = percent(agreement(mask))
    return Drawing(
        figure,
        SEE.get(method, f"Filled cells are the channels that {label(method)} keeps."),
        f"{label(method)} mask over {n} visual tokens and {d} "
        f"{'rotated ' if rotated else ''}channels: {kept} of the cells are kept, and tokens agree "
        f"on {shared} of their kept channels.",
    )
