"""Molmo 2: a view of the picture and crops of it in one finer grid, with a token behind each row;
all tokens of pictures see each other both ways.

transformers has its processor with torchvision only, so it is given as a whole.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import torch
from PIL import Image
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rotatek.inputs.token_grid import Grid
from rotatek.models.base import Embedded, Pixels
from rotatek.models.generic import TEXT, Generic

FIRST: Final = "{{ bos_token or eos_token }}"  # its processor writes it before every prompt


class Molmo2(Generic):
    """`Molmo2ForConditionalGeneration` and its processor."""

    family: ClassVar[str] = "molmo2"

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, images: Any, name: str
    ) -> None:
        super().__init__(model, tokenizer, images, name)
        template = tokenizer.chat_template or ""
        if template and "bos_token" not in template:
            tokenizer.chat_template = FIRST + template

    @property
    def banned_ids(self) -> tuple[int, ...]:
        """The ids of all tokens of pictures."""
        return tuple(dict.fromkeys((*self.visual_ids, *self.images.image_token_ids)))

    def _processed(
        self, images: Sequence[Image.Image], question: str = "", placeholder: str = ""
    ) -> Any:
        """The processor's output without the token that begins a prompt."""
        out = super()._processed(images, question, placeholder)
        return {name: value[:, 1:] if name in TEXT else value for name, value in out.items()}

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """A picture's view, then its crops: two parts, in two grids."""
        pixels = super().preprocess(images)
        start, grids = 0, []
        for low_rows, low_columns, rows, columns in pixels.tensors["image_grids"].tolist():
            for shape in ((low_rows, low_columns), (rows, columns)):
                grids.append(Grid(*shape, start))
                start += shape[0] * shape[1]
        counts = tuple(grid.rows * grid.columns for grid in grids)
        return replace(pixels, counts=counts, grids=tuple(grids))

    def features(self, pixels: Pixels) -> Tensor:
        """What the model adds to the visual token's own embedding, and that embedding."""
        token = torch.tensor([self.image_token], device=self.device)
        return super().features(pixels) + self.model.get_input_embeddings()(token)

    def besides(self, embedded: Embedded) -> dict[str, Any]:
        """Which tokens are of pictures, those behind their rows among them."""
        shown = embedded.visual
        if embedded.words is not None:
            others = torch.tensor(self.images.image_token_ids, device=shown.device)
            shown = shown | torch.isin(embedded.words, others)
        return {"mm_token_type_ids": shown.long()}

    def watched_attention(self) -> tuple[nn.Module, bool]:
        """That of the last vision layer whose output is read."""
        tower, read = self.model.model.vision_tower, self.model.config.adapter_config
        layers = tower.layers
        return layers[max(n % len(layers) for n in read.vision_feature_layer)].self_attn, False

    def per_token(self, values: Tensor, pixels: Pixels) -> Tensor:
        """Means over the patches that are pooled into one token."""
        pooled = pixels.tensors["image_token_pooling"]
        real = (pooled >= 0)[..., None]
        picked = values.flatten(0, 1)[pooled.clamp_min(0)] * real
        return picked.sum(1) / real.sum(1)
