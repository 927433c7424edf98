"""VisionZip: keep dominant visual tokens, merge the rest into contextual ones (arXiv 2412.04467).

Runs on the vision tower's output, before the language model. Dominant tokens have the highest
attention; of the others, targets at a uniform stride stand for their most similar neighbours:
merged = target + mean(assigned), at the target's own place. Scores are accumulated in blocks of
queries, so the memory they need grows linearly with the tokens.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

import torch
from torch import Tensor, nn

from rotatek.config import Settings, tokens_kept
from rotatek.layout import Layout

BLOCK: Final = 256  # query rows scored at a time


@dataclass
class ZipTap:
    """Scores and Keys of one vision attention module, seen while images are encoded.

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
    """Column sums [B, n] of softmax(q k^T), mean over heads, in O(n * BLOCK) memory."""
    total = torch.zeros(query.shape[0], key.shape[2], device=key.device)
    for rows in query.split(BLOCK, dim=2):
        scores = (rows @ key.transpose(-1, -2)).float() * scale
        total += scores.softmax(-1).sum(2).mean(1)
    return total


def split_keep(tokens: int, settings: Settings) -> tuple[int, int]:
    """(dominant, contextual) counts of `tokens`; together keep_tokens of them."""
    total = tokens_kept(tokens, settings.keep_tokens)
    contextual = min(round(tokens * settings.contextual), total // 2)
    return total - contextual, contextual


def zip_tokens(
    scores: Tensor, keys: Tensor, states: Tensor, settings: Settings
) -> tuple[Tensor, Tensor]:
    """Zip one image or tile. scores: [n]; keys: [n, c], compared by cosine; states: [n, h].

    Returns kept [n] bool and states [n, h] with each contextual target's merged value in place. All
    shapes are known to the host, which never waits.
    """
    dominant, contextual = split_keep(scores.shape[0], settings)
    order = scores.argsort(descending=True, stable=True)
    kept = torch.zeros_like(scores, dtype=torch.bool)
    kept[order[:dominant]] = True
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
    unit = nn.functional.normalize(keys.float(), dim=-1)
    nearest = (unit[others] @ unit[targets].T).argmax(-1)
    sums = torch.zeros(targets.numel(), states.shape[1], device=states.device)
    sums.index_add_(0, nearest, states[others].float())
    counts = torch.zeros_like(sums[:, 0]).index_add_(0, nearest, torch.ones_like(nearest).float())
    merged = states.clone()
    merged[targets] += (sums / counts[:, None].clamp(min=1)).to(states.dtype)
    return kept, merged


@dataclass(frozen=True)
class VisionZip:
    """Prunes and merges before the language model sees anything."""

    name: str = "visionzip"
    label: str = "VisionZip"
    summary: str = "Keeps what the vision tower looks at, merges the rest, before the question."
    stage: Literal["encoder"] = "encoder"

    def choose(
        self, query: Tensor, keys: Tensor, layout: Layout, settings: Settings, scale: float
    ) -> Tensor:
        """The language model drops nothing more."""
        return layout.valid
