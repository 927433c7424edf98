"""The first slider: how many visual tokens stay, and who chooses them. In the order of menus."""

from typing import Final

from rotatek.registry import Registry
from rotatek.tokens.base import TokenPruner
from rotatek.tokens.fastv import FastV
from rotatek.tokens.none import KeepAll
from rotatek.tokens.visionzip import VisionZip

TOKENS: Final = Registry("rotatek.tokens", TokenPruner, (KeepAll, FastV, VisionZip))

__all__ = ["TOKENS", "FastV", "KeepAll", "TokenPruner", "VisionZip"]
