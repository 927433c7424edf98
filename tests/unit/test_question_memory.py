"""The memory of questions' graphs: counted, bounded, and freed where it runs out."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from rotatek.bridge.state_layers import key_layers
from rotatek.cache import pieces, prefill_layer, question_graph
from rotatek.cache.bytes import storage_bytes
from rotatek.cache.question_graph import KEPT
from rotatek.engine import recovery
from rotatek.engine.engine import Engine
from rotatek.engine.events import Finished, Restarted
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from tests import fixtures
from tests.questions import asked, check_same, eager, read, words
from tests.recorded import RecordedGraph, RecordedMemory
from tests.tiny import tiny_qwen


@pytest.fixture
def vlm(recorded: list[RecordedGraph]) -> VisionLanguageModel:
    """A model whose questions are replayed."""
    return tiny_qwen()


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


def test_a_replay_that_lacks_memory(
    vlm: VisionLanguageModel, picture: fixtures.Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's own words for it, in the middle of a chain."""
    (cache,) = read(vlm, Settings.of(smaller=8), picture(90, 120, seed=1))
    asked(vlm, [cache], words(20, 1))
    chain = next(iter(vlm.questions._chains.values()))

    def short() -> None:
        raise torch.AcceleratorError("CUDA error: out of memory")

    monkeypatch.setattr(chain.graphs[1], "replay", short)
    check_same(vlm, [cache], words(20, 2))
    assert not any(one is chain for one in vlm.questions._chains.values())


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


def test_a_request_that_lacks_memory_frees_them(
    vlm: VisionLanguageModel, picture: fixtures.Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is tried again under tighter limits."""
    image = picture(150, 120, seed=1)
    (cache,) = read(vlm, Settings.of(smaller=8), image)
    asked(vlm, [cache], words(20, 1))
    engine, freed, plain = Engine(vlm), list[int](), Engine._columns
    monkeypatch.setattr(recovery, "free", lambda _: freed.append(vlm.questions.bytes))

    def full_at_first(*given: Any) -> Any:
        if not freed:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(*given)

    monkeypatch.setattr(Engine, "_columns", full_at_first)
    events = list(engine.answer(make_request(image, "?", 2), Settings.of(smaller=8)))
    assert any(isinstance(one, Restarted) for one in events)
    assert isinstance(events[-1], Finished) and freed == [0]
