"""Replayed steps and questions say what they say without graphs; on the CPU, recorded ones."""

import gc
import inspect
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
import torch
from accelerate.hooks import ModelHook, add_hook_to_module
from PIL import Image
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook

from rotatek import RotateKCache, Settings, make_request
from rotatek.bridge.layers import key_layers
from rotatek.bridge.scope import own_calls, with_cache
from rotatek.cache import prefill_layer, question_graph, step_graph
from rotatek.cache.question_graph import QuestionGraphs, padded
from rotatek.engine.passes import feed
from rotatek.errors import Stopped
from rotatek.inspect.answer_attention import AnswerAttentionRecorder
from rotatek.models import VisionLanguageModel
from rotatek.pictures.asking import SideBySide
from rotatek.pictures.reading import PictureReader
from tests import fixtures
from tests.families import EVERY
from tests.fixtures import Picture, inputs_of
from tests.recorded import RecordedGraph
from tests.tiny import tiny_qwen

pytestmark = pytest.mark.usefixtures("recorded")
NEW = 12


@pytest.fixture(scope="module", params=["llava_next", "qwen3_5"])
def either(request: pytest.FixtureRequest) -> VisionLanguageModel:
    return EVERY[request.param]()


def given(vlm: VisionLanguageModel, picture: Picture, *questions: str) -> dict[str, Any]:
    """A processor's output for `generate`, padded on the left."""
    prompts = [vlm.prompt(make_request(picture(120, 90), text, NEW)) for text in questions]
    return inputs_of(vlm, *prompts)


def said(
    vlm: VisionLanguageModel, inputs: dict[str, Any], graph: bool, **options: Any
) -> tuple[Any, RotateKCache]:
    rows = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    rows = {k: v.repeat_interleave(options.get("num_beams", 1), 0) for k, v in rows.items()}
    cache = RotateKCache(vlm.model, rows, Settings.of(tokens="fastv", keep_tokens=0.5))
    cache.graph = graph
    torch.manual_seed(3)
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False} | options
    return vlm.model.generate(**inputs, **options, **with_cache(vlm.model, cache)), cache


WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampling": {"do_sample": True, "temperature": 0.9, "top_p": 0.95},
    "repetition": {"repetition_penalty": 1.2, "no_repeat_ngram_size": 2},
    "beams": {"num_beams": 2},
    "returned": {"return_dict_in_generate": True, "output_logits": True},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("questions", [("what is it?",), ("what is it?", "and the total, too?")])
def test_replayed_steps_say_the_same(
    either: VisionLanguageModel, picture: Picture, recorded: list, way: str, questions: tuple
) -> None:
    inputs = given(either, picture, *questions)
    wanted, plain = said(either, inputs, False, **WAYS[way])
    assert not recorded
    found, cache = said(either, inputs, True, **WAYS[way])
    if way == "returned":
        pairs = zip(wanted.logits, found.logits, strict=True)
        assert all(torch.allclose(a, b, atol=1e-4) for a, b in pairs)
        wanted, found = wanted.sequences, found.sequences
    assert torch.equal(found, wanted)
    assert cache.get_seq_length() == plain.get_seq_length()
    assert [la.logical for la in key_layers(cache)] == [la.logical for la in key_layers(plain)]
    if way != "beams":
        assert len(recorded) == 1
        assert recorded[0].replays == NEW - 2  # the prompt gives one token, a first step another


def test_what_cannot_be_captured_is_launched_as_ever(
    qwen: VisionLanguageModel, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = given(qwen, picture, "what is it?")
    wanted, _ = said(qwen, inputs, False)

    def refuse(device: torch.device, work: Any) -> None:
        work()
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(step_graph, "capture", refuse)
    found, cache = said(qwen, inputs, True)
    assert torch.equal(found, wanted) and not cache.graph


def test_nothing_keeps_a_model_alive_and_copies_run_by_their_caches(
    picture: Picture, recorded: list
) -> None:
    vlm = tiny_qwen()
    copied = deepcopy(vlm.model)
    assert "input_ids" in inspect.signature(copied.forward).parameters
    gc.collect()
    gc.disable()
    try:
        seen, inputs = weakref.ref(vlm.model), given(vlm, picture, "what is it?")
        wanted = said(vlm, inputs, False)[0]
        vlm.model = copied
        assert seen() is None
    finally:
        gc.enable()
    assert torch.equal(said(vlm, inputs, True)[0], wanted) and len(recorded) == 1


def test_hooks_inside_a_model_see_every_step(
    qwen: VisionLanguageModel, picture: Picture, recorded: list
) -> None:
    """On one module or on all of the process."""
    inputs, seen = given(qwen, picture, "what is it?"), list[str]()
    inner = qwen.model.get_decoder().layers[1].mlp
    wanted, _ = said(qwen, inputs, True)
    once = len(recorded)
    with inner.register_forward_hook(lambda *_: seen.append("inner")):
        assert torch.equal(said(qwen, inputs, True)[0], wanted)
    with register_module_forward_pre_hook(
        lambda one, _: seen.append("all") if one is inner else None
    ):
        assert torch.equal(said(qwen, inputs, True)[0], wanted)
    plain = inner.forward

    def other(x: torch.Tensor) -> Any:
        seen.append("code")
        return plain(x)

    inner.forward = other
    assert torch.equal(said(qwen, inputs, True)[0], wanted)
    del inner.forward
    assert seen == ["inner"] * NEW + ["all"] * NEW + ["code"] * NEW and len(recorded) == once
    assert torch.equal(said(qwen, inputs, True)[0], wanted) and len(recorded) == once + 1


# -- questions to stored pictures by replayed pieces -------------------------------------------

FORMS: dict[str, dict[str, Any]] = {
    "channels": {"keep_channels": 0.25},
    "bits": {"smaller": 8},
    "fewer by head": {"tokens": "fastv", "keep_tokens": 0.4},
}
LENGTHS = (2, 16, 17, 61)


def read(vlm: VisionLanguageModel, settings: Settings, *images: Image.Image) -> list[RotateKCache]:
    reader, found = PictureReader(vlm, settings), []
    for image in images:
        shown = make_request(image, "?").images
        found.append(reader.read(shown, reader.look(shown)))
    return found


def words(count: int, seed: int) -> Tensor:
    return torch.randint(65, 90, (1, count), generator=torch.Generator().manual_seed(seed))


def asked(
    vlm: VisionLanguageModel, caches: list[RotateKCache], ids: Tensor
) -> tuple[Tensor, list[RotateKCache]]:
    """Logits behind a question, and the copies that have read it."""
    copies = [cache.fork() for cache in caches]
    position = torch.cat([cache.notes.next_position for cache in caches])
    behind = copies[0] if len(copies) == 1 else SideBySide(copies)
    return feed(vlm, ids.expand(len(copies), -1), position, behind)[0], copies


@contextmanager
def eager() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QuestionGraphs, "ask", lambda *_: None)
        yield


def check_same(vlm: VisionLanguageModel, caches: list[RotateKCache], ids: Tensor) -> None:
    """Replayed and launched: the logits, the caches, and a next token to each."""
    with eager():
        wanted, plain = asked(vlm, caches, ids)
    found, copies = asked(vlm, caches, ids)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    for mine, other in zip(copies, plain, strict=True):
        assert mine.get_seq_length() == other.get_seq_length()
        assert mine.bytes().total == other.bytes().total
        for layer, own in zip(key_layers(mine), key_layers(other), strict=True):
            assert (layer.logical, layer.text.longest) == (own.logical, own.text.longest)
            assert torch.equal(layer.text.lengths, own.text.lengths)
            for held, one in zip(layer.text.opened()[:2], own.text.opened()[:2], strict=True):
                torch.testing.assert_close(held, one, atol=1e-3, rtol=1e-3)
        token = torch.tensor([[70]])
        behind = mine.notes.next_position + ids.shape[1]
        after = [feed(vlm, token, behind, cache)[0] for cache in (mine, other)]
        torch.testing.assert_close(*after, atol=1e-3, rtol=1e-3)


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


def test_what_is_watched_or_stopped_is_as_ever(
    qwen: VisionLanguageModel, picture: fixtures.Picture, recorded: list[RecordedGraph]
) -> None:
    (cache,) = read(qwen, Settings.of(smaller=8), picture(90, 120, seed=1))
    ids, number = words(20, 1), len(recorded)
    qwen.questions = QuestionGraphs()
    with own_calls(queries=AnswerAttentionRecorder.of(cache.plan.layers)):
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

    with own_calls(stop=Flag()), pytest.raises(Stopped):
        asked(qwen, [cache], ids)


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


@pytest.mark.parametrize(("number", "count"), [(0, 1), (1, 2)])
def test_a_question_that_lacks_memory_is_read_once_more(
    vlm: VisionLanguageModel, picture: fixtures.Picture, monkeypatch: pytest.MonkeyPatch,
    number: int, count: int,
) -> None:  # fmt: skip
    """By kernel, on the caches as they were; the chains are freed first, and made again later."""
    images = [picture(90 + 30 * seed, 120, seed=seed) for seed in range(count)]
    caches = read(vlm, Settings.of(smaller=8), *images)
    ids = words(20, 1)
    with eager():
        wanted, plain = asked(vlm, caches, ids)
    asked(vlm, caches, ids)
    assert vlm.questions.bytes
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    with monkeypatch.context() as patch:
        fails_at(patch, [count * number + count - 1], error)  # the last cache's, in that layer
        found, copies = asked(vlm, caches, ids)
        assert vlm.questions.bytes == 0
        asked(vlm, caches, ids)
        assert vlm.questions.bytes
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    for mine, other in zip(copies, plain, strict=True):
        assert mine.get_seq_length() == other.get_seq_length()
        for layer, own in zip(key_layers(mine), key_layers(other), strict=True):
            for held, one in zip(layer.text.opened(), own.text.opened(), strict=True):
                torch.testing.assert_close(held, one, atol=1e-3, rtol=1e-3)
    check_same(vlm, caches, ids)
