"""LLaVA-OneVision: a SigLIP tower over a base view and many tiles, packed as LLaVA-NeXT does and
scaled down where there are more than nine; clips of pooled frames."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rotatek.bridge.scope import own_calls
from rotatek.inputs.request import Clip
from rotatek.inputs.token_grid import Grid
from rotatek.methods.tokens.base import TokenPruner, View
from rotatek.models.base import Pixels, VisionLanguageModel
from rotatek.models.llava import vision_layers
from rotatek.models.llava_next import NEWLINE, LlavaNext


class LlavaOnevision(LlavaNext):
    """`LlavaOnevisionForConditionalGeneration` and its tokenizer and image processor."""

    family: ClassVar[str] = "llava_onevision"
    template: ClassVar[str | None] = (
        "{%- for m in messages -%}<|im_start|>{{ m['role'] }} "
        "{%- for part in m['content'] -%}{%- if part['type'] == 'image' -%}{{ '<image>' }}"
        "{%- else -%}{{ '\n' + part['text'] }}{%- endif -%}{%- endfor -%}<|im_end|>"
        "{%- endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant\n{%- endif -%}"
    )

    def preprocess_clip(self, clip: Clip) -> Pixels:
        """One view a frame, whose tokens are pooled two by two, and one newline for all."""
        views = [
            torch.as_tensor(self.images(images=[frame], return_tensors="pt")["pixel_values"][0][0])
            for frame in clip.frames
        ]
        side = -(-self._side // 2)
        count = len(views) * side * side + 1
        grids = tuple(Grid(side, side, number * side * side) for number in range(len(views)))
        tensors = {"pixel_values_videos": torch.stack(views)[None].to(self.device)}
        text = self.token(self.model.config.video_token_id)
        return Pixels(tensors, (count,), grids, (text,), (count,))

    @own_calls()
    def features(self, pixels: Pixels) -> Tensor:
        """Projected, packed tokens of all images, or of a clip, [N, hidden]."""
        if "pixel_values_videos" not in pixels.tensors:
            return super().features(pixels)
        network, views = self.model.model, pixels.tensors["pixel_values_videos"][0]
        tower = network.vision_tower(views, output_hidden_states=True, return_dict=True)
        states = tower.hidden_states[self.model.config.vision_feature_layer]
        states = states[:, 1:] if self._drops_first else states
        pooled = network.apply_pooling(network.multi_modal_projector(states)).flatten(0, 1)
        return torch.cat([pooled, network.image_newline[None].to(pooled)])

    def _pack(
        self, tiles: tuple[Tensor, list[int], Tensor], newline: Tensor | None = None
    ) -> list[Tensor]:
        """As LLaVA-NeXT, scaled down where there are many tiles."""
        states, counts, sizes = tiles
        if newline is None:
            newline = torch.full((states.shape[-1],), NEWLINE, device=states.device)
        packed, _ = self.model.model.pack_image_features(
            states.split(counts), sizes, image_newline=newline,
            vision_aspect_ratio=self.model.config.vision_aspect_ratio,
        )  # fmt: skip
        return list(packed)

    def watched_attention(self) -> tuple[nn.Module, bool]:
        """The last layer's that the projector reads."""
        layer = self.model.config.vision_feature_layer
        layers = vision_layers(self.model.model.vision_tower)
        return layers[layer if isinstance(layer, int) else layer[-1]].self_attn, False

    def per_token(self, values: Tensor, pixels: Pixels) -> Tensor:
        """Packed or pooled like the states themselves; a newline has the mark's value."""
        if "pixel_values_videos" in pixels.tensors:
            pooled = self.model.model.apply_pooling(values.float()).flatten(0, 1)
            return torch.cat([pooled, torch.full_like(pooled[:1], NEWLINE)])
        _, counts, sizes = self._blank_tiles(pixels.tensors)
        return torch.cat(self._pack((values.float(), counts, sizes)))

    def tower_states(self, pixels: Pixels) -> Any:
        """Attention received and Keys, packed; and the tokens."""
        return VisionLanguageModel.tower_states(self, pixels)

    def reduced(
        self, pixels: Pixels, pruner: TokenPruner, watched: Any, question: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Reduce every grid separately; newlines always stay."""
        scores, keys, states = watched
        marks = torch.ones_like(scores)
        if "pixel_values_videos" not in pixels.tensors:
            marks = torch.cat(self._pack(self._blank_tiles(pixels.tensors)))[:, 0]
        kept, states = torch.ones_like(scores, dtype=torch.bool), states.clone()
        for number, grid in enumerate(pixels.grids):
            part = torch.arange(grid.rows * grid.columns, device=scores.device) + grid.start
            part = part[marks[part] < 1.5]
            view = View(scores[part], keys[part], states[part], question, number)
            kept[part], states[part] = pruner.reduce(view)
        return states, kept
