"""Printing a slip: its lines in one typeface, as large as they fit into a strip of paper."""

from dataclasses import dataclass
from typing import Final

from pocket.content.colours import Colour
from pocket.content.slips import CENTRE, GAP, RIGHT, Line, Slip
from pocket.layouts.fonts import Face
from pocket.layouts.pillow.canvas import Canvas
from pocket.layouts.stretched import stretched

BLACK: Final = (0, 0, 0)


@dataclass(frozen=True)
class Type:
    """The type of a printer's lines.

    Attributes:
        slug: The font.
        bold: The font of bold lines; the same one is struck twice.
        wide: Letters' width, as a share of the font's own.
        dots: Rows of dots of a letter, or 0.
        pitch: From line to line, as a share of the size.
    """

    slug: str
    bold: str
    wide: float = 1.0
    dots: int = 0
    pitch: float = 1.2

    def face(self, size: float, line: Line) -> Face:
        """The face of a line."""
        slug = self.bold if line.bold else self.slug
        dots = round(self.dots * line.tall) if self.dots else 0
        return stretched(slug, size * line.tall, self.wide * line.wide / line.tall, dots)


def largest(slip: Slip, type_: Type, width: float, height: float, most: float) -> float:
    """The size, in pixels and at most `most`, at which a slip fits; may be too small to read."""
    rooms = sum(line.room for line in slip.lines)
    size = min(most, height / max(1.0, rooms) / type_.pitch)
    wide = max((_need(line, type_) for line in slip.lines if line.cells), default=1.0)
    size = min(size, width / wide)
    return size


def _need(line: Line, type_: Type) -> float:
    """Width of a line at a size of one pixel, about."""
    face = type_.face(24, line)
    sums = sum(face.width(cell.text) for cell in line.cells)
    return (sums + (len(line.cells) - 1) * GAP * face.width("0")) / 24


def print_slip(
    canvas: Canvas, slip: Slip, type_: Type, size: float, area: tuple[float, float, float],
    ink: Colour = BLACK,
) -> float:  # fmt: skip
    """Print every line; returns where the next one would begin.

    Args:
        canvas: Printed on.
        slip: What.
        type_: In what type.
        size: Of a plain letter, in pixels.
        area: Left, top and right end of the lines.
        ink: Of everything.
    """
    left, y, right = area
    for line in slip.lines:
        high = line.room * size * type_.pitch
        if line.rule:
            _rule(canvas, line, type_, size, (left, y, right), ink)
        elif line.cells:
            face = type_.face(size, line)
            twice = line.bold and type_.bold == type_.slug
            _cells(canvas, line, face, (left, y + (high - face.line) / 2, right), ink, twice)
        y += high
    return y


def _cells(
    canvas: Canvas, line: Line, face: Face, area: tuple[float, float, float], ink: Colour,
    twice: bool,
) -> None:  # fmt: skip
    """The texts of one line; one that would run into the text before it moves on."""
    left, y, right = area
    gap = GAP * face.width("0") * 0.5
    widths = [face.width(cell.text) for cell in line.cells]
    starts, end = list[float](), left - 2 - gap
    for cell, width in zip(line.cells, widths, strict=True):
        x = left + cell.place * (right - left)
        x -= width if cell.align == RIGHT else width / 2 if cell.align == CENTRE else 0
        starts.append(max(x, end + gap))
        end = starts[-1] + width
    limit = right + 1  # whatever runs over the right end moves all before it
    for i in reversed(range(len(starts))):
        starts[i] = min(starts[i], limit - widths[i])
        limit = starts[i] - gap
    for cell, x in zip(line.cells, starts, strict=True):
        canvas.text(x, y, cell.text, face, ink)
        if twice:
            canvas.strike_again(x + 1, y, cell.text, face, ink)


def _rule(
    canvas: Canvas, line: Line, type_: Type, size: float, area: tuple[float, float, float],
    ink: Colour
) -> None:  # fmt: skip
    """A line across, drawn or of characters."""
    left, y, right = area
    if line.rule == "line":
        middle = y + size * type_.pitch / 2
        canvas.line([(left, middle), (right, middle)], ink, max(1, round(size / 14)))
        return
    if line.rule == "dots":
        middle, step = round(y + size * type_.pitch / 2), max(3, round(size / 4))
        for x in range(round(left), round(right), step):
            canvas.line([(x, middle), (x + step // 2, middle)], ink)
        return
    face = type_.face(size, line)
    count = int((right - left) / max(1.0, face.width(line.rule)))
    text = line.rule * count
    canvas.text((left + right) / 2, y, text, face, ink, "centre")
