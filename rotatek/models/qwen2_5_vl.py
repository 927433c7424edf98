"""Qwen2.5-VL: as Qwen2-VL, with most of its vision blocks attending inside windows."""

from typing import ClassVar

from torch import Tensor
from transformers.vision_utils import get_vision_window_index

from rotatek.models.base import Pixels
from rotatek.models.qwen2_vl import Qwen2VL


class Qwen25VL(Qwen2VL):
    """`Qwen2_5_VLForConditionalGeneration` and its tokenizer and image processor."""

    family: ClassVar[str] = "qwen2_5_vl"

    def per_token(self, values: Tensor, pixels: Pixels) -> Tensor:
        """Means over 2x2 units, brought out of window order."""
        tower, tensors = self.model.model.visual, pixels.tensors
        window, _ = get_vision_window_index(
            tensors.get("image_grid_thw", tensors.get("video_grid_thw")),
            spatial_merge_size=tower.spatial_merge_size,
            window_size=tower.window_size,
            patch_size=tower.patch_size,
        )
        return super().per_token(values, pixels)[window.to(values.device).argsort()]
