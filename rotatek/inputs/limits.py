"""The limits of one request."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of one request, and of what all hold; see `rotatek.inputs.request` for pictures."""

    max_new_tokens: int = 1024
    max_prompt_tokens: int = 16384
    trace_tokens: int = 512  # tokens a trace keeps per head
    kept_answer_tokens: int = 256  # default length of an answer: a form or a short page
    cache_bytes: int | None = None  # of all visitors' caches; None: a share of the free memory
    warm_bytes: int = 256_000_000  # of what the vision tower saw of the latest pictures
    turns: int = 8  # questions that one conversation answers
