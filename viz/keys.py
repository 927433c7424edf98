"""Raw and rotated Keys as heat maps on one colour scale (the paper's figures 1 to 3)."""

from typing import Any

import numpy as np

from .theme import KEY_SCALE, Drawing, Figure, colour_bar, compose, percent, pool_rows, quantise

MAX_ROWS = 320
LOUD = "#b26a00"  # 4.1:1 on white, 4.3:1 on the dark ground
HEIGHT = 380


def scale_top(raw: np.ndarray, rotated: np.ndarray) -> float:
    """The |K| drawn brightest in both maps: a few extreme cells must not darken the rest."""
    both = np.concatenate([np.abs(raw).ravel(), np.abs(rotated).ravel()])
    return float(np.percentile(both, 99.5)) if both.size else 1.0


def channels_for_half(values: np.ndarray) -> int:
    """The number of channels of `values` [n, d], largest first, that have half of the squared
    size."""
    energy = np.sort(np.square(values, dtype=np.float64).sum(axis=0))[::-1]
    return int(np.searchsorted(np.cumsum(energy), 0.5 * energy.sum())) + 1


def rivals(values: np.ndarray) -> int:
    """The number of other channels that exceed, for at least one token, that token's mean size in
    the channels that hold half of the energy of `values` [n, d]."""
    half = channels_for_half(values)
    sizes = np.abs(values)
    order = np.argsort(-np.square(values, dtype=np.float64).sum(axis=0), kind="stable")
    loud = sizes[:, order[:half]].mean(axis=1, keepdims=True)
    return int((sizes[:, order[half:]] > loud).any(axis=0).sum())


def loudest_channels(values: np.ndarray, most: int = 3) -> list[int]:
    """The channels of `values` [n, d] that stand out: by falling energy, each at least four times
    the median channel's."""
    energy = np.square(values, dtype=np.float64).sum(axis=0)
    order = np.argsort(-energy, kind="stable")[:most]
    return [int(channel) for channel in order if energy[channel] >= 4 * np.median(energy)]


def _heat_map(
    values: np.ndarray, top: float, axis_title: str, tokens: int, marks: dict[str, Any]
) -> Figure:
    pooled = pool_rows(np.abs(values), MAX_ROWS)
    step = tokens / max(len(pooled), 1)
    ticks = np.linspace(0.0, 255.0, 5)
    bar = colour_bar("|K|")
    bar |= {"tickvals": ticks, "ticktext": [f"{v * top / 255.0:.2g}" for v in ticks]}
    cells = {
        "type": "heatmap",
        "z": quantise(pooled, top),
        "y0": 0.5 * (step - 1.0),
        "dy": step,
        "zmin": 0,
        "zmax": 255,
        "colorscale": KEY_SCALE,
        "colorbar": bar,
        "hovertemplate": "channel %{x}, token %{y:.0f}<extra></extra>",
    }
    return compose(
        [cells],
        HEIGHT,
        x={"title": axis_title, "showgrid": False, "nticks": 9},
        y={"title": "visual token", "autorange": "reversed", "showgrid": False, "nticks": 6},
        **marks,
    )


def _named(channels: list[int]) -> dict[str, Any]:
    """The numbers of loud channels above their columns; of close neighbours the louder one's."""
    far: list[int] = []
    for channel in channels:
        if all(abs(channel - other) >= 8 for other in far):
            far.append(channel)
    words = [
        {
            "x": channel, "y": 1, "yref": "paper", "yanchor": "bottom", "text": str(channel),
            "showarrow": False, "font": {"color": LOUD, "size": 12},
        }
        for channel in far
    ]  # fmt: skip
    return {"annotations": words, "margin": {"l": 48, "r": 14, "t": 22, "b": 40}}


def _cut(kept: int) -> dict[str, Any]:
    """A rule between the columns that stay and those that are dropped."""
    rule = {
        "type": "line", "x0": kept - 0.5, "x1": kept - 0.5, "y0": 0, "y1": 1, "yref": "paper",
        "line": {"color": "#ffffff", "width": 1.5, "dash": "dot"},
    }  # fmt: skip
    words = {
        "x": kept + 0.5, "y": 0.985, "yref": "paper", "xanchor": "left", "yanchor": "top",
        "text": f"dropped beyond k = {kept}", "showarrow": False, "borderpad": 3,
        "font": {"color": "#ffffff", "size": 12}, "bgcolor": "rgba(10, 15, 30, 0.72)",
    }  # fmt: skip
    margin = {"l": 48, "r": 14, "t": 22, "b": 40}  # as in the other map
    return {"shapes": [rule], "annotations": [words], "margin": margin}


def draw_raw(raw: np.ndarray, *, top: float, tokens: int | None = None) -> Drawing:
    """|K| of one head before the rotation.

    Args:
        raw: Keys after RoPE [n, d].
        top: the |K| drawn brightest (`scale_top`), the same for both maps.
        tokens: visual tokens that the n rows represent; n where none was left out.
    """
    n, d = raw.shape
    half, also = channels_for_half(raw), rivals(raw)
    loudest = np.argsort(-np.square(raw, dtype=np.float64).sum(axis=0))[:4]
    names = ", ".join(str(channel) for channel in loudest)
    figure = _heat_map(raw, top, "channel", tokens or n, _named(loudest_channels(raw)))
    return Drawing(
        figure,
        f"Bright columns are outlier channels: {half} of {d} hold half of all the energy, and yet "
        f"{also} of the others outshine them for some token. Position turns channels in pairs: the "
        "ripples.",
        f"Heat map of the size of {n} visual Keys over {d} channels. The loudest channels are "
        f"{names}; {half} of {d} channels hold half of the squared size.",
    )


def draw_rotated(
    rotated: np.ndarray, kept: int, *, top: float, tokens: int | None = None
) -> Drawing:
    """|(K - mu) R| of one head, columns in the order of their eigenvalues.

    Args:
        rotated: centred Keys in the eigenbasis [n, d].
        kept: k, the columns that the cache keeps.
        top: the |K| drawn brightest, the same for both maps.
        tokens: visual tokens that the n rows represent; n where none was left out.
    """
    n, d = rotated.shape
    energy = np.square(rotated, dtype=np.float64).sum(axis=0)
    share = percent(float(energy[:kept].sum() / max(energy.sum(), 1e-30)))
    figure = _heat_map(rotated, top, "rotated channel", tokens or n, _cut(kept) if kept < d else {})
    return Drawing(
        figure,
        f"The same Keys after the rotation: what matters has moved to the left, for every token "
        f"at once, so the first {kept} columns hold {share} of the variation. The query is turned "
        "in the same way, so nothing is rebuilt.",
        f"Heat map of the same {n} Keys in the rotated basis of {d} channels. The first {kept} "
        f"columns hold {share} of the variation; the rest is close to nothing.",
    )


def draw_pair(
    raw: np.ndarray, rotated: np.ndarray, kept: int, *, tokens: int | None = None
) -> tuple[Drawing, Drawing]:
    """Both maps on one colour scale, which is what makes them comparable."""
    top = scale_top(raw, rotated)
    return (
        draw_raw(raw, top=top, tokens=tokens),
        draw_rotated(rotated, kept, top=top, tokens=tokens),
    )
