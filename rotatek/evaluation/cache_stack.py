"""Many filled caches decoded as one batch: a step's price hardly depends on how many there are.

All of them hold the same questions, each under a setting of its own. The model's layers run once a
step over all rows; only the visual attention is taken cache by cache. Nothing is written into the
visual part while decoding, so what a method rebuilds at every step is rebuilt once.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, takewhile
from typing import Any, Final

import torch
from torch import Tensor, nn

from kernels.dispatch import attend
from kernels.planes import samples
from kernels.reference import Text, Visual, opened
from rotatek.attention import tag
from rotatek.cache.compressed import RotateKCache
from rotatek.cache.filling import check_window
from rotatek.cache.layer import CompressedLayer, RewindableCache
from rotatek.cache.text import TextBuffer
from rotatek.channels.store import Store
from rotatek.channels.widths import take_samples
from rotatek.decode import captured, forward_one
from rotatek.models import VisionLanguageModel

BLOCK: Final = 8  # replays of a graph between two looks at its tokens
WORTH: Final = 4 * BLOCK  # steps that pay for another capture
ALIGNED: Final = 4  # lengths: kernels are compiled again for a tensor that starts off 16 bytes

Rows = list[list[int]]  # of each part of a stack, the rows that are meant


class StackedLayer(CompressedLayer):
    """One layer of a `CacheStack`: text of all rows in one buffer, visual tokens part by part."""

    def __init__(self, layers: Sequence[CompressedLayer]) -> None:
        super().__init__(layers[0].index, 0)
        texts = [layer.text for layer in layers if layer.text is not None]
        self.logical = max(layer.logical for layer in layers)
        self.joined = self.text = _join(texts)
        self.visuals = [None if layer.store is None else _read(layer.store) for layer in layers]
        self._lay([text.lengths.shape[0] for text in texts])

    def _lay(self, counts: list[int]) -> None:
        """Note where each part's rows are, and its lengths in an aligned copy of all lengths."""
        self.counts, self.starts = counts, [0, *accumulate(counts)][:-1]
        gaps = [-count % ALIGNED for count in counts]
        self.places = [0, *accumulate(map(sum, zip(counts, gaps, strict=True)))][:-1]
        order: list[int] = []
        for start, count, gap in zip(self.starts, counts, gaps, strict=True):
            order += [*range(start, start + count), *[start] * gap]
        self.order = torch.tensor(order, device=self.joined.lengths.device)

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Count the tokens and send this layer along to the attention function."""
        keys, values = super().update(key_states, value_states)
        return tag(keys, self), values

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        """Attention output [rows, 1, Hq, d] of one new token a row."""
        check_window(module, self.logical)
        scale = getattr(module, "scaling", query.shape[-1] ** -0.5)
        self.joined.append(key, value)
        text = self.joined.read()
        assert text.lengths is not None
        lengths, parts = text.lengths[self.order], []
        places = zip(self.visuals, self.counts, self.starts, self.places, strict=True)
        for visual, count, start, place in places:
            rows = slice(start, start + count)
            own = Text(text.keys[rows], text.values[rows], lengths[place : place + count])
            parts.append(attend(query[rows], visual, own, scale))
        return torch.cat(parts).transpose(1, 2)

    def keep(self, rows: Rows) -> None:
        """Keep these rows of each part; a part without any is dropped."""
        chosen = [
            start + row for start, part in zip(self.starts, rows, strict=True) for row in part
        ]
        index = torch.tensor(chosen, device=self.joined.lengths.device)
        self.joined.select(lambda t: t[index])
        pairs = [(v, part) for v, part in zip(self.visuals, rows, strict=True) if part]
        self.visuals = [None if v is None else _samples(v, part) for v, part in pairs]
        self._lay([len(part) for _, part in pairs])


class CacheStack(RewindableCache):
    """Filled caches side by side: the rows of the first one, then those of the second, ..."""

    def __init__(self, caches: Sequence[RotateKCache]) -> None:
        layers = zip(*(cache.layers for cache in caches), strict=True)
        super().__init__(layers=[StackedLayer(same) for same in layers])

    @property
    def counts(self) -> list[int]:
        """Rows of each part."""
        return self.layers[0].counts

    def keep(self, rows: Rows) -> None:
        """Keep these rows of each part; a part without any is dropped."""
        for layer in self.layers:
            layer.keep(rows)


def _join(texts: Sequence[TextBuffer]) -> TextBuffer:
    """One buffer with the rows of all."""
    longest = max(text.longest for text in texts)

    def pile(name: str) -> Tensor:
        whole = [getattr(text, name)[:, :, : text.longest] for text in texts]
        return torch.cat([nn.functional.pad(t, (0, 0, 0, longest - t.shape[2])) for t in whole])

    ragged = any(text.ragged or text.longest < longest for text in texts)
    lengths = torch.cat([text.lengths for text in texts])
    return TextBuffer(pile("keys"), pile("values"), lengths, ragged)


def _read(store: Store) -> Visual:
    """What attention reads; where no kernel reads planes they are unpacked, once."""
    visual = store.read()
    return opened(visual) if visual.keys.device.type == "cpu" else visual


def _samples(visual: Visual, rows: list[int]) -> Visual:
    """Some samples of one layer's visual tokens."""
    tensors = {name: t for name, t in visual._asdict().items() if isinstance(t, Tensor)}
    if rows == list(range(len(tensors["lengths"]))):
        return visual
    index = torch.tensor(rows, device=visual.keys.device)
    parts: Any = {name: t[index] for name, t in tensors.items() if t.dim() > 1}
    parts["lengths"] = tensors["lengths"][index]
    for name, kind in (("keys", "key"), ("values", "value")):
        if tensors[name].dim() == 1:
            widths, tokens = tensors[f"{kind}_widths"], visual.tokens or 0
            taken = take_samples(tensors[name], widths, tokens, rows)
            parts[name], parts[f"{kind}_offsets"] = taken
    for name in ("key_planes", "value_planes"):
        planes = getattr(visual, name)
        parts[name] = None if planes is None else samples(planes, index)
    return visual._replace(**parts)


class _Greedy:
    """The rows of a stack that are still answering, and their next tokens."""

    def __init__(
        self,
        vlm: VisionLanguageModel,
        stack: CacheStack,
        logits: Tensor,
        position: Tensor,
        graph: bool,
    ) -> None:
        self.vlm, self.stack, self.graphs = vlm, stack, graph
        self.graph: torch.cuda.CUDAGraph | None = None
        self.banned = torch.tensor(vlm.banned_ids, device=logits.device, dtype=torch.long)
        self.tokens, self.position = self._chosen(logits), position.clone()
        self.block = torch.zeros(len(logits), BLOCK, dtype=torch.long, device=vlm.device)
        self.column = torch.zeros(1, dtype=torch.long, device=vlm.device)
        ends = list(accumulate(stack.counts))
        self.rows = [  # of each part, by their places at first
            list(range(end - count, end)) for count, end in zip(stack.counts, ends, strict=True)
        ]

    def _chosen(self, logits: Tensor) -> Tensor:
        return logits.index_fill(-1, self.banned, float("-inf")).argmax(-1).to(self.vlm.device)

    def _step(self) -> None:
        """Feed the tokens; the ones that follow go to `tokens` and to the block's next column."""
        logits = forward_one(self.vlm, self.tokens, self.position, self.stack, None)
        self.tokens.copy_(self._chosen(logits))
        self.position += 1
        self.block.index_copy_(1, self.column, self.tokens[:, None])
        self.column += 1

    def _capture(self) -> None:
        self.column.zero_()
        tokens, position = self.tokens.clone(), self.position.clone()
        self.graph = captured(self.vlm.device, self.stack, self._step)
        self.tokens.copy_(tokens)
        self.position.copy_(position)

    def advance(self, steps: int) -> list[list[int]]:
        """The next tokens of each row, [rows][steps]; steps: at most `BLOCK`."""
        if self.graphs and self.graph is None:
            self._capture()
        self.column.zero_()
        for _ in range(steps):
            if self.graph is None:
                self._step()
            else:
                self.graph.replay()
        return self.block[:, :steps].tolist()

    def thin(self, alive: Sequence[bool], left: int) -> None:
        """Leave out rows that have ended where that pays; under a graph whole parts, since other
        shapes would be other kernels."""
        kept = [[i for i, row in enumerate(part) if alive[row]] for part in self.rows]
        if self.graphs:
            kept = [list(range(len(p))) if k else [] for k, p in zip(kept, self.rows, strict=True)]
        before, after = sum(map(len, self.rows)), sum(map(len, kept))
        share = 0.5 if self.graphs else 0.75
        if after > share * before or (self.graphs and left < WORTH):
            return
        starts = [0, *accumulate(map(len, self.rows))][:-1]
        index = [start + i for start, part in zip(starts, kept, strict=True) for i in part]
        self.graph = None
        self.stack.keep(kept)
        chosen = torch.tensor(index, device=self.vlm.device)
        self.tokens, self.position = self.tokens[chosen], self.position[chosen]
        self.block = self.block[chosen]
        self.rows = [[p[i] for i in k] for k, p in zip(kept, self.rows, strict=True) if k]


@torch.inference_mode()
def decode_stack(
    vlm: VisionLanguageModel,
    stack: CacheStack,
    logits: Tensor,
    position: Tensor,
    limit: int,
    *,
    graph: bool = False,
) -> Iterator[tuple[int, list[list[int]]]]:
    """Greedy tokens of every row of a stack, before its end or the limit.

    Args:
        vlm: the model that filled the caches.
        stack: the caches.
        logits: [rows, vocabulary] behind the prompts.
        position: [rows] of the first token.
        limit: new tokens of a row, at most.
        graph: replay a captured step, on CUDA.

    Yields:
        (part, its rows' tokens) as parts are done.
    """
    if graph:
        stack.make_static(limit + 1)
    greedy = _Greedy(vlm, stack, logits, position, graph)
    parts, waiting, stops = list(greedy.rows), list(range(len(stack.counts))), vlm.stop_ids
    said = [[token] for token in greedy.tokens.tolist()]
    alive = [tokens[0] not in stops for tokens in said]
    while waiting:
        left = limit - len(max(said, key=len))
        for part in [p for p in waiting if left == 0 or not any(alive[r] for r in parts[p])]:
            waiting.remove(part)
            yield part, [list(takewhile(lambda t: t not in stops, said[r])) for r in parts[part]]
        if waiting:
            greedy.thin(alive, left)
            rows = [row for part in greedy.rows for row in part]
            news = greedy.advance(min(left, BLOCK if graph else 1))
            for row, tokens in zip(rows, news, strict=True):
                said[row] += tokens if alive[row] else []
                alive[row] = alive[row] and stops.isdisjoint(tokens)
