"""Decodes many conversations side by side, for the evaluation: each row answers, reads its next
question, and answers again.

A later question is fed token by token, as answers are: rows whose questions differ in length need
no padding, and one captured step serves questions and answers alike.
"""

from collections import deque
from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from rotatek.engine.batch import RunningBatch
from rotatek.engine.decode import decode_one_token
from rotatek.engine.rows import COMPILED, GreedyRows, over
from rotatek.models import Embedded, VisionLanguageModel


class Dialogue:
    """One row: its tokens so far, and the token to feed next.

    Args:
        turns: ids of each later question, from the end of an answer to the next one.
        limits: new tokens of each answer, one more than there are turns.
        stops: ids that end an answer.

    Attributes:
        said: the answers' tokens so far, without their ends.
    """

    def __init__(
        self, turns: Sequence[Sequence[int]], limits: Sequence[int], stops: Collection[int]
    ) -> None:
        self._turns, self._limits, self._stops = deque(turns), list(limits), stops
        self._fed: deque[int] = deque()
        self.said: list[list[int]] = [[]]

    @property
    def room(self) -> int:
        """Tokens that may still be fed, at most."""
        answers = sum(self._limits[len(self.said) - 1 :])
        return answers + sum(map(len, self._turns)) + len(self._fed)

    def next(self, chosen: int) -> int | None:
        """The token to be fed, where the model has just chosen one; None when all is said."""
        if self._fed:
            return self._fed.popleft()
        answer, ended = self.said[-1], chosen in self._stops
        if not ended:
            answer.append(chosen)
            if len(answer) < self._limits[len(self.said) - 1]:
                return chosen
        if not self._turns:
            return None
        self._fed.extend([*([] if ended else [chosen]), *self._turns.popleft()])
        self.said.append([])
        return self._fed.popleft()


@torch.inference_mode()
def converse_caches(
    vlm: VisionLanguageModel,
    caches: Sequence[Cache],
    logits: Tensor,
    position: Tensor,
    dialogues: Sequence[Sequence[Dialogue]],
    *,
    graph: bool = False,
) -> Iterator[int]:
    """Let every row of filled caches go through its conversation, greedily.

    Args:
        vlm: the model that filled the caches.
        caches: taken over; they hold nothing afterwards.
        logits: [rows, vocabulary] behind the prompts, cache by cache.
        position: [rows] of the first token.
        dialogues: of each cache's rows.
        graph: replay a captured step, on CUDA.

    Yields:
        caches' numbers as all their rows have ended.
    """
    batch = RunningBatch(caches[0], rebuilt=True)
    rows = [one for each in dialogues for one in each]
    parts = batch.join(caches, max(one.room for one in rows) + 1, reserve=graph)
    if graph:
        batch.freeze()
    greedy = GreedyRows(vlm, batch, logits, position, graph)
    fed = {row: rows[row].next(token) for row, token in enumerate(greedy.tokens.tolist())}
    waiting = list(range(len(parts)))
    while waiting:
        for part in [p for p in waiting if all(fed[row] is None for row in parts[p])]:
            waiting.remove(part)
            yield part
        if waiting:
            greedy.say(fed)
            left = max(rows[row].room for row, token in fed.items() if token is not None)
            alive = [fed[row] is not None for row in range(len(rows))]
            greedy.drop_rows(over(parts, alive, whole=graph and left < COMPILED), left)
            for row, (token,) in greedy.advance(1).items():
                fed[row] = None if fed[row] is None else rows[row].next(token)


@torch.inference_mode()
def converse_plain(
    vlm: VisionLanguageModel,
    embedded: Embedded,
    cache: Cache,
    logits: Tensor,
    dialogues: Sequence[Dialogue],
) -> None:
    """The same over a padded batch in one cache, transformers' own.

    Args:
        vlm: the model.
        embedded: the batch that `cache` holds.
        cache: grows.
        logits: [B, vocabulary] behind the prompts.
        dialogues: of each row.
    """
    banned = torch.tensor(vlm.banned_ids, device=logits.device, dtype=torch.long)
    position, mask = embedded.next_position, None
    if not bool(embedded.valid.all()):
        mask = embedded.valid.long()
    alive = [True] * len(dialogues)
    while True:
        chosen = logits.index_fill(-1, banned, float("-inf")).argmax(-1).tolist()
        fed = []
        for row, token in enumerate(chosen):
            given = dialogues[row].next(token) if alive[row] else None
            alive[row] = given is not None
            fed.append(token if given is None else given)
        if not any(alive):
            return
        if mask is not None:
            mask = torch.nn.functional.pad(mask, (0, 1), value=1)
        tokens = torch.tensor(fed, device=position.device)
        logits = decode_one_token(vlm, tokens, position, cache, mask)
        position = position + 1
