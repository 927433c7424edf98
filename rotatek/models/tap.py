"""A record of a vision tower's attention while it encodes; encoder-stage pruners choose by it.

Scores are accumulated in blocks of queries, so the memory they need grows linearly with the tokens.
"""

from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor, nn

BLOCK: Final = 256  # query rows scored at a time


@dataclass
class AttentionTap:
    """Scores and Keys of one vision attention module, recorded while images are encoded.

    With `cls`: attention of row 0 summed over heads, row 0 itself left out (CLIP towers); else
    attention received, summed over queries, mean over heads. scores: per call [B, n]; keys: per
    call the head mean [B, n, d].
    """

    module: nn.Module
    cls: bool
    scores: list[Tensor] = field(default_factory=list)
    keys: list[Tensor] = field(default_factory=list)

    def see(self, query: Tensor, key: Tensor, scale: float) -> None:
        """One attention call: query, key [B, H, n, d]."""
        if self.cls:
            row = (query[:, :, :1].float() @ key.float().transpose(-1, -2) * scale).softmax(-1)
            self.scores.append(row[:, :, 0, 1:].sum(1))
            self.keys.append(key[:, :, 1:].float().mean(1))
        else:
            self.scores.append(attention_received(query, key, scale))
            self.keys.append(key.float().mean(1))


def attention_received(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """The attention that each token receives, in O(n * BLOCK) memory.

    Args:
        query: [B, H, n, d].
        key: [B, H, n, d].
        scale: what scores are multiplied by.

    Returns:
        [B, n] float32: column sums of the softmax over all queries, mean over heads.
    """
    total = torch.zeros(query.shape[0], key.shape[2], device=key.device)
    for rows in query.split(BLOCK, dim=2):
        scores = (rows @ key.transpose(-1, -2)).float() * scale
        total += scores.softmax(-1).sum(2).mean(1)
    return total
