"""The first slider: how many visual tokens stay, and who chooses them. In the order of menus."""

from typing import Final

from rotatek.methods.options import Registry
from rotatek.methods.tokens.base import KeepAll, TokenPruner, View
from rotatek.methods.tokens.dart import DART
from rotatek.methods.tokens.divprune import DivPrune
from rotatek.methods.tokens.fastv import FastV
from rotatek.methods.tokens.pyramiddrop import PyramidDrop
from rotatek.methods.tokens.random import Random
from rotatek.methods.tokens.snapkv import SnapKV
from rotatek.methods.tokens.visionzip import VisionZip

TOKENS: Final = Registry(
    "rotatek.tokens",
    TokenPruner,
    (KeepAll, FastV, VisionZip, DivPrune, PyramidDrop, DART, SnapKV, Random),
)

__all__ = [
    "DART", "TOKENS", "DivPrune", "FastV", "KeepAll", "PyramidDrop", "Random",
    "SnapKV", "TokenPruner", "View", "VisionZip",
]  # fmt: skip
