"""A model that our caches have used, or that is prepared: it is as it was, bit for bit."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from tests.families import (
    tiny_gemma3,
    tiny_gemma4,
    tiny_qwen35,
)
from tests.fixtures import Picture
from tests.tiny import tiny_llava, tiny_qwen

FAMILIES: dict[str, Callable[[], VisionLanguageModel]] = {
    "qwen2_5_vl": tiny_qwen,
    "llava_next": tiny_llava,
    "gemma3": lambda: tiny_gemma3(window=16),
    "qwen3_5": tiny_qwen35,
    "gemma4": lambda: tiny_gemma4(window=16, global_head_dim=32),
}
GREEDY: dict[str, Any] = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False}
TOLD = GREEDY | {"output_logits": True, "return_dict_in_generate": True}
Inputs = dict[str, Tensor]


def untouched(vlm: VisionLanguageModel, attention: str = "sdpa") -> PreTrainedModel:
    """The same weights in an unprepared model."""
    config = copy.deepcopy(vlm.model.config)
    model = type(vlm.model)._from_config(config, attn_implementation=attention)
    model.load_state_dict(vlm.model.state_dict())
    model.generation_config = copy.deepcopy(vlm.model.generation_config)
    return model.eval()


def asked(vlm: VisionLanguageModel, picture: Picture, question: str = "what?") -> Inputs:
    prompt = vlm.prompt(make_request(picture(100, 80), question, 8))
    inputs = {"input_ids": prompt.ids, "attention_mask": torch.ones_like(prompt.ids)}
    if "qwen" in vlm.family or vlm.family == "gemma4":
        inputs["mm_token_type_ids"] = prompt.visual.int()
    if vlm.family == "gemma3":
        inputs["token_type_ids"] = prompt.visual.int()
    return inputs | prompt.pixels.tensors


def used(model: PreTrainedModel, inputs: Inputs, **options: Any) -> Tensor:
    """Let a compressed cache fill and answer."""
    cache = RotateKCache(model, inputs, Settings.of(**options or {"keep_channels": 0.25}))
    return model.generate(**inputs, **with_cache(model, cache), **GREEDY)


def written(model: PreTrainedModel) -> list[Any]:
    """Everything that may be written to a model: of each module its class, names, values that are
    no parts of it, and hooks. What `generate` itself remembers is left out."""
    found: list[Any] = [model.config.to_dict(), model.generation_config.to_dict()]
    for name, module in model.named_modules():
        own = {key: value for key, value in vars(module).items() if key != "rope_deltas"}
        parts = {key: dict(part) for key, part in own.items() if isinstance(part, dict)}
        others = {key: id(value) for key, value in own.items() if key not in parts}
        found.append((name, type(module), list(own), parts, others))
    return found


def pickled(model: PreTrainedModel) -> bytes | None:
    """A model as bytes; None where transformers' own hooks on it forbid that."""
    model.base_model.rope_deltas = None  # of the latest prompt of Qwen's models
    try:
        return pickle.dumps(model)
    except AttributeError as error:
        assert "output_capturing_hook" in str(error)
        return None


def assert_same(one: Any, other: Any) -> None:
    """Equal outputs of a model, down to the last bit."""
    assert one.keys() == other.keys()
    for name in one:
        mine, others = one[name], other[name]
        if isinstance(mine, Tensor):
            assert torch.equal(mine, others), name
        elif isinstance(mine, tuple):
            assert len(mine) == len(others), name
            assert all(torch.equal(a, b) for a, b in zip(mine, others, strict=True)), name


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
def test_plain_use_is_as_if_nothing_had_happened(
    family: str, attention: str, picture: Picture
) -> None:
    vlm = FAMILIES[family]()
    inputs = asked(vlm, picture)
    model, other = untouched(vlm, attention), untouched(vlm, attention)
    with torch.no_grad():
        used(model, inputs)
        used(model, inputs, tokens="fastv", keep_tokens=0.5)
        watched = {"output_attentions": attention == "eager", "output_hidden_states": True}
        assert_same(model(**inputs, **watched), other(**inputs, **watched))
        assert_same(model.generate(**inputs, **TOLD), other.generate(**inputs, **TOLD))


ATTENTIONS = [(family, attention) for family in FAMILIES for attention in ("eager", "sdpa")]


@pytest.mark.parametrize(("family", "attention"), [*ATTENTIONS, ("qwen2_5_vl", "of_my_own")])
def test_nothing_is_written_to_a_model(
    family: str, attention: str, picture: Picture, tmp_path: Path
) -> None:
    """Not while a cache lives, nor after an error, nor when all are gone."""
    AttentionInterface.register("of_my_own", sdpa_attention_forward)  # as programs of others do
    AttentionMaskInterface.register("of_my_own", sdpa_mask)
    vlm = FAMILIES[family]()
    inputs, model = asked(vlm, picture), untouched(vlm, attention)
    model.generate(**inputs, **GREEDY)  # transformers leaves hooks of its own on some
    before, data = written(model), pickled(model)
    cache = RotateKCache(model, inputs, Settings.of(smaller=16))
    assert written(model) == before
    model.generate(**inputs, **with_cache(model, cache), **GREEDY)
    assert cache.bytes().shared > 0  # output metrics, which live beside the model
    assert written(model) == before and pickled(model) == data
    used(model, inputs, tokens="fastv", keep_tokens=0.5)
    with pytest.raises((TypeError, ValueError)):  # no tensor at all
        model(**with_cache(model, RotateKCache(model, inputs, Settings())))
    assert written(model) == before and pickled(model) == data
    made = copy.deepcopy(model)
    assert [one[:3] for one in written(made)[2:]] == [one[:3] for one in before[2:]]
    files = []
    for number, one in enumerate((model, untouched(vlm, attention))):
        one.save_pretrained(tmp_path / str(number))
        folder = sorted((tmp_path / str(number)).iterdir())
        files.append({path.name: path.read_bytes() for path in folder})
    assert files[0] == files[1]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
def test_our_calls_equal_the_models_own_attention(
    family: str, attention: str, picture: Picture
) -> None:
    vlm = FAMILIES[family]()
    inputs, model = asked(vlm, picture), untouched(vlm, attention)
    plain = model.generate(**inputs, **TOLD)
    lossless = RotateKCache(model, inputs, Settings.of(channels="full"))
    ours = model.generate(**inputs, **with_cache(model, lossless), **TOLD)
    assert torch.equal(plain.sequences, ours.sequences)
    for one, other in zip(plain.logits, ours.logits, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-3)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "gemma3"])
def test_rows_are_dropped_alike_whatever_mask_a_model_makes(family: str, picture: Picture) -> None:
    vlm = FAMILIES[family]()
    inputs = asked(vlm, picture)
    padded = {
        name: torch.nn.functional.pad(part, (3, 0)) if part.shape == inputs["input_ids"].shape
        else part for name, part in inputs.items()
    }  # fmt: skip
    for given in (inputs, padded):
        said = [
            used(untouched(vlm, attention), given, tokens="fastv", keep_tokens=0.4)
            for attention in ("eager", "sdpa")
        ]
        assert torch.equal(*said)


def test_a_model_may_change_its_attention(picture: Picture) -> None:
    """`set_attn_implementation` works as before, also between two calls of ours."""
    vlm = tiny_qwen()
    inputs, model = asked(vlm, picture), untouched(vlm)
    first = used(model, inputs)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        out = model(**inputs, output_attentions=True)
    assert len(out.attentions) == 4
    assert out.attentions[0].shape[-1] == inputs["input_ids"].shape[1]
    assert torch.equal(used(model, inputs), first)


def test_a_plain_call_inside_a_failed_one_of_ours_is_plain_again(picture: Picture) -> None:
    vlm = tiny_qwen()
    inputs, model = asked(vlm, picture), untouched(vlm, "eager")
    cache = RotateKCache(model, inputs, Settings.of(channels="full"))
    with torch.no_grad():
        with pytest.raises((TypeError, ValueError)):  # no tensor at all
            model(**with_cache(model, cache))
        assert len(model(**inputs, output_attentions=True).attentions) == 4
        model.generate(**inputs, **with_cache(model, cache), **GREEDY)


def test_plain_caches_in_other_threads_stay_plain(picture: Picture) -> None:
    """Both kinds of calls at once on one eager model."""
    from concurrent.futures import ThreadPoolExecutor

    vlm = tiny_qwen()
    inputs, model = asked(vlm, picture), untouched(vlm, "eager")
    first = used(model, inputs)
    plain = untouched(vlm, "eager").generate(**inputs, **TOLD)

    def other() -> Any:
        cache = DynamicCache(config=model.config)
        return model.generate(**inputs, **with_cache(model, cache), **TOLD)

    with ThreadPoolExecutor(4) as pool:
        ours = [pool.submit(used, model, inputs) for _ in range(4)]
        others = [pool.submit(other) for _ in range(4)]
        assert all(torch.equal(one.result(), first) for one in ours)
        for one in others:
            found = one.result()
            assert torch.equal(found.sequences, plain.sequences)
            for mine, known in zip(found.logits, plain.logits, strict=True):
                torch.testing.assert_close(mine, known, rtol=0, atol=1e-4)
