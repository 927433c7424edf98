"""Calls and arguments that a compressed cache cannot serve as asked: one sentence each, in words of
their own; and unusual ones that it can."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.errors import CacheNotStorable, ModelUnsupported, ModeUnsupported, SettingError
from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import Settings
from rotatek.methods.tokens import TOKENS
from tests.fixtures import Picture
from tests.tiny import tiny_llava, tiny_qwen
from tests.unit.test_left_alone import GREEDY, Inputs, asked, untouched, used

Work = Callable[[PreTrainedModel, Inputs, RotateKCache], object]


def _roll(inputs: Inputs) -> Inputs:
    """Another prompt of the same length, with its picture a token later."""
    return inputs | {"input_ids": inputs["input_ids"].roll(1, 1)}


def _break_off(model: PreTrainedModel, inputs: Inputs, cache: RotateKCache) -> None:
    def fail(*_: Any) -> None:
        raise InterruptedError

    hook = model.get_decoder().layers[2].register_forward_pre_hook(fail)
    with pytest.raises(InterruptedError):
        model(**inputs, **with_cache(model, cache))
    hook.remove()
    model(**inputs, **with_cache(model, cache))


def _train(model: PreTrainedModel, inputs: Inputs, cache: RotateKCache) -> None:
    model.gradient_checkpointing_enable()
    model.train()(**inputs, **with_cache(model, cache))


def _show_another(model: PreTrainedModel, inputs: Inputs, cache: RotateKCache) -> None:
    ids = model.generate(**inputs, **with_cache(model, cache), **GREEDY)
    ids = torch.cat([ids, inputs["input_ids"]], 1)
    both = inputs | {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    model.generate(**both, **with_cache(model, cache), **GREEDY)


REFUSED: dict[str, tuple[str, Work]] = {
    "maps": (
        "no attention maps",
        lambda m, i, c: m(**i, **with_cache(m, c), output_attentions=True),
    ),
    "loss": ("A loss needs", lambda m, i, c: m(**i, **with_cache(m, c), labels=i["input_ids"])),
    "model": (
        "made for another model",
        lambda m, i, c: untouched(tiny_llava(1)).generate(**i, **with_cache(m, c), **GREEDY),
    ),
    "prompt": (
        "the one the cache was made for",
        lambda m, i, c: m.generate(**_roll(i), **with_cache(m, c), **GREEDY),
    ),
    "pieces": (
        "in one piece",
        lambda m, i, c: m.generate(**i, **with_cache(m, c), **GREEDY, prefill_chunk_size=16),
    ),
    "another picture": ("takes no further pictures", _show_another),
    "broken off": ("broke off", _break_off),
    "training": ("turn gradient checkpointing off", _train),
    "crop": ("cannot be cropped", lambda m, i, c: c.crop(3)),
    "pickle": ("is not pickled", lambda m, i, c: pickle.dumps(c)),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_what_a_cache_cannot_serve_is_said(name: str, picture: Picture) -> None:
    sentence, work = REFUSED[name]
    vlm = tiny_llava()
    inputs, model = asked(vlm, picture), untouched(vlm)
    cache = RotateKCache(model, inputs, Settings.of(tokens="fastv", keep_tokens=0.5))
    with pytest.raises((ModeUnsupported, ModelUnsupported, CacheNotStorable), match=sentence):
        work(model, inputs, cache)
    plain = untouched(vlm).generate(**inputs, **GREEDY)
    model = untouched(vlm) if name == "training" else model
    assert torch.equal(model.generate(**inputs, **GREEDY), plain)


def test_a_copy_of_a_model_on_several_gpus_is_said(picture: Picture) -> None:
    vlm = tiny_qwen()
    inputs, model = asked(vlm, picture), untouched(vlm)
    cache = RotateKCache(model, inputs, Settings())
    with pytest.raises(ModeUnsupported, match="DataParallel"):
        model._replicate_for_data_parallel()(**inputs, **with_cache(model, cache))
    one = torch.nn.DataParallel(model)  # where there is one device, or none
    assert one(**inputs, **with_cache(model, cache)).logits.shape[0] == 1


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("inputs", lambda ids: {}),
        ("inputs", lambda ids: ids),
        ("inputs", lambda ids: {"input_ids": ids[0]}),
        ("inputs", lambda ids: {"input_ids": ids.numpy()}),
        ("inputs", lambda ids: {"input_ids": ids.tolist()}),
        ("settings", {"keep_channels": 0.25}),
        ("settings", "rotatek"),
        ("settings", Settings().channels),
    ],
)
def test_arguments_of_another_form_are_named(name: str, given: Any, picture: Picture) -> None:
    vlm = tiny_llava()
    inputs: Any = asked(vlm, picture)
    settings = given if name == "settings" else None
    inputs = inputs if name == "settings" else given(inputs["input_ids"])
    with pytest.raises(SettingError) as refused:
        RotateKCache(vlm.model, inputs, settings)
    assert refused.value.name == name
    with pytest.raises(ModelUnsupported, match="NoneType is no model"):
        RotateKCache(None, inputs)


FORMS: list[dict[str, Any]] = [
    *({"channels": name} for name in CHANNELS),
    *({"tokens": name, "keep_tokens": 0.5} for name, kind in TOKENS.items()
      if kind.stage not in ("nowhere", "encoder")),
    {"smaller": 16},
    {"smaller": 8},
]  # fmt: skip


@pytest.mark.parametrize("options", FORMS, ids=lambda options: next(iter(options.values())))
@pytest.mark.parametrize("count", [0, 1])
def test_a_prompt_with_hardly_a_visual_token_is_answered(
    count: int, options: dict[str, Any]
) -> None:
    """Alone and beside one with more; without any, as by the plain model."""
    model = untouched(tiny_llava())
    ids = torch.tensor([[1, 5, *range(10, 30), 6, 7, 8, 9]])
    visual = torch.zeros(2, ids.shape[1], dtype=torch.bool)
    visual[0, 3 : 3 + count] = visual[1, 3:15] = True
    said = []
    for marks in (visual[:1], visual):
        cache = RotateKCache(model, {"visual": marks}, Settings.of(**options))
        given = {"input_ids": ids.expand(len(marks), -1).contiguous()}
        given["attention_mask"] = torch.ones_like(given["input_ids"])
        said.append(model.generate(**given, **with_cache(model, cache), **GREEDY)[0])
    assert torch.equal(*said)
    if count == 0:
        plain = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **GREEDY)
        assert torch.equal(said[0], plain[0])


@pytest.mark.parametrize("options", [{"keep_channels": 0.25}, {"smaller": 4}, {"channels": "kivi"}])
def test_a_cache_works_under_autocast(options: dict[str, Any], picture: Picture) -> None:
    vlm = tiny_qwen()
    inputs, model = asked(vlm, picture), untouched(vlm)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert used(model, inputs, **options).shape[1] == inputs["input_ids"].shape[1] + 5


def test_a_copied_cache_goes_its_own_way(picture: Picture) -> None:
    vlm = tiny_llava()
    inputs, model = asked(vlm, picture), untouched(vlm)
    cache = RotateKCache(model, inputs, Settings.of(smaller=4))
    first = model.generate(**inputs, **with_cache(model, cache), **GREEDY)
    ids = torch.cat([first, torch.tensor([[65, 66]])], 1)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    said = [
        model.generate(**given, **with_cache(model, one), **GREEDY)
        for one in (copy.deepcopy(cache), cache)
    ]
    assert torch.equal(*said)


@pytest.mark.parametrize(
    "options", [{"keep_channels": 0.25}, {"smaller": 4}, {"channels": "turboquant"}]
)
def test_gradients_go_through_a_call_after_others_in_inference_mode(
    options: dict[str, Any], picture: Picture
) -> None:
    """Constants that were made in inference mode are no harm; a cache of it is refused."""
    vlm = tiny_llava()
    inputs, model = asked(vlm, picture), untouched(vlm)
    more = {"input_ids": torch.tensor([[65]])}
    for mode in (torch.inference_mode, torch.no_grad):
        cache = RotateKCache(model, inputs, Settings.of(**options))
        with mode():
            model(**inputs, **with_cache(model, cache))
        if mode is torch.inference_mode or "smaller" in options:
            with pytest.raises(ModeUnsupported, match="Gradients do not go through"):
                model(**more, **with_cache(model, cache))
            continue
        model(**more, **with_cache(model, cache)).logits.sum().backward()
        weight = model.get_decoder().layers[0].self_attn.q_proj.weight
        assert weight.grad is not None and weight.grad.norm() > 0


def test_a_cache_may_be_made_for_a_part_of_the_model(picture: Picture) -> None:
    vlm = tiny_llava()
    inputs, model = asked(vlm, picture), untouched(vlm)
    said = used(model, inputs)
    cache = RotateKCache(model.model, inputs, Settings.of(keep_channels=0.25))
    assert torch.equal(model.generate(**inputs, **with_cache(model, cache), **GREEDY), said)


@pytest.mark.parametrize("part", ["model", "attribute", "in place"])
def test_a_compiled_language_model_takes_the_cache(part: str, picture: Picture) -> None:
    vlm = tiny_llava()
    inputs, model = asked(vlm, picture), untouched(vlm)
    said = used(model, inputs)
    torch._dynamo.reset()
    if part == "in place":
        model.get_decoder().compile(backend="eager")
    elif part == "attribute":
        model.model.language_model = torch.compile(model.model.language_model, backend="eager")
    else:
        model = torch.compile(model, backend="eager")
    assert torch.equal(used(model, inputs), said)
