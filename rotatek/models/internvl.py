"""InternVL: tiles of 448 pixels in the picture's own shape, a thumbnail, 256 tokens each."""

from collections.abc import Sequence
from typing import ClassVar

from PIL import Image
from torch import Tensor, nn
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

from rotatek.inputs.token_grid import Grid
from rotatek.models.base import Pixels, VisionLanguageModel


class InternVL(VisionLanguageModel):
    """`InternVLForConditionalGeneration` and its tokenizer and image processor."""

    family: ClassVar[str] = "internvl"
    template: ClassVar[str | None] = (
        "{%- for m in messages -%}<|im_start|>{{ m['role'] }}\n"
        "{%- for part in m['content'] -%}{%- if part['type'] == 'image' -%}{{ '<IMG_CONTEXT>\n' }}"
        "{%- else -%}{{ part['text'] }}{%- endif -%}{%- endfor -%}<|im_end|>\n{%- endfor -%}"
        "{%- if add_generation_prompt -%}<|im_start|>assistant\n{%- endif -%}"
    )

    @property
    def visual_ids(self) -> tuple[int, ...]:
        """The image id, which videos use, too."""
        return (self.image_token,)

    @property
    def banned_ids(self) -> tuple[int, ...]:
        """The image id, and the ids around a picture."""
        around = self.tokenizer.convert_tokens_to_ids(list(self._ends))
        return (*self.visual_ids, *(number for number in around if number is not None))

    @property
    def _ends(self) -> tuple[str, str]:
        start = getattr(self.tokenizer, "start_image_token", "<img>")
        return str(start), str(getattr(self.tokenizer, "end_image_token", "</img>"))

    @property
    def _side(self) -> int:
        """Visual tokens along one side of a tile."""
        return int(self.model.config.image_seq_length**0.5)

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
        side, (start_of, end_of) = self._side, self._ends
        count, start, grids = side**2, 0, []
        tiles = [int(number) for number in out["num_patches"]]
        for image, number in zip(images, tiles, strict=True):
            if number > 1:
                columns, rows = self._canvas(image)
                grids.append(Grid.tiled((rows, columns), (side, side), start))
            grids.append(Grid(side, side, start + (number - 1) * count))
            start += number * count
        texts = (f"{start_of}{self.placeholder}{end_of}",) * len(tiles)
        runs = tuple(count * number for number in tiles)
        tensors = {"pixel_values": out["pixel_values"].to(self.device)}
        return Pixels(tensors, (count,) * sum(tiles), tuple(grids), texts, runs)

    def _canvas(self, image: Image.Image) -> tuple[int, int]:
        """Columns and rows of a picture's tiles."""
        images = self.images
        tile = (images.size["height"], images.size["width"])
        return get_optimal_tiled_canvas(
            (image.height, image.width), tile, images.min_patches, images.max_patches
        )

    def watched_attention(self) -> tuple[nn.Module, bool]:
        """CLS attention of the layer that the projector reads.

        Raises:
            ModeUnsupported: where it reads several, or the CLS token.
        """
        config = self.model.config
        layers = self.model.model.vision_tower.encoder.layer
        layer = config.vision_feature_layer
        if not isinstance(layer, int) or config.vision_feature_select_strategy != "default":
            return super().watched_attention()
        return layers[layer].attention, True

    def per_token(self, values: Tensor, pixels: Pixels) -> Tensor:
        """Means over the patches that pixel shuffle puts into one token."""
        ratio, side = self.model.config.downsample_ratio, int(values.shape[1] ** 0.5)
        shuffled = self.model.model.pixel_shuffle(values.unflatten(1, (side, side)), ratio)
        each = round(1 / ratio) ** 2
        return shuffled.unflatten(-1, (each, -1)).mean(-2).flatten(0, 2)
