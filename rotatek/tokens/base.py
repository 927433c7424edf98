"""What a token pruner is: where it acts, and how it chooses."""

from typing import Literal, Protocol

from torch import Tensor

from rotatek.config import Settings
from rotatek.layout import Layout


class TokenPruner(Protocol):
    """A way to drop visual tokens. One file and one registry line each.

    stage: "nowhere"; "decoder" (drops inside the language model, by `choose`); or "encoder" (drops
    before it, on the vision tower's output).
    """

    @property
    def name(self) -> str:
        """The registry's key."""

    @property
    def label(self) -> str:
        """What the page calls it."""

    @property
    def summary(self) -> str:
        """One sentence for the page."""

    @property
    def stage(self) -> Literal["nowhere", "decoder", "encoder"]:
        """Where it acts."""

    def choose(
        self, query: Tensor, keys: Tensor, layout: Layout, settings: Settings, scale: float
    ) -> Tensor:
        """Rows [B, L] bool that stay, from one layer's queries and Keys [B, H, L, d]."""
        ...
