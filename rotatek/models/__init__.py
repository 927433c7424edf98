"""Models by name: the embedded default, a folder, or a checkpoint on the hub."""

from rotatek.models.base import Embedded, Grid, Prompt, VisionLanguageModel, collate
from rotatek.models.loading import CHECKPOINTS, Checkpoint, load

__all__ = [
    "CHECKPOINTS",
    "Checkpoint",
    "Embedded",
    "Grid",
    "Prompt",
    "VisionLanguageModel",
    "collate",
    "load",
]
