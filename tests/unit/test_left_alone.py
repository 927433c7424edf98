"""Models of one's own: left as they were, in wrappers, offloaded, called in unusual ways; right, or
refused in a sentence."""

import copy
import gc
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import cpu_offload, disk_offload, dispatch_model
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from rotatek import RotateKCache, Settings, make_request
from rotatek.bridge.attention import is_hooked
from rotatek.bridge.scope import with_cache
from rotatek.cache.measures import storage_bytes
from rotatek.errors import CacheNotStorable, ModelUnsupported, ModeUnsupported, SettingError
from rotatek.methods.channels import CHANNELS
from rotatek.models import VisionLanguageModel
from tests.families import tiny_gemma3, tiny_gemma4, tiny_qwen35
from tests.fixtures import Picture, inputs_of
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
    return inputs_of(vlm, vlm.prompt(make_request(picture(100, 80), question, 8)))


def used(model: PreTrainedModel, inputs: Inputs, **options: Any) -> Tensor:
    """Let a compressed cache fill and answer."""
    cache = RotateKCache(model, inputs, Settings.of(**options or {"keep_channels": 0.25}))
    return model.generate(**inputs, **with_cache(model, cache), **GREEDY)


def assert_same(*outputs: Any) -> None:
    """Equal outputs of a model, down to the last bit."""
    kinds = Tensor | tuple
    parts = [{k: v for k, v in one.items() if isinstance(v, kinds)} for one in outputs]
    torch.testing.assert_close(*parts, rtol=0, atol=0, equal_nan=True)


WAYS = [*((name, "sdpa") for name in FAMILIES), ("gemma3", "eager"), ("qwen2_5_vl", "of_my_own")]


@pytest.mark.parametrize(("family", "attention"), WAYS)
def test_plain_use_is_as_if_nothing_had_happened(
    family: str, attention: str, picture: Picture
) -> None:
    """Nothing is written to a model but hooks, once: not while a cache lives, nor after an error,
    nor when all are gone."""
    AttentionInterface.register("of_my_own", sdpa_attention_forward)  # as programs of others do
    AttentionMaskInterface.register("of_my_own", sdpa_mask)
    vlm = FAMILIES[family]()
    inputs = asked(vlm, picture)
    model, other = untouched(vlm, attention), untouched(vlm, attention)
    model.generate(**inputs, **GREEDY)  # transformers leaves hooks of its own on some
    before = [(type(one), sorted(vars(one))) for one in model.modules()]
    used(model, inputs, smaller=16)
    hooks = [len(one._forward_hooks) + len(one._forward_pre_hooks) for one in model.modules()]
    used(model, inputs, tokens="fastv", keep_tokens=0.5)
    with pytest.raises((TypeError, ValueError)):  # no tensor at all
        model(**with_cache(model, RotateKCache(model, inputs, Settings())))
    assert [(type(one), sorted(vars(one))) for one in model.modules()] == before
    assert hooks == [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    assert not any(map(is_hooked, model.modules()))
    with torch.no_grad():
        watched = {"output_attentions": attention == "eager", "output_hidden_states": True}
        assert_same(model(**inputs, **watched), other(**inputs, **watched))
        plain = other.generate(**inputs, **TOLD)
        assert_same(model.generate(**inputs, **TOLD), plain)
    lossless = RotateKCache(model, inputs, Settings.of(channels="full"))
    ours = model.generate(**inputs, **with_cache(model, lossless), **TOLD)
    assert torch.equal(plain.sequences, ours.sequences)
    for one, mine in zip(plain.logits, ours.logits, strict=True):
        torch.testing.assert_close(one, mine, rtol=0, atol=2e-3)
    assert torch.equal(used(copy.deepcopy(model), inputs), used(model, inputs))


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


def test_threads_share_a_model(picture: Picture) -> None:
    """Eight at once on one that has had no cache yet: a third of the calls are plain."""
    vlm = tiny_llava()
    inputs, model = asked(vlm, picture), untouched(vlm, "eager")
    half = {"tokens": "fastv", "keep_tokens": 0.5}
    ours, plain = used(untouched(vlm), inputs, **half), untouched(vlm).generate(**inputs, **GREEDY)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            calls = [
                pool.submit(model.generate, **inputs, **GREEDY)
                if number % 3 == 0 else pool.submit(used, model, inputs, **half)
                for number in range(96)
            ]  # fmt: skip
            for number, call in enumerate(calls):
                assert torch.equal(call.result(), ours if number % 3 else plain), number
    finally:
        sys.setswitchinterval(interval)


def adapted(model: PreTrainedModel, **more: Any) -> Any:
    """With a LoRA in the language model; Gemma 4's tower has layers that PEFT does not take."""
    peft = pytest.importorskip("peft")
    parts = r".*language_model.*\.(q_proj|v_proj|o_proj)"
    return peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=parts, **more))


def hooked(model: PreTrainedModel) -> Any:
    return dispatch_model(model, device_map={"": "cpu"}, force_hooks=True)


def offloaded(model: PreTrainedModel, *to: Any) -> Any:
    return (disk_offload if to else cpu_offload)(model, *to, execution_device=torch.device("cpu"))


WRAPPERS: dict[str, Callable[[PreTrainedModel, Path], Any]] = {
    "peft": lambda model, _: adapted(model),
    "accelerate": lambda model, _: hooked(model),
    "both": lambda model, _: adapted(hooked(model)),
    "offloaded": lambda model, _: offloaded(model),
    "on disk": lambda model, folder: offloaded(model, str(folder)),
}


@pytest.mark.parametrize("options", [{"smaller": 4}, {"tokens": "fastv", "keep_tokens": 0.5}])
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


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:You are calling .generate:UserWarning")  # before 5.24
@pytest.mark.parametrize(
    ("family", "wrapper"),
    [*(("qwen2_5_vl", wrapper) for wrapper in WRAPPERS), ("qwen3_5", "both"), ("gemma4", "both")],
)
def test_a_wrapped_model_says_the_same(
    family: str, wrapper: str, picture: Picture, tmp_path: Path
) -> None:
    vlm, options = FAMILIES[family](), {"tokens": "fastv", "keep_tokens": 0.5}
    inputs = asked(vlm, picture)
    plain = untouched(vlm)
    said, cache = used(plain, inputs, **options), RotateKCache(plain, inputs, Settings())
    plain.generate(**inputs, **with_cache(plain, cache), **GREEDY)
    wrapped = WRAPPERS[wrapper](untouched(vlm), tmp_path)
    if vlm.model.config.model_type == "gemma4":
        try:
            wrapped.generate(**inputs, **GREEDY)
        except KeyError:
            pytest.skip("accelerate copies what layers of this transformers share")
    assert torch.equal(used(wrapped, inputs, **options), said)
    if wrapper == "accelerate":
        cache.save(tmp_path / "cache")
        assert RotateKCache.load(tmp_path / "cache", wrapped).get_seq_length()


def test_a_prompt_may_be_embeddings(picture: Picture) -> None:
    vlm = tiny_qwen35()
    model = untouched(vlm)
    embedded = vlm.embed(vlm.prompt(make_request(picture(100, 80), "what?", 8)))
    given = {
        "inputs_embeds": embedded.embeds, "attention_mask": embedded.valid.long(),
        "position_ids": embedded.positions, **vlm.besides(embedded),
    }  # fmt: skip
    cache = RotateKCache(model, embedded.inputs(), Settings.of(keep_channels=1.0))
    found = model.generate(**given, **with_cache(model, cache), **GREEDY)
    assert cache.bytes().parts["visual_keys"] > 0
    assert torch.equal(found, model.generate(**given, **GREEDY))


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


def _split(model: PreTrainedModel, inputs: Inputs, cache: RotateKCache) -> None:
    """As `tp_plan` does, of which each rank has some heads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model), "tp_size", 2, raising=False)
        RotateKCache(model, inputs, Settings.of(keep_channels=0.25))
        with pytest.raises(ModeUnsupported, match="`smaller` chooses by all"):
            RotateKCache(model, inputs, Settings.of(smaller=4))
        RotateKCache(model, inputs, cache.settings)


def _lose(model: PreTrainedModel, inputs: Inputs, cache: RotateKCache) -> None:
    other = copy.deepcopy(model)
    cache = RotateKCache(other, inputs)
    other.generate(**inputs, **with_cache(other, cache), **GREEDY)
    del other
    gc.collect()
    cache.fork()


def _call_a_layer(model: PreTrainedModel, inputs: Inputs, cache: RotateKCache) -> None:
    decoder, ids = model.get_decoder(), inputs["input_ids"]
    hidden = model.get_input_embeddings()(ids)
    turns = decoder.rotary_emb(hidden, torch.arange(ids.shape[1])[None])
    decoder.layers[0](hidden, position_embeddings=turns, **with_cache(decoder, cache))


def _replace_the_call(model: PreTrainedModel, inputs: Inputs, cache: RotateKCache) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreTrainedModel, "__call__", torch.nn.Module.__call__)
        model.generate(**inputs, **with_cache(model, cache), **GREEDY)


REFUSED: dict[str, tuple[str, Work]] = {
    "a layer alone": ("outside a call of its model", _call_a_layer),
    "another call": ("put `PreTrainedModel.__call__` back", _replace_the_call),
    "assisted": (
        "Assisted decoding",
        lambda m, i, c: m.generate(**i, **with_cache(m, c), **GREEDY, prompt_lookup_num_tokens=3),
    ),
    "maps": (
        "no attention maps",
        lambda m, i, c: m(**i, **with_cache(m, c), output_attentions=True),
    ),
    "loss": (
        'which FastV drops some. Leave labels out, or tokens="fastv"',
        lambda m, i, c: m(**i, **with_cache(m, c), labels=i["input_ids"]),
    ),
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
    "ranks": ('tokens="fastv" chooses by all', _split),
    "gone": ("model of this cache is gone", _lose),
    "several GPUs": (
        "DataParallel",
        lambda m, i, c: m._replicate_for_data_parallel()(**i, **with_cache(m, c)),
    ),
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


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("inputs", lambda ids: ids),
        ("inputs", lambda ids: {"input_ids": ids[0]}),
        ("inputs", lambda ids: {"input_ids": ids.tolist()}),
        ("inputs", lambda ids: {"input_ids": ids, "attention_mask": torch.ones_like(ids)[0]}),
        ("settings", {"keep_channels": 0.25}),
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


def test_a_layer_that_the_model_does_not_have_is_named(picture: Picture) -> None:
    vlm = tiny_llava()
    inputs = asked(vlm, picture)
    for layer in (3, 4, 50):
        settings = Settings.of(tokens="fastv", keep_tokens=0.5, fastv_layer=layer)
        if layer == 3:
            assert RotateKCache(vlm.model, inputs, settings).plan.is_open
            continue
        with pytest.raises(SettingError, match=f"fastv_layer must be below 4.*got {layer}"):
            RotateKCache(vlm.model, inputs, settings)


class Coded(torch.Tensor):
    """Weights of a quantiser's own kind, which have no address and offer numbers."""

    def data_ptr(self) -> int:
        raise RuntimeError("no storage")

    def dequantize(self) -> Tensor:
        return self.as_subclass(Tensor)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("kind", ["a method", "a tensor of its own", "nothing"])
def test_weights_of_other_quantisers_are_read_or_done_without(
    kind: str, picture: Picture, tmp_path: Path
) -> None:
    vlm = tiny_llava()
    inputs, model = asked(vlm, picture), untouched(vlm)
    if kind == "a method":
        layers = {torch.nn.Linear}
        model = torch.ao.quantization.quantize_dynamic(model, layers, dtype=torch.qint8)
    for layer in model.get_decoder().layers if kind != "a method" else ():
        own = layer.self_attn.o_proj
        weight = own._parameters.pop("weight").detach().as_subclass(Coded)
        own.forward = partial(torch.nn.functional.linear, weight=weight.dequantize())
        own.weight = weight if kind == "a tensor of its own" else None
    cache = RotateKCache(model, inputs, Settings.of(smaller=4))
    model.generate(**inputs, **with_cache(model, cache), **GREEDY)
    assert (cache.bytes().shared > 0) == (kind != "nothing")
    cache.save(tmp_path / "cache")
    assert RotateKCache.load(tmp_path / "cache", model).get_seq_length()


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize(
    "options",
    [*({"channels": name} for name in CHANNELS), {"smaller": 16},
     *({"tokens": name, "keep_tokens": 0.5} for name in ("fastv", "snapkv"))],
    ids=str,
)  # fmt: skip
def test_a_prompt_with_hardly_a_visual_token_is_answered(
    options: dict[str, Any], count: int
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


@pytest.mark.parametrize("options", [{"keep_channels": 0.25}, {"smaller": 4}])
def test_a_cache_works_under_autocast(options: dict[str, Any], picture: Picture) -> None:
    vlm = tiny_qwen()
    inputs, model = asked(vlm, picture), untouched(vlm)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert used(model, inputs, **options).shape[1] == inputs["input_ids"].shape[1] + 5


def test_a_copied_cache_goes_its_own_way_and_out_of_inference_mode(picture: Picture) -> None:
    vlm = tiny_llava()
    inputs, said = asked(vlm, picture), list[Tensor]()
    for mode in (torch.no_grad, torch.inference_mode):
        model = untouched(vlm)
        cache = RotateKCache(model, inputs, Settings.of(smaller=4))
        with mode():
            first = model.generate(**inputs, **with_cache(model, cache), **GREEDY).clone()
        ids = torch.cat([first, torch.tensor([[65, 66]])], 1)
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        for one in (copy.deepcopy(cache), cache):
            said.append(model.generate(**given, **with_cache(model, one), **GREEDY))
    assert all(torch.equal(said[0], other) for other in said)


@pytest.mark.parametrize("options", [{"keep_channels": 0.25}, {"smaller": 4}])
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


@pytest.mark.parametrize("part", ["model", "in place"])
def test_a_compiled_language_model_takes_the_cache(part: str, picture: Picture) -> None:
    vlm = tiny_llava()
    inputs, model = asked(vlm, picture), untouched(vlm)
    said = used(model, inputs)
    torch._dynamo.reset()
    if part == "in place":
        model.get_decoder().compile(backend="eager")
    else:
        model = torch.compile(model, backend="eager")
    assert torch.equal(used(model, inputs), said)
