"""Remove the blank margins of pictures that a model would otherwise scale down.

A scanned receipt in the middle of a large white sheet would be shown small; without the sheet's
blank margin the same visual tokens show its type larger. Nothing else changes: a picture that fits
is left alone, and the margin has the one colour of the picture's edge.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

LOOK: Final = 28  # least pixels of a cell's side at which the picture is examined
APART: Final = 14  # levels of 255 by which ink differs from the paper, once averaged
REACH: Final = 8  # pixels to every side that are examined together ...
INK: Final = 17  # ... and how many of them must be ink: a hairline has enough, a speck has not
EVEN: Final = 0.97  # share of the edge that must be of one colour
WORTH: Final = 0.85  # share of the picture left, above which nothing is cut
MOST_GAIN: Final = 4  # times as large that anything is shown for it, at most


@dataclass(frozen=True)
class CropBox:
    """The visible part of a picture, in cells of a grid over all of it.

    Args:
        rows: cells of the full picture, from top to bottom.
        columns: from left to right.
        top: first row of the visible part.
        left: its first column.
        bottom: the row just below it.
        right: the column just behind it.
    """

    rows: int
    columns: int
    top: int
    left: int
    bottom: int
    right: int

    @property
    def part(self) -> tuple[int, int, int, int]:
        """Top, left, bottom and right of the visible part."""
        return self.top, self.left, self.bottom, self.right

    def of(self, image: Image.Image, unit: int) -> Image.Image:
        """That part of `image`, `unit` pixels a cell."""
        wide, high = image.width / self.columns, image.height / self.rows
        box = (self.left * wide, self.top * high, self.right * wide, self.bottom * high)
        size = ((self.right - self.left) * unit, (self.bottom - self.top) * unit)
        return image.resize(size, Image.Resampling.BICUBIC, box=box, reducing_gap=3.0)


def blank_margins(image: Image.Image, unit: int, most: int) -> CropBox | None:
    """The part of a picture without blank margins, where all of it would be scaled down.

    Args:
        image: RGB.
        unit: pixels of a cell's side at the model's input.
        most: cells that the model reads, at most.

    Returns:
        The part, in cells; None where the picture fits, has no blank margin, or gains little.
    """
    width, height = image.size
    shown = math.sqrt(width * height / (most * unit * unit))  # times that it is scaled down
    if shown <= 1:
        return None
    factor = max(1, math.floor(shown * unit / max(unit, LOOK)))
    busy = _busy(np.asarray(image.reduce(factor), dtype=np.int16))
    if busy is None:
        return None
    down, across = (np.flatnonzero(busy.any(axis)) for axis in (1, 0))
    if not len(down):
        return None
    found = (across[0], down[0], across[-1] + 1, down[-1] + 1)
    left, top, right, bottom = (int(v) * factor for v in found)
    space = round(unit * shown / 2)  # a margin of half a cell of the full picture stays
    box = (
        max(0, left - space), max(0, top - space),
        min(width, right + space), min(height, bottom + space),
    )  # fmt: skip
    if (box[2] - box[0]) * (box[3] - box[1]) > WORTH * width * height:
        return None
    return _in_cells(image.size, box, unit, most)


def _busy(seen: NDArray[np.int16]) -> NDArray[np.bool_] | None:
    """The ink [H, W] of a picture [H, W, 3], as bool; None where its edge is not blank."""
    edge = np.concatenate([seen[0], seen[-1], seen[:, 0], seen[:, -1]])
    apart = np.abs(seen - np.median(edge, 0).astype(np.int16)).max(-1) > APART
    rim = np.concatenate([apart[0], apart[-1], apart[:, 0], apart[:, -1]])
    if rim.mean() > 1 - EVEN:
        return None
    side = 2 * REACH + 1
    summed = np.pad(apart, side // 2 + 1).astype(np.int32).cumsum(0).cumsum(1)
    around = (
        summed[side:, side:] - summed[:-side, side:] - summed[side:, :-side]
        + summed[:-side, :-side]
    )  # fmt: skip
    return apart & (around[: seen.shape[0], : seen.shape[1]] >= INK)


def _in_cells(
    size: tuple[int, int], box: tuple[int, int, int, int], unit: int, most: int
) -> CropBox | None:
    """The smallest cells, none smaller than shown pixel for pixel, at which a box has at most
    `most`. The part is made of complete cells, so that its grid is that of the full picture."""
    (width, height), (left, top, right, bottom) = size, box
    cell = max(
        float(unit),
        math.sqrt((right - left) * (bottom - top) / most),
        math.sqrt(width * height / most) / MOST_GAIN,
    )
    while True:
        columns, rows = round(width / cell), round(height / cell)
        wide, high = width / columns, height / rows
        cut = CropBox(
            rows, columns, int(top / high), int(left / wide),
            min(rows, math.ceil(bottom / high)), min(columns, math.ceil(right / wide)),
        )  # fmt: skip
        if (cut.bottom - cut.top) * (cut.right - cut.left) <= most:
            return cut if columns * rows > most else None
        cell *= 1.01
