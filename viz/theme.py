"""The one style of every figure: colours, type, and the words that go with a picture.

A figure is drawn on a transparent ground, because it cannot know whether the page is light or dark.
Every colour below therefore has a contrast of at least 3:1 against both white and the page's dark
ground, and no two methods have similar colours for a colour-blind reader; both are tested.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

FONT = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"
INK = "#78818f"  # axis and annotation text: 4.0:1 on white, 4.6:1 on the dark ground
GRID = "rgba(120, 129, 143, 0.20)"
VEIL = "rgba(120, 129, 143, 0.13)"
NEUTRAL = "#667080"  # what nothing was done to
ACCENT = "#0ca38a"  # of the page, and of what stays after a rotation
SECOND = "#d9780f"  # a second series where no method is meant

# |K|: luminance rises steadily from ink through the accent to pale straw.
KEY_SCALE = (
    (0.000, "#0a0f1e"),
    (0.125, "#10243d"),
    (0.250, "#11455f"),
    (0.375, "#0d6878"),
    (0.500, "#0f8d85"),
    (0.625, "#3fb085"),
    (0.750, "#8ccd86"),
    (0.875, "#d3e596"),
    (1.000, "#fdfbd8"),
)


AXIS = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, "ticks": "", "fixedrange": True}


class Figure(NamedTuple):
    """A plotly figure as plain dictionaries of numbers and arrays: plotly's own class checks every
    entry, 0.1 s for ten figures; the tests check instead."""

    data: list[dict[str, Any]]
    layout: dict[str, Any]


class Drawing(NamedTuple):
    """A figure and its words: `reading` says what to see, `summary` replaces the picture."""

    figure: Figure
    reading: str
    summary: str


class Style(Protocol):
    """What a figure asks of a compared thing; every channel method has it as class attributes.

    reading: what to see in its mask; may be empty. colour: "#rrggbb", at least 3:1 against white
    and the page's dark ground. rotates: whether it stores rotated channels.
    """

    @property
    def label(self) -> str: ...
    @property
    def reading(self) -> str: ...
    @property
    def colour(self) -> str: ...
    @property
    def rotates(self) -> bool: ...


def faded(hex_colour: str, alpha: float) -> str:
    """`#rrggbb` as an rgba string of opacity `alpha`."""
    red, green, blue = (int(hex_colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {alpha:g})"


def percent(fraction: float) -> str:
    """`0.974` as `97 %`; one decimal where a whole number would read as all or nothing."""
    value = 100.0 * fraction
    near_edge = 0.0 < value < 0.95 or 99.05 < value < 99.95
    return f"{value:.1f} %" if near_edge else f"{value:.0f} %"


UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))


def size(count: float) -> str:
    """A number of bytes in its largest unit: `1.31 MB`, `98.3 kB`, `512 B`."""
    unit, scale = next(one for one in UNITS if count >= one[1] or one[1] == 1.0)
    return f"{count:.0f} B" if scale == 1.0 else f"{count / scale:.3g} {unit}"


def compose(
    traces: Sequence[dict],
    height: int,
    *,
    x: dict,
    y: dict,
    legend: bool = False,
    left: int = 48,
    bottom: int = 40,
    **layout: Any,
) -> Figure:
    """A figure in the house style, `height` pixels tall and as wide as its container; x and y are
    settings of its axes, `layout` overrides the defaults."""
    style: dict[str, Any] = {
        "height": height,
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12, "color": INK},
        "margin": {"l": left, "r": 14, "t": 34 if legend else 12, "b": bottom},
        "showlegend": legend,
        "legend": {
            "orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "xanchor": "left",
            "traceorder": "normal",
        },
        "hoverlabel": {"font": {"family": FONT, "size": 12}, "bordercolor": "rgba(0,0,0,0)"},
        "dragmode": False,
    }  # fmt: skip
    for name, axis in (("xaxis", x), ("yaxis", y)):
        titled = {"title": {"text": axis["title"], "standoff": 8}} if "title" in axis else {}
        style[name] = AXIS | axis | titled
    return Figure(list(traces), style | layout)


def heat(cells: np.ndarray, scale: Any, hover: str, top: float | None = None, **more: Any) -> dict:
    """The trace of a heat map of cells [rows, columns]; top: the value drawn brightest, where 0 is
    the darkest; by default the data's own ends."""
    ends = {} if top is None else {"zmin": 0, "zmax": top}
    said = {"colorscale": scale, "hovertemplate": f"{hover}<extra></extra>"}
    return {"type": "heatmap", "z": cells} | ends | said | more


def colour_bar(title: str) -> dict:
    """The slim colour bar that every heat map shares."""
    return {
        "title": {"text": title, "side": "right", "font": {"size": 11}}, "thickness": 9,
        "len": 1.0, "outlinewidth": 0, "ticks": "", "tickfont": {"size": 11}, "xpad": 6,
    }  # fmt: skip


def pool_rows(values: np.ndarray, rows: int) -> np.ndarray:
    """Max-pool `values` [n, d] down to at most `rows` rows; a bright cell never disappears."""
    if len(values) <= rows:
        return values
    edges = np.linspace(0, len(values), rows + 1).astype(int)[:-1]
    return np.maximum.reduceat(values, edges, axis=0)


def quantise(values: np.ndarray, top: float) -> np.ndarray:
    """Non-negative `values` as uint8, `top` and above becoming 255: an eighth of float64."""
    return np.clip(np.rint(values * (255.0 / max(top, 1e-30))), 0, 255).astype(np.uint8)
