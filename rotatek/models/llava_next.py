"""LLaVA-NeXT: a CLIP tower over a base view and any-resolution tiles, unpadded, with newlines."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor
from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

from rotatek.attention import tapped
from rotatek.models.base import Grid, Pixels, Prompt, VisionLanguageModel
from rotatek.models.tap import AttentionTap
from rotatek.tokens.base import TokenPruner, View


class LlavaNext(VisionLanguageModel):
    """`LlavaNextForConditionalGeneration` and its tokenizer and image processor.

    A picture's tokens are the base view's grid, then the tiles' joint grid without its padding,
    each row closed by one newline token. Its two grids are reported in that order; the second
    counts the newline as a column.
    """

    family: ClassVar[str] = "llava_next"
    # Llama 3 checkpoints of this family bring no template of their own in the tokenizer.
    template: ClassVar[str | None] = (
        "{%- for m in messages -%}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
        "{%- for part in m['content'] -%}{%- if part['type'] == 'image' -%}<image>\n"
        "{%- else -%}{{ part['text'] }}{%- endif -%}{%- endfor -%}<|eot_id|>{%- endfor -%}"
        "{%- if add_generation_prompt -%}<|start_header_id|>assistant<|end_header_id|>\n\n"
        "{%- endif -%}"
    )

    @property
    def banned_ids(self) -> tuple[int, ...]:
        """The image id."""
        return (self.image_token,)

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """Resize to the base view and the best tiling; N follows from unpadding and newlines."""
        out = self.images(images=list(images), return_tensors="pt")
        tensors = {name: out[name].to(self.device) for name in ("pixel_values", "image_sizes")}
        marks = self._pack(self._blank_tiles(tensors))
        grids: list[Grid] = []
        for mark in marks:
            newlines = int((mark == 2).sum())
            side = self._side
            grids.append(Grid(side, side))
            if newlines > 1:
                grids.append(Grid(newlines, (len(mark) - side * side) // newlines))
        return Pixels(tensors, tuple(len(mark) for mark in marks), tuple(grids))

    @property
    def _side(self) -> int:
        """Patches along one side of a tile."""
        vision = self.model.config.vision_config
        return vision.image_size // vision.patch_size

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
        """Unpad and add newlines as the model does; states [N, c] an image. Marks' newline is 2."""
        states, counts, sizes = tiles
        packed, _ = self.model.model.pack_image_features(
            states.split(counts),
            sizes,
            vision_feature_select_strategy=self.model.config.vision_feature_select_strategy,
            image_newline=torch.full((1,), 2.0, device=states.device)
            if newline is None
            else newline,
        )
        return list(packed)

    def features(self, pixels: Pixels) -> Tensor:
        """Projected, packed tokens of all images, [N, hidden]."""
        out = self.model.get_image_features(**pixels.tensors, return_dict=True)
        return torch.cat(tuple(out.pooler_output))

    def tower_states(self, pixels: Pixels) -> tuple[Tensor, Tensor, Tensor]:
        """CLS attention, Keys and states of every tile."""
        network, layer = self.model.model, self.model.config.vision_feature_layer
        counts = self._blank_tiles(pixels.tensors)[1]
        views = pixels.tensors["pixel_values"]
        views = torch.cat([view[:count] for view, count in zip(views, counts, strict=True)])
        tap = AttentionTap(_clip_layers(network.vision_tower)[layer].self_attn, cls=True)
        with tapped(tap):
            tower = network.vision_tower(views, output_hidden_states=True, return_dict=True)
        return tap.scores[0], tap.keys[0], tower.hidden_states[layer][:, 1:]

    def reduced(
        self, pixels: Pixels, pruner: TokenPruner, watched: Any, question: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Reduce every tile on its own; newlines always stay."""
        network = self.model.model
        marks, counts, sizes = self._blank_tiles(pixels.tensors)
        project = network.multi_modal_projector
        zipped = [
            pruner.reduce(View(scores, keys, states, question, number, project))
            for number, (scores, keys, states) in enumerate(zip(*watched, strict=True))
        ]
        states = network.multi_modal_projector(torch.stack([state for _, state in zipped]))
        marks = torch.stack([kept for kept, _ in zipped])[..., None].float()
        packed = self._pack((states, counts, sizes), network.image_newline)
        kept = self._pack((marks, counts, sizes))
        return torch.cat(packed), torch.cat(kept)[:, 0] > 0

    def positions(self, prompt: Prompt) -> tuple[Tensor, Tensor]:
        """One axis, [1, L]."""
        length = prompt.ids.shape[1]
        positions = torch.arange(length, device=prompt.ids.device)[None]
        return positions, positions[:, -1] + 1


def _clip_layers(tower: Any) -> Any:
    """The vision transformer's layers, wherever this release keeps them."""
    inner = getattr(tower, "vision_model", tower)
    return inner.encoder.layers
