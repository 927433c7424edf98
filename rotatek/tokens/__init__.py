"""The first slider: how many visual tokens stay, and who chooses them. In the order of menus."""

from typing import Final

from rotatek.registry import Registry
from rotatek.tokens.base import TokenPruner, View
from rotatek.tokens.cdpruner import CDPruner
from rotatek.tokens.divprune import DivPrune
from rotatek.tokens.fastv import FastV
from rotatek.tokens.none import KeepAll
from rotatek.tokens.random import Random
from rotatek.tokens.sparsevlm import SparseVLM
from rotatek.tokens.visionzip import VisionZip

TOKENS: Final = Registry(
    "rotatek.tokens",
    TokenPruner,
    (KeepAll, FastV, VisionZip, SparseVLM, DivPrune, CDPruner, Random),
)

__all__ = [
    "TOKENS", "CDPruner", "DivPrune", "FastV", "KeepAll", "Random", "SparseVLM", "TokenPruner",
    "View", "VisionZip",
]  # fmt: skip
