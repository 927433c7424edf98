"""Models in wrappers, offloaded or used in unusual order: right, or refused in the right words."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import cpu_offload, disk_offload, dispatch_model
from torch import Tensor
from transformers import PreTrainedModel

from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.bytes import storage_bytes
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.errors import ModeUnsupported
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from tests.fixtures import Picture
from tests.tiny import tiny_llava, tiny_qwen
from tests.unit.test_left_alone import GREEDY, asked, untouched


def adapted(model: PreTrainedModel, **more: Any) -> Any:
    """With a LoRA in the language model; Gemma 4's tower has layers that PEFT does not take."""
    peft = pytest.importorskip("peft")
    parts = r".*language_model.*\.(q_proj|v_proj|o_proj)"
    return peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=parts, **more))


def hooked(model: PreTrainedModel) -> Any:
    return dispatch_model(model, device_map={"": "cpu"}, force_hooks=True)


WRAPPERS: dict[str, Callable[[PreTrainedModel], Any]] = {
    "none": lambda model: model,
    "peft": adapted,
    "accelerate": hooked,
    "both": lambda model: adapted(hooked(model)),
}


def first_turn(vlm: VisionLanguageModel, model: Any, picture: Picture) -> tuple[Tensor, int, int]:
    """One picture: what is said, its visual tokens, and how many of them are stored."""
    prompt = vlm.prompt(make_request(picture(100, 80, seed=1), "what is it?", 8))
    inputs = {"input_ids": prompt.ids, "attention_mask": torch.ones_like(prompt.ids)}
    cache = RotateKCache(model, inputs, Settings.of(keep_channels=0.25))
    given = inputs | prompt.pixels.tensors
    said = model.generate(**given, **with_cache(vlm.model, cache), **GREEDY)
    stored = cache.layers[0].store
    assert stored is not None
    return said, prompt.visual_tokens, stored.read().keys.shape[2]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapped_models_picture_is_compressed(wrapper: str, picture: Picture) -> None:
    vlm = tiny_llava()
    wanted = first_turn(vlm, untouched(vlm), picture)
    found = first_turn(vlm, WRAPPERS[wrapper](untouched(vlm)).eval(), picture)
    assert found[1] == found[2] == wanted[2]
    assert torch.equal(found[0], wanted[0])  # LoRA begins as nothing


@pytest.mark.filterwarnings("ignore:You are calling .generate:UserWarning")  # before 5.24
@pytest.mark.parametrize("where", ["cpu", "disk"])
@pytest.mark.parametrize(
    "options",
    [{"keep_channels": 0.25}, {"smaller": 16}, {"channels": "kivi"}],
    ids=lambda options: next(iter(options)),
)
def test_an_offloaded_model_says_the_same(
    options: dict[str, Any], where: str, picture: Picture, tmp_path: Path
) -> None:
    vlm = tiny_qwen()
    inputs, settings = asked(vlm, picture), Settings.of(**options)
    said = []
    for offload in (False, True):
        model = untouched(vlm)
        if offload and where == "cpu":
            cpu_offload(model, execution_device=torch.device("cpu"))
        elif offload:
            disk_offload(model, str(tmp_path), execution_device=torch.device("cpu"))
        cache = RotateKCache(model, inputs, settings)
        said.append(model.generate(**inputs, **with_cache(model, cache), **GREEDY))
    assert torch.equal(*said)


def test_a_cache_leaves_inference_mode(picture: Picture) -> None:
    vlm = tiny_qwen()
    inputs, said = asked(vlm, picture), []
    for mode in (torch.no_grad, torch.inference_mode):
        model = untouched(vlm)
        cache = RotateKCache(model, inputs, Settings.of(keep_channels=0.25))
        with mode():
            first = model.generate(**inputs, **with_cache(model, cache), **GREEDY).clone()
        ids = torch.cat([first, torch.tensor([[65, 66]])], 1)
        kinds = torch.zeros_like(ids)
        kinds[:, : inputs["input_ids"].shape[1]] = inputs["mm_token_type_ids"]
        more = inputs | {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        more["mm_token_type_ids"] = kinds
        del more["pixel_values"]
        said.append(model.generate(**more, **with_cache(model, cache), **GREEDY))
    assert torch.equal(*said)


@pytest.mark.parametrize(
    "options", [{"keep_channels": 0.25}, {"smaller": 4}, {"tokens": "fastv", "keep_tokens": 0.5}]
)
def test_a_cache_is_used_again_for_this_prompt_and_another(
    options: dict[str, Any], picture: Picture
) -> None:
    vlm = tiny_qwen()
    settings, model = Settings.of(**options), untouched(vlm)
    prompts = [asked(vlm, picture), asked(vlm, picture, "a longer question, is it not?")]
    cache = RotateKCache(model, prompts[0], settings)
    for inputs in (prompts[0], prompts[0], prompts[1], prompts[0]):
        own = RotateKCache(model, inputs, settings)
        wanted = model.generate(**inputs, **with_cache(model, own), **GREEDY)
        found = model.generate(**inputs, **with_cache(model, cache), **GREEDY)
        assert torch.equal(found, wanted)
        held, alone = (storage_bytes(t for _, t in each.tensors()) for each in (cache, own))
        assert held == alone
        cache.reset()


def test_a_cache_of_marked_rows_is_used_again(picture: Picture) -> None:
    vlm = tiny_qwen()
    inputs, model = asked(vlm, picture), untouched(vlm)
    visual = inputs["mm_token_type_ids"].bool()
    cache = RotateKCache(model, {"visual": visual}, Settings.of(keep_channels=0.25))
    first = model.generate(**inputs, **with_cache(model, cache), **GREEDY)
    cache.reset()
    assert torch.equal(model.generate(**inputs, **with_cache(model, cache), **GREEDY), first)
    other = asked(vlm, picture, "a longer question, is it not?")
    cache.reset()
    with pytest.raises(ModeUnsupported, match="the one the cache was made for"):
        model.generate(**other, **with_cache(model, cache), **GREEDY)


@pytest.mark.parametrize("how", ["prompt", "assistant"])
def test_assisted_decoding_is_refused_as_such(how: str, picture: Picture) -> None:
    vlm = tiny_qwen()
    inputs, model = asked(vlm, picture), untouched(vlm)
    more: dict[str, Any] = {"prompt_lookup_num_tokens": 3}
    if how == "assistant":
        more = {"assistant_model": untouched(tiny_qwen(1))}
    cache = RotateKCache(model, inputs, Settings.of(keep_channels=0.25))
    with pytest.raises(ModeUnsupported, match="Assisted decoding"):
        model.generate(**inputs, **with_cache(model, cache), **GREEDY, **more)


def test_a_stored_cache_fits_the_model_in_its_wrapper(picture: Picture, tmp_path: Path) -> None:
    pytest.importorskip("zstandard")
    vlm = tiny_qwen()
    inputs, model = asked(vlm, picture), hooked(untouched(vlm))
    cache = RotateKCache(model, inputs, Settings.of(keep_channels=0.25))
    model.generate(**inputs, **with_cache(vlm.model, cache), **GREEDY)
    cache.save(tmp_path / "cache")
    again = RotateKCache.load(tmp_path / "cache", model)
    assert again.bytes().total <= cache.bytes().total
