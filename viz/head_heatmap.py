"""A map of layers and heads: where the rotation captures much, and where it errs."""

from typing import NamedTuple

import numpy as np

from .theme import KEY_SCALE, Drawing, colour_bar, compose, heat, percent


class Quantity(NamedTuple):
    """The quantity of the map, a share: its name, and whether more is better."""

    title: str
    more_is_better: bool


QUANTITIES = {
    "energy": Quantity("captured energy", True),
    "error": Quantity("score error", False),
    "damage": Quantity("damage", False),
}
MAX_WRITTEN = 12  # layers across; beyond this the cells are too small to hold text


def _written(value: float) -> str:
    return "nothing here" if np.isnan(value) else percent(value)


def _bare(value: float) -> str:
    """A number short enough for a cell on a telephone: of percent."""
    return "" if np.isnan(value) else percent(value).removesuffix(" %")


def draw(values: np.ndarray, quantity: str, layer: int, head: int) -> Drawing:
    """The map, the chosen cell framed.

    Args:
        values: one value a layer and kv head, float [layers, heads]; NaN where a layer has no such
            head or nothing is measured: the cell stays empty.
        quantity: a key of `QUANTITIES`.
        layer: the chosen layer.
        head: the chosen kv head.
    """
    layers, heads = values.shape
    what = QUANTITIES[quantity]
    whole = np.vectorize(_written, otypes=[str])(values)
    bare = np.vectorize(_bare, otypes=[str])(values)
    bar = colour_bar(what.title)
    bar["tickformat"] = ".0%" if _spread(values) > 0.05 else ".1%"
    written = layers <= MAX_WRITTEN
    axis = "layer (cells in %)" if written else "layer"
    cells = heat(
        values.T.astype(np.float32), KEY_SCALE, "layer %{x}, head %{y}: %{customdata}",
        text=bare.T, customdata=whole.T, texttemplate="%{text}" if written else None,
        textfont={"size": 11}, xgap=2, ygap=2, colorbar=bar, showscale=not written,
    )  # fmt: skip
    frame = {
        "type": "rect", "x0": layer - 0.5, "x1": layer + 0.5, "y0": head - 0.5, "y1": head + 0.5,
        "line": {"color": "#f4a01c", "width": 3},
    }  # fmt: skip
    figure = compose(
        [cells],
        max(150, 74 + 46 * min(heads, 8)),
        x={
            "title": axis, "showgrid": False, "dtick": 1 if layers <= 16 else 4,
            "range": [-0.5, layers - 0.5],
        },
        y={"title": "kv head", "showgrid": False, "range": [heads - 0.5, -0.5], "dtick": 1},
        left=58,
        shapes=[frame],
    )  # fmt: skip
    return Drawing(figure, *_words(values, what, layer, head))


def _spread(values: np.ndarray) -> float:
    return 0.0 if np.isnan(values).all() else float(np.nanmax(values) - np.nanmin(values))


def _words(values: np.ndarray, what: Quantity, layer: int, head: int) -> tuple[str, str]:
    if np.isnan(values).all():
        said = f"The {what.title} is not measured yet"
        return f"{said}.", f"{said}: a map of {values.shape[0]} layers is empty."
    here = _written(float(values[layer, head]))
    worst = np.nanargmin(values) if what.more_is_better else np.nanargmax(values)
    row, column = np.unravel_index(worst, values.shape)
    there = _written(float(values[row, column]))
    mean = _written(float(np.nanmean(values)))
    reading = f"Layer {layer}, head {head}: {what.title} {here}"
    if (row, column) != (layer, head) and _spread(values) > 0:
        reading += f"; the hardest is layer {row}, head {column} with {there}"
    return (
        reading + ". Choose a cell to look inside it.",
        f"Map of {what.title} over {values.shape[0]} layers and {values.shape[1]} heads: mean "
        f"{mean}, chosen cell {here}, hardest cell layer {row}, head {column} with {there}.",
    )
