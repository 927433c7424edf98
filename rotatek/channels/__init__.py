"""The second slider: how many Key channels stay, in which basis, in how many bits. As in menus."""

from typing import Final

from rotatek.channels.base import ChannelMethod, HeadStates, LayerStates, full_visual
from rotatek.channels.full import Full
from rotatek.channels.kivi import Kivi
from rotatek.channels.rotatek import RotateK
from rotatek.channels.spark import SparK
from rotatek.channels.store import Store
from rotatek.channels.think import ThinK
from rotatek.channels.turboquant import TurboQuant
from rotatek.registry import Registry

CHANNELS: Final = Registry(
    "rotatek.channels",
    ChannelMethod,  # type: ignore[type-abstract]
    (RotateK, ThinK, SparK, Kivi, TurboQuant, Full),
)

__all__ = [
    "CHANNELS",
    "ChannelMethod",
    "Full",
    "HeadStates",
    "Kivi",
    "LayerStates",
    "RotateK",
    "SparK",
    "Store",
    "ThinK",
    "TurboQuant",
    "full_visual",
]
