"""Qwen2.5-VL: native resolution, 2x2 merged patches, M-RoPE positions."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor
from transformers.vision_utils import get_vision_window_index

from rotatek.attention import tapped
from rotatek.models.base import Grid, Pixels, Prompt, VisionLanguageModel
from rotatek.models.tap import AttentionTap
from rotatek.tokens.base import TokenPruner, View


class Qwen25VL(VisionLanguageModel):
    """`Qwen2_5_VLForConditionalGeneration` and its tokenizer and image processor."""

    family: ClassVar[str] = "qwen2_5_vl"

    @property
    def banned_ids(self) -> tuple[int, ...]:
        """Vision start, end, image and video ids."""
        config = self.model.config
        names = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")
        return tuple(i for name in names if (i := getattr(config, name, None)) is not None)

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """Resize to multiples of 28 pixels and cut into patches; N = rows x columns / 4."""
        out = self.images(images=list(images), return_tensors="pt")
        merge = self.model.config.vision_config.spatial_merge_size
        grids = tuple(
            Grid(int(height) // merge, int(width) // merge)
            for _, height, width in out["image_grid_thw"].tolist()
        )
        tensors = {name: out[name].to(self.device) for name in ("pixel_values", "image_grid_thw")}
        return Pixels(tensors, tuple(grid.rows * grid.columns for grid in grids), grids)

    def features(self, pixels: Pixels) -> Tensor:
        """Merged embeddings of all images, [N, hidden]."""
        out = self.model.get_image_features(**pixels.tensors, return_dict=True)
        return torch.cat(tuple(out.pooler_output))

    def tower_states(self, pixels: Pixels) -> tuple[Tensor, Tensor, Tensor]:
        """Scores and Keys of the last vision block, per 2x2 unit, out of window order; tokens."""
        tower = self.model.model.visual
        tap = AttentionTap(tower.blocks[-1].attn, cls=False)
        with tapped(tap):
            states = self.features(pixels)
        merge = tower.spatial_merge_size
        window, _ = get_vision_window_index(
            pixels.tensors["image_grid_thw"],
            spatial_merge_size=merge,
            window_size=tower.window_size,
            patch_size=tower.patch_size,
        )
        order = window.to(states.device).argsort()
        scores = torch.cat(tap.scores, 1)[0].unflatten(0, (-1, merge**2)).mean(1)[order]
        keys = torch.cat(tap.keys, 1)[0].unflatten(0, (-1, merge**2)).mean(1)[order]
        return scores, keys, states

    def reduced(
        self, pixels: Pixels, pruner: TokenPruner, watched: Any, question: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Reduce each image."""
        images = zip(*(t.split(list(pixels.counts)) for t in watched), strict=True)
        parts = [
            pruner.reduce(View(scores, keys, states, question, number, torch.Tensor.clone))
            for number, (scores, keys, states) in enumerate(images)
        ]
        return torch.cat([e for _, e in parts]), torch.cat([kept for kept, _ in parts])

    def positions(self, prompt: Prompt) -> tuple[Tensor, Tensor]:
        """M-RoPE positions [3, 1, L]; asked of the model, stored nowhere."""
        positions, _ = self.model.model.get_rope_index(
            prompt.ids,
            mm_token_type_ids=prompt.visual.int(),
            image_grid_thw=prompt.pixels.tensors["image_grid_thw"],
        )
        return positions, positions.amax((0, 2)) + 1

    def positions_at(self, position: Tensor) -> Tensor:
        """[3, B, 1]: text tokens have the same position on every axis."""
        return position[None, :, None].expand(3, -1, 1)
