"""Questions to stored pictures by replayed pieces say what they say without; on the CPU, recorded
ones."""

import logging
from functools import partial
from typing import Any

import pytest
import torch

from rotatek.bridge.attention import stoppable, watched
from rotatek.bridge.state_layers import key_layers
from rotatek.cache import pieces, question_graph, step_graph
from rotatek.cache.question_graph import QuestionGraphs, padded
from rotatek.engine.decode import feed
from rotatek.engine.engine import Engine
from rotatek.errors import Stopped
from rotatek.inspect.answer_attention import AnswerAttentionRecorder
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from rotatek.pictures import Pictures
from tests import fixtures
from tests.families import EVERY
from tests.questions import asked, check_same, eager, read, words
from tests.recorded import RecordedGraph, RecordedMemory
from tests.tiny import tiny_qwen

FORMS: dict[str, dict[str, Any]] = {
    "channels": {"keep_channels": 0.25},
    "bits": {"smaller": 8},
    "fewer by head": {"tokens": "fastv", "keep_tokens": 0.4},
}
LENGTHS = (2, 9, 16, 17, 30, 61)


@pytest.mark.parametrize("form", FORMS)
def test_replayed_questions_say_the_same(
    vlm: VisionLanguageModel, picture: fixtures.Picture, recorded: list[RecordedGraph], form: str
) -> None:
    """Several lengths, over pictures of several sizes: one chain for each padded length."""
    sizes = [(150, 120), (90, 200)]
    images = [picture(*size, seed=seed) for seed, size in enumerate(sizes)]
    caches = read(vlm, Settings.of(**FORMS[form]), *images)
    vlm.questions = QuestionGraphs()
    recorded.clear()
    for number, length in enumerate(LENGTHS):
        for cache in caches:
            check_same(vlm, [cache], words(length, number))
    each = 1 + len(key_layers(caches[0]))
    assert len(recorded) == each * len({padded(1, length) for length in LENGTHS})
    assert all(graph.replays >= len(caches) for graph in recorded)


@pytest.mark.parametrize("form", ["channels", "bits"])
def test_several_pictures_in_a_pass(
    vlm: VisionLanguageModel, picture: fixtures.Picture, recorded: list[RecordedGraph], form: str
) -> None:
    images = [picture(90 + 30 * seed, 120, seed=seed) for seed in range(3)]
    caches = read(vlm, Settings.of(**FORMS[form]), *images)
    vlm.questions = QuestionGraphs()
    for count in (2, 3):
        check_same(vlm, caches[:count], words(11, count))
    assert len(recorded) >= 2 * (1 + len(key_layers(caches[0])))


@pytest.mark.parametrize("family", EVERY)
def test_every_family_is_replayed_or_launched(
    family: str, picture: fixtures.Picture, recorded: list[RecordedGraph]
) -> None:
    vlm = EVERY[family]()
    (cache,) = read(vlm, Settings.of(keep_channels=0.5), picture(150, 120, seed=1))
    recorded.clear()
    check_same(vlm, [cache], words(13, 1))
    assert bool(recorded) == cache.only_grows


def test_pictures_answer_the_same(picture: fixtures.Picture, recorded: list[RecordedGraph]) -> None:
    images = [picture(90 + 30 * seed, 120, seed=seed) for seed in range(3)]
    said = []
    for replayed in (False, True):
        engine = Engine(tiny_qwen())
        pictures = Pictures(engine, Settings.of(smaller=8))
        held = [pictures.add(image) for image in images]
        if replayed:
            said.append(pictures.ask(held, "what is the total?", 8))
            assert recorded
        else:
            with eager():
                said.append(pictures.ask(held, "what is the total?", 8))
    texts = [[answer.text for answer in answers] for answers in said]
    assert texts[0] == texts[1] and not any(answer.error for answer in said[1])


def test_threads_take_turns(
    qwen: VisionLanguageModel, picture: fixtures.Picture, recorded: list[RecordedGraph]
) -> None:
    qwen.questions = QuestionGraphs()
    caches = read(qwen, Settings.of(smaller=8), *[picture(90, 120, seed=n) for n in range(4)])
    work = [(cache, words(20 + n, n)) for n, cache in enumerate(caches)]
    with eager():
        wanted = [asked(qwen, [cache], ids)[0] for cache, ids in work]
    calls = [partial(lambda c, i: asked(qwen, [c], i)[0], cache, ids) for cache, ids in work]
    for found, one in zip(fixtures.at_once(calls), wanted, strict=True):
        torch.testing.assert_close(found, one, atol=1e-4, rtol=1e-4)


def test_a_capture_that_fails_leaves_the_question_to_the_host(
    picture: fixtures.Picture, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    vlm, begun = tiny_qwen(), []
    monkeypatch.setattr(step_graph, "capturable", lambda _: True)

    class Failing(RecordedMemory):
        def begin(self) -> RecordedGraph:
            begun.append(super().begin())
            if len(begun) == 2:
                begun[-1].capture_end()
                raise RuntimeError("operation not permitted when stream is capturing")
            return begun[-1]

    monkeypatch.setattr(question_graph, "GraphMemory", Failing)
    (cache,) = read(vlm, Settings.of(smaller=8), picture(90, 120, seed=1))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            check_same(vlm, [cache], words(20, 1))
    assert len(begun) == 2 and not any(graph.replays for graph in begun)
    assert len([one for one in caplog.records if "kernel by kernel" in one.message]) == 1


def test_what_reads_the_length_of_a_cache_is_not_captured(
    picture: fixtures.Picture, recorded: list[RecordedGraph]
) -> None:
    """As models do that scale their queries by the position in the cache."""
    vlm = tiny_qwen()
    (cache,) = read(vlm, Settings.of(smaller=8), picture(90, 120, seed=1))
    norm, inner = vlm.model.get_decoder().layers[1].input_layernorm, pieces._Layer
    lengths: list[int] = []
    told = inner.get_mask_sizes

    def spy(layer: Any, length: int) -> tuple[int, int]:
        lengths.append(layer.logical)
        return told(layer, length)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inner, "get_mask_sizes", spy)
        plain = type(norm).forward
        scaled = lambda one, x: plain(one, x) * (1 + (lengths or [0])[-1])  # noqa: E731
        patch.setattr(type(norm), "forward", scaled)
        recorded.clear()
        position = cache.notes.next_position
        feed(vlm, words(20, 1), position, cache.fork())
    assert lengths and not recorded


def test_moved_weights_are_captured_again(
    picture: fixtures.Picture, recorded: list[RecordedGraph]
) -> None:
    vlm = tiny_qwen()
    (cache,) = read(vlm, Settings.of(smaller=8), picture(90, 120, seed=1))
    check_same(vlm, [cache], words(20, 1))
    once = len(recorded)
    projection = vlm.model.get_decoder().layers[0].mlp.down_proj
    projection.weight.data = projection.weight.data * 2
    check_same(vlm, [cache], words(20, 2))
    projection.weight = torch.nn.Parameter(projection.weight.data * 3)
    check_same(vlm, [cache], words(20, 3))
    assert once and len(recorded) == 3 * once


def test_what_is_watched_or_stopped_is_as_ever(
    qwen: VisionLanguageModel, picture: fixtures.Picture, recorded: list[RecordedGraph]
) -> None:
    (cache,) = read(qwen, Settings.of(smaller=8), picture(90, 120, seed=1))
    ids, number = words(20, 1), len(recorded)
    qwen.questions = QuestionGraphs()
    with watched(AnswerAttentionRecorder.of(cache.plan.layers)):
        asked(qwen, [cache], ids)
    long = words(question_graph.LONGEST + 1, 1)
    asked(qwen, [cache], long)
    with torch.autocast("cpu", torch.bfloat16):
        asked(qwen, [cache], ids)
    hook = qwen.model.register_forward_hook(lambda *_: None)
    asked(qwen, [cache], ids)
    hook.remove()
    assert len(recorded) == number
    check_same(qwen, [cache], ids)

    class Flag:
        def is_set(self) -> bool:
            return True

    with stoppable(Flag()), pytest.raises(Stopped):  # type: ignore[arg-type]
        asked(qwen, [cache], ids)
    check_same(qwen, [cache], ids)
