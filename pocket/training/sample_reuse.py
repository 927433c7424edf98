"""Sample reuse: a batch's pictures are used again some steps later, with other questions.

Drawing a picture takes longer than learning from it, and a page holds more questions than one
sequence has room for.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

DISTANCE: Final = 12  # fresh batches from one use of a picture to the next, where memory allows
ROOM: Final = 4_000_000_000  # bytes of device memory that waiting pictures may take
GAIN: Final = 0.1  # most change of a picture used again, of 255
OFFSET: Final = 10.0
GRAIN: Final = 4.0


def distance(batch_bytes: int, echo: int) -> int:
    """Fresh batches from use to use; from the options alone, so that all ranks have the same."""
    return max(1, min(DISTANCE, ROOM // (batch_bytes * max(1, echo - 1))))


def uses(batch: Any) -> list[Any]:
    """The batch once for each packing of its questions: the same pictures, other text.

    Its text, labels and weights have one packing of all pictures after the other.
    """
    names = ("text", "labels", "weights")
    packings = (getattr(batch, name).split(len(batch.images)) for name in names)
    return [
        replace(batch, **dict(zip(names, use, strict=True)), counts=batch.counts[k : k + 1])
        for k, use in enumerate(zip(*packings, strict=True))
    ]


def echoed(batches: Iterator[Any], device: torch.device, away: int, seed: int) -> Iterator[Any]:
    """Every batch on a device, and its echoes, in an order that depends on counts only.

    Args:
        batches: Fresh ones.
        device: Where to.
        away: Fresh batches from one use of a picture to its next.
        seed: Of the changes that `retouched` makes.
    """
    kept: deque[list[Any]] = deque()
    generator = torch.Generator(device).manual_seed(seed)
    for batch in batches:
        kept.append(uses(batch.to(device)))
        yield kept[-1][0]
        later = range(1, len(kept[-1]))
        for k in later:
            if k * away < len(kept):
                yield retouched(kept[-1 - k * away][k], generator)
        if len(kept) > away * len(later):
            kept.popleft()


def retouched(batch: Any, generator: torch.Generator) -> Any:
    """`batch` under a little more or less light, with a little grain; colours keep their names."""
    size, device = len(batch.images), batch.images.device
    light = torch.rand(2, size, 1, 1, 1, generator=generator, device=device) * 2 - 1
    gain, offset = 1 + GAIN * light[0], OFFSET * light[1]
    return replace(batch, images=_lit(batch.images, gain, offset, generator))


def _lit(images: Tensor, gain: Tensor, offset: Tensor, generator: torch.Generator) -> Tensor:
    """uint8 [B, H, W, 3] times `gain` plus `offset` [B, 1, 1, 1] and grain, rounded."""
    b, h, w, _ = images.shape
    grain = torch.rand(b, h, w, 1, generator=generator, device=images.device) * 2 - 1
    light = (images * gain).add_(offset + GRAIN * grain + 0.5)
    return light.clamp_(0, 255).to(torch.uint8)
