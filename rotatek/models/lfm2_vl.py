"""LFM2-VL: a SigLIP 2 tower over named tiles and a thumbnail in the picture's shape; most layers of
its language model are convolutions, which keep a state.

transformers has its processor with torchvision only, so it is given as a whole.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import torch
from PIL import Image
from torch import Tensor, nn

from rotatek.bridge.attention import tapped
from rotatek.inputs.token_grid import Grid
from rotatek.models.base import Pixels, joined
from rotatek.models.gemma4 import unit_means
from rotatek.models.generic import Generic
from rotatek.models.llava import vision_layers
from rotatek.models.tap import AttentionTap

TILE: Final = re.compile(r"_row_(\d+)_col_(\d+)")  # in the name of a tile, written before it
AROUND: Final = ("image_start_token", "image_end_token", "image_thumbnail_token")


class Lfm2VL(Generic):
    """`Lfm2VlForConditionalGeneration` and its processor."""

    family: ClassVar[str] = "lfm2_vl"

    @property
    def banned_ids(self) -> tuple[int, ...]:
        """The image id, and the ids around a picture and its parts."""
        names = [str(getattr(self.images, name, "")) for name in AROUND]
        found = self.tokenizer.convert_tokens_to_ids(names)
        return (*self.visual_ids, *(number for number in found if number is not None))

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """The processor's tiles and thumbnails; each view is a run of visual tokens."""
        pixels = super().preprocess(images)
        shapes = self._shapes(pixels)
        if tuple(rows * columns for rows, columns in shapes) != pixels.runs:
            return pixels  # a processor may leave out the names of views
        view, start, grids = 0, 0, []
        for text in pixels.texts:
            names = [(int(row), int(column)) for row, column in TILE.findall(text)]
            if names:
                grids.append(Grid.tiled(max(names), shapes[view], start))
                start += sum(pixels.runs[view : view + len(names)])
                view += len(names)
            if text.count(self.token(self.image_token)) > len(names):
                grids.append(Grid(*shapes[view], start))
                start += pixels.runs[view]
                view += 1
        return replace(pixels, grids=tuple(grids))

    def _shapes(self, pixels: Pixels) -> list[tuple[int, int]]:
        """Rows and columns of visual tokens of every view."""
        unit = int(self.model.config.downsample_factor)
        return [(rows // unit, columns // unit) for rows, columns in self._patches(pixels)]

    def _patches(self, pixels: Pixels) -> list[tuple[int, int]]:
        """Rows and columns of patches of every view."""
        return [(int(rows), int(columns)) for rows, columns in pixels.tensors["spatial_shapes"]]

    def watched_attention(self) -> tuple[nn.Module, bool]:
        """The last vision layer's."""
        return vision_layers(self.model.model.vision_tower)[-1].self_attn, False

    def tower_states(self, pixels: Pixels) -> tuple[Tensor, Tensor, Tensor]:
        """Attention received, Keys and states of every view, each encoded without its padding."""
        tap = AttentionTap(*self.watched_attention())
        with tapped(tap):
            states = torch.cat([self.features(view) for view in self._apart(pixels)])
        scores = torch.cat(joined(tap.scores))
        keys = torch.cat(joined(tap.keys))
        return self.per_token(scores[..., None], pixels)[:, 0], self.per_token(keys, pixels), states

    def _apart(self, pixels: Pixels) -> Iterator[Pixels]:
        """Each view of some pictures, without its padding."""
        tensors: dict[str, Any] = pixels.tensors
        for number, (rows, columns) in enumerate(self._patches(pixels)):
            real = slice(rows * columns)
            yield Pixels(
                {
                    "pixel_values": tensors["pixel_values"][number : number + 1, real],
                    "pixel_attention_mask": tensors["pixel_attention_mask"][None, number, real],
                    "spatial_shapes": tensors["spatial_shapes"][number : number + 1],
                },
                (), (), (), (),
            )  # fmt: skip

    def per_token(self, values: Tensor, pixels: Pixels) -> Tensor:
        """Means over the patches that are merged into one token."""
        grids = [Grid(rows, columns) for rows, columns in self._shapes(pixels)]
        return unit_means(values, grids, int(self.model.config.downsample_factor))
