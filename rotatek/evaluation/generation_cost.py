"""What one whole `generate` costs: its first token, its steps, and the memory at its worst."""

import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import torch

from rotatek.cache.device_timing import synchronise
from rotatek.cache.rotatek_cache import RotateKCache, cache_bytes, release
from rotatek.engine.decode import decode, prefill
from rotatek.engine.prefill import empty_cache, plan_for, whole_of
from rotatek.methods.settings import Settings
from rotatek.models import Prompt, VisionLanguageModel

TOKENS = 24  # of an answer that is timed


class Cost(NamedTuple):
    """One answer under one setting.

    Attributes:
        first_ms: from the pixels to the first token.
        step_ms: median of the later tokens.
        cache_bytes: live bytes behind the prompt.
        peak_bytes: of the GPU's memory beyond weights and pixels, over prompt and answer; None
            without a GPU.
    """

    first_ms: float
    step_ms: float
    cache_bytes: int
    peak_bytes: int | None


@torch.inference_mode()
def generation_cost(
    vlm: VisionLanguageModel, prompt: Prompt, settings: Settings, tokens: int = TOKENS
) -> Cost:
    """Read a prompt, answer it greedily, and measure, after one run that is not counted.

    Args:
        vlm: the model.
        prompt: its pictures are encoded again each time.
        settings: any; those that compress nothing use transformers' own cache.
        tokens: of the answer, at most; three at least.
    """
    _one_run(vlm, prompt, settings, tokens)
    return _one_run(vlm, prompt, settings, tokens)


def costs(
    vlm: VisionLanguageModel, prompt: Prompt, chosen: Sequence[Settings], tokens: int = TOKENS
) -> list[Cost]:
    """`generation_cost` of several settings."""
    return [generation_cost(vlm, prompt, settings, tokens) for settings in chosen]


def _one_run(vlm: VisionLanguageModel, prompt: Prompt, settings: Settings, tokens: int) -> Cost:
    on_gpu, device = vlm.device.type == "cuda", vlm.device
    before = 0
    if on_gpu:
        synchronise(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    started = time.perf_counter()
    embedded = vlm.embed(prompt, settings.pruning)
    plan = plan_for(vlm, embedded, settings.pruning, general=settings.asks_generally)
    cache = empty_cache(vlm, embedded, settings, plan)
    if isinstance(cache, RotateKCache):
        cache.reserve_ahead(tokens + 1)
    logits, _ = prefill(vlm, whole_of(vlm, embedded, plan), cache)
    first = 1000 * (time.perf_counter() - started)
    held = cache_bytes(cache).total
    steps = [step.ms for step in decode(vlm, embedded, cache, logits, tokens)]
    later = steps[2:] or steps[1:] or [0.0]  # a captured step begins at the second
    peak = torch.cuda.max_memory_allocated(device) - before if on_gpu else None
    release(cache)
    return Cost(first, statistics.median(later), held, peak)
