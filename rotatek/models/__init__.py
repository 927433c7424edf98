"""Models by name: the embedded default, a folder, or a checkpoint on the hub."""

from rotatek.models.base import Embedded, Prompt, VisionLanguageModel
from rotatek.models.loading import CHECKPOINTS, Checkpoint, load

__all__ = ["CHECKPOINTS", "Checkpoint", "Embedded", "Prompt", "VisionLanguageModel", "load"]
