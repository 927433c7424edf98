"""CDPruner: keep tokens that suit the question and differ from one another (arXiv 2506.10967).

A determinantal point process conditioned on the question: its kernel is diag(r) S diag(r), where S
has the cosines between the vision tower's outputs and r the relevance of each token, scaled to
[0, 1]. The subset of largest determinant is found greedily (Chen et al., NeurIPS 2018).

Relevance is the cosine between a token as the language model's input and the mean embedding of the
question's words. The authors take it from CLIP's own text encoder where a model was built on CLIP;
checkpoints have no such encoder.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

import torch
from torch import Tensor, nn

from rotatek.methods.shares import tokens_kept
from rotatek.methods.tokens.base import Stage, TokenPruner, View, keep_option

FLOOR: Final = 1e-6  # of a relevance, so that the least relevant token is wanted last, not never


def relevance(tokens: Tensor, question: Tensor) -> Tensor:
    """The relevance of each token to the question, from about 0 to 1.

    Args:
        tokens: [n, hidden].
        question: [t, hidden].

    Returns:
        [n] float32; ones where there is no question.
    """
    if not len(question):
        return torch.ones(len(tokens), device=tokens.device)
    cosine = nn.functional.cosine_similarity(tokens.float(), question.float().mean(0), dim=-1)
    low, high = cosine.aminmax()
    return (cosine - low + FLOOR) / (high - low).clamp(min=FLOOR)


def largest_determinant(kernel: Tensor, count: int) -> Tensor:
    """Greedy maximum a posteriori subset of a determinantal point process.

    Each step takes the token that adds most to the determinant: the largest remaining diagonal of
    an incremental Cholesky factorisation.

    Args:
        kernel: L [n, n], symmetric and positive semidefinite.
        count: how many tokens.

    Returns:
        Their indices [count] in the order of choice.
    """
    gain = kernel.diagonal().clone()
    factor = kernel.new_zeros(count, len(kernel))
    chosen = torch.empty(count, dtype=torch.long, device=kernel.device)
    for step in range(count):
        best = gain.argmax()[None]
        chosen[step] = best[0]
        before = factor[:step]
        row = kernel.index_select(0, best)[0] - before.index_select(1, best)[:, 0] @ before
        # Beyond the kernel's rank there is nothing to gain, and the root would be undefined.
        row = row / gain.index_select(0, best).clamp(min=1e-12).sqrt()
        factor[step] = row
        gain = (gain - row.square()).index_fill(0, chosen[: step + 1], -torch.inf)
    return chosen


@dataclass(frozen=True)
class CDPruner(TokenPruner):
    """Prunes before the language model, by the question."""

    name: ClassVar[str] = "cdpruner"
    label: ClassVar[str] = "CDPruner"
    summary: ClassVar[str] = "Keeps tokens that suit the question and differ from one another."
    stage: ClassVar[Stage] = "encoder"
    asks: ClassVar[bool] = True
    colour: ClassVar[str] = "#c078b4"
    marker: ClassVar[str] = "pentagon"
    caution: ClassVar[str] = (
        "CDPruner chose which tokens stay by the first question; a later one may need others, "
        "which are gone."
    )

    keep: float = keep_option()

    def reduce(self, view: View) -> tuple[Tensor, Tensor]:
        """Keep the relevant and diverse tokens of one image or tile."""
        unit = nn.functional.normalize(view.states.double(), dim=-1)
        wanted = relevance(view.tokens, view.question).double()
        kernel = wanted[:, None] * (unit @ unit.T) * wanted
        count = tokens_kept(view.scores.shape[0], self.keep)
        return view.mask(largest_determinant(kernel, count)), view.states
