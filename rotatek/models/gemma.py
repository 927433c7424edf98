"""Gemma 3: square views of 896 pixels pooled to 256 tokens, which see each other both ways.

Gemma 4: pictures in their own shape within a budget of tokens, inputs of every layer, and last
layers that borrow the Keys and Values of earlier ones.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor

from rotatek.inputs.token_grid import Grid
from rotatek.models.base import Embedded, Pixels, Shown, VisionLanguageModel


class Gemma3(VisionLanguageModel):
    """`Gemma3ForConditionalGeneration` and its tokenizer and image processor. Both ways, and the
    window of five layers of six, are in the masks that the model makes of `token_type_ids`."""

    tower: ClassVar[str] = "vision_tower"
    around: ClassVar[dict[str, str]] = {"boi_token_index": "", "eoi_token_index": ""}
    kinds: ClassVar[str] = "token_type_ids"

    @property
    def placeholder(self) -> str:
        """The token that begins a picture."""
        return self.token(self.model.config.boi_token_index)

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """Resize to a square; long pictures may bring crops of themselves ("pan and scan")."""
        out = self.images(images=list(images), return_tensors="pt")
        count = int(self.model.config.mm_tokens_per_image)
        grid = Grid(int(count**0.5), int(count**0.5))
        end = self.token(self.model.config.eoi_token_index)
        view = f"\n\n{self.placeholder}{self.token(self.image_token)}{end}\n\n"
        more = f"Here is the original image {view} and here are some crops to help you see better "
        shown = [
            Shown(
                more + " ".join([view] * crops) if crops else view, (count,) * (1 + crops), (grid,)
            )
            for crops in map(int, out["num_crops"])
        ]
        return Pixels.of({"pixel_values": out["pixel_values"].to(self.device)}, shown)


class Gemma4(VisionLanguageModel):
    """`Gemma4ForConditionalGeneration` and its tokenizer and image processor."""

    tower: ClassVar[str] = "vision_tower"
    around: ClassVar[dict[str, str]] = {"boi_token_id": "", "eoi_token_id": ""}
    kinds: ClassVar[str] = "mm_token_type_ids"

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """Resize to whole units of patches within the budget; each unit becomes one token."""
        out, unit = self.images(images=list(images), return_tensors="pt"), self._unit
        begin, end = (self.token(getattr(self.model.config, name)) for name in self.around)
        text, shown = f"{begin}{self.placeholder}{end}", []
        for places in out["image_position_ids"]:
            columns, rows = ((places.amax(0) + 1) // unit).tolist()
            shown.append(Shown(text, (rows * columns,), (Grid(rows, columns),)))
        names = ("pixel_values", "image_position_ids")
        return Pixels.of({name: out[name].to(self.device) for name in names}, shown)

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
            parts.append(super().features(Pixels.of(one, ())))
        return torch.cat(parts)

    def besides(self, embedded: Embedded) -> dict[str, Any]:
        """The tokens' kinds, and what each layer is given of their ids."""
        given = super().besides(embedded)
        if self.text_config.hidden_size_per_layer_input and embedded.words is not None:
            words = embedded.words.masked_fill(embedded.visual, self.text_config.pad_token_id)
            inputs = self.model.model.language_model.get_per_layer_inputs
            given["per_layer_inputs"] = inputs(words, embedded.embeds)
        return given

    def per_token(self, values: Tensor, pixels: Pixels) -> Tensor:
        """Means over the patches that are pooled into one token, of views of any shape."""
        parts, unit = [], self._unit
        sizes = [count * unit**2 for count in pixels.counts]
        for grid, part in zip(pixels.grids, values.flatten(0, 1).split(sizes), strict=True):
            cells = part.view(grid.rows, unit, grid.columns, unit, -1)
            parts.append(cells.mean((1, 3)).flatten(0, 1))
        return torch.cat(parts)
