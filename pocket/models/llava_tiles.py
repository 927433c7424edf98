"""Any resolution: how a picture becomes a base view and tiles, and where its glyphs land there.

The stock image processor does the same at inference; a test holds the two together.
"""

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers import LlavaNextModel
from transformers.image_processing_utils import select_best_resolution

from pocket.models.config import PATCH
from pocket.models.llava import GRIDS, SIDE

READABLE: Final = 0.72  # a base view scaled down further than this teaches no glyphs


@dataclass(frozen=True)
class Tiling:
    """The tiling of pictures of one size.

    Attributes:
        rows: Tiles of the grid, downwards.
        columns: Tiles of the grid, across.
        width: The picture's within the grid, in pixels, and so is its height.
        height: As width.
        left: Padding before the picture, in pixels, and so is top.
        top: As left.
        side: Pixels of a tile's side.
        original: The picture's own size.
    """

    rows: int
    columns: int
    width: int
    height: int
    left: int
    top: int
    side: int
    original: tuple[int, int]

    @property
    def tiles(self) -> int:
        """Views of a picture: the base view, then the grid's tiles row by row."""
        return 1 + self.rows * self.columns

    @property
    def base_scale(self) -> float:
        """The scale of the base view, along the axis that loses more."""
        return self.side / max(self.original)


def tiling(width: int, height: int, side: int = SIDE) -> Tiling:
    """The tiling that LLaVA-NeXT picks for pictures of `width` x `height` pixels."""
    grids = [[rows * side, columns * side] for rows, columns in GRIDS]
    tall, wide = select_best_resolution((height, width), grids)
    across, down = wide / width, tall / height
    if across < down:
        w, h = wide, min(math.ceil(height * across), tall)
    else:
        w, h = min(math.ceil(width * down), wide), tall
    left, top = (wide - w) // 2, (tall - h) // 2
    return Tiling(tall // side, wide // side, w, h, left, top, side, (width, height))


def views(image: Image.Image, plan: Tiling) -> tuple[np.ndarray, np.ndarray]:
    """Base view uint8 [side, side, 3] and the unpadded grid's picture uint8 [h, w, 3]."""
    bicubic = Image.Resampling.BICUBIC
    base = image.resize((plan.side, plan.side), bicubic)
    return np.asarray(base), np.asarray(image.resize((plan.width, plan.height), bicubic))


def join(base: Tensor, grid: Tensor, plan: Tiling) -> Tensor:
    """Views uint8 [B, side, side, 3] and [B, h, w, 3] as tiles uint8 [B, tiles, side, side, 3]."""
    b, side = len(base), plan.side
    page = grid.new_zeros(b, plan.rows * side, plan.columns * side, 3)
    page[:, plan.top : plan.top + plan.height, plan.left : plan.left + plan.width] = grid
    tiles = page.view(b, plan.rows, side, plan.columns, side, 3).transpose(2, 3)
    return torch.cat((base[:, None], tiles.reshape(b, -1, side, side, 3)), 1)


def order(plan: Tiling) -> Tensor:
    """The feature of each visual token, int64 [N]: tile * patches + patch, newline: -1.

    Found by letting the model's own packing (unpadding, newlines) sort the features' numbers.
    """
    patches = (plan.side // PATCH) ** 2
    numbers = torch.arange(plan.tiles * patches, dtype=torch.float32).view(plan.tiles, patches, 1)
    width, height = plan.original
    config: Any = SimpleNamespace(
        vision_config=SimpleNamespace(image_size=plan.side, patch_size=PATCH),
        image_grid_pinpoints=[[r * plan.side, c * plan.side] for r, c in GRIDS],
    )
    packed, _ = LlavaNextModel.pack_image_features(
        SimpleNamespace(config=config),
        [numbers],
        torch.tensor([[height, width]]),
        vision_feature_select_strategy="default",
        image_newline=torch.tensor([-1.0]),
    )
    return packed[0][:, 0].long()


def tile_places(glyphs: np.ndarray, plan: Tiling) -> np.ndarray:
    """Patch (tile * patches + patch) of each glyph in the tiles, int64 [n]; outside: -1.

    Args:
        glyphs: As in `Document`.
        plan: The tiling.
    """
    width, height = plan.original
    across, side = plan.side // PATCH, plan.side
    x = glyphs[:, 1] * (plan.width / width) + plan.left
    y = glyphs[:, 2] * (plan.height / height) + plan.top
    tile = 1 + (y // side) * plan.columns + x // side
    patch = (y % side // PATCH) * across + x % side // PATCH
    return np.where(_inside(glyphs, plan), tile * across**2 + patch, -1).astype(np.int64)


def glyph_places(glyphs: np.ndarray, plan: Tiling) -> tuple[np.ndarray, np.ndarray]:
    """Patch (tile * patches + patch) and class of each glyph in the tiles and a legible base view.

    `glyphs` as in `Document`. Glyphs outside of the picture are left out.
    """
    g = glyphs[_inside(glyphs, plan)]
    across, side = plan.side // PATCH, plan.side
    place, kind = tile_places(g, plan), g[:, 0]
    if plan.base_scale >= READABLE:
        width, height = plan.original
        x, y = g[:, 1] * (side / width), g[:, 2] * (side / height)
        place = np.concatenate((place, (y // PATCH) * across + x // PATCH))
        kind = np.concatenate((kind, kind))
    return place.astype(np.int64), kind.astype(np.int64)


def _inside(glyphs: np.ndarray, plan: Tiling) -> np.ndarray:
    """Which glyphs have their centre in the picture, bool [n]."""
    width, height = plan.original
    x, y = glyphs[:, 1], glyphs[:, 2]
    return (x >= 0) & (x < width) & (y >= 0) & (y < height)
