"""Questions to stored pictures by replayed pieces say what they say without; on the CPU, recorded
ones."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from accelerate.hooks import ModelHook, add_hook_to_module
from torch import Tensor

from rotatek.bridge.attention import stoppable, watched
from rotatek.bridge.state_layers import key_layers
from rotatek.cache import pieces, prefill_layer, question_graph
from rotatek.cache.bytes import storage_bytes
from rotatek.cache.question_graph import KEPT, QuestionGraphs, padded
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import feed
from rotatek.errors import Stopped
from rotatek.inspect.answer_attention import AnswerAttentionRecorder
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
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
LENGTHS = (2, 16, 17, 61)


@pytest.fixture
def vlm(recorded: list[RecordedGraph]) -> VisionLanguageModel:
    """A model whose questions are replayed."""
    return tiny_qwen()


@pytest.mark.parametrize("form", FORMS)
def test_replayed_questions_say_the_same(
    vlm: VisionLanguageModel, picture: fixtures.Picture, recorded: list[RecordedGraph], form: str
) -> None:
    """Several lengths, over pictures of several sizes: one chain for each padded length."""
    sizes = [(150, 120), (90, 200)]
    images = [picture(*size, seed=seed) for seed, size in enumerate(sizes)]
    caches = read(vlm, Settings.of(**FORMS[form]), *images)
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


def test_what_reads_the_length_of_a_cache_is_not_captured(
    vlm: VisionLanguageModel, picture: fixtures.Picture, recorded: list[RecordedGraph]
) -> None:
    """As models do that scale their queries by the position in the cache."""
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


@pytest.fixture
def cache(vlm: VisionLanguageModel, picture: fixtures.Picture) -> RotateKCache:
    """Of a picture, with a first question behind it that was captured."""
    found = read(vlm, Settings.of(smaller=8), picture(90, 120, seed=1))[0]
    check_same(vlm, [found], words(20, 1))
    return found


def replays(recorded: list[RecordedGraph]) -> int:
    """How often any graph was replayed."""
    return sum(graph.replays for graph in recorded)


def test_what_is_done_to_modules_is_seen(
    vlm: VisionLanguageModel, cache: RotateKCache, recorded: list[RecordedGraph]
) -> None:
    """Replaced code and what accelerate moves is launched; moved weights are captured again."""
    layer, once, done = vlm.model.get_decoder().layers[1], len(recorded), replays(recorded)
    norm, projection = layer.input_layernorm, layer.mlp.down_proj
    plain = norm.forward
    norm.forward = lambda x: 2 * plain(x)
    check_same(vlm, [cache], words(20, 2))
    assert len(recorded) == once and replays(recorded) == done
    del norm.forward
    check_same(vlm, [cache], words(20, 2))
    projection.weight.data = projection.weight.data * 2
    check_same(vlm, [cache], words(20, 2))
    projection.weight = torch.nn.Parameter(projection.weight.data * 3)
    check_same(vlm, [cache], words(20, 2))
    assert len(recorded) == 4 * once
    done = replays(recorded)
    add_hook_to_module(layer, ModelHook())
    check_same(vlm, [cache], words(20, 2))
    vlm.model.train()
    asked(vlm, [cache], words(20, 2))
    assert len(recorded) == 4 * once and replays(recorded) == done


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_adapters_that_are_attached_later_can_be_switched(
    vlm: VisionLanguageModel, cache: RotateKCache, recorded: list[RecordedGraph]
) -> None:
    peft = pytest.importorskip("peft")
    ids, once = words(20, 2), len(recorded)
    bare = asked(vlm, [cache], ids)[0]
    parts = r".*language_model.*\.(q_proj|down_proj)"
    config = peft.LoraConfig(r=4, target_modules=parts, init_lora_weights=False)
    wrapped = peft.get_peft_model(vlm.model, config).eval()
    adapted = asked(vlm, [cache], ids)[0]
    assert not torch.allclose(adapted, bare, atol=1e-3)
    check_same(vlm, [cache], ids)
    with wrapped.disable_adapter():
        torch.testing.assert_close(asked(vlm, [cache], ids)[0], bare, atol=1e-4, rtol=1e-4)
    check_same(vlm, [cache], ids)
    assert len(recorded) == once
    wrapped.merge_and_unload()
    check_same(vlm, [cache], ids)
    assert len(recorded) == 2 * once


def fails_at(monkeypatch: pytest.MonkeyPatch, numbers: Sequence[int], error: Exception) -> None:
    """Let some of the attention calls from here on fail, after the text has grown."""
    plain: Any = vars(prefill_layer)["attend"]
    made = list[int]()

    def attend(*given: Any) -> Tensor:
        made.append(len(made))
        if made[-1] in numbers:
            raise error
        return plain(*given)

    monkeypatch.setattr(prefill_layer, "attend", attend)


def test_what_chains_hold_is_counted(vlm: VisionLanguageModel, picture: fixtures.Picture) -> None:
    (cache,) = read(vlm, Settings.of(smaller=8), picture(90, 120, seed=1))
    graphs, seen = vlm.questions, [0]
    assert graphs.bytes == 0
    for length in (20, 30, 60):
        asked(vlm, [cache], words(length, 1))
        seen.append(graphs.bytes)
    assert seen[0] < seen[1] == seen[2] < seen[3]  # 20 and 30 tokens have one chain
    memory = graphs._memory
    assert isinstance(memory, RecordedMemory) and len(memory.graphs) == 2 * (
        1 + len(key_layers(cache))
    )
    own = [chain.bytes for chain in graphs._chains.values()]
    assert graphs.bytes == memory.bytes + sum(own)
    chain = next(iter(graphs._chains.values()))
    slots = [tensor for one in chain._slots.values() for tensor in vars(one).values()]
    assert own[0] == storage_bytes([chain.ids, chain.positions, chain.last, *slots])
    graphs.forget()
    assert graphs.bytes == 0 and not graphs._chains
    asked(vlm, [cache], words(20, 1))
    assert graphs.bytes == seen[1]
    assert graphs._memory is not memory  # a pool is not taken up again


def test_few_chains_are_kept(vlm: VisionLanguageModel, picture: fixtures.Picture) -> None:
    """One for each padded length of a picture's questions; the least recently used one goes."""
    (cache,) = read(vlm, Settings.of(smaller=8), picture(90, 120, seed=1))
    for length in range(16, question_graph.LONGEST + 1, 16):
        asked(vlm, [cache], words(length, 1))
    graphs = vlm.questions
    memory, kinds = graphs._memory, list(graphs._chains)
    assert len(kinds) == KEPT == 8
    asked(vlm, [cache], words(10, 1))  # used again
    asked(vlm, [cache, cache], words(16, 1))
    assert len(graphs._chains) == KEPT and graphs._memory is memory
    assert kinds[0] in graphs._chains and kinds[1] not in graphs._chains
    chain = graphs._chains[kinds[2]]
    asked(vlm, [cache], words(40, 1))
    assert graphs._chains[kinds[2]] is chain


def test_no_chain_where_it_does_not_fit(
    vlm: VisionLanguageModel, picture: fixtures.Picture, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """A capture that lacks memory frees the other chains, and is not tried again."""
    (cache,) = read(vlm, Settings.of(smaller=8), picture(90, 120, seed=1))
    asked(vlm, [cache], words(20, 1))
    graphs, inner, tried = vlm.questions, pieces.Chain.__init__, list[tuple[int, int]]()

    def short(chain: Any, model: Any, shape: tuple[int, int], *given: Any) -> None:
        tried.append(shape)
        if shape[1] > 32:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        inner(chain, model, shape, *given)

    monkeypatch.setattr(pieces.Chain, "__init__", short)
    with caplog.at_level(logging.WARNING):
        for length in (40, 45, 60, 40):
            check_same(vlm, [cache], words(length, 1))
            assert not graphs._chains and graphs.bytes == 0
    assert tried == [(1, 48), (1, 64)]
    assert len([one for one in caplog.records if "kernel by kernel" in one.message]) == 1
    check_same(vlm, [cache], words(20, 1))  # the one that fits comes back
    assert tried[-1] == (1, 32) and len(graphs._chains) == 1
    for _ in range(KEPT + 1):  # however many others come and go
        asked(vlm, [cache], words(33, 1))
    assert tried == [(1, 48), (1, 64), (1, 32)]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("form", [{"smaller": 8}])
@pytest.mark.parametrize("count", [1, 2])
def test_a_question_that_lacks_memory_is_read_once_more(
    vlm: VisionLanguageModel, picture: fixtures.Picture, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, number: int, form: dict[str, Any], count: int,
) -> None:  # fmt: skip
    """By kernel, on the caches as they were; the chains are freed first, and made again later."""
    images = [picture(90 + 30 * seed, 120, seed=seed) for seed in range(count)]
    caches = read(vlm, Settings.of(**form), *images)
    ids = words(20, 1)
    with eager():
        wanted, plain = asked(vlm, caches, ids)
    asked(vlm, caches, ids)
    assert vlm.questions.bytes
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        fails_at(patch, [count * number + count - 1], error)  # the last cache's, in that layer
        found, copies = asked(vlm, caches, ids)
        assert vlm.questions.bytes == 0 and not vlm.questions._chains
        asked(vlm, caches, ids)
        assert vlm.questions.bytes
        fails_at(patch, [0], error)
        asked(vlm, caches, ids)
    assert len([one for one in caplog.records if "kernel by kernel" in one.message]) == 1
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    for mine, other in zip(copies, plain, strict=True):
        assert mine.get_seq_length() == other.get_seq_length()
        for layer, own in zip(key_layers(mine), key_layers(other), strict=True):
            assert (layer.logical, layer.text.longest) == (own.logical, own.text.longest)
            for held, one in zip(layer.text.opened(), own.text.opened(), strict=True):
                torch.testing.assert_close(held, one, atol=1e-3, rtol=1e-3)
    check_same(vlm, caches, ids)


def test_other_failures_are_raised_and_leave_the_cache_as_it_was(
    vlm: VisionLanguageModel, picture: fixtures.Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache,) = read(vlm, Settings.of(smaller=8), picture(90, 120, seed=1))
    ids = words(20, 1)
    asked(vlm, [cache], ids)
    copy = cache.fork(20)
    position = cache.notes.next_position + torch.arange(20)
    positions = vlm.positions_at(position).transpose(-1, -2).reshape(3, 1, 20)
    with monkeypatch.context() as patch:
        fails_at(patch, [1], RuntimeError("a fault"))
        with pytest.raises(RuntimeError, match="a fault"):
            vlm.questions.ask(vlm.model, ids, positions, copy)
    found = vlm.questions.ask(vlm.model, ids, positions, copy)
    torch.testing.assert_close(found, asked(vlm, [cache], ids)[0], atol=1e-4, rtol=1e-4)
