"""Keys of one head: channel by channel, raw and rotated on one colour scale (the paper's figures 1
to 3); which channels a method keeps; their spectrum; and the scores that they give."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .theme import (
    ACCENT,
    GRID,
    KEY_SCALE,
    NEUTRAL,
    SECOND,
    VEIL,
    Drawing,
    Figure,
    Style,
    colour_bar,
    compose,
    faded,
    heat,
    percent,
    pool_rows,
    quantise,
)

MAX_ROWS = 320
LOUD = "#b26a00"  # 4.1:1 on white, 4.3:1 on the dark ground
HEIGHT, MASK_HEIGHT = 380, 300
MARGIN = {"l": 48, "r": 14, "t": 22, "b": 40}
CHART_HEIGHT = 320
FLOOR = 1e-6  # of all energy; smaller eigenvalues are drawn at this height
MAX_POINTS = 1024


def scale_top(raw: np.ndarray, rotated: np.ndarray) -> float:
    """The |K| drawn brightest in both maps: a few extreme cells must not darken the rest."""
    both = np.concatenate([np.abs(raw).ravel(), np.abs(rotated).ravel()])
    return float(np.percentile(both, 99.5)) if both.size else 1.0


def _energy(values: np.ndarray) -> np.ndarray:
    """The squared size of each channel of `values` [n, d], float [d]."""
    return np.square(values, dtype=np.float64).sum(axis=0)


def channels_for_half(values: np.ndarray) -> int:
    """The number of channels of `values` [n, d], largest first, that have half of the squared
    size."""
    energy = np.sort(_energy(values))[::-1]
    return int(np.searchsorted(np.cumsum(energy), 0.5 * energy.sum())) + 1


def rivals(values: np.ndarray) -> int:
    """The number of other channels that exceed, for at least one token, that token's mean size in
    the channels that hold half of the energy of `values` [n, d]."""
    half, sizes = channels_for_half(values), np.abs(values)
    order = np.argsort(-_energy(values), kind="stable")
    loud = sizes[:, order[:half]].mean(axis=1, keepdims=True)
    return int((sizes[:, order[half:]] > loud).any(axis=0).sum())


def loudest_channels(values: np.ndarray, most: int = 3) -> list[int]:
    """The channels of `values` [n, d] that stand out: by falling energy, each at least four times
    the median channel's."""
    energy = _energy(values)
    order = np.argsort(-energy, kind="stable")[:most]
    return [int(channel) for channel in order if energy[channel] >= 4 * np.median(energy)]


def _map(
    cells: np.ndarray, tokens: int, title: str, height: int, trace: dict[str, Any], **layout: Any
) -> Figure:
    """`cells` [rows, d] as a map whose rows stand for `tokens` visual tokens; trace: its colours
    and what a cell says."""
    step = tokens / max(len(cells), 1)
    axis = {"title": "visual token", "autorange": "reversed", "showgrid": False, "nticks": 6}
    return compose(
        [heat(cells, y0=0.5 * (step - 1.0), dy=step, **trace)],
        height,
        x={"title": title, "showgrid": False, "nticks": 9},
        y=axis,
        **layout,
    )


def _key_map(values: np.ndarray, top: float, title: str, tokens: int, **marks: Any) -> Figure:
    ticks = np.linspace(0.0, 255.0, 5)
    words = {"tickvals": ticks, "ticktext": [f"{v * top / 255.0:.2g}" for v in ticks]}
    trace = {
        "top": 255, "scale": KEY_SCALE, "colorbar": colour_bar("|K|") | words,
        "hover": "channel %{x}, token %{y:.0f}",
    }  # fmt: skip
    cells = quantise(pool_rows(np.abs(values), MAX_ROWS), top)
    return _map(cells, tokens, title, HEIGHT, trace, **marks)


def _named(channels: Sequence[int]) -> dict[str, Any]:
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
    return {"annotations": words, "margin": MARGIN}


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
    return {"shapes": [rule], "annotations": [words], "margin": MARGIN}


def draw_pair(
    raw: np.ndarray, rotated: np.ndarray, kept: int, *, tokens: int | None = None
) -> tuple[Drawing, Drawing]:
    """|K| of one head before the rotation, and |(K - mu) R|, columns in the order of their
    eigenvalues: on one colour scale, which is what makes them comparable.

    Args:
        raw: Keys after RoPE [n, d].
        rotated: centred Keys in the eigenbasis [n, d].
        kept: k, the columns that the cache keeps.
        tokens: visual tokens that the n rows represent; n where none was left out.
    """
    (n, d), top = raw.shape, scale_top(raw, rotated)
    half, also = channels_for_half(raw), rivals(raw)
    names = ", ".join(str(channel) for channel in np.argsort(-_energy(raw))[:4])
    before = Drawing(
        _key_map(raw, top, "channel", tokens or n, **_named(loudest_channels(raw))),
        f"Bright columns are outlier channels: {half} of {d} hold half of all the energy, and yet "
        f"{also} of the others outshine them for some token. Position turns channels in pairs: the "
        "ripples.",
        f"Heat map of the size of {n} visual Keys over {d} channels. The loudest channels are "
        f"{names}; {half} of {d} channels hold half of the squared size.",
    )
    energy, cut = _energy(rotated), _cut(kept) if kept < d else {}
    share = percent(float(energy[:kept].sum() / max(energy.sum(), 1e-30)))
    after = Drawing(
        _key_map(rotated, top, "rotated channel", tokens or n, **cut),
        f"The same Keys after the rotation: what matters has moved to the left, for every token "
        f"at once, so the first {kept} columns hold {share} of the variation. The query is turned "
        "in the same way, so nothing is rebuilt.",
        f"Heat map of the same {n} Keys in the rotated basis of {d} channels. The first {kept} "
        f"columns hold {share} of the variation; the rest is close to nothing.",
    )
    return before, after


def agreement(mask: np.ndarray) -> float:
    """Agreement of tokens on their channels: mean overlap of a token's kept set with the
    head-wide most common one, 1 where all tokens keep the same. `mask` is bool [n, d]."""
    kept = int(mask[0].sum()) if len(mask) else 0
    if kept == 0:
        return 1.0
    common = np.argsort(-mask.sum(axis=0), kind="stable")[:kept]
    return float(mask[:, common].sum() / (kept * len(mask)))


def draw_mask(mask: np.ndarray, style: Style, *, tokens: int | None = None) -> Drawing:
    """A mask bool [n, d] of kept channels, in the colour of its method; tokens: visual tokens that
    the n rows represent; n where none was left out."""
    n, d = mask.shape
    alike = n > 0 and bool((mask == mask[0]).all())
    rows = 1 if alike else min(n, MAX_ROWS)
    shown = mask[np.linspace(0, max(n - 1, 0), rows).astype(int)].astype(np.uint8)
    trace = {
        "top": 1, "scale": [(0, VEIL), (1, style.colour)], "showscale": False,
        "hover": "channel %{x}, " + ("every token" if alike else "token %{y:.0f}"),
    }  # fmt: skip
    basis = "rotated channel" if style.rotates else "channel"
    kept = percent(float(mask.mean()) if mask.size else 0.0)
    return Drawing(
        _map(shown, tokens or n, basis, MASK_HEIGHT, trace),
        style.reading or f"Filled cells are the channels that {style.label} keeps.",
        f"{style.label} mask over {n} visual tokens and {d} {basis}s: {kept} of the cells are "
        f"kept, and tokens agree on {percent(agreement(mask))} of their kept channels.",
    )


def effective_rank(eigenvalues: np.ndarray) -> float:
    """Participation ratio (sum of eigenvalues)^2 / sum of their squares, between 1 and d."""
    values = np.clip(np.asarray(eigenvalues, dtype=np.float64), 0.0, None)
    return float(values.sum() ** 2 / max(np.square(values).sum(), 1e-300))


def draw_spectrum(
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
        CHART_HEIGHT,
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


def relative_error(exact: np.ndarray, approximate: np.ndarray) -> float:
    """Root mean square of the error over that of the exact scores around their mean."""
    spread = np.asarray(exact, dtype=np.float64) - np.mean(exact, dtype=np.float64)
    error = np.asarray(approximate, dtype=np.float64) - exact
    return float(np.sqrt(np.square(error).sum() / max(np.square(spread).sum(), 1e-300)))


def draw_scores(exact: np.ndarray, approximate: np.ndarray, style: Style) -> Drawing:
    """A scatter plot around the diagonal on which nothing would be lost: scores q.k / sqrt(d) of
    visual tokens with full Keys and from the compressed cache, float [n]."""
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
        CHART_HEIGHT,
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
