"""FastV: drop visual tokens that the last prompt token hardly attends to (arXiv 2403.06764).

Layers below K keep everything; the attention of layer K - 1, last prompt row, mean over heads,
ranks the visual tokens, and the best stay in their original order and at their original positions.
Only that one query row is scored: no n x n matrix is formed.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rotatek.methods.options import option
from rotatek.methods.tokens.base import BY_QUESTION, Attended, TokenPruner, keep_option


def last_row_attention(query: Tensor, keys: Tensor, valid: Tensor, scale: float) -> Tensor:
    """Attention [B, L] float32 of each sample's last real row over all real rows, mean over heads;
    valid: [B, L] bool, the rows that are not padding."""
    B, Hq, L, d = query.shape
    Hkv = keys.shape[1]
    last = (valid.long() * torch.arange(L, device=valid.device)).argmax(-1)
    row = query[torch.arange(B, device=last.device), :, last].float()
    scores = row.view(B, Hkv, Hq // Hkv, d) @ keys.float().transpose(-1, -2)
    scores = (scores * scale).masked_fill(~valid[:, None, None], float("-inf"))
    return scores.softmax(-1).mean((1, 2))


@dataclass(frozen=True)
class FastV(TokenPruner):
    """Prunes inside the language model, after its first K layers."""

    name, label = "fastv", "FastV"
    summary = "Drops tokens of low attention, after the first layers."
    stage = "decoder"
    of_paper = True
    caution = BY_QUESTION.format(label)
    colour = "#2b66d9"

    keep: float = keep_option()
    layer: int = option(
        2,
        "First layer with fewer tokens",
        "FastV's K: how many layers keep every token",
        kind="integer",
        key="fastv_layer",
        low=1,
        place="hidden",
    )

    def rank(self, seen: Attended) -> Tensor:
        """The attention of the last row."""
        return last_row_attention(seen.query, seen.keys, seen.layout.valid, seen.scale)
