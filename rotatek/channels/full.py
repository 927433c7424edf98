"""No channel pruning: Keys keep their full width. With a token pruner it is the token-only row."""

from collections.abc import Sequence
from dataclasses import dataclass

from rotatek.cache import Store
from rotatek.channels.base import Prefill, full_visual
from rotatek.config import Settings


@dataclass(frozen=True)
class Full:
    """Every channel of every kept token."""

    name: str = "full"
    label: str = "Full Keys"
    summary: str = "Every channel of every kept token."

    def compress(self, prefill: Prefill, settings: Settings) -> Store:
        """Keep Keys and Values as they are."""
        return Store(full_visual(prefill))

    def settle(self, stores: Sequence[Store], settings: Settings, last: bool) -> None:
        """Nothing is shared between layers."""
