"""ThinK: one fixed subset of Key channels per head (Xu et al., arXiv 2407.21018).

score[h, c] = mean over W (and the group) of q[h, w, c]^2 * mean over N of k[h, n, c]^2; the top k
channels stay for all tokens. Stored compactly as [N, k] plus k channel numbers; decoding gathers
the query's channels, so pruned channels contribute nothing and no dense Key is rebuilt.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from rotatek.cache import Store
from rotatek.channels.base import Prefill, full_visual
from rotatek.config import Settings, channels_kept


def think_scores(keys: Tensor, lengths: Tensor, queries: Tensor, alive: Tensor) -> Tensor:
    """Channel scores [B, Hkv, d]; shapes as `Prefill`."""
    B, Hkv, _, d = keys.shape
    energy = keys.float().square().sum(2) / lengths.clamp(min=1)[:, None, None]
    squared = queries.float().square().masked_fill(~alive[:, None, :, None], 0.0).sum(2)
    weight = squared.view(B, Hkv, -1, d).mean(2) / alive.sum(-1).clamp(min=1)[:, None, None]
    return energy * weight


@dataclass(frozen=True)
class Think:
    """Head-wise pruning: the same channels for every token."""

    name: str = "think"
    label: str = "ThinK"
    summary: str = "One fixed set of channels per head, chosen by query and Key energy."

    def compress(self, prefill: Prefill, settings: Settings) -> Store:
        """Keep the k highest-scoring channels of each head."""
        keys = prefill.keys
        scores = think_scores(keys, prefill.lengths, prefill.queries, prefill.window_alive)
        k = channels_kept(keys.shape[-1], settings.keep_channels)
        index = scores.topk(k, dim=-1).indices.sort(-1).values  # [B, Hkv, k]
        kept = keys.gather(-1, index[:, :, None].expand(*keys.shape[:3], k))
        return Store(full_visual(prefill)._replace(keys=kept, index=index))

    def settle(self, stores: Sequence[Store], settings: Settings, last: bool) -> None:
        """Nothing is shared between layers."""
