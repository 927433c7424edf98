"""LLaVA-NeXT: a CLIP tower over a base view and any-resolution tiles, unpadded, with newlines."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor
from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

from rotatek.inputs.token_grid import Grid
from rotatek.methods.tokens.base import TokenPruner
from rotatek.models.base import Pixels
from rotatek.models.llava import Llava

NEWLINE = 2.0  # the mark of a newline token among patches, which are marked 1


class LlavaNext(Llava):
    """`LlavaNextForConditionalGeneration` and its tokenizer and image processor.

    A picture's tokens are the base view's grid, then the tiles' joint grid without its padding,
    each row closed by one newline token. Its two grids are reported in that order; the second
    counts the newline as a column.
    """

    family: ClassVar[str] = "llava_next"
    # Llama 3 checkpoints of this family have no template in the tokenizer.
    template: ClassVar[str | None] = (
        "{%- for m in messages -%}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
        "{%- for part in m['content'] -%}{%- if part['type'] == 'image' -%}<image>\n"
        "{%- else -%}{{ part['text'] }}{%- endif -%}{%- endfor -%}<|eot_id|>{%- endfor -%}"
        "{%- if add_generation_prompt -%}<|start_header_id|>assistant<|end_header_id|>\n\n"
        "{%- endif -%}"
    )

    @property
    def low_pixels(self) -> int | None:
        """One view's: a picture is then cut into the fewest tiles that there are."""
        return int(self.model.config.vision_config.image_size) ** 2

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """Resize to the base view and the best tiling; N follows from unpadding and newlines."""
        out = self.images(images=list(images), return_tensors="pt")
        tensors = {name: out[name].to(self.device) for name in ("pixel_values", "image_sizes")}
        marks = self._pack(self._blank_tiles(tensors))
        grids: list[Grid] = []
        start, side = 0, self._side
        for mark in marks:
            newlines = int((mark > (1 + NEWLINE) / 2).sum())
            grids.append(Grid(side, side, start))
            if newlines > 1:
                columns = (len(mark) - side * side) // newlines
                grids.append(Grid(newlines, columns, start + side * side))
            start += len(mark)
        counts = tuple(len(mark) for mark in marks)
        return Pixels(tensors, counts, tuple(grids), (self.placeholder,) * len(counts), counts)

    def _blank_tiles(self, tensors: dict[str, Tensor]) -> tuple[Tensor, list[int], Tensor]:
        """One mark a patch, [tiles, patches, 1]; tiles an image; and the image sizes."""
        counts = [self._tiles(size) for size in tensors["image_sizes"]]
        marks = torch.ones(sum(counts), self._side**2, 1, device=self.device)
        return marks, counts, tensors["image_sizes"]

    def _tiles(self, size: Tensor) -> int:
        """Sub-images of a picture, the base view included."""
        config = self.model.config
        return int(
            image_size_to_num_patches(
                image_size=size,
                grid_pinpoints=config.image_grid_pinpoints,
                patch_size=config.vision_config.image_size,
            )
        )

    def _pack(
        self, tiles: tuple[Tensor, list[int], Tensor], newline: Tensor | None = None
    ) -> list[Tensor]:
        """Unpad and add newlines as the model does; states [N, c] an image."""
        states, counts, sizes = tiles
        packed, _ = self.model.model.pack_image_features(
            states.split(counts),
            sizes,
            vision_feature_select_strategy=self.model.config.vision_feature_select_strategy,
            image_newline=torch.full((states.shape[-1],), NEWLINE, device=states.device)
            if newline is None
            else newline,
        )
        return list(packed)

    def _views(self, pixels: Pixels) -> Tensor:
        """Every picture's base view and tiles, without the tiles that pad a batch."""
        counts = self._blank_tiles(pixels.tensors)[1]
        views = pixels.tensors["pixel_values"]
        return torch.cat([view[:count] for view, count in zip(views, counts, strict=True)])

    def reduced(
        self, pixels: Pixels, pruner: TokenPruner, watched: Any, question: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Reduce every tile separately; newlines always stay."""
        states, kept = self._reduced_views(pruner, watched, question)
        _, counts, sizes = self._blank_tiles(pixels.tensors)
        packed = self._pack((states, counts, sizes), self.model.model.image_newline)
        marks = self._pack((kept[..., None].float(), counts, sizes))
        return torch.cat(packed), torch.cat(marks)[:, 0] > 0
