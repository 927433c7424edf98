"""The second slider: how many Key channels stay, and in which basis. In drop-down order."""

from typing import Final

from rotatek.channels.base import ChannelMethod, Prefill
from rotatek.channels.full import Full
from rotatek.channels.rotatek import RotateK
from rotatek.channels.spark import Spark
from rotatek.channels.think import Think

_METHODS: Final[tuple[ChannelMethod, ...]] = (RotateK(), Spark(), Think(), Full())
CHANNELS: Final[dict[str, ChannelMethod]] = {method.name: method for method in _METHODS}

__all__ = ["CHANNELS", "ChannelMethod", "Prefill"]
