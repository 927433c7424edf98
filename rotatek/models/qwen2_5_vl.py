"""Qwen2.5-VL: as Qwen2-VL, with most of its vision blocks attending inside windows."""

from typing import ClassVar, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.vision_utils import get_vision_window_index

from rotatek.models.base import Pixels
from rotatek.models.qwen2_vl import Qwen2VL

ALIGNED: Final = 8  # numbers of two bytes that a tensor core's reads are aligned to
TILE: Final = 64  # columns, of its fast products


class Qwen25VL(Qwen2VL):
    """`Qwen2_5_VLForConditionalGeneration` and its tokenizer and image processor."""

    family: ClassVar[str] = "qwen2_5_vl"

    def optimise_for_gpu(self) -> None:
        """Also pad the vision MLPs, 3,420 columns wide in the published models, to whole tiles.

        Rows of 3,420 numbers of two bytes begin between a tensor core's reads, and cuBLAS falls
        back to kernels of an older generation: 46 of an H100's 106 ms for 2,880 visual tokens, and
        18 where they are padded. Columns of zeros add nothing.
        """
        super().optimise_for_gpu()
        for block in self.model.model.visual.blocks:
            mlp = block.mlp
            inner = (mlp.gate_proj, mlp.up_proj)
            if any(type(layer) is not nn.Linear for layer in (*inner, mlp.down_proj)):
                continue  # of four bits
            more = -mlp.gate_proj.out_features % TILE
            if mlp.gate_proj.out_features % ALIGNED == 0:
                continue
            for layer in inner:
                _pad(layer, (0, 0, 0, more))
            _pad(mlp.down_proj, (0, more))

    def per_token(self, values: Tensor, pixels: Pixels) -> Tensor:
        """Means over 2x2 units, brought out of window order."""
        tower, tensors = self.model.model.visual, pixels.tensors
        window, _ = get_vision_window_index(
            tensors["image_grid_thw"],
            spatial_merge_size=tower.spatial_merge_size,
            window_size=tower.window_size,
            patch_size=tower.patch_size,
        )
        return super().per_token(values, pixels)[window.to(values.device).argsort()]


@torch.no_grad()
def _pad(layer: nn.Linear, sides: tuple[int, ...]) -> None:
    """Pad a layer's weight with zero columns; by `sides` (as of `F.pad`) also with zero rows, and
    its bias."""
    layer.weight = nn.Parameter(F.pad(layer.weight, sides), requires_grad=False)
    layer.out_features, layer.in_features = layer.weight.shape
    if layer.bias is not None and sides[2:]:
        layer.bias = nn.Parameter(F.pad(layer.bias, sides[2:]), requires_grad=False)
