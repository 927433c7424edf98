"""The second slider: how many Key channels stay, in which basis, in how many bits. As in menus."""

from typing import Final

from rotatek.methods.channels.base import ChannelMethod, Full, LayerStates, Store, full_visual
from rotatek.methods.channels.kivi import Kivi
from rotatek.methods.channels.omniscale import OmniScaled
from rotatek.methods.channels.oscar import Oscar
from rotatek.methods.channels.rotatek import RotateK
from rotatek.methods.channels.spark import SparK
from rotatek.methods.channels.think import ThinK
from rotatek.methods.channels.turboquant import TurboQuant
from rotatek.methods.channels.vidkv import VidKV
from rotatek.methods.options import Registry

CHANNELS: Final = Registry(
    "rotatek.channels",
    ChannelMethod,  # type: ignore[type-abstract]
    (RotateK, ThinK, SparK, Kivi, TurboQuant, VidKV, Oscar, OmniScaled, Full),
)

__all__ = [
    "CHANNELS",
    "ChannelMethod",
    "Full",
    "Kivi",
    "LayerStates",
    "RotateK",
    "SparK",
    "Store",
    "ThinK",
    "TurboQuant",
    "VidKV",
    "full_visual",
]
