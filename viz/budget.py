"""The bytes of a KV cache by kind, column by column."""

from collections.abc import Mapping

import numpy as np

from .theme import Drawing, compose, percent, size

PARTS = {  # name, fill, and the ink that can be read on it
    "visual_keys": ("visual K", "#0a7f6d", "#ffffff"),
    "visual_values": ("visual V", "#62c2b0", "#0a0f1e"),
    "text": ("text", "#97a1b0", "#0a0f1e"),
    "state": ("state", "#6f8fc4", "#0a0f1e"),
    "bases": ("bases", "#d3a52b", "#0a0f1e"),
    "masks": ("masks", "#a8557f", "#ffffff"),
    "lengths": ("counts", "#4d5563", "#ffffff"),
}
SLIVER = 1e-3  # of the longest bar; a thinner part is counted but not drawn
ROW = 54


def draw(columns: Mapping[str, Mapping[str, int]]) -> Drawing:
    """Stacked bars, one a column of the comparison; the reading compares the second with the first.

    Args:
        columns: column title -> bytes of each part, keys as in `PARTS`; a missing part is 0.
    """
    titles = list(columns)
    totals = {title: sum(parts.values()) for title, parts in columns.items()}
    whole = max(totals[titles[0]], 1)
    widest = max(max(totals.values()), 1)
    traces = []
    for part, (name, fill, ink) in PARTS.items():
        values = np.array([columns[title].get(part, 0) for title in titles], dtype=np.float64)
        if values.max() < SLIVER * widest:
            continue
        traces.append({
            "type": "bar", "orientation": "h", "name": name, "width": 0.6,
            "y": np.arange(len(titles)), "x": values, "marker": {"color": fill},
            "text": [size(v) if v > 0.13 * widest else "" for v in values],
            "textposition": "inside", "insidetextanchor": "middle", "textangle": 0,
            "textfont": {"color": ink, "size": 12}, "constraintext": "inside",
            "customdata": [size(v) for v in values],
            "hovertemplate": name + ": %{customdata}<extra></extra>",
        })  # fmt: skip
    shares = ["", *(f" · {percent(totals[title] / whole)}" for title in titles[1:])]
    rows = [
        f"{title}<br><b>{size(totals[title])}{share}</b>"
        for title, share in zip(titles, shares, strict=True)
    ]
    figure = compose(
        traces,
        62 + ROW * len(titles),
        x={"visible": False, "range": [0, widest]},
        y={
            "tickvals": np.arange(len(titles)), "ticktext": rows, "showgrid": False,
            "range": [len(titles) - 0.55, -0.45], "automargin": True, "ticklabelstandoff": 8,
        },
        legend=True,
        left=12,
        bottom=8,
        barmode="stack",
        uniformtext={"mode": "hide", "minsize": 12},  # on a phone, where it does not fit
    )  # fmt: skip
    names = {part: name for part, (name, *_) in PARTS.items()}
    lines = "; ".join(
        f"{title}: " + ", ".join(f"{names[p]} {size(held[p])}" for p in names if held.get(p))
        for title, held in columns.items()
    )
    summary = f"Stacked bars of KV cache bytes. {lines}."
    return Drawing(figure, _reading(titles, totals, columns), summary)


def _reading(titles: list[str], totals: dict[str, int], columns: Mapping) -> str:
    if len(titles) < 2:
        return f"The cache holds {size(totals[titles[0]])}."
    first, chosen = titles[0], titles[1]
    saved = 1.0 - totals[chosen] / max(totals[first], 1)
    parts = columns[chosen]
    most = max(parts.values(), default=0)
    largest = " and ".join(PARTS[part][0] for part in PARTS if parts.get(part, 0) == most)
    return (
        f"{chosen} stores {size(totals[chosen])} where {first} stores {size(totals[first])}, "
        f"{percent(saved)} less; the largest part is {largest}."
    )
