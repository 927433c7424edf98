"""The layout of visual tokens on the picture, for heat maps and masks; and pictures without the
blank margins that would make a model see the rest scaled down: a scanned receipt in the middle of a
large white sheet would be shown small."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from rotatek.inputs.images import MIN_SIDE

MOST_CROPPED: Final = 8  # a longer picture's middle is drawn as if it were 8 times as long
LOOK: Final = 28  # least pixels of a cell's side at which the picture is examined
APART: Final = 14  # levels of 255 by which ink differs from the paper, once averaged
REACH: Final = 8  # pixels to every side that are examined together ...
INK: Final = 15  # ... and their mean level, of 255, if 17 are ink: a hairline has as many
EVEN: Final = 0.97  # share of the edge that must be of one colour
WORTH: Final = 0.85  # share of the picture left, above which nothing is cut
MOST_GAIN: Final = 4  # times as large that anything is shown for it, at most


@dataclass(frozen=True)
class Grid:
    """Cells of equal size over all of one picture.

    Args:
        start: among all visual tokens of the prompt, the number of the first cell's.
        tokens: the number of each cell's token, counted from `start`, in reading order; -1 where
            the model saw nothing of the picture; None where they follow one another.
        picture: the number of the request's picture.
        trimmed: whether the cells without a token are blank margins, left out on purpose.
    """

    rows: int
    columns: int
    start: int = 0
    tokens: tuple[int, ...] | None = None
    trimmed: bool = False
    picture: int = 0

    @classmethod
    def of_views(cls, rows: int, columns: int, side: int) -> "tuple[Grid, ...]":
        """The grids of a picture that is cut into rows and columns of tiles, whose tokens come
        tile by tile, and shown whole behind them; side: tokens along one side of either."""
        count = rows * columns * side**2
        whole = cls(side, side, count)
        if not count:
            return (whole,)
        number = np.arange(count).reshape(rows, columns, side, side).transpose(0, 2, 1, 3)
        return cls(rows * side, columns * side, 0, tuple(number.ravel().tolist())), whole

    @classmethod
    def cropped(cls, side: int, width: int, height: int) -> "Grid":
        """A square of side x side tokens that covers the middle of a picture of another shape."""
        long = min(round(side * max(width, height) / min(width, height)), MOST_CROPPED * side)
        rows, columns = (long, side) if height > width else (side, long)
        cells = np.full((rows, columns), -1)
        top, left = (rows - side) // 2, (columns - side) // 2
        cells[top : top + side, left : left + side] = np.arange(side * side).reshape(side, side)
        return cls(rows, columns, 0, tuple(cells.ravel().tolist()))

    def to_cells(self, values: NDArray) -> NDArray:
        """Values of all visual tokens [..., N] on the cells [..., rows, columns]; 0 where none."""
        count = self.rows * self.columns
        index = np.arange(count) if self.tokens is None else np.asarray(self.tokens)
        place = np.where(index < 0, -1, index + self.start)
        nothing = np.zeros_like(values[..., :1])
        mapped = np.concatenate([values, nothing], -1)[..., place]
        return mapped.reshape(*values.shape[:-1], self.rows, self.columns)


def resized(image: Image.Image, width: int, height: int) -> Image.Image:
    """A picture at another size; no side is shorter than a picture's may be."""
    size = max(MIN_SIDE, width), max(MIN_SIDE, height)
    return image if image.size == size else image.resize(size, Image.Resampling.BICUBIC)


def scaled(image: Image.Image, least: int, most: int) -> Image.Image:
    """A picture in its proportions, of so many pixels at least and at most."""
    pixels = image.width * image.height
    factor = math.sqrt(min(max(pixels, least), most) / pixels)
    return resized(image, int(factor * image.width), int(factor * image.height))


def without_margins(image: Image.Image, unit: int, most: int) -> tuple[Image.Image, Grid] | None:
    """A picture without its blank margins, where all of it would be scaled down.

    Args:
        image: RGB.
        unit: pixels of a cell's side at the model's input.
        most: cells that the model reads, at most.

    Returns:
        The part that is shown, at its size, and the grid of the full picture; None where the
        picture fits, has no blank margin, or gains little.
    """
    width, height = image.size
    shown = math.sqrt(width * height / (most * unit * unit))  # times that it is scaled down
    if shown <= 1:
        return None
    factor = max(1, math.floor(shown * unit / max(unit, LOOK)))
    ink = _ink(np.asarray(image.reduce(factor), dtype=np.int16))
    space = round(unit * shown / 2)  # a margin of half a cell of the full picture stays
    sides: list[tuple[int, int]] = []
    for side, found in zip((height, width), (ink.any(1), ink.any(0)), strict=True):
        where = np.flatnonzero(found)
        if not len(where):
            return None
        first, last = int(where[0]), int(where[-1]) + 1
        sides.append((max(0, first * factor - space), min(side, last * factor + space)))
    (top, bottom), (left, right) = sides
    area = (right - left) * (bottom - top)
    if area > WORTH * width * height:
        return None
    # The part is made of complete cells, none smaller than shown pixel for pixel.
    cell = math.sqrt(max(unit * unit, area / most, width * height / most / MOST_GAIN**2))
    while True:
        columns, rows = round(width / cell), round(height / cell)
        wide, high = width / columns, height / rows
        first_row, first_column = int(top / high), int(left / wide)
        down = min(rows, math.ceil(bottom / high)) - first_row
        across = min(columns, math.ceil(right / wide)) - first_column
        if down * across <= most:
            break
        cell *= 1.01
    if columns * rows <= most:
        return None
    cells = np.full((rows, columns), -1)
    cells[first_row:, first_column:][:down, :across] = np.arange(down * across).reshape(down, -1)
    box = (
        first_column * wide, first_row * high,
        (first_column + across) * wide, (first_row + down) * high,
    )  # fmt: skip
    part = image.resize(
        (across * unit, down * unit), Image.Resampling.BICUBIC, box=box, reducing_gap=3.0
    )
    return part, Grid(rows, columns, tokens=tuple(cells.ravel().tolist()), trimmed=True)


def _ink(seen: NDArray[np.int16]) -> NDArray[np.bool_]:
    """The ink [H, W] of a picture [H, W, 3], specks left out; none where its edge is not blank."""
    edge = np.concatenate([seen[0], seen[-1], seen[:, 0], seen[:, -1]])
    apart = np.abs(seen - np.median(edge, 0).astype(np.int16)).max(-1) > APART
    rim = np.concatenate([apart[0], apart[-1], apart[:, 0], apart[:, -1]])
    around = Image.fromarray(apart.astype(np.uint8) * 255).filter(ImageFilter.BoxBlur(REACH))
    return apart & (np.asarray(around) >= INK) & (rim.mean() <= 1 - EVEN)
