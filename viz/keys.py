"""Keys of one head, channel by channel: raw and rotated on one colour scale (the paper's figures 1
to 3), and which channels a method keeps, token by token."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .theme import (
    KEY_SCALE,
    VEIL,
    Drawing,
    Figure,
    Style,
    colour_bar,
    compose,
    heat,
    percent,
    pool_rows,
    quantise,
)

MAX_ROWS = 320
LOUD = "#b26a00"  # 4.1:1 on white, 4.3:1 on the dark ground
HEIGHT, MASK_HEIGHT = 380, 300
MARGIN = {"l": 48, "r": 14, "t": 22, "b": 40}


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
    """A mask, kept cells in the colour of its method.

    Args:
        mask: True where the channel of that token is kept, bool [n, d].
        style: the method's.
        tokens: visual tokens that the n rows represent; n where none was left out.
    """
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
