"""Random pruning: the control that a pruner has to beat.

UniPruneBench (2025) found it ahead of several methods. Tokens are drawn before the language model,
uniformly and without replacement, from a private generator: the same request keeps the same ones.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rotatek.methods.options import option, tokens_kept
from rotatek.methods.tokens.base import TokenPruner, View, keep_option


@dataclass(frozen=True)
class Random(TokenPruner):
    """Keeps random tokens."""

    name, label = "random", "Random"
    summary = "Keeps random tokens: a baseline for every other choice."
    stage = "encoder"
    colour = "#667080"

    keep: float = keep_option()
    seed: int = option(
        0,
        "Seed of the lot",
        "seed of random pruning's lot",
        kind="integer",
        key="token_seed",
        low=0,
        place="hidden",
    )

    def reduce(self, view: View) -> tuple[Tensor, Tensor]:
        """Draw from one image or tile; each has its own random numbers."""
        tokens = view.scores.shape[0]
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + view.number)
        order = torch.randperm(tokens, generator=generator)[: tokens_kept(tokens, self.keep)]
        return view.mask(order.to(view.scores.device)), view.states
