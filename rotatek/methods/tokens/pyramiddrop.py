"""PyramidDrop: fewer and fewer visual tokens with depth (Xing et al., arXiv 2410.17247).

A model of 32 layers has four stages of 8. Before each stage but the first, the attention of the
layer before, last prompt row, mean over heads, ranks the visual tokens that are left, and the same
share of them stays each time. Here `keep` is the mean share over the layers from
the first dropping on (the authors' mean counts the layers before, too).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from rotatek.methods.tokens.base import BY_QUESTION, Attended, TokenPruner, keep_option
from rotatek.methods.tokens.fastv import last_row_attention

STAGES: Final = 4


@dataclass(frozen=True)
class PyramidDrop(TokenPruner):
    """Prunes inside the language model, at each quarter of its depth."""

    name, label = "pyramiddrop", "PyramidDrop"
    summary = "Drops, at each quarter of the depth, what the question's last word does not look at."
    stage = "decoder"
    caution = BY_QUESTION.format(label)
    colour = "#667080"

    keep: float = keep_option()

    def stages(self, layers: int) -> Mapping[int, float]:
        """The share x, x^2, x^3 at a quarter, half and three quarters, of the mean `keep`."""
        wanted = {min(max(1, round(layers * n / STAGES)), layers - 1) for n in range(1, STAGES)}
        places = sorted(wanted)
        spans = [end - at for at, end in zip(places, [*places[1:], layers], strict=True)]
        low, high = 0.0, 1.0
        for _ in range(60):
            share = (low + high) / 2
            held = sum(n * share ** (i + 1) for i, n in enumerate(spans)) / sum(spans)
            low, high = (share, high) if held < self.keep else (low, share)
        return {place: high ** (i + 1) for i, place in enumerate(places)}

    def rank(self, seen: Attended) -> Tensor:
        """What the last row attends to."""
        return last_row_attention(seen.query, seen.keys, seen.layout.valid, seen.scale)
