"""ThinK: one fixed subset of Key channels per head (Xu et al., arXiv 2407.21018).

score[h, c] = mean over W (and the group) of q[h, w, c]^2 * mean over N of k[h, n, c]^2; the top k
channels stay for all tokens. Stored compactly as [N, k] plus k channel numbers; decoding gathers
the query's channels, so pruned channels contribute nothing and no dense Key is rebuilt.
"""

from dataclasses import dataclass

from torch import Tensor

from rotatek.methods.channels.base import (
    ChannelMethod,
    LayerStates,
    Store,
    full_visual,
    keep_option,
)
from rotatek.methods.options import channels_kept


def think_scores(keys: Tensor, lengths: Tensor, queries: Tensor, alive: Tensor) -> Tensor:
    """Channel scores [B, Hkv, d]; shapes as `LayerStates`."""
    B, Hkv, _, d = keys.shape
    energy = keys.float().square().sum(2) / lengths.clamp(min=1)[:, None, None]
    squared = queries.float().square().masked_fill(~alive[:, None, :, None], 0.0).sum(2)
    weight = squared.view(B, Hkv, -1, d).mean(2) / alive.sum(-1).clamp(min=1)[:, None, None]
    return energy * weight


@dataclass(frozen=True)
class ThinK(ChannelMethod):
    """Head-wise pruning: the same channels for every token."""

    name, label = "think", "ThinK"
    summary = "One fixed set of channels per head, chosen by query and Key energy."
    title = "ThinK: one mask for all tokens"
    reading = (
        "ThinK keeps the same channels for every token: easy to store, but a token with its energy "
        "in other channels loses it."
    )
    colour = "#d9780f"

    keep: float = keep_option("share of each head's Key channels that stays, in (0, 1]")

    def compress(self, states: LayerStates) -> Store:
        """Keep the k highest-scoring channels of each head."""
        keys = states.keys
        scores = think_scores(keys, states.lengths, states.queries, states.window_alive)
        k = channels_kept(keys.shape[-1], self.keep)
        index = scores.topk(k, dim=-1).indices.sort(-1).values  # [B, Hkv, k]
        kept = keys.gather(-1, index[:, :, None].expand(*keys.shape[:3], k))
        return Store(full_visual(states)._replace(keys=kept, index=index))
