"""Shared by drawn charts: the plot area, titles, legends and grounds."""

import random
from dataclasses import dataclass, replace

from pocket.content.charts import ChartData
from pocket.content.colours import Colour
from pocket.layouts.pillow.canvas import Canvas
from pocket.layouts.style import PageStyle


@dataclass(frozen=True)
class Frame:
    """The plot area and its scale."""

    x0: float
    y0: float
    x1: float
    y1: float
    low: float
    high: float

    def y(self, value: float) -> float:
        """Height in the image of `value`."""
        return self.y1 - (value - self.low) / (self.high - self.low) * (self.y1 - self.y0)

    def x(self, value: float) -> float:
        """Place in the image of `value` on a horizontal value axis."""
        return self.x0 + (value - self.low) / (self.high - self.low) * (self.x1 - self.x0)


def put_title(rng: random.Random, canvas: Canvas, style: PageStyle, data: ChartData) -> float:
    """Draw the title if it fits (else it is dropped); returns where the rest begins."""
    y = float(style.margin)
    face = rng.choice((style.heading.bold, style.heading.regular))(
        style.size * rng.uniform(1.05, 1.5)
    )
    if rng.random() < 0.12 or face.width(data.title) > style.width - 2 * style.margin:
        data.title = ""
        return y
    if rng.random() < 0.5:
        canvas.text(style.width / 2, y, data.title, face, style.theme.ink, "centre")
    else:
        canvas.text(style.margin, y, data.title, face, style.theme.ink)
    return y + face.line * 1.25


def put_legend(
    canvas: Canvas,
    style: PageStyle,
    names: list[str],
    colours: list[Colour],
    y: float,
) -> float:
    """A legend in rows from `y` down; returns where it ends."""
    face = style.family.regular(max(10, style.size * 0.9))
    mark = face.ascent * 0.7
    x = float(style.margin)
    for name, colour in zip(names, colours, strict=True):
        width = mark + 6 + face.width(name) + style.size
        if x + width > style.width - style.margin and x > style.margin:
            x, y = float(style.margin), y + face.line * 1.15
        middle = y + face.ascent * 0.3
        canvas.box(x, middle, x + mark, middle + mark, fill=colour)
        canvas.text(x + mark + 6, y, name, face, style.theme.ink)
        x += width
    return y + face.line * 1.3


def side_legend(
    canvas: Canvas, style: PageStyle, data: ChartData, y: float
) -> tuple[PageStyle, float]:
    """A legend at the right edge, or above if that is too wide: what is left, and its top."""
    face = style.family.regular(max(10, style.size * 0.9))
    mark = face.ascent * 0.7
    wide = mark + 14 + max(map(face.width, data.series))
    if wide > style.width * 0.38 or y + len(data.series) * face.line * 1.3 > style.height:
        return style, put_legend(canvas, style, data.series, [c for _, c in data.colours], y)
    x = style.width - style.margin - wide + 8
    for i, name in enumerate(data.series):
        top = y + i * face.line * 1.3
        middle = top + face.ascent * 0.3
        canvas.box(x, middle, x + mark, middle + mark, fill=data.colours[i][1])
        canvas.text(x + mark + 6, top, name, face, style.theme.ink)
    return replace(style, width=int(style.width - wide)), y


def ground(rng: random.Random, canvas: Canvas, style: PageStyle, frame: Frame) -> Colour:
    """Tint the plot area at times, as web libraries do; returns the colour of its grid."""
    if rng.random() > 0.3:
        return style.theme.rule
    tint = (229, 236, 246) if not style.theme.dark and rng.random() < 0.6 else style.theme.panel
    canvas.box(frame.x0, frame.y0, frame.x1, frame.y1, fill=tint)
    return (255, 255, 255) if tint == (229, 236, 246) else style.theme.rule
