"""Measured values row by row, with intervals: a table that can be read at a glance."""

from collections.abc import Sequence
from typing import NamedTuple

from .theme import GRID, INK, NEUTRAL, Drawing, compose

ROW = 26  # pixels a row; a label of two lines takes half as much again
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "star")


class Dot(NamedTuple):
    """One measurement.

    row: the words beside it; low, high: its interval, equal to the value without an interval;
    colour: as "#rrggbb"; series: what gives the symbol.
    """

    row: str
    value: float
    low: float
    high: float
    colour: str = NEUTRAL
    series: str = ""


class Scale(NamedTuple):
    """The axis of values: its title, the d3 format and the suffix a value is written with."""

    title: str
    form: str = ".1f"
    suffix: str = ""
    log: bool = False
    more_is_better: bool = True

    def write(self, value: float) -> str:
        """A value as it is spoken."""
        return f"{value:{self.form}}{self.suffix}"


def draw(dots: Sequence[Dot], scale: Scale, rule: tuple[float, str] | None = None) -> Drawing:
    """A dot a measurement, its interval as a line through it; rows from the top.

    Args:
        dots: in the order of their rows; a row may hold one dot of each series.
        scale: what the values are.
        rule: a value that all are measured against, and its name.
    """
    rows = list(dict.fromkeys(dot.row for dot in dots))
    names = list(dict.fromkeys(dot.series for dot in dots))
    traces = [_trace(dots, name, rows, scale, SYMBOLS[i % 6]) for i, name in enumerate(names)]
    several = len(names) > 1
    row = ROW * 3 // 2 if any("<br>" in name for name in rows) else ROW
    figure = compose(
        traces,
        (100 if several else 66) + row * len(rows),
        x={
            "title": scale.title,  # which names every unit but a share's
            "ticksuffix": scale.suffix if "%" in scale.suffix else "",
            **({"type": "log", "dtick": "D2"} if scale.log else {"type": "-"}),
        },
        y={
            "tickvals": list(range(len(rows))), "ticktext": rows, "automargin": True,
            "range": [len(rows) - 0.4, -0.6], "gridcolor": GRID, "ticklabelstandoff": 6,
        },
        legend=several,
        left=12,
        **({} if rule is None else _rule(*rule)),
    )  # fmt: skip
    summary = f"Dot plot of {scale.title}. {'; '.join(_described(dot, scale) for dot in dots)}."
    return Drawing(figure, _reading(dots, scale), summary)


def _trace(dots: Sequence[Dot], name: str, rows: list[str], scale: Scale, symbol: str) -> dict:
    """The dots of one series."""
    mine = [dot for dot in dots if dot.series == name]
    fills = [dot.colour for dot in mine]
    return {
        "type": "scatter", "mode": "markers", "name": name,
        "x": [dot.value for dot in mine], "y": [rows.index(dot.row) for dot in mine],
        "marker": {"color": fills, "size": 10, "symbol": symbol},
        "error_x": {
            "type": "data", "symmetric": False, "thickness": 1.4, "width": 3, "color": INK,
            "array": [dot.high - dot.value for dot in mine],
            "arrayminus": [dot.value - dot.low for dot in mine],
        },
        "customdata": [_described(dot, scale) for dot in mine],
        "hovertemplate": "%{customdata}<extra></extra>",
    }  # fmt: skip


def _described(dot: Dot, scale: Scale) -> str:
    text = f"{dot.row.replace('<br>', ' ')}: {scale.write(dot.value)}"
    if dot.high > dot.low:
        text += f" ({scale.write(dot.low)} to {scale.write(dot.high)})"
    return f"{text}, {dot.series}" if dot.series else text


def _rule(value: float, name: str) -> dict:
    """A line down at what all rows are measured against."""
    line = {
        "type": "line", "x0": value, "x1": value, "y0": 0, "y1": 1, "yref": "paper",
        "line": {"color": INK, "dash": "dot", "width": 1},
    }  # fmt: skip
    words = {
        "x": value, "y": 0, "yref": "paper", "text": name, "showarrow": False, "xanchor": "right",
        "yanchor": "bottom", "xshift": -4,
    }  # fmt: skip
    return {"shapes": [line], "annotations": [words]}


def _reading(dots: Sequence[Dot], scale: Scale) -> str:
    ends = sorted(dots, key=lambda dot: dot.value, reverse=scale.more_is_better)
    better = "Further right is better" if scale.more_is_better else "Further left is better"
    return f"{better}: from {_described(ends[0], scale)}, to {_described(ends[-1], scale)}."
