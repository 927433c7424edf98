"""No token pruning."""

from dataclasses import dataclass
from typing import ClassVar

from rotatek.methods.tokens.base import Stage, TokenPruner


@dataclass(frozen=True)
class KeepAll(TokenPruner):
    """Every visual token stays."""

    name: ClassVar[str] = "none"
    label: ClassVar[str] = "All tokens"
    summary: ClassVar[str] = "Every visual token stays."
    stage: ClassVar[Stage] = "nowhere"
    marker: ClassVar[str] = "circle"
