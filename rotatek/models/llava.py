"""LLaVA-1.5: a CLIP tower over one square view; a patch is a token."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor, nn

from rotatek.bridge.attention import tapped
from rotatek.errors import ModeUnsupported
from rotatek.inputs.token_grid import Grid
from rotatek.methods.tokens.base import TokenPruner, View
from rotatek.models.base import Pixels, VisionLanguageModel
from rotatek.models.tap import AttentionTap


class Llava(VisionLanguageModel):
    """`LlavaForConditionalGeneration` and its tokenizer and image processor."""

    family: ClassVar[str] = "llava"
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
        count = side**2 + (0 if self._drops_first else 1)
        grids = tuple(self._grid(image, number * count) for number, image in enumerate(images))
        texts, counts = (self.placeholder,) * len(images), (count,) * len(images)
        tensors = {"pixel_values": out["pixel_values"].to(self.device)}
        return Pixels(tensors, counts, grids, texts, counts)

    def _grid(self, image: Image.Image, start: int) -> Grid:
        """The tokens' region of one picture: all of it, or the square that is cropped."""
        start += 0 if self._drops_first else 1
        if not getattr(self.images, "do_center_crop", False):
            return Grid(self._side, self._side, start)
        return Grid.cropped(self._side, *image.size, start)

    @property
    def _side(self) -> int:
        """Patches along one side of a view."""
        vision = self.model.config.vision_config
        return vision.image_size // vision.patch_size

    @property
    def _drops_first(self) -> bool:
        """Whether the tower's CLS token is not a visual token."""
        return self.model.config.vision_feature_select_strategy == "default"

    def _views(self, pixels: Pixels) -> Tensor:
        """The tower's input, [T, 3, height, width]."""
        return pixels.tensors["pixel_values"]

    def tower_states(self, pixels: Pixels) -> tuple[Tensor, Tensor, Tensor]:
        """CLS attention, Keys and states of every view.

        Raises:
            ModeUnsupported: where the projector reads several layers, or the CLS token.
        """
        network, layer = self.model.model, self.model.config.vision_feature_layer
        if not isinstance(layer, int) or not self._drops_first:
            self.watched_attention()
        layers = vision_layers(network.vision_tower)
        tap = AttentionTap(layers[layer].self_attn, cls=True)
        with tapped(tap):
            tower = network.vision_tower(
                self._views(pixels), output_hidden_states=True, return_dict=True
            )
        return tap.scores[0], tap.keys[0], tower.hidden_states[layer][:, 1:]

    def _reduced_views(
        self, pruner: TokenPruner, watched: Any, question: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Reduce every view separately: states [T, n, hidden], kept [T, n]."""
        project = self.model.model.multi_modal_projector
        reduced = [
            pruner.reduce(View(scores, keys, states, question, number, project))
            for number, (scores, keys, states) in enumerate(zip(*watched, strict=True))
        ]
        states = project(torch.stack([state for _, state in reduced]))
        return states, torch.stack([kept for kept, _ in reduced])

    def reduced(
        self, pixels: Pixels, pruner: TokenPruner, watched: Any, question: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Reduce every picture."""
        states, kept = self._reduced_views(pruner, watched, question)
        return states.flatten(0, 1), kept.flatten()


def vision_layers(tower: Any) -> Sequence[Any]:
    """The vision transformer's layers in any release of transformers.

    Raises:
        ModeUnsupported: where they are not found.
    """
    inner = getattr(tower, "vision_model", tower)
    layers = getattr(getattr(inner, "encoder", inner), "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise ModeUnsupported("This model's vision tower has no layers that RotateK can read.")
    return list(layers)
