"""Qwen2-VL to Qwen3.6: native resolution, 2x2 merged patches, M-RoPE positions.

Qwen2.5-VL has windows in most vision blocks. Qwen3-VL adds deeper vision features to the first
layers (DeepStack). In Qwen3.5 and 3.6 one layer in four has Keys, of 256 channels, and is
compressed; the others keep a state (`rotatek.bridge.layers`). The gate that multiplies
attention's output comes after our attention, inside the model's own module.

Pictures' bytes go to the device and become numbers there: the image processor would take .3 s of
one core for 2,880 visual tokens, but a channel has 256 levels, and what it makes of these is found
at once.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize
from transformers.vision_utils import get_vision_window_index

from rotatek.inputs.token_grid import Grid, resized, without_margins
from rotatek.models.base import Pixels, Shown, VisionLanguageModel

LEVELS: Final = 256  # of a channel
CHANNELS: Final = 3
EDGES: Final = ("shortest_edge", "longest_edge")  # of a size: least and most pixels
LOW_TOKENS: Final = 256  # of a picture at low detail, at most


class Qwen2VL(VisionLanguageModel):
    """`Qwen2VLForConditionalGeneration`, those of Qwen3-VL, 3.5 and 3.6 (with experts, too), and
    their tokenizers and image processors."""

    tower: ClassVar[str] = "visual"
    around: ClassVar[dict[str, str]] = {
        "vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>",
    }  # fmt: skip

    @property
    def low_pixels(self) -> int | None:
        """The pixels of 256 visual tokens."""
        return LOW_TOKENS * self._unit**2

    def within(self, image: Image.Image, least: int, most: int) -> Image.Image:
        """As under these bounds in place of the image processor's; as it is, where that would
        choose the same size anyway."""
        low, high = (int(self.images.size[edge]) for edge in EDGES)
        most = max(min(most, high), self._unit**2)
        if most < high and (cut := without_margins(image, self._unit, most // self._unit**2)):
            return cut[0]
        side, (width, height) = self._unit, image.size
        tall, wide = smart_resize(height, width, side, min(max(least, low), most), most)
        as_is = smart_resize(height, width, side, low, high)
        return image if (tall, wide) == as_is else resized(image, wide, tall)

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """Resize to whole 2x2 units of patches; N = rows x columns / 4. Pictures that would be
        scaled down lose their blank margins first."""
        unit = self._unit
        most = self.images.size["longest_edge"] // unit**2
        pixels, shapes, shown = [], [], []
        for image in images:
            part, grid = without_margins(image, unit, most) or (image, None)
            patches, rows, columns = patches_of(self.images, part, self.device)
            pixels.append(patches)
            shapes.append((1, rows, columns))
            grid = grid or Grid(rows // self._merge, columns // self._merge)
            count = rows * columns // self._merge**2
            shown.append(Shown(self.placeholder, (count,), (grid,)))
        tensors = {
            "pixel_values": pixels[0] if len(pixels) == 1 else torch.cat(pixels),
            "image_grid_thw": torch.tensor(shapes, device=self.device),
        }
        return Pixels.of(tensors, shown)

    @property
    def _unit(self) -> int:
        """Pixels along one side of a visual token."""
        return int(self.images.patch_size * self._merge)

    @property
    def _merge(self) -> int:
        """Patches along one side of a visual token."""
        return int(self.model.config.vision_config.spatial_merge_size)

    def per_token(self, values: Tensor, pixels: Pixels) -> Tensor:
        """Means over 2x2 units, which are adjacent in memory."""
        return values.flatten(0, 1).unflatten(0, (-1, self._merge**2)).mean(1)


ALIGNED: Final = 8  # numbers of two bytes that a tensor core's reads are aligned to
TILE: Final = 64  # columns, of its fast products


class Qwen25VL(Qwen2VL):
    """`Qwen2_5_VLForConditionalGeneration` and its tokenizer and image processor."""

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
    """Pad a layer's weight by `sides` (as of `F.pad`) with zero columns and rows, and its bias."""
    layer.weight = nn.Parameter(F.pad(layer.weight, sides), requires_grad=False)
    layer.out_features, layer.in_features = layer.weight.shape
    if layer.bias is not None and sides[2:]:
        layer.bias = nn.Parameter(F.pad(layer.bias, sides[2:]), requires_grad=False)


def patches_of(processor: Any, image: Image.Image, device: torch.device) -> tuple[Tensor, int, int]:
    """The result of a `Qwen2VLImageProcessorPil` for an RGB picture, number by number.

    Returns:
        Patches [rows * columns, C * T * p * p] float32, those of a visual token together; rows and
        columns of patches.
    """
    side, unit = processor.patch_size, processor.merge_size
    least, most = (processor.size[edge] for edge in EDGES)
    H, W = smart_resize(image.height, image.width, side * unit, least, most)
    if image.size != (W, H):
        image = image.resize((W, H), processor.resample)
    rows, columns, C = H // side, W // side, CHANNELS
    seen = torch.from_numpy(np.array(image)).to(device)
    cells = seen.view(rows // unit, unit, side, columns // unit, unit, side, C)
    levels = cells.permute(0, 3, 1, 4, 6, 2, 5).reshape(rows * columns, C, -1)
    first = LEVELS * torch.arange(C, dtype=torch.int32, device=device)[:, None]
    numbers = numbers_of(processor).to(device)
    made = numbers.index_select(0, (levels + first).flatten()).view(rows * columns, C, 1, -1)
    made = made.expand(-1, -1, processor.temporal_patch_size, -1)
    return made.reshape(rows * columns, -1), rows, columns


def numbers_of(processor: Any) -> Tensor:
    """[C * 256] float32: what a processor makes of every level of every channel."""
    levels = np.arange(LEVELS, dtype=np.uint8)[None, None].repeat(CHANNELS, 0)  # [C, 1, 256]
    if processor.do_rescale:
        levels = processor.rescale(levels, processor.rescale_factor)
    if processor.do_normalize:
        levels = processor.normalize(levels, processor.image_mean, processor.image_std)
    return torch.from_numpy(np.asarray(levels, dtype=np.float32)).flatten()
