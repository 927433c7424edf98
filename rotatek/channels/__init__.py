"""The second slider: how many Key channels stay, and in which basis. In drop-down order."""

from typing import Final

from rotatek.channels.base import ChannelMethod, Prefill
from rotatek.channels.full import Full
from rotatek.channels.rotatek import RotateK
from rotatek.channels.spark import Spark
from rotatek.channels.think import Think

CHANNELS: Final[dict[str, ChannelMethod]] = {
    method.name: method for method in (RotateK(), Spark(), Think(), Full())
}

__all__ = ["CHANNELS", "ChannelMethod", "Prefill"]
