"""Figures laid over the visitor's own image: kept visual tokens, and attention."""

from typing import NamedTuple

import numpy as np

from .theme import Drawing, Figure, compose, heat, percent

HEIGHT = 400
SHADE = "rgba(10, 15, 30, 0.80)"
HEAT = (
    (0.00, "rgba(10, 15, 30, 0.28)"),
    (0.25, "rgba(120, 80, 40, 0.30)"),
    (0.50, "rgba(245, 150, 30, 0.45)"),
    (0.75, "rgba(240, 90, 30, 0.55)"),
    (1.00, "rgba(214, 40, 50, 0.68)"),
)
GRID_CELLS = 400  # with more cells than this the lines between them would hide the picture


class Backdrop(NamedTuple):
    """The visitor's image as figures take it: an address, and its size in pixels."""

    source: str
    height: int
    width: int


def _over_image(
    under: Backdrop, cells: np.ndarray, scale: tuple, hover: np.ndarray, gap: float
) -> Figure:
    """The image under a heat map of `cells` [rows, cols] stretched over all of it."""
    rows, cols = cells.shape
    image = {
        "source": under.source, "xref": "x", "yref": "y", "x": 0, "y": 0,
        "sizex": cols, "sizey": rows, "sizing": "stretch", "layer": "below",
    }  # fmt: skip
    veil = heat(
        cells, scale, "row %{y:.0f}, column %{x:.0f}: %{text}", 255, text=hover, showscale=False,
        x0=0.5, y0=0.5, dx=1, dy=1, xgap=gap, ygap=gap,
    )  # fmt: skip
    cell_aspect = (under.height / rows) / (under.width / cols)
    return compose(
        [veil],
        HEIGHT,
        x={"visible": False, "range": [0, cols], "constrain": "domain"},
        y={
            "visible": False, "range": [rows, 0], "constrain": "domain", "scaleanchor": "x",
            "scaleratio": cell_aspect,
        },
        margin={"l": 4, "r": 4, "t": 4, "b": 4},
        images=[image],
    )  # fmt: skip


def draw_plain(under: Backdrop) -> Drawing:
    """The image alone, where the cells of visual tokens are unknown."""
    clear = ((0, "rgba(0,0,0,0)"), (1, "rgba(0,0,0,0)"))
    figure = _over_image(under, np.zeros((1, 1), np.uint8), clear, np.array([["the image"]]), 0)
    reading = (
        "Where this model's visual tokens are on the image is not known, so nothing is drawn over "
        "it; the other figures are complete."
    )
    return Drawing(figure, reading, "The image without an overlay.")


def draw_kept(under: Backdrop, kept: np.ndarray, seen: np.ndarray | None = None) -> Drawing:
    """The image with the cells of dropped visual tokens in shade.

    Args:
        under: the image.
        kept: True where the visual token is kept, bool [rows, cols].
        seen: True where there is a visual token, bool [rows, cols]; everywhere by default.
    """
    words = np.where(kept, "kept", "dropped")
    cells = kept.astype(np.uint8) * np.uint8(255)
    gap = 0.7 if kept.size <= GRID_CELLS else 0.0
    figure = _over_image(under, cells, ((0, SHADE), (1, "rgba(0,0,0,0)")), words, gap)
    count, total = int(kept.sum()), kept.size if seen is None else int(seen.sum())
    if count == total < kept.size:
        reading = f"All {total} visual tokens are kept; the model never sees what is in shade."
    elif count == total:
        reading = f"All {total} visual tokens are kept, so the model still sees the whole image."
    else:
        reading = (
            f"The model still sees the bright cells: {count} of {total} visual tokens. What is in "
            "shade can no longer be read."
        )
    upper = float(kept[: kept.shape[0] // 2].sum()) / max(count, 1)
    return Drawing(
        figure,
        reading,
        f"The image under a grid of {kept.shape[0]} by {kept.shape[1]} visual tokens: {count} of "
        f"{total} are kept ({percent(count / max(total, 1))}), {percent(upper)} of them in the "
        "upper half.",
    )


def draw_attention(under: Backdrop, attention: np.ndarray, shared: float | None = None) -> Drawing:
    """The image lit where attention falls.

    Args:
        under: the image.
        attention: weight of each visual token, non-negative float [rows, cols]; dropped tokens
            hold 0. Only its proportions matter.
        shared: for compressed Keys, the share of their attention that equals the exact Keys'.
    """
    mass = np.asarray(attention, dtype=np.float64)
    mass = mass / max(float(mass.sum()), 1e-30)
    level = np.sqrt(mass / max(float(mass.max()), 1e-30))
    words = np.vectorize(percent, otypes=[str])(mass)
    cells = np.rint(255 * level).astype(np.uint8)
    figure = _over_image(under, cells, HEAT, words, 0)
    ordered = np.sort(mass.ravel())[::-1]
    half = int(np.searchsorted(np.cumsum(ordered), 0.5 * ordered.sum())) + 1
    row, column = np.unravel_index(int(mass.argmax()), mass.shape)
    reading = (
        f"Of the attention that this head gives the image, half goes to {half} of {mass.size} "
        "visual tokens."
        if shared is None
        else f"From the kept channels alone {percent(shared)} of the attention falls as it did "
        f"from all of them; half goes to {half} visual tokens."
    )
    return Drawing(
        figure,
        reading,
        f"The image lit by attention over {mass.shape[0]} by {mass.shape[1]} visual tokens, "
        f"strongest at row {row}, column {column} with {percent(float(mass.max()))}; half of it "
        f"goes to {half} tokens.",
    )
