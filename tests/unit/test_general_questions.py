"""Weights by general questions: they are read behind a prompt, and leave nothing but weights."""

from typing import Any

import pytest
import torch
from torch import Tensor

from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.conversation import turn_of
from rotatek.engine.decode import feed
from rotatek.engine.prefill import empty_cache, fill, plan_for
from rotatek.inputs.request import make_request
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel
from tests.families import EVERY
from tests.fixtures import Picture
from tests.tiny import TINY, tiny_qwen

EXACT = Settings.of(keep_channels=1.0, weighting="general")
FORMS: dict[str, dict[str, Any]] = {
    "channels": {"keep_channels": 0.25},
    "bits": {"smaller": 8},
    "fewer tokens": {"tokens": "fastv", "keep_tokens": 0.4, "smaller": 4},
}


def filled(
    vlm: VisionLanguageModel, picture: Picture, settings: Settings
) -> tuple[RotateKCache, Tensor, Tensor]:
    """A cache, the logits behind its prompt, and the next position."""
    embedded = vlm.embed(vlm.prompt(make_request(picture(150, 120, seed=4), "what?", 4)))
    plan = plan_for(vlm, embedded, settings.pruning, general=settings.asks_generally)
    cache = empty_cache(vlm, embedded, settings, plan)
    return cache, fill(vlm, embedded, plan, [cache])[0], embedded.next_position


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava_next", "qwen3_5", "gemma3"])
def test_both_answers_are_exact_where_nothing_is_compressed(family: str, picture: Picture) -> None:
    """The first one's logits are the prompt's own, the next ones' know of no general question."""
    vlm = (TINY | EVERY)[family]()
    own, first, position = filled(vlm, picture, EXACT)
    plain, wanted, _ = filled(vlm, picture, BASELINE)
    torch.testing.assert_close(first, wanted, atol=2e-4, rtol=2e-4)
    assert own.get_seq_length() == plain.get_seq_length()
    turn = turn_of(vlm, "and why?").ids
    again, expected = (feed(vlm, turn, position, cache)[0] for cache in (own, plain))
    torch.testing.assert_close(again, expected, atol=5e-4, rtol=5e-4)


@pytest.mark.parametrize("form", FORMS)
def test_they_weigh_and_leave_no_token(form: str, picture: Picture) -> None:
    vlm = tiny_qwen()
    with_them, plain = (
        filled(vlm, picture, Settings.of(**FORMS[form], weighting=weighting))[0]
        for weighting in ("general", "paper")
    )
    assert with_them.get_seq_length() == plain.get_seq_length()
    assert with_them.bytes().parts["text"] == plain.bytes().parts["text"]
    held = [dict(cache.tensors()) for cache in (with_them, plain)]
    assert any(
        one.shape != held[1][name].shape or not torch.equal(one, held[1][name])
        for name, one in held[0].items()
        if name in held[1]
    )
