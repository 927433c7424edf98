"""DART: drop what repeats other tokens (Wen et al., arXiv 2502.11494).

After layer 2 a few pivots are taken, the visual and the text tokens with the largest Keys, four of
each. Pivots take turns: each keeps its share of the visual tokens that are least like it, by cosine
of Keys, among those that no pivot has taken. Visual pivots stay, too. The counts and the norm are
the authors'; their code compares hidden states, where here it is a layer's Keys of all heads.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import normalize

from rotatek.methods.tokens.base import Attended, TokenPruner, keep_option

PIVOTS: Final = 4  # visual ones, and as many of the text


def least_alike(keys: Tensor, visual: Tensor, text: Tensor, count: int) -> Tensor:
    """The [count] rows of visual tokens that stay, of all tokens' keys [L, c]; visual: [n] rows of
    the visual tokens; text: [m] rows of the text."""
    size, unit = keys.float().abs().sum(-1), normalize(keys.float(), dim=-1)
    own = visual[size[visual].topk(min(PIVOTS, count, len(visual))).indices]
    pivots = torch.cat([own, text[size[text].topk(min(PIVOTS, len(text))).indices]])
    alike = unit[pivots] @ unit[visual].T
    free = ~torch.isin(visual, own)
    left = count - len(own)
    for number, row in enumerate(alike):
        turns = len(pivots) - number
        share = -(-left // turns)
        chosen = row.masked_fill(~free, float("inf")).topk(share, largest=False).indices
        free[chosen] = False
        left -= share
    return visual[~free]


@dataclass(frozen=True)
class DART(TokenPruner):
    """Prunes inside the language model, by likeness to a few tokens."""

    name, label = "dart", "DART"
    summary = "Drops what is most like a few pivots, after the first layers."
    stage = "decoder"
    layer = 2  # the first one with fewer tokens
    colour = "#667080"

    keep: float = keep_option()

    def choose(self, seen: Attended) -> Tensor:
        """Pivots take turns."""
        visual = seen.layout.visual & seen.layout.valid
        text = seen.layout.valid & ~visual
        kept = text.clone()
        for sample, count in enumerate(seen.keep.tolist()):
            keys = seen.keys[sample].transpose(0, 1).flatten(1)
            rows = visual[sample].nonzero()[:, 0], text[sample].nonzero()[:, 0]
            if count:
                kept[sample, least_alike(keys, *rows, count)] = True
        return kept
