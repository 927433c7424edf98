"""No token pruning."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from rotatek.config import Settings
from rotatek.layout import Layout


@dataclass(frozen=True)
class KeepAll:
    """Every visual token stays."""

    name: str = "none"
    label: str = "All tokens"
    summary: str = "Every visual token stays."
    stage: Literal["nowhere"] = "nowhere"

    def choose(
        self, query: Tensor, keys: Tensor, layout: Layout, settings: Settings, scale: float
    ) -> Tensor:
        """All real rows."""
        return layout.valid
