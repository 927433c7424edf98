"""The layout of visual tokens on the picture, for heat maps and masks."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

MOST_CROPPED: Final = 8  # a longer picture's middle is drawn as if it were 8 times as long


@dataclass(frozen=True)
class Grid:
    """Cells of equal size over all of one picture.

    Args:
        rows: of cells.
        columns: of cells.
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
        """The grids of a picture that is cut into tiles, whose tokens come tile by tile, and shown
        whole behind them.

        Args:
            rows: of tiles.
            columns: of tiles; 0 where it is shown whole only.
            side: tokens along one side of a tile, and of the whole view.
        """
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


def scaled_size(width: int, height: int, least: int, most: int) -> tuple[int, int]:
    """The size nearest to a picture's that has so many pixels, in its proportions."""
    factor = math.sqrt(min(max(width * height, least), most) / (width * height))
    return max(1, int(factor * width)), max(1, int(factor * height))
