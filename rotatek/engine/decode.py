"""Forward passes over any cache: a prompt, a later text, one new token a sample."""

import time

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from rotatek.bridge.scope import with_cache
from rotatek.cache.device_timing import synchronise
from rotatek.models import Embedded, VisionLanguageModel
from rotatek.models.memory import is_out_of_memory


@torch.inference_mode()
def prefill(vlm: VisionLanguageModel, embedded: Embedded, cache: Cache) -> tuple[Tensor, float]:
    """Run the prompt into an empty cache.

    Args:
        vlm: the model.
        embedded: the prompt as the language model's input.
        cache: filled in place.

    Returns:
        Next-token logits [B, vocabulary] in float32, and milliseconds.
    """
    started = time.perf_counter()
    logits = vlm.read(embedded, cache)
    synchronise(vlm.device)
    return logits.float(), 1000 * (time.perf_counter() - started)


@torch.inference_mode()
def feed(
    vlm: VisionLanguageModel, tokens: Tensor, position: Tensor, cache: Cache
) -> tuple[Tensor, float]:
    """Add tokens behind a filled cache, on a GPU by replaying graphs where that is possible.

    Args:
        vlm: the model.
        tokens: [B, T] ids.
        position: [B] of the first of them.
        cache: grows by T tokens.

    Returns:
        Next-token logits [B, vocabulary] in float32, and milliseconds.
    """
    started = time.perf_counter()
    positions = _positions(vlm, tokens, position)
    logits, reason = None, None
    try:
        logits = vlm.questions.ask(vlm.model, tokens, positions, cache)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        reason = str(error) or type(error).__name__
    if reason is not None:  # outside the handler: the error refers to what did not fit
        vlm.questions.forget(reason)
    if logits is None:
        logits = _logits(vlm, tokens, positions, cache, 1)[:, -1].float()
        synchronise(vlm.device)
    return logits, 1000 * (time.perf_counter() - started)


@torch.inference_mode()
def read_on(vlm: VisionLanguageModel, tokens: Tensor, position: Tensor, cache: Cache) -> Tensor:
    """Logits [B, T, vocabulary] behind each of `tokens`, by the model itself; arguments as of
    `feed`."""
    return _logits(vlm, tokens, _positions(vlm, tokens, position), cache, tokens.shape[1])


def _positions(vlm: VisionLanguageModel, tokens: Tensor, position: Tensor) -> Tensor:
    steps = position[:, None] + torch.arange(tokens.shape[1], device=position.device)
    return vlm.positions_at(steps.flatten())[..., 0].unflatten(-1, tokens.shape)


def _logits(
    vlm: VisionLanguageModel, tokens: Tensor, positions: Tensor, cache: Cache, kept: int
) -> Tensor:
    """Of the last `kept` tokens."""
    out = vlm.model(
        input_ids=tokens,
        position_ids=positions,
        use_cache=True,
        logits_to_keep=kept,
        **with_cache(vlm.model, cache),
    )
    return out.logits


@torch.inference_mode()
def forward_one(vlm: VisionLanguageModel, tokens: Tensor, position: Tensor, cache: Cache) -> Tensor:
    """Feed one token a row; the work is queued.

    Args:
        vlm: the model.
        tokens: [B] ids.
        position: [B] their positions.
        cache: grows by one token.

    Returns:
        Next-token logits [B, vocabulary] in float32.
    """
    return _logits(vlm, tokens[:, None], vlm.positions_at(position), cache, 1)[:, -1].float()
