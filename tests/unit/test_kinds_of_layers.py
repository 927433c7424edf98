"""Attention that is not ours to compute is refused; layers that keep a state stand beside Keys."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor
from transformers.cache_utils import DynamicCache
from transformers.models.mllama.configuration_mllama import MllamaTextConfig, MllamaVisionConfig

from rotatek import RotateKCache, Settings, prepare
from rotatek.bridge.layers import key_layers, state_layers, tensors_of
from rotatek.bridge.scope import with_cache
from rotatek.errors import ModelUnsupported, ModeUnsupported
from tests.tiny import scramble

IMAGE = 90
TEXT: dict[str, Any] = {
    "vocab_size": 100, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 512,
}  # fmt: skip
MIXED = ["sliding_attention", "full_attention"]


def llava_over(text: Any) -> hf.PreTrainedModel:
    tower = hf.CLIPVisionConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        image_size=56, patch_size=14,
    )  # fmt: skip
    config = hf.LlavaConfig(vision_config=tower, text_config=text, image_token_index=IMAGE)
    return hf.LlavaForConditionalGeneration(config)


def cross() -> hf.PreTrainedModel:
    text = {name: value for name, value in TEXT.items() if name != "head_dim"}
    tower = MllamaVisionConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_global_layers=1,
        attention_heads=2, image_size=56, patch_size=14, vision_output_dim=64,
        intermediate_layers_indices=[0],
    )  # fmt: skip
    config = hf.MllamaConfig(
        text_config=MllamaTextConfig(**text, cross_attention_layers=[1]), vision_config=tower,
        image_token_index=IMAGE,
    )  # fmt: skip
    return hf.MllamaForConditionalGeneration(config)


def over(config: type, **more: Any) -> Callable[[], hf.PreTrainedModel]:
    """Makes a LLaVA over a language model of this configuration."""
    return lambda: llava_over(config(**TEXT | more))


LATENT: dict[str, Any] = {
    "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 16, "qk_nope_head_dim": 8, "first_k_dense_replace": 2, "head_dim": 8,
}  # fmt: skip
UNFIT: dict[str, tuple[str, Callable[[], hf.PreTrainedModel]]] = {
    "softcap": ("capped attention scores", over(hf.Gemma2Config)),
    "sinks": (
        "attention sinks",
        over(hf.GptOssConfig, num_local_experts=2, num_experts_per_tok=1, layer_types=MIXED),
    ),
    "cross": ("cross-attention layers", cross),
    "attention and a state": (
        "layers of other kinds",
        over(
            hf.FalconH1Config, mamba_d_ssm=64, mamba_n_heads=4, mamba_d_head=16, mamba_d_state=8,
            mamba_chunk_size=8,
        ),
    ),
    "chunks": (
        "chunked_attention",
        over(
            hf.Llama4TextConfig, intermediate_size_mlp=64, num_local_experts=2, moe_layers=[],
            attention_chunk_size=16, layer_types=["chunked_attention", "full_attention"],
        ),
    ),
    "sharing": (
        "several streams",
        over(
            hf.Gemma3nTextConfig, num_hidden_layers=4, num_kv_shared_layers=2,
            vocab_size_per_layer_input=100, hidden_size_per_layer_input=8, layer_types=MIXED * 2,
            laurel_rank=4, altup_num_inputs=2, activation_sparsity_pattern=[0.0] * 4,
        ),
    ),
    "latent": ("latent ones", over(hf.DeepseekV3Config, **LATENT)),
    "alibi": ("bias of its attention scores", over(hf.MistralConfig, alibi=True)),
}  # fmt: skip


def words() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A prompt without a picture, of which some tokens are said to be visual."""
    ids = torch.tensor([[1, 5, *range(10, 30), 6, 7, 8, 9]])
    mask, visual = torch.ones_like(ids), torch.zeros_like(ids, dtype=torch.bool)
    visual[:, 2:22] = True
    return {"input_ids": ids, "attention_mask": mask}, {"visual": visual, "attention_mask": mask}


@pytest.mark.parametrize("kind", UNFIT)
@torch.no_grad()
def test_what_we_do_not_compute_is_refused(kind: str) -> None:
    said, make = UNFIT[kind]
    torch.manual_seed(0)
    model = scramble(make(), 0)
    inputs, marked = words()
    logits = model(**inputs).logits
    for work in (lambda: prepare(model), lambda: RotateKCache(model, marked, Settings.of())):
        with pytest.raises(ModelUnsupported, match=said):
            work()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert torch.equal(model(**inputs).logits, logits)


@torch.no_grad()
def test_a_layer_that_is_passed_over_is_not_silent() -> None:
    """What no configuration says: a layer that attends some other way."""
    model = scramble(llava_over(hf.MistralConfig(**TEXT)), 0)
    inputs, marked = words()
    cache = RotateKCache(model, marked, Settings.of(channels="full"))
    other = model.get_decoder().layers[1].self_attn
    other.forward = lambda hidden_states, **_: (torch.zeros_like(hidden_states), None)
    with pytest.raises(ModelUnsupported, match="1 of the 2 layers"):
        model(**inputs, **with_cache(model, cache))


# -- layers that keep a state in place of Keys: the others are compressed ------------------------

GREEDY: dict[str, Any] = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
FULL = Settings.of(channels="full", keep_channels=1.0)
FORMS = {
    "channels": Settings.of(keep_channels=0.5),
    "bits": Settings.of(smaller=4),
    "fewer rows": Settings.of(tokens="fastv", fastv_layer=1, keep_tokens=0.5, weighting="none"),
    "fewer a head": Settings.of(tokens="snapkv", keep_tokens=0.5),
}


def lfm2(vocabulary: int = 100, image: int = 90) -> hf.PreTrainedModel:
    """Short convolutions, one of them behind the last layer with Keys."""
    kinds = ["conv", "full_attention", "conv", "full_attention", "conv"]
    sizes = TEXT | {"num_hidden_layers": len(kinds), "vocab_size": vocabulary}
    text = hf.Lfm2Config(**sizes, layer_types=kinds)
    tower = hf.Siglip2VisionConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        patch_size=14, num_patches=64,
    )  # fmt: skip
    config = hf.Lfm2VlConfig(text_config=text, vision_config=tower, image_token_id=image)
    return hf.Lfm2VlForConditionalGeneration(config)


def granite() -> hf.PreTrainedModel:
    """State spaces, and attention whose scores have a scale of their own."""
    text = {name: value for name, value in TEXT.items() if name != "head_dim"}
    return llava_over(
        hf.GraniteMoeHybridConfig(
            **text | {"num_hidden_layers": 4}, attention_multiplier=0.2, mamba_n_heads=8,
            layer_types=["linear_attention", "full_attention"] * 2, mamba_d_state=16,
            mamba_chunk_size=8, num_local_experts=2, num_experts_per_tok=1,
            shared_intermediate_size=32,
        )
    )  # fmt: skip


MODELS: dict[str, Callable[[], hf.PreTrainedModel]] = {"lfm2_vl": lfm2, "granite hybrid": granite}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> hf.PreTrainedModel:
    torch.manual_seed(0)
    return scramble(MODELS[request.param](), 0)


def rows(*which: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A batch padded on the left, whose last row is text alone; a row alone has no padding."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(5, 80, (3, 40), generator=generator)
    visual = torch.zeros_like(ids, dtype=torch.bool)
    visual[0, 2:30] = visual[1, 20:34] = True
    mask = torch.ones_like(ids)
    mask[1, :11] = mask[2, :17] = 0
    taken = list(which or range(3))
    ids, visual, mask = ids[taken], visual[taken], mask[taken]
    if len(taken) == 1:
        real = mask[0].bool()
        ids, visual, mask = ids[:, real], visual[:, real], mask[:, real]
    return {"input_ids": ids, "attention_mask": mask}, {"visual": visual, "attention_mask": mask}


def said(model: hf.PreTrainedModel, settings: Settings, *which: int, **more: Any) -> Tensor:
    inputs, marked = rows(*which)
    cache = RotateKCache(model, marked, settings)
    return _new(model, inputs, cache, **more)


def _new(model: hf.PreTrainedModel, inputs: dict[str, Tensor], cache: Any, **more: Any) -> Tensor:
    torch.manual_seed(0)
    out = model.generate(**inputs, **GREEDY | more, **with_cache(model, cache))
    return out[:, inputs["input_ids"].shape[1] :]


@pytest.mark.parametrize("way", [{}, {"num_beams": 2}], ids=str)
def test_full_width_is_plain_transformers(model: hf.PreTrainedModel, way: dict[str, Any]) -> None:
    plain = _new(model, rows()[0], None, **way)
    assert torch.equal(said(model, FULL, **way), plain)
    assert torch.equal(said(model, Settings.of(keep_channels=1.0), **way), plain)


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_is_its_rows(model: hf.PreTrainedModel, form: str) -> None:
    together = said(model, FORMS[form])
    alone = [said(model, FORMS[form], row) for row in range(3)]
    assert torch.equal(together, torch.cat(alone))


@torch.inference_mode()
def test_dropped_rows_are_never_read_by_later_layers(model: hf.PreTrainedModel) -> None:
    """A pruner counts layers with Keys: behind the first one, the rest of the model reads what
    stays, as a prompt of these rows alone."""
    inputs, marked = rows(0)
    settings = Settings.of(
        tokens="fastv", fastv_layer=1, keep_tokens=0.5, channels="full", keep_channels=1.0
    )
    entered: dict[int, tuple[Tensor, Any]] = {}
    model = prepare(copy.deepcopy(model))  # whose hooks come before those of this test
    layers = model.get_decoder().layers
    cache = RotateKCache(model, marked, settings)
    handles = [
        layer.register_forward_pre_hook(_seeing(entered, at), with_kwargs=True)
        for at, layer in enumerate(layers)
    ]
    model(**inputs, use_cache=True, **with_cache(model, cache))
    for handle in handles:
        handle.remove()
    assert cache.plan.kept_rows is not None
    kept = cache.plan.kept_rows[0]
    first = next(at for at, la in enumerate(cache.layers) if la is key_layers(cache)[0])
    sizes = [hidden.shape[1] for hidden, _ in entered.values()]
    assert sizes == [40 if at <= first else int(kept.sum()) for at in range(len(layers))]
    hidden, given = entered[first + 1]  # it keeps a state
    alone = DynamicCache(config=model.config)
    layers[first + 1](hidden, **given | {"attention_mask": None} | with_cache(layers[0], alone))
    read, own = (tensors_of(each.layers[first + 1]) for each in (alone, cache))
    assert own and all(map(torch.equal, read, own))


def _seeing(entered: dict[int, tuple[Tensor, Any]], at: int) -> Callable[..., None]:
    def see(_: Any, args: tuple, given: dict[str, Any]) -> None:
        others = dict(given)
        hidden = args[0] if args else others.pop("hidden_states")
        entered[at] = hidden.clone(), others

    return see


def test_a_cache_is_used_again_and_never_cropped(model: hf.PreTrainedModel) -> None:
    inputs, marked = rows()
    cache = RotateKCache(model, marked, FORMS["channels"])
    first = _new(model, inputs, cache)
    held = sum(t.nbytes for la in state_layers(cache) for t in tensors_of(la))
    assert cache.bytes().parts["state"] == held > 0
    with pytest.raises(ModeUnsupported, match="Assisted decoding"):
        cache.crop(-1)
    cache.reset()
    assert cache.bytes().total == 0
    assert torch.equal(_new(model, inputs, cache), first)
    cache.batch_select_indices(torch.tensor([2, 0]))
    cache.batch_repeat_interleave(2)
    assert all(len(t) == 4 for la in state_layers(cache) for t in tensors_of(la))
