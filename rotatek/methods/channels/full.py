"""No channel pruning: Keys keep their full width. With a token pruner it is the token-only row.

cache_dtype="fp8" or "int8" is the plain dense cache in 8 bits that serving systems offer:
unrotated, with a scale for each Key channel and each token's Values
(`rotatek.methods.channels.eight_bit`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rotatek.methods.channels.base import (
    ChannelMethod,
    LayerStates,
    cache_dtype_option,
    full_visual,
    text_dtype_option,
    text_window_option,
)
from rotatek.methods.channels.eight_bit import store_in_eight_bits
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

    cache_dtype: str = cache_dtype_option()
    text_dtype: str = text_dtype_option()
    text_window: int = text_window_option()

    @classmethod
    def variants(cls) -> Mapping[str, ChannelMethod]:
        """The forms in 8 bits: as they are, it is the reference of every table."""
        return {f"Dense {kind}": cls(cache_dtype=kind) for kind in ("fp8", "int8")}

    @property
    def stores_everything(self) -> bool:
        """All are stored, unless numbers are in 8 bits."""
        return self.cache_dtype == self.text_dtype == "model"

    @property
    def recent_text(self) -> int | None:
        """`text_window` where `text_dtype` asks for it."""
        return None if self.text_dtype == "model" else self.text_window

    @property
    def nominal_share(self) -> float:
        """Half of a 16-bit cache in 8 bits."""
        return 1.0 if self.cache_dtype == "model" else 0.5

    @property
    def form(self) -> str:
        """`fp8`, `8-bit text`, or both."""
        parts = [] if self.cache_dtype == "model" else [self.cache_dtype]
        return ", ".join([*parts, *(["8-bit text"] if self.text_dtype != "model" else [])])

    def compress(self, states: LayerStates) -> Store:
        """Keep Keys and Values as they are, or in 8 bits."""
        visual = full_visual(states)
        if self.cache_dtype != "model":
            visual = store_in_eight_bits(visual, states.lengths, self.cache_dtype)
        return Store(visual)

    def head_bytes(
        self, keys: Tensor, values: Tensor, tokens: Tensor, d: int, itemsize: int
    ) -> Tensor:
        """Keys and Values; in 8 bits a scale for each channel, each token and the head."""
        if self.cache_dtype == "model":
            return super().head_bytes(keys, values, tokens, d, itemsize)
        return super().head_bytes(keys, values, tokens, d, 1) + 4 * d + 2 * tokens.long() + 4
