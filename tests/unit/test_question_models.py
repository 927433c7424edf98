"""What is done to a model or a cache between two questions is seen, whatever was captured."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from accelerate.hooks import ModelHook, add_hook_to_module, remove_hook_from_module
from torch import nn

from rotatek.bridge.cache_argument import with_cache
from rotatek.bridge.state_layers import key_layers
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.conversation import Conversation
from rotatek.engine.decode import feed
from rotatek.engine.engine import Engine
from rotatek.engine.events import Failed
from rotatek.inputs.request import make_request
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel
from tests import fixtures
from tests.questions import asked, check_same, eager, read, words
from tests.recorded import RecordedGraph
from tests.tiny import tiny_qwen


@pytest.fixture
def vlm(recorded: list[RecordedGraph]) -> VisionLanguageModel:
    """A model whose questions are replayed."""
    return tiny_qwen()


@pytest.fixture
def cache(vlm: VisionLanguageModel, picture: fixtures.Picture) -> RotateKCache:
    """Of a picture, with a first question behind it that was captured."""
    found = read(vlm, Settings.of(smaller=8), picture(90, 120, seed=1))[0]
    check_same(vlm, [found], words(20, 1))
    return found


def replays(recorded: list[RecordedGraph]) -> int:
    """How often any graph was replayed."""
    return sum(graph.replays for graph in recorded)


def test_hooks_inside_a_model_see_every_question(
    vlm: VisionLanguageModel, cache: RotateKCache, recorded: list[RecordedGraph]
) -> None:
    model, seen = vlm.model, list[int]()
    decoder = model.get_decoder()
    once, ids = len(recorded), words(20, 2)
    with eager():
        before = asked(vlm, [cache], ids)[0]

    def doubled(module: nn.Module, args: Any, out: torch.Tensor) -> torch.Tensor:
        seen.append(out.shape[1])
        return 2 * out

    def counted(module: nn.Module, args: Any) -> None:
        seen.append(0)

    inner = decoder.layers[1].mlp
    with inner.register_forward_hook(doubled):
        found = asked(vlm, [cache], ids)[0]
        assert seen == [20] and not torch.allclose(found, before)
        check_same(vlm, [cache], ids)
    for module in (model, model.model, decoder, decoder.layers[0], model.lm_head):
        seen.clear()
        with module.register_forward_pre_hook(counted):
            asked(vlm, [cache], ids)
        assert seen == [0]
    assert len(recorded) == once
    check_same(vlm, [cache], ids)
    assert len(recorded) == 2 * once


def test_replaced_code_is_launched(
    vlm: VisionLanguageModel, cache: RotateKCache, recorded: list[RecordedGraph]
) -> None:
    norm = vlm.model.get_decoder().layers[1].input_layernorm
    plain, calls, once = norm.forward, list[int](), len(recorded)

    def doubled(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        twice: torch.Tensor = 2 * plain(x)
        return twice

    norm.forward = doubled
    check_same(vlm, [cache], words(20, 2))
    assert len(calls) >= 2 and len(recorded) == once
    del norm.forward
    check_same(vlm, [cache], words(20, 2))
    assert len(recorded) == 2 * once


def test_what_accelerate_moves_is_launched(
    vlm: VisionLanguageModel, cache: RotateKCache, recorded: list[RecordedGraph]
) -> None:
    once, layer = len(recorded), vlm.model.get_decoder().layers[1]
    add_hook_to_module(layer, ModelHook())
    done = replays(recorded)
    check_same(vlm, [cache], words(20, 2))
    assert len(recorded) == once and replays(recorded) == done
    remove_hook_from_module(layer)


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


def test_weights_of_another_type(
    vlm: VisionLanguageModel, picture: fixtures.Picture, recorded: list[RecordedGraph]
) -> None:
    for count, dtype in enumerate((torch.float32, torch.float64), 1):
        vlm.model.to(dtype)
        (cache,) = read(vlm, Settings.of(smaller=8), picture(90, 120, seed=1))
        check_same(vlm, [cache], words(20, 1))
        assert len(recorded) == count * (1 + len(key_layers(cache)))


def test_a_model_in_training_is_launched(
    vlm: VisionLanguageModel, cache: RotateKCache, recorded: list[RecordedGraph]
) -> None:
    done = replays(recorded)
    vlm.model.train()
    asked(vlm, [cache], words(20, 2))
    assert replays(recorded) == done


def test_steps_without_inference_mode_go_on_behind_a_replayed_question(
    vlm: VisionLanguageModel, cache: RotateKCache
) -> None:
    ids = words(20, 2)
    with eager():
        _, (plain,) = asked(vlm, [cache], ids)
    with torch.no_grad():
        _, (copy,) = asked(vlm, [cache], ids)
        said = []
        for one in (plain, copy):
            position = vlm.positions_at(one.notes.next_position + 20)
            token = torch.tensor([[70]])
            out = vlm.model(token, position_ids=position, **with_cache(vlm.model, one))
            said.append(out.logits)
    torch.testing.assert_close(*said, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("count", [1, 2])
def test_layers_without_a_visual_token(
    vlm: VisionLanguageModel, picture: fixtures.Picture, recorded: list[RecordedGraph], count: int
) -> None:
    caches = read(vlm, Settings.of(smaller=8), *[picture(90, 120, seed=n) for n in range(count)])
    for cache in caches:
        key_layers(cache)[1].store = None
    check_same(vlm, caches, words(20, 1))
    assert replays(recorded)


def test_several_questions_to_one_cache(
    vlm: VisionLanguageModel, cache: RotateKCache, recorded: list[RecordedGraph]
) -> None:
    """Between them it decodes; its text outgrows what was reserved for the first one."""
    said = []
    for how in (eager, None):
        own, position, found = cache.fork(20), cache.notes.next_position, []
        for turn, length in enumerate((20, 1, 1, 1, 40, 1, 120, 9)):
            if how is None or length == 1:
                logits, _ = feed(vlm, words(length, turn), position, own)
            else:
                with how():
                    logits, _ = feed(vlm, words(length, turn), position, own)
            found.append(logits)
            position = position + length
            if length == 1:
                own.make_growing()
        said.append(found)
    for one, other in zip(*said, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)
    assert replays(recorded)


def test_follow_ups_of_a_conversation(
    picture: fixtures.Picture, recorded: list[RecordedGraph]
) -> None:
    columns = {"baseline": BASELINE, "rotated": Settings.of(smaller=4)}
    request = make_request(picture(150, 120, seed=4), "first?", 6)
    said: list[list[dict[str, list[int]]]] = []
    modes: list[Callable[[], Any] | None] = [eager, None]
    for mode in modes:
        engine, conversation = Engine(tiny_qwen()), Conversation()
        events = list(engine.compare(request, columns, trace=False, conversation=conversation))
        turns = [fixtures.tokens_of(events)]
        recorded.clear()
        for question in ("and then?", "what else is there?"):
            if mode is None:
                events = list(engine.follow(conversation, question, 6))
            else:
                with mode():
                    events = list(engine.follow(conversation, question, 6))
            assert not any(isinstance(one, Failed) for one in events)
            turns.append(fixtures.tokens_of(events))
        said.append(turns)
        conversation.close()
    assert said[0] == said[1] and replays(recorded)
