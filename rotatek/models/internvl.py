"""InternVL: tiles of 448 pixels in the picture's own shape, a thumbnail, 256 tokens each."""

import math
from collections.abc import Sequence
from typing import ClassVar

from PIL import Image
from torch import nn
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

from rotatek.inputs.token_grid import Grid
from rotatek.models.base import Pixels, Shown, VisionLanguageModel


class InternVL(VisionLanguageModel):
    """`InternVLForConditionalGeneration` and its tokenizer and image processor."""

    tower: ClassVar[str] = "vision_tower"
    around: ClassVar[dict[str, str]] = {"start_image_token": "<img>", "end_image_token": "</img>"}

    @property
    def visual_ids(self) -> tuple[int, ...]:
        """The image id, which videos use, too."""
        return (self.image_token,)

    @property
    def low_pixels(self) -> int | None:
        """One tile's."""
        return int(self.images.size["height"] * self.images.size["width"])

    def size_within(self, width: int, height: int, least: int, most: int) -> tuple[int, int]:
        """One tile like the thumbnail, where two exceed the bounds. The number of further tiles
        depends on the picture's shape alone."""
        size = self.images.size
        is_one = most < 2 * size["height"] * size["width"]
        return (int(size["width"]), int(size["height"])) if is_one else (width, height)

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
        """CLS attention of the layer that the projector reads.

        Raises:
            ModeUnsupported: where it reads several, or the CLS token.
        """
        return self.read_layer(), True
