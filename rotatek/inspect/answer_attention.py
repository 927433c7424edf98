"""Attention to the picture for each token of an answer.

During the answer the queries of the later layers are recorded. At its end they are run once against
the cache: full Keys of a plain cache, stored Keys of a compressed one. Later layers read the answer
off the picture, while earlier ones attend everywhere. A layer that no longer has all tokens, since
its window has moved on, is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import Cache

from kernels.reference import Narrow, Text, Visual, opened, project_query
from rotatek.bridge.layers import key_layers
from rotatek.cache.rotatek_cache import RotateKCache

MAX_STEPS = 64  # tokens with recorded queries, beside a prompt's last row
READING = 2 / 3  # the share of the layers that come before those that read off the picture


@dataclass(frozen=True)
class AnswerAttention:
    """Attention over the visual tokens of one column.

    cells: uint8 [S, visual_tokens], 255 where a row is largest, 0 where a token was dropped; steps:
    [S] the number of the answer's token that each row led to.
    """

    cells: NDArray[np.uint8]
    steps: tuple[int, ...]


@dataclass
class AnswerAttentionRecorder:
    """Keeps the last query row of every attention call in layers from `first` on, whose attention
    is shown, or, with `every`, of all layers: every token's; of a longer answer every second,
    fourth... A call of several rows is a prompt or a further question, and starts anew.

    steps: numbers of the recorded tokens, 0 being the one that the prompt's last row chose; rows:
    by layer, float16 [Hq, d] of each; token: the latest one's number.
    """

    first: int
    every: bool = False
    steps: list[int] = field(default_factory=list)
    rows: dict[int, list[Tensor]] = field(default_factory=dict)
    token: int = 0
    stride: int = 1  # between recorded tokens

    @classmethod
    def of(cls, layers: int, every: bool = False) -> "AnswerAttentionRecorder":
        """For a model of so many layers that attend."""
        return cls(min(int(READING * layers), layers - 1), every)

    def see(self, layer: int, query: Tensor) -> None:
        """One attention call: query [B, Hq, T, d]."""
        begins = 0 if self.every else self.first
        if layer < begins:
            return
        if layer == begins and query.shape[2] > 1:
            self.steps, self.rows, self.token, self.stride = [0], {}, 0, 1
        elif layer == begins:
            self._next()
        if self.steps and self.steps[-1] == self.token:
            row = query[0, :, -1].to(torch.float16, copy=True)
            self.rows.setdefault(layer, []).append(row)

    def _next(self) -> None:
        """The next token; where it would be one too many, every second one is dropped."""
        self.token += 1
        if self.token == (MAX_STEPS + 1) * self.stride:
            self.stride *= 2
            keep = [i for i, step in enumerate(self.steps) if step % self.stride == 0]
            self.rows = {layer: [rows[i] for i in keep] for layer, rows in self.rows.items()}
            self.steps = [self.steps[i] for i in keep]
        if self.token % self.stride == 0:
            self.steps.append(self.token)

    @torch.inference_mode()
    def finish(
        self, cache: Cache, visual: Tensor, kept: NDArray[np.bool_] | None
    ) -> AnswerAttention | None:
        """The attention of a finished column; None where it has had no prompt, or where each head
        stores its own tokens: no cache stores which. visual: bool [L], of the first prompt; kept:
        bool [visual tokens], or None where its pruner kept all."""
        if isinstance(cache, RotateKCache) and cache.settings.pruning.stage == "cache":
            return None
        every = {layer: own for layer, own in self.rows.items() if layer >= self.first}
        whole = min(map(len, every.values()), default=0)
        total = int(visual.sum())
        if not whole or not total:
            return None
        steps = self.steps[:whole]  # a stopped answer may end inside a step
        mass = np.zeros((whole, total), dtype=np.float64)
        for layer, rows in every.items():
            found = _layer(cache, layer, visual)
            if found is not None:
                seen = weights(torch.stack(rows[:whole], 1), *found, steps, self.token)
                if getattr(key_layers(cache)[layer], "span", None) is not None:
                    seen = seen[:, ::-1]  # there the newest come first
                pruned = kept is not None and seen.shape[1] == int(kept.sum())
                mass[:, kept if pruned else slice(0, seen.shape[1])] += seen
        top = np.maximum(mass.max(axis=1, keepdims=True), 1e-30)
        return AnswerAttention(np.round(255 * mass / top).astype(np.uint8), tuple(steps))


class RecorderGroup:
    """Several columns' recorders that see one prefill; aside: rows that it has behind the
    prompt."""

    def __init__(self, recorders: Sequence[AnswerAttentionRecorder], aside: int = 0) -> None:
        self.recorders, self.aside = recorders, aside

    def see(self, layer: int, query: Tensor) -> None:
        """One attention call: query [B, Hq, T, d]."""
        query = query[:, :, : query.shape[2] - self.aside]
        for recorder in self.recorders:
            recorder.see(layer, query)


def _layer(cache: Cache, layer: int, visual: Tensor) -> tuple[Visual, Text] | None:
    """One layer's visual and other tokens; None where it holds no visual ones, or not all."""
    held = key_layers(cache)[layer]
    if isinstance(cache, RotateKCache):
        if held.store is None or held.text is None or held.outgrown:
            return None
        return held.store.read(), held.text.read()
    if held.keys.shape[2] < held.get_seq_length():
        return None
    mask = torch.zeros(held.keys.shape[2], dtype=torch.bool, device=held.keys.device)
    mask[: len(visual)] = visual.to(mask.device)
    keys, values = held.keys[:1], held.values[:1]
    return (
        Narrow(keys[:, :, mask], values[:, :, mask]),
        Text(keys[:, :, ~mask], values[:, :, ~mask]),
    )


def weights(
    queries: Tensor, visual: Visual, text: Text, steps: Sequence[int], fed: int
) -> NDArray[np.float32]:
    """Mean attention [S, N] of queries [Hq, S, d] over visual tokens, text counted in the softmax.

    fed: tokens that were decoded after the prompt; a step sees the prompt and `step` of them.
    """
    heads, d = text.keys.shape[1], text.keys.shape[3]
    query = queries.float().view(1, heads, -1, len(steps), d)
    numbers = opened(visual)
    projected, bias = project_query(query, numbers)
    seen = projected @ numbers.keys[:1].float().transpose(-1, -2)[:, :, None]  # [1, Hkv, G, S, N]
    seen = seen if bias is None else seen + bias
    others = query @ text.keys[:1].float().transpose(-1, -2)[:, :, None]
    place = torch.arange(text.keys.shape[2], device=others.device)
    count = int(text.lengths[0]) if text.lengths is not None else len(place)
    ends = torch.tensor(steps, device=others.device) + count - fed
    dead = (place >= ends[:, None]) | (place >= count)
    others = others.masked_fill(dead, float("-inf"))
    weights = (torch.cat([seen, others], -1) * d**-0.5).softmax(-1)[..., : seen.shape[-1]]
    if visual.lengths is not None:
        weights = weights[..., : int(visual.lengths[0])]
    return weights.mean((0, 1, 2)).cpu().numpy()
