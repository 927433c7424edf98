"""Answers of one padded batch under one setting, outside of any suite."""

from collections.abc import Sequence

from rotatek.cache.rotatek_cache import RotateKCache, release
from rotatek.engine.decode import decode
from rotatek.engine.event_builder import text_of
from rotatek.engine.prefill import empty_cache, fill, plan_for
from rotatek.engine.token_choice import TokenChoice
from rotatek.inputs.request import Request
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from rotatek.models.base import collate


def generate(
    vlm: VisionLanguageModel, requests: Sequence[Request], settings: Settings
) -> list[str]:
    """Answer requests that have the same limit of new tokens, in their order; each is greedy or
    drawn as it says."""
    pruner, choice = settings.pruning, TokenChoice(vlm)
    embedded = collate([vlm.embed(vlm.prompt(request), pruner) for request in requests])
    choices = [choice.row(request.sampling) for request in requests]
    plan = plan_for(vlm, embedded, pruner, general=settings.asks_generally)
    cache = empty_cache(vlm, embedded, settings, plan)
    if isinstance(cache, RotateKCache):
        cache.release_steps()
    try:
        logits, _ = fill(vlm, embedded, plan, [cache], timed=False)
        limit = requests[0].max_new_tokens
        steps = decode(vlm, embedded, cache, logits, limit, choices=choices)
        rows = by_sample(vlm, [step.tokens for step in steps])
    finally:
        release(cache)
    return [text_of(vlm, tokens).strip() for tokens in rows]


def by_sample(vlm: VisionLanguageModel, steps: Sequence[Sequence[int]]) -> list[list[int]]:
    """Steps [T][B], -1 behind an end, as each sample's own tokens without that end."""
    return [
        [token for token in sample if token >= 0 and token not in vlm.stop_ids]
        for sample in zip(*steps, strict=True)
    ]
