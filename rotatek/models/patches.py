"""Pictures as Qwen's patches: their bytes go to the device and become numbers there.

The image processor makes float64 of every channel of every pixel, and of those a float32 for each
frame in time: .3 s of one core for 2,880 visual tokens. But a channel has 256 levels, and what the
processor makes of these is found at once; and a picture's bytes are an eighth of its numbers.
"""

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

LEVELS: Final = 256  # of a channel
CHANNELS: Final = 3
EDGES: Final = ("shortest_edge", "longest_edge")  # of a size: least and most pixels


def patches_of(processor: Any, image: Image.Image, device: torch.device) -> tuple[Tensor, int, int]:
    """The result of the processor's call for a picture, number by number.

    Args:
        processor: a `Qwen2VLImageProcessorPil`.
        image: RGB; it is repeated in time.
        device: of the result.

    Returns:
        Patches [rows * columns, C * T * p * p] float32, those of a visual token together; rows and
        columns of patches.
    """
    side, unit = processor.patch_size, processor.merge_size
    shown = _levels(processor, image)
    H, W, C = shown.shape
    rows, columns = H // side, W // side
    seen = torch.from_numpy(shown).to(device)
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


def _levels(processor: Any, image: Image.Image) -> NDArray[np.uint8]:
    """[H, W, C] of a picture at a size of whole units of patches."""
    unit, least, most = processor.patch_size * processor.merge_size, *map(processor.size.get, EDGES)
    height, width = smart_resize(image.height, image.width, unit, least, most)
    if image.size != (width, height):
        image = image.resize((width, height), processor.resample)
    return np.array(image)
