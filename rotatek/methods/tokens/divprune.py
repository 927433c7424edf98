"""DivPrune: keep the visual tokens that differ most from one another (arXiv 2503.02175).

The kept set makes the least cosine distance between any two of its tokens large (the max-min
diversity problem), found greedily on the language model's input: first the token farthest from its
nearest neighbour, then always the one farthest from all kept ones. No n x n matrix is needed after
the first token.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rotatek.methods.options import tokens_kept
from rotatek.methods.tokens.base import TokenPruner, View, keep_option


def most_diverse(tokens: Tensor, count: int) -> Tensor:
    """Indices [count], one at least, of the greedy max-min diverse subset of tokens [n, c], in the
    order of choice."""
    unit = nn.functional.normalize(tokens.float(), dim=-1)
    similar = unit @ unit.T
    similar.fill_diagonal_(-torch.inf)
    # Distance is 1 - cosine: the farthest is where the largest cosine is least.
    nearest = similar.amax(-1)
    chosen = torch.empty(count, dtype=torch.long, device=tokens.device)
    closest = torch.full_like(nearest, -torch.inf)
    taken = torch.zeros_like(nearest)
    for step in range(count):
        best = (nearest if step == 0 else closest + taken).argmin()
        chosen[step] = best
        closest = torch.maximum(closest, unit @ unit.index_select(0, best[None])[0])
        taken = taken.index_fill(0, best[None], torch.inf)
    return chosen


@dataclass(frozen=True)
class DivPrune(TokenPruner):
    """Prunes what resembles something that stays, before the question."""

    name, label = "divprune", "DivPrune"
    summary = "Keeps the tokens that differ most from one another."
    stage = "encoder"
    colour = "#c04854"

    keep: float = keep_option()

    def reduce(self, view: View) -> tuple[Tensor, Tensor]:
        """Keep the diverse tokens of one image or tile."""
        count = tokens_kept(view.scores.shape[0], self.keep)
        return view.mask(most_diverse(view.tokens, count)), view.states
