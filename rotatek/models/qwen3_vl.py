"""Qwen3-VL: as Qwen2-VL, with deeper vision features added to the first layers (DeepStack)."""

from typing import ClassVar

from torch import Tensor

from rotatek.models.base import Pixels
from rotatek.models.deepstack import DeepStack, with_additions
from rotatek.models.qwen2_vl import Qwen2VL


class Qwen3VL(Qwen2VL, DeepStack):
    """`Qwen3VLForConditionalGeneration` and its tokenizer and image processor."""

    family: ClassVar[str] = "qwen3_vl"

    def features(self, pixels: Pixels) -> Tensor:
        """Merged embeddings and, in further columns, the additions of each of the first layers,
        [N, (1 + D) hidden]."""
        return with_additions(self._tower(pixels))
