"""The input of the training forwards: one step's pictures, text and glyph targets."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch


@dataclass
class Batch:
    """One step's data for the first and third pocket; every image has the same size.

    A batch that is made for several uses has, of text, labels and weights, B rows for each of them;
    `training.sample_reuse.uses` takes it apart.

    Attributes:
        images: uint8 [B, H, W, 3].
        text: int64 [B, T].
        labels: int64 [B, T], the next token, or -1 where there is no loss.
        weights: float32 [B, T], how much each label counts.
        glyph_patch: int64 [G], row * patches + patch, in the model's order.
        glyph_class: int64 [G].
        alone: Whether no turn sees another.
        plain: int64 [M, L], conversations without pictures, of the third pocket.
        counts: How many labels are no -1, for each use; a GPU would have to be waited for.
    """

    images: torch.Tensor
    text: torch.Tensor
    labels: torch.Tensor
    weights: torch.Tensor
    glyph_patch: torch.Tensor
    glyph_class: torch.Tensor
    alone: bool = False
    plain: torch.Tensor | None = None
    counts: tuple[int, ...] = ()

    def to(self, device: torch.device) -> "Batch":
        """A copy on `device`."""
        return each_tensor(self, lambda t: t.to(device, non_blocking=True))

    def glyph_target(self, patches: int, classes: int) -> torch.Tensor:
        """float32 [patches, classes] of all pictures: 1 where a patch holds a glyph's centre."""
        target = torch.zeros(patches, classes, device=self.glyph_patch.device)
        at = self.glyph_patch * classes + self.glyph_class
        target.view(-1).index_fill_(0, at, 1.0)  # target[...] = 1 would wait for the GPU
        return target

    def labelled(self) -> torch.Tensor:
        """int64 [K]: where the flattened labels are no -1."""
        held = self.labels.flatten() >= 0
        count = sum(self.counts) if self.counts else int(held.sum())
        return held.int().argsort(descending=True, stable=True)[:count]

    def pin_memory(self) -> "Batch":
        """A copy in pinned memory."""
        return each_tensor(self, torch.Tensor.pin_memory)


def each_tensor(batch: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A copy of a batch with `change` made to every tensor it holds."""
    held = {k: v for k, v in vars(batch).items() if isinstance(v, torch.Tensor)}
    return replace(batch, **{k: change(v) for k, v in held.items()})
