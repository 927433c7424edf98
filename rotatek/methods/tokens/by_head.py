"""Visual tokens that each Key head chooses for itself, once a layer's prefill attention has run.

Prefill computes all tokens; the choice concerns only which tokens a layer stores. All heads keep
the same number.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import max_pool1d

from kernels.reference import Text
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.rotation import token_mask
from rotatek.methods.tokens.base import Stage, TokenPruner


def window_attention(states: LayerStates) -> Tensor:
    """[B, Hkv, N] float32: the attention that the window's queries give each visual token.

    The softmax includes the text that a query sees. The mean is over the real queries of the window
    and over a group's heads.
    """
    _, heads, N, d = states.keys.shape
    query = states.queries.float().unflatten(1, (heads, -1))  # [B, Hkv, G, W, d]
    live = token_mask(states.lengths, N)[:, None, None, None]
    scores = query @ states.keys.float().mT[:, :, None]
    scores = scores.masked_fill(~live, float("-inf"))
    if states.text is not None:
        scores = torch.cat([scores, _text_scores(query, states.text, states.window_alive)], -1)
    weights = (scores * d**-0.5).softmax(-1)[..., :N].nan_to_num(0.0)
    real = states.window_alive[:, None, None, :, None]
    count = states.window_alive.sum(1).clamp(min=1)[:, None, None]
    return weights.masked_fill(~real, 0.0).sum(3).mean(2) / count


def _text_scores(query: Tensor, text: Text, window: Tensor) -> Tensor:
    """Products [B, Hkv, G, W, M] with the text, -inf behind each query: the last row is the newest
    token of the text."""
    M = text.keys.shape[2]
    place = window.long().cumsum(1)
    lengths = M if text.lengths is None else text.lengths[:, None].to(place)
    last = lengths - place[:, -1:] + place  # [B, W] tokens that a query sees
    dead = torch.arange(M, device=query.device) >= last[..., None]  # [B, W, M]
    scores = query @ text.keys.float().mT[:, :, None]
    return scores.masked_fill(dead[:, None, None], float("-inf"))


def pooled(attention: Tensor, width: int) -> Tensor:
    """The largest of `width` neighbours, so that tokens beside a chosen one stay, too."""
    return max_pool1d(attention, width, stride=1, padding=width // 2)


@dataclass(frozen=True)
class HeadPruner(TokenPruner):
    """A pruner that chooses for each head what a layer stores, as many tokens in all of them."""

    stage: ClassVar[Stage] = "cache"

    def kept_by_head(self, states: LayerStates, counts: Tensor) -> Tensor:
        """Which visual tokens each head keeps.

        Args:
            states: of one layer.
            counts: [B] how many every head keeps.

        Returns:
            [B, Hkv, N] bool.
        """
        raise NotImplementedError

    def counts(self, lengths: Tensor) -> Tensor:
        """[B] tokens that a head keeps of `lengths`: the share `keep`; at least one unless there
        are none."""
        kept = (lengths.double() * self.kept_share).round().long()
        return torch.minimum(kept.clamp(min=1), lengths).long()


def taken(pruner: HeadPruner, states: LayerStates) -> LayerStates:
    """The tokens of one layer that a pruner keeps, of each head, in order.

    Args:
        pruner: that chooses.
        states: of one layer.
    """
    kept = pruner.kept_by_head(states, pruner.counts(states.lengths))
    lengths = kept[:, 0].sum(-1, dtype=torch.int32)
    order = kept.long().argsort(dim=-1, descending=True, stable=True)[..., : int(lengths.max())]
    alive = token_mask(lengths, order.shape[-1])[:, None, :, None]
    index = order[..., None].expand(*order.shape, states.keys.shape[-1])
    keys, values = (
        part.gather(2, index).masked_fill(~alive, 0) for part in (states.keys, states.values)
    )
    return replace(states, keys=keys, values=values, lengths=lengths, made={})
