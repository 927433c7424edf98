"""Line charts as SVG, one below the other: the documents' figures, which need no script."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDE, LEFT, TOP, RIGHT = 760, 52, 34, 178
INK, FAINT = "#667080", "#66708044"


class Line(NamedTuple):
    """Points (x, y) of one name, in its colour; dash: as SVG has it; dots: whether they are
    drawn."""

    name: str
    colour: str
    dash: str
    points: Sequence[tuple[float, float]]
    dots: bool = True


class Axis(NamedTuple):
    """Ends of an axis, and its ticks with their words."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]

    def share(self, value: float) -> float:
        """Where a value lies, 0 to 1."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)


class Chart(NamedTuple):
    """A title, lines between two axes, and a height that a dotted rule marks."""

    title: str
    lines: Sequence[Line]
    x: Axis
    y: Axis
    rule: float | None = None


def picture(charts: Sequence[Chart], high: int, below: int) -> str:
    """All charts as one SVG file.

    Args:
        charts: from the top.
        high: pixels of each.
        below: pixels of each one's lower margin.
    """
    panels = (_panel(chart, n * high, high, below) for n, chart in enumerate(charts))
    size = f'width="{WIDE}" height="{high * len(charts)}"'
    view = f'viewBox="0 0 {WIDE} {high * len(charts)}"'
    text = f'font-family="sans-serif" font-size="12" fill="{INK}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} {text}>'
    return "\n".join([head, *(part for panel in panels for part in panel), "</svg>"]) + "\n"


def _panel(chart: Chart, top: int, high: int, below: int) -> Iterator[str]:
    """The lines of SVG of one chart, whose upper edge is at `top`."""
    across, down = WIDE - LEFT - RIGHT, high - TOP - below

    def x(value: float) -> float:
        return LEFT + across * chart.x.share(value)

    def y(value: float) -> float:
        return top + TOP + down * (1 - chart.y.share(value))

    yield _text(LEFT, top + 18, chart.title, ' font-size="14"')
    upright = "".join(f"M{_spot(x(value), top + TOP)}v{down}" for value, _ in chart.x.ticks)
    yield f'<path d="{upright}" stroke="{FAINT}"/>'
    level = "".join(f"M{_spot(LEFT, y(value))}h{across}" for value, _ in chart.y.ticks)
    yield f'<path d="{level}" stroke="{FAINT}"/>'
    yield '<g text-anchor="middle">'
    yield from (_text(x(value), top + high - below + 16, word) for value, word in chart.x.ticks)
    yield '</g><g text-anchor="end">'
    yield from (_text(LEFT - 8, y(value) + 4, word) for value, word in chart.y.ticks)
    yield "</g>"
    if chart.rule is not None:
        rule = f'stroke="{INK}" stroke-dasharray="2 4"'
        yield f'<path d="M{_spot(LEFT, y(chart.rule))}h{across}" {rule}/>'
    for number, line in enumerate(chart.lines):
        points = [(x(left), y(up)) for left, up in line.points]
        path = "L".join(_spot(*point) for point in points)
        dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
        yield f'<g fill="{line.colour}">'
        yield f'<path d="M{path}" fill="none" stroke="{line.colour}" stroke-width="2"{dash}/>'
        for px, py in points if line.dots else ():
            yield f'<circle cx="{_short(px)}" cy="{_short(py)}" r="3"/>'
        if line.name:
            yield _text(WIDE - RIGHT + 16, top + TOP + 10 + 17 * number, line.name)
        yield "</g>"


def _text(x: float, y: float, said: str, more: str = "") -> str:
    return f'<text x="{_short(x)}" y="{_short(y)}"{more}>{escape(said)}</text>'


def _spot(x: float, y: float) -> str:
    return f"{_short(x)} {_short(y)}"


def _short(pixels: float) -> str:
    """At most one decimal."""
    return f"{pixels:.1f}".removesuffix(".0")
