"""The input of the training forwards: one step's pictures, text and glyph targets."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pocket.models.llava_tiles import Tiling


@dataclass
class Batch:
    """One step's data for the first and third pocket; every image has the same size.

    A batch that is made for several uses has, of text, labels and weights, B rows for each of them;
    `training.echoing.uses` takes it apart.

    Attributes:
        images: uint8 [B, H, W, 3].
        text: int64 [B, T].
        labels: int64 [B, T], the next token, or -1 where there is no loss.
        weights: float32 [B, T], how much each label counts.
        glyph_patch: int64 [G], row * patches + patch, in the model's order.
        glyph_class: int64 [G].
        alone: Whether no turn sees another.
        plain: int64 [M, L], conversations without pictures, of the third pocket.
    """

    images: torch.Tensor
    text: torch.Tensor
    labels: torch.Tensor
    weights: torch.Tensor
    glyph_patch: torch.Tensor
    glyph_class: torch.Tensor
    alone: bool = False
    plain: torch.Tensor | None = None

    def to(self, device: torch.device) -> "Batch":
        """A copy on `device`."""
        return each_tensor(self, lambda t: t.to(device, non_blocking=True))

    def pin_memory(self) -> "Batch":
        """A copy in pinned memory."""
        return each_tensor(self, torch.Tensor.pin_memory)


def each_tensor(batch: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A copy of a batch with `change` made to every tensor it holds."""
    held = {k: v for k, v in vars(batch).items() if isinstance(v, torch.Tensor)}
    return replace(batch, **{k: change(v) for k, v in held.items()})


@dataclass
class TileBatch:
    """One step's data for the second pocket; every picture has the same size, and so tiling.

    Attributes:
        images: uint8 [B, side, side, 3], the base views.
        grid: uint8 [B, h, w, 3], the pictures as the tiles show them.
        order: int64 [N], see `models.llava_tiles.order`.
        text: As in `Batch`, and so are labels and weights.
        labels: As in `Batch`.
        weights: As in `Batch`.
        glyph_patch: int64 [G], picture * features + feature.
        glyph_class: int64 [G].
        plan: The tiling.
        places: int64 [B, T], the visual token that shows what a label says, or -1.
        alone: As in `Batch`.
    """

    images: Tensor
    grid: Tensor
    order: Tensor
    text: Tensor
    labels: Tensor
    weights: Tensor
    glyph_patch: Tensor
    glyph_class: Tensor
    plan: Tiling
    places: Tensor
    alone: bool = False

    def to(self, device: torch.device) -> "TileBatch":
        """A copy on `device`."""
        return each_tensor(self, lambda v: v.to(device, non_blocking=True))

    def pin_memory(self) -> "TileBatch":
        """A copy in pinned memory."""
        return each_tensor(self, Tensor.pin_memory)
