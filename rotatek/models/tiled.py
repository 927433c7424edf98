"""InternVL: tiles of 448 pixels in the picture's own shape, a thumbnail, 256 tokens each.

SmolVLM and Idefics3: a SigLIP tower over tiles and a view of the picture, 64 or 169 tokens each;
the prompt names every tile's row and column.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

from PIL import Image
from torch import nn
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

from rotatek.inputs.token_grid import Grid, resized
from rotatek.models.base import Pixels, Shown, VisionLanguageModel


class InternVL(VisionLanguageModel):
    """`InternVLForConditionalGeneration` and its tokenizer and image processor."""

    tower: ClassVar[str] = "vision_tower"
    around: ClassVar[dict[str, str]] = {"start_image_token": "<img>", "end_image_token": "</img>"}

    @property
    def low_pixels(self) -> int | None:
        """One tile's."""
        return int(self.images.size["height"] * self.images.size["width"])

    def within(self, image: Image.Image, least: int, most: int) -> Image.Image:
        """One tile like the thumbnail, where two exceed the bounds. The number of further tiles
        depends on the picture's shape alone."""
        size = self.images.size
        is_one = most < 2 * size["height"] * size["width"]
        return resized(image, size["width"], size["height"]) if is_one else image

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """Cut into tiles in the shape nearest to the picture's, and add a thumbnail."""
        out = self.images(images=list(images), crop_to_patches=True, return_tensors="pt")
        begin, end = (getattr(self.tokenizer, *told) for told in self.around.items())
        text, count = f"{begin}{self.placeholder}{end}", self.model.config.image_seq_length
        tile, shown = (self.images.size["height"], self.images.size["width"]), []
        for image, views in zip(images, out["num_patches"].tolist(), strict=True):
            columns, rows = get_optimal_tiled_canvas(
                (image.height, image.width), tile, self.images.min_patches, self.images.max_patches
            )
            grids = Grid.of_views(rows if views > 1 else 0, columns, math.isqrt(count))
            shown.append(Shown(text, (count,) * views, grids, (count * views,)))
        return Pixels.of({"pixel_values": out["pixel_values"].to(self.device)}, shown)

    def watched_attention(self) -> tuple[nn.Module, bool]:
        """CLS attention of the layer that the projector reads. Raises as `read_layer`."""
        return self.read_layer(), True


class Idefics3(VisionLanguageModel):
    """`Idefics3ForConditionalGeneration`, `SmolVLMForConditionalGeneration`, and their tokenizers
    and image processors."""

    tower: ClassVar[str] = "vision_model"
    around: ClassVar[dict[str, str]] = {"fake_image_token": "<fake_token_around_image>"}

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """Cut into tiles, and add a view of the full picture."""
        out = self.images(images=[list(images)], return_row_col_info=True, return_tensors="pt")
        vision, factor = self.model.config.vision_config, self.model.config.scale_factor
        side = int(vision.image_size // vision.patch_size / factor)  # tokens of a tile's
        (around,) = (getattr(self.tokenizer, *told) for told in self.around.items())
        whole = getattr(self.tokenizer, "global_image_token", "<global-img>")
        shown = []
        for tiles in zip(out["rows"][0], out["cols"][0], strict=True):
            rows, columns = map(int, tiles)
            text = ""
            for row in range(1, rows + 1):  # the tiles row by row, then the full picture
                for column in range(1, columns + 1):
                    text += f"{around}<row_{row}_col_{column}>{self.placeholder}"
                text += "\n"
            text += "\n" if rows else ""
            text += f"{around}{whole}{self.placeholder}{around}"
            counts = (side**2,) * (rows * columns + 1)
            shown.append(Shown(text, counts, Grid.of_views(rows, columns, side)))
        names = {"pixel_values", "pixel_attention_mask"} & {*out}
        return Pixels.of({name: out[name].to(self.device) for name in names}, shown)
