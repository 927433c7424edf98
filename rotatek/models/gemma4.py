"""Gemma 4: pictures in their own shape within a budget of tokens, inputs of every layer, and last
layers that borrow the Keys and Values of earlier ones."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor, nn

from rotatek.inputs.token_grid import Grid
from rotatek.models.base import Embedded, Pixels, VisionLanguageModel
from rotatek.models.llava import vision_layers


class Gemma4(VisionLanguageModel):
    """`Gemma4ForConditionalGeneration` and its tokenizer and image processor."""

    family: ClassVar[str] = "gemma4"

    @property
    def banned_ids(self) -> tuple[int, ...]:
        """The ids of pictures and videos, and those around a picture."""
        config = self.model.config
        return (*self.visual_ids, config.boi_token_id, config.eoi_token_id)

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """Resize to whole units of patches within the budget; each unit becomes one token."""
        out, unit = self.images(images=list(images), return_tensors="pt"), self._unit
        start, grids = 0, []
        for places in out["image_position_ids"]:
            columns, rows = ((places.amax(0) + 1) // unit).tolist()
            grids.append(Grid(rows, columns, start))
            start += rows * columns
        counts = tuple(grid.rows * grid.columns for grid in grids)
        config = self.model.config
        begin, end = self.token(config.boi_token_id), self.token(config.eoi_token_id)
        texts = (f"{begin}{self.placeholder}{end}",) * len(counts)
        names = ("pixel_values", "image_position_ids")
        tensors = {name: out[name].to(self.device) for name in names}
        return Pixels(tensors, counts, tuple(grids), texts, counts)

    @property
    def _unit(self) -> int:
        """Patches along one side of a token."""
        return int(self.model.config.vision_config.pooling_kernel_size)

    def features(self, pixels: Pixels) -> Tensor:
        """Projected tokens of all pictures [N, hidden], each encoded without its padding."""
        patches, places = pixels.tensors["pixel_values"], pixels.tensors["image_position_ids"]
        parts = []
        for number, count in enumerate(pixels.counts):
            real = slice(count * self._unit**2)
            one = {
                "pixel_values": patches[number : number + 1, real],
                "image_position_ids": places[number : number + 1, real],
            }
            parts.append(super().features(Pixels(one, (), (), (), ())))
        return torch.cat(parts)

    def besides(self, embedded: Embedded) -> dict[str, Any]:
        """The tokens' kinds, and what each layer is given of their ids."""
        given: dict[str, Any] = {"mm_token_type_ids": embedded.visual.long()}
        if self.text_config.hidden_size_per_layer_input and embedded.words is not None:
            words = embedded.words.masked_fill(embedded.visual, self.text_config.pad_token_id)
            inputs = self.model.model.language_model.get_per_layer_inputs
            given["per_layer_inputs"] = inputs(words, embedded.embeds)
        return given

    def watched_attention(self) -> tuple[nn.Module, bool]:
        """The last vision layer's."""
        return vision_layers(self.model.model.vision_tower)[-1].self_attn, False

    def per_token(self, values: Tensor, pixels: Pixels) -> Tensor:
        """Means over the patches that are pooled into one token."""
        return unit_means(values, pixels.grids, self._unit)


def unit_means(values: Tensor, grids: Sequence[Grid], unit: int) -> Tensor:
    """Means over squares of patches.

    Args:
        values: [T, patches, c] of all pictures, each row by row.
        grids: of each picture's squares.
        unit: patches along one side of a square.

    Returns:
        [N, c], the squares row by row.
    """
    parts, sizes = [], [grid.rows * grid.columns * unit**2 for grid in grids]
    for grid, part in zip(grids, values.flatten(0, 1).split(sizes), strict=True):
        cells = part.view(grid.rows, unit, grid.columns, unit, -1)
        parts.append(cells.mean((1, 3)).flatten(0, 1))
    return torch.cat(parts)
