"""The second slider: how many Key channels stay, and in which basis. In the order of menus."""

from typing import Final

from rotatek.channels.base import ChannelMethod, HeadStates, LayerStates, full_visual
from rotatek.channels.full import Full
from rotatek.channels.rotatek import RotateK
from rotatek.channels.spark import SparK
from rotatek.channels.store import Store
from rotatek.channels.think import ThinK
from rotatek.registry import Registry

CHANNELS: Final = Registry("rotatek.channels", ChannelMethod, (RotateK, ThinK, SparK, Full))  # type: ignore[type-abstract]

__all__ = [
    "CHANNELS",
    "ChannelMethod",
    "Full",
    "HeadStates",
    "LayerStates",
    "RotateK",
    "SparK",
    "Store",
    "ThinK",
    "full_visual",
]
