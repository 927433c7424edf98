"""Answers of the third pocket model, by the first one's way and in SmolLM2's tokens."""

from functools import lru_cache
from typing import Any

from pocket.evaluation import qwen2_5_vl
from pocket.evaluation.measures import Pair
from pocket.models.subwords import Subwords
from rotatek.models import smollm2


@lru_cache(maxsize=1)
def codec() -> Subwords:
    """SmolLM2's tokens, from its file."""
    return Subwords.of(smollm2.located())


def run(model: Any, pairs: list[Pair], batch: int, longest: int) -> None:
    """As `qwen2_5_vl.run`."""
    qwen2_5_vl.run(model, pairs, batch, longest, codec())
