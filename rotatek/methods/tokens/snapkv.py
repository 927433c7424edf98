"""SnapKV: each head keeps what the prompt's last queries attend to (Li et al., arXiv 2404.14469).

After a layer's prefill attention, the attention of the last 32 prompt rows over all tokens, mean
over the rows and over the heads of a group, is pooled over 7 neighbours by the maximum; the best
tokens of each Key head stay. Here only visual tokens compete, as for every pruner: all text stays.
A layer with a sliding window keeps what the window leaves.
"""

from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import max_pool1d

from kernels.reference import text_scores
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.rotation import token_mask
from rotatek.methods.tokens.base import BY_QUESTION, TokenPruner, keep_option

KERNEL: Final = 7  # neighbours that are pooled, so that tokens beside a chosen one stay, too


def window_attention(states: LayerStates) -> Tensor:
    """[B, Hkv, N] float32: the attention that the window's queries give each visual token.

    The softmax includes the text that a query sees. The mean is over the real queries of the window
    and over a group's heads.
    """
    (_, heads, N, d), alive = states.keys.shape, states.window_alive
    query = states.queries.float().unflatten(1, (heads, -1)).flatten(2, 3)  # [B, Hkv, G W, d]
    live = token_mask(states.lengths, N)[:, None, None]
    scores = (query @ states.keys.float().mT).masked_fill(~live, float("-inf"))
    if states.text is not None:
        scores = torch.cat([scores, text_scores(query, states.text, alive)], -1)
    weights = (scores * d**-0.5).softmax(-1)[..., :N].nan_to_num(0.0)
    weights = weights.unflatten(2, (-1, alive.shape[1])).masked_fill(
        ~alive[:, None, None, :, None], 0.0
    )
    return weights.sum(3).mean(2) / alive.sum(1).clamp(min=1)[:, None, None]


@dataclass(frozen=True)
class SnapKV(TokenPruner):
    """Prunes what a layer stores, head by head."""

    name, label = "snapkv", "SnapKV"
    summary = "Each head stores only what the question's last words look at."
    stage = "cache"
    caution = BY_QUESTION.format(label)
    colour = "#5490fc"

    keep: float = keep_option()

    def stored(self, states: LayerStates) -> LayerStates:
        """Those of most attention: the share `keep`, at least one unless there are none."""
        N, d = states.keys.shape[2:]
        seen = max_pool1d(window_attention(states), KERNEL, stride=1, padding=KERNEL // 2)
        seen = seen.masked_fill(~token_mask(states.lengths, N)[:, None], -1.0)
        counts = (states.lengths.double() * self.keep).round().clamp(min=1)
        lengths = torch.minimum(counts, states.lengths).int()
        alive = token_mask(lengths, int(lengths.max()))[:, None]
        rank = seen.argsort(dim=-1, descending=True, stable=True)[..., : alive.shape[-1]]
        index = rank.masked_fill(~alive, N - 1).sort(-1).values[..., None].expand(-1, -1, -1, d)
        keys, values = (
            part.gather(2, index).masked_fill(~alive[..., None], 0)
            for part in (states.keys, states.values)
        )
        return replace(states, keys=keys, values=values, lengths=lengths, made={})
