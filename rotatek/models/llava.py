"""LLaVA-1.5: a CLIP tower over one square view; a patch is a token. LLaVA-NeXT: a base view and
any-resolution tiles, unpadded, with newlines. LLaVA-OneVision: a SigLIP tower, tiles packed as in
LLaVA-NeXT and scaled down where there are more than nine."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor, nn
from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

from rotatek.bridge.scope import own_calls
from rotatek.bridge.vision import AttentionTap
from rotatek.inputs.token_grid import Grid
from rotatek.methods.tokens.base import TokenPruner, View
from rotatek.models.base import Pixels, Shown, VisionLanguageModel


class Llava(VisionLanguageModel):
    """`LlavaForConditionalGeneration` and its tokenizer and image processor."""

    tower: ClassVar[str] = "vision_tower"
    # Early checkpoints of this family bring no template.
    template: ClassVar[str | None] = (
        "{%- for m in messages -%}{{ 'USER: ' if m['role'] == 'user' else 'ASSISTANT: ' }}"
        "{%- for part in m['content'] -%}{%- if part['type'] == 'image' -%}{{ '<image>\n' }}"
        "{%- else -%}{{ part['text'] }}{%- endif -%}{%- endfor -%}"
        "{{ ' ' if m['role'] == 'user' else '</s>' }}{%- endfor -%}"
        "{%- if add_generation_prompt -%}ASSISTANT:{%- endif -%}"
    )

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """Resize and cut out the middle square."""
        out = self.images(images=list(images), return_tensors="pt")
        side = self._side
        first = self.model.config.vision_feature_select_strategy != "default"  # a CLS token's
        cropped = getattr(self.images, "do_center_crop", False)
        grids = (Grid.cropped(side, *i.size) if cropped else Grid(side, side) for i in images)
        shown = [
            Shown(self.placeholder, (first + side**2,), (replace(grid, start=int(first)),))
            for grid in grids
        ]
        return Pixels.of({"pixel_values": out["pixel_values"].to(self.device)}, shown)

    @property
    def _side(self) -> int:
        """Patches along one side of a view."""
        vision = self.model.config.vision_config
        return vision.image_size // vision.patch_size

    def _views(self, pixels: Pixels) -> Tensor:
        """The tower's input, [T, 3, height, width]."""
        return pixels.tensors["pixel_values"]

    def tower_states(self, pixels: Pixels) -> tuple[Tensor, Tensor, Tensor]:
        """CLS attention, Keys and states of every view. Raises as `read_layer`."""
        tap = AttentionTap(self.read_layer(), cls=True)
        with own_calls(tap=tap):
            tower = self.model.model.vision_tower(
                self._views(pixels), output_hidden_states=True, return_dict=True
            )
        layer = self.model.config.vision_feature_layer
        return tap.scores[0], tap.keys[0], tower.hidden_states[layer][:, 1:]

    def _reduced_views(self, pruner: TokenPruner, watched: Any) -> tuple[Tensor, Tensor]:
        """Of every view separately: states [T, n, hidden], kept [T, n]."""
        project = self.model.model.multi_modal_projector
        reduced = [
            pruner.reduce(View(scores, keys, states, number, self.width, project))
            for number, (scores, keys, states) in enumerate(zip(*watched, strict=True))
        ]
        states = project(torch.stack([state for _, state in reduced]))
        return states, torch.stack([kept for kept, _ in reduced])

    def reduced(self, pixels: Pixels, pruner: TokenPruner, watched: Any) -> tuple[Tensor, Tensor]:
        """Reduce every picture."""
        states, kept = self._reduced_views(pruner, watched)
        return states.flatten(0, 1), kept.flatten()


NEWLINE = 2.0  # the mark of a newline token among patches, which are marked 1


class LlavaNext(Llava):
    """`LlavaNextForConditionalGeneration` and its tokenizer and image processor.

    A picture's tokens are the base view's grid, then the tiles' joint grid without its padding,
    each row closed by one newline token, which counts as a column.
    """

    packing: ClassVar[str] = "vision_feature_select_strategy"  # a setting that the model packs by
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
        side, shown = self._side, []
        for mark in marks:
            newlines = int((mark > (1 + NEWLINE) / 2).sum())
            grids: tuple[Grid, ...] = (Grid(side, side),)
            if newlines > 1:
                columns = (len(mark) - side * side) // newlines
                grids = (*grids, Grid(newlines, columns, side * side))
            shown.append(Shown(self.placeholder, (len(mark),), grids))
        return Pixels.of(tensors, shown)

    def _blank_tiles(self, tensors: dict[str, Tensor]) -> tuple[Tensor, list[int], Tensor]:
        """One mark a patch, [tiles, patches, 1]; tiles an image, its base view included; and the
        image sizes."""
        config = self.model.config
        shapes, side = config.image_grid_pinpoints, config.vision_config.image_size
        counts = [
            int(image_size_to_num_patches(size, shapes, side)) for size in tensors["image_sizes"]
        ]
        marks = torch.ones(sum(counts), self._side**2, 1, device=self.device)
        return marks, counts, tensors["image_sizes"]

    def _pack(
        self, tiles: tuple[Tensor, list[int], Tensor], newline: Tensor | None = None
    ) -> list[Tensor]:
        """Unpad and add newlines as the model does; states [N, c] an image."""
        states, counts, sizes = tiles
        if newline is None:
            newline = torch.full((states.shape[-1],), NEWLINE, device=states.device)
        setting = {self.packing: getattr(self.model.config, self.packing)}
        packed, _ = self.model.model.pack_image_features(
            states.split(counts), sizes, image_newline=newline, **setting
        )
        return list(packed)

    def _views(self, pixels: Pixels) -> Tensor:
        """Every picture's base view and tiles, without the tiles that pad a batch."""
        counts = self._blank_tiles(pixels.tensors)[1]
        views = pixels.tensors["pixel_values"]
        return torch.cat([view[:count] for view, count in zip(views, counts, strict=True)])

    def reduced(self, pixels: Pixels, pruner: TokenPruner, watched: Any) -> tuple[Tensor, Tensor]:
        """Reduce every tile separately; newlines always stay."""
        states, kept = self._reduced_views(pruner, watched)
        _, counts, sizes = self._blank_tiles(pixels.tensors)
        packed = self._pack((states, counts, sizes), self.model.model.image_newline)
        marks = self._pack((kept[..., None].float(), counts, sizes))
        return torch.cat(packed), torch.cat(marks)[:, 0] > 0


class LlavaOnevision(LlavaNext):
    """`LlavaOnevisionForConditionalGeneration` and its tokenizer and image processor."""

    packing: ClassVar[str] = "vision_aspect_ratio"
    template: ClassVar[str | None] = None

    def watched_attention(self) -> tuple[nn.Module, bool]:
        """The last layer's that the projector reads."""
        layer = self.model.config.vision_feature_layer
        return self.vision_attention(layer if isinstance(layer, int) else layer[-1]), False

    def per_token(self, values: Tensor, pixels: Pixels) -> Tensor:
        """Packed like the states themselves; a newline has the mark's value."""
        _, counts, sizes = self._blank_tiles(pixels.tensors)
        return torch.cat(self._pack((values.float(), counts, sizes)))

    # A picture's views are reduced together, newlines among them.
    tower_states, reduced = VisionLanguageModel.tower_states, VisionLanguageModel.reduced
