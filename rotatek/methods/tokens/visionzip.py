"""VisionZip: keep dominant visual tokens, merge the rest into contextual ones (arXiv 2412.04467).

Runs on the vision tower's output, before the language model. Dominant tokens have the highest
attention; the others are merged into targets at a uniform stride, each into the most similar one:
merged = target + mean(assigned), at the target's position.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rotatek.methods.options import option, tokens_kept
from rotatek.methods.tokens.base import TokenPruner, View, keep_option


@dataclass(frozen=True)
class VisionZip(TokenPruner):
    """Prunes and merges before the language model sees anything."""

    name, label = "visionzip", "VisionZip"
    summary = (
        "Keeps tokens of high attention in the vision tower, merges the rest, before the question."
    )
    stage = "encoder"
    of_paper = True
    colour = "#3e93dd"

    keep: float = keep_option()
    contextual: float = option(
        0.05,
        "Share of merged tokens",
        "VisionZip's share of merged contextual tokens, inside keep_tokens",
        kind="number",
        low=0,
        high=1,
        place="hidden",
    )

    def counts(self, tokens: int) -> tuple[int, int]:
        """(dominant, contextual) counts of `tokens`; together `keep` of them."""
        total = tokens_kept(tokens, self.keep)
        contextual = min(round(tokens * self.contextual), total // 2)
        return total - contextual, contextual

    def reduce(self, view: View) -> tuple[Tensor, Tensor]:
        """Prune one image or tile; Keys are compared by cosine, and the merged value of a
        contextual target replaces it."""
        scores, states = view.scores, view.states
        dominant, contextual = self.counts(scores.shape[0])
        order = scores.argsort(descending=True, stable=True)
        kept = view.mask(order[:dominant])
        rest = order[dominant:].sort().values
        if contextual == 0 or rest.numel() == 0:
            return kept, states
        places = torch.arange(contextual, device=rest.device) * rest.numel() // contextual
        is_target = torch.zeros(rest.numel(), dtype=torch.bool, device=rest.device)
        is_target[places] = True
        targets, others = rest[places], rest[is_target.long().argsort(stable=True)[:-contextual]]
        kept[targets] = True
        if others.numel() == 0:
            return kept, states
        unit = nn.functional.normalize(view.keys.float(), dim=-1)
        nearest = (unit[others] @ unit[targets].T).argmax(-1)
        sums = torch.zeros(targets.numel(), states.shape[1], device=states.device)
        sums.index_add_(0, nearest, states[others].float())
        counts = torch.zeros_like(sums[:, 0]).index_add_(
            0, nearest, torch.ones_like(nearest).float()
        )
        merged = states.clone()
        merged[targets] += (sums / counts[:, None].clamp(min=1)).to(states.dtype)
        return kept, merged
