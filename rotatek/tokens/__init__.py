"""The first slider: how many visual tokens stay, and who chooses them. In drop-down order."""

from typing import Final

from rotatek.tokens.base import TokenPruner
from rotatek.tokens.fastv import FastV
from rotatek.tokens.none import KeepAll
from rotatek.tokens.visionzip import VisionZip

_PRUNERS: Final[tuple[TokenPruner, ...]] = (KeepAll(), FastV(), VisionZip())
TOKENS: Final[dict[str, TokenPruner]] = {pruner.name: pruner for pruner in _PRUNERS}

__all__ = ["TOKENS", "TokenPruner"]
