"""Layers with a sliding window: prompts and answers that outgrow it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor
from transformers import MistralConfig
from transformers.cache_utils import Cache, DynamicCache

from rotatek import BASELINE, PICTURE, Engine, RotateKCache, Settings, make_request
from rotatek.bridge.row_layout import TEXT_STEP
from rotatek.bridge.scope import with_cache
from rotatek.cache.bytes import storage_bytes
from rotatek.cache.step_graph import StepGraph
from rotatek.engine.passes import prefill
from rotatek.models import Embedded, VisionLanguageModel
from tests.families import tiny_gemma3, tiny_gemma4, tiny_llava15
from tests.fixtures import Picture, collate, decode, inputs_of
from tests.fixtures import tokens_of as ids
from tests.recorded import RecordedGraph

QUESTION = "What is the total?"
NEW = 24  # tokens of an answer
WINDOWS = (8, 40, 64)  # of a prompt of 52 tokens: its picture has left, leaves, stays
FULL = Settings.of(keep_channels=1.0)
COLUMNS = {
    "all": BASELINE,
    "k": FULL,
    "full": Settings.of(channels="full"),
    "fastv": Settings.of(tokens="fastv", fastv_layer=1, keep_tokens=0.5),
    "kivi": Settings.of(channels="kivi"),
    "bits": Settings.of(smaller=16),
}


@pytest.fixture(scope="module", params=WINDOWS)
def vlm(request: pytest.FixtureRequest) -> VisionLanguageModel:
    return tiny_gemma3(request.param, 16, tied=False)  # tied, random ones repeat one token


@pytest.fixture(autouse=True)
def _long_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VisionLanguageModel, "stop_ids", frozenset())


def width(vlm: VisionLanguageModel) -> int:
    return vlm.model.config.text_config.sliding_window


def asked(vlm: VisionLanguageModel, image: Image.Image, question: str = QUESTION) -> Embedded:
    return vlm.embed(vlm.prompt(make_request(image, question, NEW)))


def answered(
    vlm: VisionLanguageModel, embedded: Embedded, cache: Cache, new: int = NEW
) -> tuple[list[list[int]], Tensor]:
    """Tokens [step][row], and the logits that they were chosen from."""
    logits, _ = prefill(vlm, embedded, cache)
    steps = list(decode(vlm, embedded, cache, logits, new))
    return [step.tokens for step in steps], torch.stack([step.logits for step in steps])


def plain(vlm: VisionLanguageModel) -> DynamicCache:
    return DynamicCache(config=vlm.model.config)


def test_full_width_is_plain_transformers(vlm: VisionLanguageModel, picture: Picture) -> None:
    embedded = asked(vlm, picture(100, 60))
    tokens, logits = answered(vlm, embedded, plain(vlm))
    assert len({token for (token,) in tokens}) > 1
    for settings in (FULL, COLUMNS["full"]):
        cache = RotateKCache(vlm.model, embedded.inputs(), settings)
        own, found = answered(vlm, embedded, cache)
        assert own == tokens and torch.allclose(found, logits, atol=2e-3)
        slots = -(-width(vlm) // TEXT_STEP) * TEXT_STEP
        for layer in cache.layers:
            assert (layer.span is None) == (layer.index == 2)
            assert layer.span is None or layer.text.keys.shape[2] <= slots
        tensors = [*(tensor for _, tensor in cache.tensors()), *cache.marks()]
        assert cache.bytes().total == storage_bytes(tensors)


def test_generate_follows_the_window(
    vlm: VisionLanguageModel, picture: Picture, recorded: list[RecordedGraph]
) -> None:
    """Replayed, in the room of a graph that the window is crossed in, and beyond it."""
    prompt = vlm.prompt(make_request(picture(100, 60), QUESTION, NEW))
    inputs = inputs_of(vlm, prompt)
    options: Any = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
    options["suppress_tokens"] = list(vlm.banned_ids)
    wanted = vlm.model.generate(**inputs, **options)
    for room in (128, 4):
        cache = RotateKCache(vlm.model, inputs, FULL)
        cache._steps = StepGraph(room)
        cache.graph = True
        found = vlm.model.generate(**inputs, **options, **with_cache(vlm.model, cache))
        assert torch.equal(found, wanted), room
    assert sum(one.replays for one in recorded) > NEW


@pytest.mark.parametrize("vlm", [40], indirect=True)
def test_the_running_batch_says_what_a_cache_alone_says(
    vlm: VisionLanguageModel, picture: Picture
) -> None:
    request = make_request(picture(100, 60), QUESTION, NEW)
    said = ids(list(Engine(vlm).compare(request, COLUMNS)))
    assert said["all"] == said["k"] == said["full"]
    embedded = vlm.embed(vlm.prompt(request))
    for name, settings in COLUMNS.items():
        cache = RotateKCache(vlm.model, embedded.inputs(), settings)
        alone, _ = answered(vlm, embedded, cache)
        assert said[name] == [token for (token,) in alone], name


WITH_WINDOWS: dict[str, Callable[[], VisionLanguageModel]] = {
    "gemma3": lambda: tiny_gemma3(64, 16, tied=False),
    "gemma4": lambda: tiny_gemma4(window=64, global_head_dim=32),
    "mistral": lambda: tiny_llava15(MistralConfig, sliding_window=64),
}


@pytest.mark.parametrize("family", WITH_WINDOWS)
def test_long_texts_on_both_sides_of_a_picture(family: str, picture: Picture) -> None:
    """The picture is inside a window of which the text before it has left, behind it, or at its
    edge; alone, and in a batch of such prompts whose layers hold texts of different lengths."""
    vlm, prompts = WITH_WINDOWS[family](), []
    for before, after in ((1, 1), (40, 1), (1, 30), (200, 30), (30, 200)):
        asked_ = ("a" * before, PICTURE, "b" * after + "?")
        prompts.append(vlm.embed(vlm.prompt(make_request(picture(100, 60), asked_, 8))))
        own, found = answered(vlm, prompts[-1], plain(vlm), 8)
        full = RotateKCache(vlm.model, prompts[-1].inputs(), FULL)
        tokens, logits = answered(vlm, prompts[-1], full, 8)
        assert tokens == own and torch.allclose(logits, found, atol=2e-3)
    for settings in (Settings.of(smaller=4), Settings.of(keep_channels=0.5)):
        batch = collate(prompts)
        cache = RotateKCache(vlm.model, batch.inputs(), settings)
        together, logits = answered(vlm, batch, cache, 8)
        for row, single in enumerate(prompts):
            alone = RotateKCache(vlm.model, single.inputs(), settings)
            said, found = answered(vlm, single, alone, 8)
            assert torch.allclose(logits[0, row], found[0, 0], atol=2e-3)
            assert together[0][row] == said[0][0]
