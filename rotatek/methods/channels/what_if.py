"""What if only some heads were compressed: their Keys are rebuilt at full width, others stay.

A chosen head's Keys become mu + (K - mu) R_k R_k^T, which is what decoding RotateK's cache amounts
to. They take as many bytes as before, and none is claimed to be saved. No menu, table or command
offers the method, which answers one question: which heads does it hurt to compress?

    Settings(channels=WhatIf(RotateK(keep=0.25), frozenset({(3, 1)})))  # this head, by itself
    Settings(channels=WhatIf(RotateK(keep=0.25), frozenset({(3, 1)}), whole=True))  # all others
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from kernels.reference import Narrow
from rotatek.methods.channels.base import ChannelMethod, LayerStates, Store, full_visual
from rotatek.methods.channels.rotatek import RotateK
from rotatek.methods.rotation import token_mask

NAMED: Final = 3  # heads that a title names one by one


@dataclass(frozen=True)
class WhatIf(ChannelMethod):
    """RotateK of some heads, in full width."""

    name, label = "what-if", "RotateK"
    summary = "Keys of some heads rebuilt from a few channels, at full width."
    drops_channels = False
    colour = "#8b6fd6"

    like: RotateK = field(default_factory=RotateK)  # how a head is rotated, to how many channels
    heads: frozenset[tuple[int, int]] = frozenset()  # (layer, Key head), each from 0
    whole: bool = False  # whether these stay and all others are compressed; else they alone are

    def compress(self, states: LayerStates) -> Store:
        visual, dtype = full_visual(states), states.keys.dtype
        named = [head for layer, head in self.heads if layer == states.layer]
        chosen = torch.full((states.keys.shape[1],), self.whole, device=states.keys.device)
        chosen[[head for head in named if head < len(chosen)]] = not self.whole
        if not bool(chosen.any()):
            return Store(visual)
        own = self.like.of_paper().compress(states).read()
        assert isinstance(own, Narrow) and own.basis is not None and own.mean is not None
        keys = own.keys.float() @ own.basis.float().mT + own.mean.float()[:, :, None]
        alive = token_mask(states.lengths, keys.shape[2])[:, None, :, None]
        keys = torch.where(chosen[:, None, None] & alive, keys.to(dtype), states.keys)
        return Store(visual._replace(keys=keys))

    def bases(self, layers: int) -> Sequence[Tensor] | None:
        return self.like.bases(layers)

    @property
    def asks_generally(self) -> bool:
        return self.like.asks_generally

    @property
    def form(self) -> str:
        """`only 3.1`, or `3.1, 4.0 whole`, by layer and head."""
        names = ", ".join(f"{layer}.{head}" for layer, head in sorted(self.heads))
        if len(self.heads) > NAMED:
            names = f"{len(self.heads)} heads"
        return f"{names} whole" if self.whole else f"only {names}"
