"""Greedy tokens over one cache, without an engine."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from rotatek.bridge.scope import with_cache
from rotatek.engine.sequences import TokenChoice
from rotatek.models import Embedded, VisionLanguageModel


class Step(NamedTuple):
    """tokens [B], -1 where a sample had ended; the logits [B, vocabulary] they came from."""

    tokens: list[int]
    logits: Tensor


def decode(
    vlm: VisionLanguageModel, embedded: Embedded, cache: Cache, logits: Tensor, count: int
) -> Iterator[Step]:
    """Up to `count` tokens behind a prompt in `cache`, or until every sample has ended."""
    choice, position = TokenChoice(vlm), embedded.next_position
    mask = None if bool(embedded.valid.all()) else embedded.valid.long()
    ended = [False] * logits.shape[0]
    for left in range(count, 0, -1):
        chosen = choice.choose(logits)
        tokens = [-1 if done else token for token, done in zip(chosen.tolist(), ended, strict=True)]
        yield Step(tokens, logits)
        ended = [done or t in vlm.stop_ids for t, done in zip(tokens, ended, strict=True)]
        if all(ended) or left == 1:
            return
        mask = None if mask is None else torch.nn.functional.pad(mask, (0, 1), value=1)
        with torch.inference_mode():
            out = vlm.model(
                input_ids=chosen[:, None],
                position_ids=vlm.positions_at(position),
                attention_mask=mask,
                use_cache=True,
                logits_to_keep=1,
                **with_cache(vlm.model, cache),
            )
        logits = out.logits[:, -1].float()
        position = position + 1
