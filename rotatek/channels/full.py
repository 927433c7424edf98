"""No channel pruning: Keys keep their full width. With a token pruner it is the token-only row."""

from dataclasses import dataclass
from typing import ClassVar

from rotatek.channels.base import ChannelMethod, LayerStates, full_visual
from rotatek.channels.store import Store


@dataclass(frozen=True)
class Full(ChannelMethod):
    """Every channel of every kept token."""

    name: ClassVar[str] = "full"
    label: ClassVar[str] = "Full Keys"
    summary: ClassVar[str] = "Every channel of every kept token."
    marker: ClassVar[str] = "circle"
    dash: ClassVar[str] = "dot"

    @property
    def stores_everything(self) -> bool:
        """Nothing is left out."""
        return True

    def compress(self, states: LayerStates) -> Store:
        """Keep Keys and Values as they are."""
        return Store(full_visual(states))
