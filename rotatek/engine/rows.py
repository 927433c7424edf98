"""Many filled caches decoded to their ends in one running batch, for the evaluation.

All of them have the same questions, each under its own setting; no row joins later. Decoding writes
nothing into the visual part, so what a method otherwise computes at every step is
computed once.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Final

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from rotatek.cache.step_graph import captured
from rotatek.engine.batch import RunningBatch
from rotatek.engine.decode import forward_one
from rotatek.engine.token_choice import likeliest
from rotatek.models import VisionLanguageModel

BLOCK: Final = 8  # replays of a graph between two transfers of its tokens
WORTH: Final = 4 * BLOCK  # steps that pay for another capture
COMPILED: Final = 2 * WORTH  # steps that pay for the kernels of other numbers of rows, too


class GreedyRows:
    """The rows of a batch that are still answering, and their next tokens."""

    def __init__(
        self,
        vlm: VisionLanguageModel,
        batch: RunningBatch,
        logits: Tensor,
        position: Tensor,
        graph: bool,
    ) -> None:
        self.vlm, self.batch, self.graphs = vlm, batch, graph
        self.graph: torch.cuda.CUDAGraph | None = None
        self.banned = torch.tensor(vlm.banned_ids, device=vlm.device, dtype=torch.long)
        self.tokens, self.position = self.chosen(logits), position.clone()  # by number
        self._allocate()

    def _allocate(self) -> None:
        """Buffers in the batch's own order."""
        order = [0 if number is None else number for number in self.batch.order]
        index = torch.tensor(order, device=self.vlm.device)
        self.graph = None
        self.next, self.place = self.tokens[index], self.position[index]
        self.block = torch.zeros(len(order), BLOCK, dtype=torch.long, device=self.vlm.device)
        self.column = torch.zeros(1, dtype=torch.long, device=self.vlm.device)

    def _step(self) -> None:
        """Feed the tokens; the ones that follow go to `next` and to the block's next column."""
        logits = forward_one(self.vlm, self.next, self.place, self.batch, None)
        self.next.copy_(self.chosen(logits))
        self.place += 1
        self.block.index_copy_(1, self.column, self.next[:, None])
        self.column += 1

    def chosen(self, logits: Tensor) -> Tensor:
        """The likeliest tokens that are not banned."""
        return likeliest(logits, self.banned.to(logits.device)).to(self.vlm.device)

    def _capture(self) -> None:
        self.column.zero_()
        tokens, place = self.next.clone(), self.place.clone()
        self.graph = captured(self.vlm.device, self.batch, self._step)
        self.next.copy_(tokens)
        self.place.copy_(place)

    def advance(self, steps: int) -> dict[int, list[int]]:
        """The next tokens of each row, by its number; steps: at most `BLOCK`."""
        if self.graphs and self.graph is None:
            self._capture()
        self.column.zero_()
        for _ in range(steps):
            if self.graph is None:
                self._step()
            else:
                self.graph.replay()
                self.batch.advance()
            self.batch.stepped()
        said = self.block[:, :steps].tolist()
        pairs = zip(self.batch.order, said, strict=True)
        return {number: tokens for number, tokens in pairs if number is not None}

    def say(self, fed: Mapping[int, int | None]) -> None:
        """Feed rows these tokens next, by their numbers, in place of those that were chosen."""
        tokens = [None if number is None else fed.get(number) for number in self.batch.order]
        self.next.copy_(torch.tensor([token or 0 for token in tokens], device=self.next.device))

    def drop_rows(self, over: Sequence[int], left: int) -> None:
        """Leave out rows that have ended where that pays; under a graph it takes another one."""
        here = [number for number in self.batch.order if number is not None]
        gone = set(over) & set(here)
        share = 0.5 if self.graphs else 0.75
        if len(here) - len(gone) > share * len(here) or (self.graphs and left < WORTH):
            return
        places = [place for place, number in enumerate(self.batch.order) if number is not None]
        numbers, used = (torch.tensor(one, device=self.vlm.device) for one in (here, places))
        self.tokens[numbers], self.position[numbers] = self.next[used], self.place[used]
        self.batch.leave(gone)
        self.batch.shrink()
        self._allocate()


@torch.inference_mode()
def decode_caches(
    vlm: VisionLanguageModel,
    caches: Sequence[Cache],
    logits: Tensor,
    position: Tensor,
    limit: int,
    *,
    graph: bool = False,
) -> Iterator[tuple[int, list[list[int]]]]:
    """Greedy tokens of every row of filled caches, before its end or the limit.

    Args:
        vlm: the model that filled the caches.
        caches: taken over; they hold nothing afterwards.
        logits: [rows, vocabulary] behind the prompts, cache by cache.
        position: [rows] of the first token.
        limit: new tokens of a row, at most.
        graph: replay a captured step, on CUDA.

    Yields:
        (cache, its rows' tokens) as caches are done.
    """
    batch = RunningBatch(caches[0], rebuilt=True)
    parts = batch.join(caches, limit + 1, reserve=graph)
    if graph:
        batch.freeze()
    greedy = GreedyRows(vlm, batch, logits, position, graph)
    waiting, stops = list(range(len(parts))), vlm.stop_ids
    said = [[token] for token in greedy.tokens.tolist()]
    alive = [tokens[0] not in stops for tokens in said]
    while waiting:
        left = limit - len(max(said, key=len))
        for part in [p for p in waiting if left == 0 or not any(alive[r] for r in parts[p])]:
            waiting.remove(part)
            yield part, [list(takewhile(lambda t: t not in stops, said[r])) for r in parts[part]]
        if waiting:
            greedy.drop_rows(over(parts, alive, whole=graph and left < COMPILED), left)
            for row, tokens in greedy.advance(min(left, BLOCK if graph else 1)).items():
                said[row] += tokens if alive[row] else []
                alive[row] = alive[row] and stops.isdisjoint(tokens)


def over(parts: Sequence[Sequence[int]], alive: Sequence[bool], whole: bool) -> list[int]:
    """Rows that have ended; with `whole` only those of caches of which all rows have: under a graph
    fewer rows of a cache would be computed by other kernels."""
    ended = [part for part in parts if not whole or not any(alive[row] for row in part)]
    return [row for part in ended for row in part if not alive[row]]
