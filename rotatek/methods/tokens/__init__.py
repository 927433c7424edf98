"""The first slider: how many visual tokens stay, and who chooses them. In the order of menus."""

from typing import Final

from rotatek.methods.registry import Registry
from rotatek.methods.tokens.base import TokenPruner, View
from rotatek.methods.tokens.cdpruner import CDPruner
from rotatek.methods.tokens.divprune import DivPrune
from rotatek.methods.tokens.fastv import FastV
from rotatek.methods.tokens.keep_all import KeepAll
from rotatek.methods.tokens.random import Random
from rotatek.methods.tokens.sparsevlm import SparseVLM
from rotatek.methods.tokens.visionzip import VisionZip

TOKENS: Final = Registry(
    "rotatek.tokens",
    TokenPruner,
    (KeepAll, FastV, VisionZip, SparseVLM, DivPrune, CDPruner, Random),
)

__all__ = [
    "TOKENS", "CDPruner", "DivPrune", "FastV", "KeepAll", "Random", "SparseVLM", "TokenPruner",
    "View", "VisionZip",
]  # fmt: skip
