"""SnapKV: each head keeps what the prompt's last queries attend to (Li et al., arXiv 2404.14469).

After a layer's prefill attention, the attention of the last 32 prompt rows over all tokens, mean
over the rows and over the heads of a group, is pooled over 7 neighbours by the maximum; the best
tokens of each Key head stay. Here only visual tokens compete, as for every pruner: all text stays.
A layer with a sliding window keeps what the window leaves.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

import torch
from torch import Tensor

from rotatek.methods.channels.base import LayerStates
from rotatek.methods.rotation import token_mask
from rotatek.methods.tokens.base import keep_option
from rotatek.methods.tokens.by_head import HeadPruner, pooled, window_attention

KERNEL: Final = 7  # neighbours that are pooled


def worth(states: LayerStates) -> Tensor:
    """The score of each head's tokens, [B, Hkv, N]; -1 beyond each length."""
    alive = token_mask(states.lengths, states.keys.shape[2])[:, None]
    return pooled(window_attention(states), KERNEL).masked_fill(~alive, -1.0)


def best(scores: Tensor, counts: Tensor) -> Tensor:
    """Bool in the shape of scores [..., N]: the `counts` [...] largest of each row."""
    rank = scores.argsort(dim=-1, descending=True, stable=True)
    first = torch.arange(scores.shape[-1], device=scores.device) < counts[..., None]
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, rank, first)


@dataclass(frozen=True)
class SnapKV(HeadPruner):
    """Prunes what a layer stores, head by head."""

    name: ClassVar[str] = "snapkv"
    label: ClassVar[str] = "SnapKV"
    summary: ClassVar[str] = "Each head stores only what the question's last words look at."
    colour: ClassVar[str] = "#5490fc"
    marker: ClassVar[str] = "cross"
    caution: ClassVar[str] = (
        "SnapKV chose which tokens stay by the first question; a later one may need others, which "
        "are gone."
    )

    keep: float = keep_option()

    def kept_by_head(self, states: LayerStates, counts: Tensor) -> Tensor:
        """As many in every head."""
        return best(worth(states), counts[:, None].expand(-1, states.keys.shape[1]))
