"""SparseVLM: words of the question rate the visual tokens, layer by layer (arXiv 2410.04417).

Raters are the words behind the picture to which its tokens turn most: those above the mean of
softmax(V T^T) over the words, V and T the embeddings. Before three layers, the attention of the
layer before, raters' rows, mean over heads, ranks the remaining tokens. Of the dropped ones, the
best 30 % are recycled: clustered by density peaks (k nearest neighbours) into a tenth of their
number, each cluster its members' mean.

Differences: a cluster has the position of its centre (the authors renumber positions),
and clusters count inside `keep`, which is the mean share over the layers from the first dropping
on, as FastV's is (the authors' mean counts the layers before, too). The layers are the authors' 2,
6 and 15 of 32, in proportion.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from rotatek.bridge.row_layout import Layout
from rotatek.methods.tokens.base import Attended, Stage, TokenPruner, keep_option

LAYERS: Final = (2, 6, 15)  # of 32
SHARES: Final = (300, 200, 110)  # tokens behind them, where the mean is to be 192 of 576
RECYCLED: Final = 0.3  # of those that go
CLUSTER: Final = 10  # tokens a cluster, on average


def raters(embeds: Tensor, layout: Layout) -> Tensor:
    """The words that rate.

    Args:
        embeds: [B, L, hidden] as the first layer reads them.
        layout: which rows are visual.

    Returns:
        [B, L] bool; where a sample has no word behind its picture, its last row.
    """
    visual = layout.visual & layout.valid
    behind = visual.flip(-1).cumsum(-1).flip(-1) == 0
    words = behind & layout.valid
    chosen = torch.zeros_like(words)
    for sample in range(len(embeds)):
        tokens, text = embeds[sample, visual[sample]].float(), words[sample].nonzero()[:, 0]
        if not len(tokens) or not len(text):
            chosen[sample, -1] = True
            continue
        turned = (tokens @ embeds[sample, text].float().T).softmax(-1).mean(0)
        best = turned > turned.mean()
        chosen[sample, text[best if bool(best.any()) else turned == turned.amax()]] = True
    return chosen


def density_peaks(states: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Cluster by density peaks with k nearest neighbours, k the number of clusters.

    Args:
        states: [n, c].
        count: clusters, at most n.

    Returns:
        The centres' indices [count], and the cluster [n] of each state.
    """
    states = states.float()
    distance = torch.cdist(states, states) / states.shape[1] ** 0.5
    density = (-distance.topk(count, largest=False).values.square().mean(-1)).exp()
    denser = density[None, :] > density[:, None]
    apart = distance.masked_fill(~denser, float(distance.amax())).amin(-1)
    centres = (apart * density).argsort(descending=True, stable=True)[:count]
    cluster = distance[:, centres].argmin(-1)
    cluster[centres] = torch.arange(count, device=states.device)
    return centres, cluster


def clusters_of(going: int) -> tuple[int, int]:
    """(recycled tokens, clusters they become) where `going` tokens are to go."""
    if going == 0:
        return 0, 0
    recycled = min(going, int(going * RECYCLED) + 1)
    return recycled, min(recycled, recycled // CLUSTER + 1)


@dataclass(frozen=True)
class SparseVLM(TokenPruner):
    """Prunes inside the language model, in three steps."""

    name: ClassVar[str] = "sparsevlm"
    label: ClassVar[str] = "SparseVLM"
    summary: ClassVar[str] = (
        "Drops, in three steps, tokens of low attention from the question's most relevant words."
    )
    stage: ClassVar[Stage] = "decoder"
    colour: ClassVar[str] = "#849c48"
    marker: ClassVar[str] = "square"
    caution: ClassVar[str] = (
        "SparseVLM chose which tokens stay by the first question; a later one may need others, "
        "which are gone."
    )

    keep: float = keep_option()

    def stages(self, layers: int) -> Mapping[int, float]:
        """The authors' layers and shares in proportion, with the mean that `keep` asks for."""
        places: list[int] = []
        for place in LAYERS:
            wanted = max(round(place * layers / 32), 2, places[-1] + 1 if places else 0)
            if wanted < layers or not places:
                places.append(min(wanted, layers - 1))
        ends = [*places[1:], layers]
        spans = [end - place for place, end in zip(places, ends, strict=True)]
        low, high = 0.0, 1.0 / SHARES[-1]
        for _ in range(60):
            middle = (low + high) / 2
            shares = [min(1.0, middle * share) for share in SHARES[: len(places)]]
            mean = sum(n * share for n, share in zip(spans, shares, strict=True)) / sum(spans)
            low, high = (middle, high) if mean < self.keep else (low, middle)
        return dict(zip(places, (min(1.0, high * share) for share in SHARES), strict=False))

    def look(self, embeds: Tensor, layout: Layout) -> Any:
        """Choose the raters."""
        return raters(embeds, layout)

    def rank(self, seen: Attended) -> Tensor:
        """Attention of the raters, mean over them and over heads, [B, L]."""
        query, keys = seen.query, seen.keys
        B, heads, L, d = query.shape
        scores = torch.zeros(B, L, device=query.device)
        place = torch.arange(L, device=query.device)
        for sample in range(B):
            rows = seen.memory[sample, -L:].nonzero()[:, 0]
            grouped = query[sample, :, rows].float().view(keys.shape[1], -1, d)
            logits = grouped @ keys[sample].float().transpose(-1, -2) * seen.scale
            logits = logits.view(heads, len(rows), L)
            hidden = (place > rows[:, None]) | ~seen.layout.valid[sample]
            logits = logits.masked_fill(hidden, -torch.inf)
            scores[sample] = logits.softmax(-1).mean((0, 1))
        return scores

    def choose(self, seen: Attended, scores: Tensor) -> Tensor:
        """The best of them, less the number of clusters."""
        return super().choose(self._without_clusters(seen), scores)

    @staticmethod
    def _without_clusters(seen: Attended) -> Attended:
        present = (seen.layout.visual & seen.layout.valid).sum(-1).tolist()
        counts = []
        for n, keep in zip(present, seen.keep.tolist(), strict=True):
            counts.append(max(0, keep - clusters_of(n - keep)[1]))
        keep = torch.tensor(counts, device=seen.keep.device)
        return Attended(seen.query, seen.keys, seen.layout, seen.scale, keep, seen.memory)

    def recycle(
        self, hidden: Tensor, seen: Attended, scores: Tensor, kept: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Merge the best of the dropped rows; a cluster's mean replaces its centre's row."""
        kept, hidden = kept.clone(), hidden.clone()
        going = seen.layout.visual & seen.layout.valid & ~kept
        for sample in range(len(hidden)):
            rows = going[sample].nonzero()[:, 0]
            room = int(seen.keep[sample] - (kept & seen.layout.visual)[sample].sum())
            recycled, _ = clusters_of(len(rows) - room)
            if room <= 0 or not len(rows):
                continue
            best = scores[sample, rows].argsort(descending=True, stable=True)
            pool = rows[best[: max(recycled, room)]].sort().values
            centres, cluster = density_peaks(hidden[sample, pool], min(room, len(pool)))
            sums = hidden.new_zeros(len(centres), hidden.shape[-1], dtype=torch.float32)
            sums.index_add_(0, cluster, hidden[sample, pool].float())
            sums /= cluster.bincount(minlength=len(centres))[:, None]
            hidden[sample, pool[centres]] = sums.to(hidden.dtype)
            kept[sample, pool[centres]] = True
        return kept, hidden
