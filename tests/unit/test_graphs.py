"""`generate` with replayed steps says what it says without them; on the CPU, recorded steps."""

import gc
import inspect
import weakref
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from rotatek.bridge.cache_argument import with_cache
from rotatek.bridge.state_layers import key_layers
from rotatek.cache import step_graph
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from tests.families import EVERY
from tests.fixtures import Picture, inputs_of
from tests.tiny import tiny_qwen

pytestmark = pytest.mark.usefixtures("recorded")
NEW = 12


@pytest.fixture(scope="module", params=["llava_next", "qwen3_5"])
def vlm(request: pytest.FixtureRequest) -> VisionLanguageModel:
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
    vlm: VisionLanguageModel, picture: Picture, recorded: list, way: str, questions: tuple
) -> None:
    inputs = given(vlm, picture, *questions)
    wanted, plain = said(vlm, inputs, False, **WAYS[way])
    assert not recorded
    found, cache = said(vlm, inputs, True, **WAYS[way])
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
