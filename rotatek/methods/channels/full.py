"""No channel pruning: Keys keep their full width. With a token pruner it is the token-only row."""

from dataclasses import dataclass
from typing import ClassVar

from rotatek.methods.channels.base import ChannelMethod, LayerStates, full_visual
from rotatek.methods.channels.store import Store


@dataclass(frozen=True)
class Full(ChannelMethod):
    """Every channel of every kept token."""

    name: ClassVar[str] = "full"
    label: ClassVar[str] = "Full Keys"
    summary: ClassVar[str] = "Every channel of every kept token."
    marker: ClassVar[str] = "circle"
    dash: ClassVar[str] = "dot"
    drops_channels: ClassVar[bool] = False

    @property
    def stores_everything(self) -> bool:
        """The cache is the plain one."""
        return True

    def compress(self, states: LayerStates) -> Store:
        """Keep Keys and Values as they are."""
        return Store(full_visual(states))
