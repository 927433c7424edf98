"""No channel pruning: Keys keep their full width. With a token pruner it is the token-only row.

cache_dtype="fp8" or "int8" is the plain dense cache in 8 bits that serving systems offer:
unrotated, with a scale for each Key channel and each token's Values (`rotatek.channels.quantise`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rotatek.channels.base import ChannelMethod, LayerStates, full_visual
from rotatek.channels.quantise import store_in_eight_bits
from rotatek.channels.store import Store
from rotatek.options import choice


@dataclass(frozen=True)
class Full(ChannelMethod):
    """Every channel of every kept token."""

    name: ClassVar[str] = "full"
    label: ClassVar[str] = "Full Keys"
    summary: ClassVar[str] = "Every channel of every kept token."
    marker: ClassVar[str] = "circle"
    dash: ClassVar[str] = "dot"
    narrows: ClassVar[bool] = False

    cache_dtype: str = choice(
        "model",
        "Numbers in the cache",
        "as the model computes, or in 8 bits",
        [
            ("model", "as the model computes"),
            ("fp8", "8-bit floating point"),
            ("int8", "8-bit integers"),
        ],
        place="beyond",
    )

    @classmethod
    def variants(cls) -> Mapping[str, ChannelMethod]:
        """The forms in 8 bits: as they are, it is the reference of every table."""
        return {f"Dense {kind}": cls(cache_dtype=kind) for kind in ("fp8", "int8")}

    @property
    def stores_everything(self) -> bool:
        """Nothing is left out, unless numbers are stored in 8 bits."""
        return self.cache_dtype == "model"

    @property
    def nominal_share(self) -> float:
        """Half of a 16-bit cache in 8 bits."""
        return 1.0 if self.stores_everything else 0.5

    @property
    def form(self) -> str:
        """`fp8`."""
        return "" if self.stores_everything else self.cache_dtype

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
        if self.stores_everything:
            return super().head_bytes(keys, values, tokens, d, itemsize)
        return super().head_bytes(keys, values, tokens, d, 1) + 4 * d + 2 * tokens.long() + 4
