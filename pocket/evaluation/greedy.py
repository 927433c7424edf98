"""Greedy answers of the plain transformers models, with their confidence."""

import math
from typing import Any

import torch

from pocket.models import tokenizer
from pocket.models.tokenizer import Codec


def prompts(
    questions: list[str], image_tokens: int, device: torch.device, codec: Codec = tokenizer
) -> torch.Tensor:
    """Token ids [B, T] of one image and one question each, padded on the left."""
    rows = [
        codec.prefix() + [codec.IMAGE_PAD] * image_tokens + codec.question_ids(q, first=True)
        for q in questions
    ]
    longest = max(map(len, rows))
    return torch.tensor([[codec.PAD] * (longest - len(r)) + r for r in rows], device=device)


def greedy(
    model: Any, ids: torch.Tensor, max_new: int, codec: Codec = tokenizer, **seen: Any
) -> list[tuple[str, float]]:
    """Answers of `model.generate` to prompts, up to the end of each answer.

    Args:
        model: One of transformers' classes.
        ids: Token ids [B, T], padded on the left.
        max_new: Tokens at most.
        codec: Says what tokens mean.
        **seen: What the model is to see, as its class takes it.

    Returns:
        Each answer and its confidence: the geometric mean of its tokens' probabilities.
    """
    out = model.generate(
        input_ids=ids,
        attention_mask=(ids != codec.PAD).long(),
        max_new_tokens=max_new,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        **seen,
    )
    new = out.sequences[:, ids.shape[1] :]
    scores = torch.stack(out.logits, 1).float().log_softmax(-1).gather(-1, new[..., None])[..., 0]
    return [_spoken(*row, codec) for row in zip(new.tolist(), scores.tolist(), strict=True)]


def _spoken(ids: list[int], scores: list[float], codec: Codec) -> tuple[str, float]:
    end = ids.index(codec.IM_END) + 1 if codec.IM_END in ids else len(ids)
    return codec.decode(ids[:end]), math.exp(sum(scores[:end]) / max(1, end))
