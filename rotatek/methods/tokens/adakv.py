"""AdaKV: heads share a layer's budget of tokens (Feng et al., arXiv 2407.11550).

The tokens that score best among all heads of a layer stay, so that a head whose attention is spread
keeps more than one that attends to few. As in the authors' code a fifth of the budget is even, and
the rest is handed out. Scores are SnapKV's, as in the paper's Ada-SnapKV.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

import torch
from torch import Tensor

from rotatek.methods.channels.base import LayerStates
from rotatek.methods.tokens.base import keep_option
from rotatek.methods.tokens.by_head import HeadPruner
from rotatek.methods.tokens.snapkv import best, worth

EVEN: Final = 0.2  # of a head's mean budget, which every head gets


def head_counts(scores: Tensor, counts: Tensor) -> Tensor:
    """Tokens that each head keeps, [B, Hkv].

    Args:
        scores: [B, Hkv, N], negative beyond each sample's length.
        counts: [B] of a head, on average.
    """
    B, heads, _ = scores.shape
    floor = (counts * EVEN).long()
    chosen = best(scores.flatten(1), (counts - floor) * heads).view_as(scores) & (scores >= 0)
    most = (scores >= 0).sum(-1)
    own = torch.minimum(chosen.sum(-1) + floor[:, None], most)
    spare = counts * heads - own.sum(-1)  # left by heads that keep all; others get it in turns
    for _ in range(heads):
        room = most - own
        open_ = (room > 0).long()
        share = -(-spare[:, None] // open_.sum(-1, keepdim=True).clamp(min=1)) * open_
        before = share.cumsum(-1) - share
        own = own + torch.minimum(
            torch.minimum(share, room), (spare[:, None] - before).clamp(min=0)
        )
        spare = counts * heads - own.sum(-1)
    return own


@dataclass(frozen=True)
class AdaKV(HeadPruner):
    """Prunes what a layer stores, with budgets by head."""

    name: ClassVar[str] = "adakv"
    label: ClassVar[str] = "AdaKV"
    summary: ClassVar[str] = "As SnapKV, with more tokens for heads whose attention is spread."
    even: ClassVar[bool] = False
    colour: ClassVar[str] = "#c00060"
    marker: ClassVar[str] = "star"
    caution: ClassVar[str] = (
        "AdaKV chose which tokens stay by the first question; a later one may need others, which "
        "are gone."
    )

    keep: float = keep_option()

    def kept_by_head(self, states: LayerStates, counts: Tensor) -> Tensor:
        """The heads together keep as many tokens as SnapKV."""
        scores = worth(states)
        return best(scores, head_counts(scores, counts))
