"""LLaVA-OneVision: a SigLIP tower over a base view and many tiles, packed as LLaVA-NeXT does and
scaled down where there are more than nine."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

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
        """Packed like the states themselves; a newline has the mark's value."""
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
        marks = torch.cat(self._pack(self._blank_tiles(pixels.tensors)))[:, 0]
        kept, states = torch.ones_like(scores, dtype=torch.bool), states.clone()
        for number, grid in enumerate(pixels.grids):
            part = torch.arange(grid.rows * grid.columns, device=scores.device) + grid.start
            part = part[marks[part] < 1.5]
            view = View(scores[part], keys[part], states[part], question, number)
            kept[part], states[part] = pruner.reduce(view)
        return states, kept
