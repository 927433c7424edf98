"""Attention that compressed attention does not compute: refused, and the model left untouched."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor
from transformers.models.mllama.configuration_mllama import MllamaTextConfig, MllamaVisionConfig

from rotatek.bridge.attention import prepare
from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.errors import ModelUnsupported
from rotatek.methods.settings import Settings
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
FIT: dict[str, Callable[[], hf.PreTrainedModel]] = {
    "gemma2 without a cap": over(
        hf.Gemma2Config, attn_logit_softcapping=None, layer_types=MIXED, sliding_window=8
    ),
    "mistral": over(hf.MistralConfig, sliding_window=8),
    "qwen2_moe": over(  # which says 0 for no window
        hf.Qwen2MoeConfig, num_experts=2, num_experts_per_tok=1, moe_intermediate_size=32,
        shared_expert_intermediate_size=32, use_sliding_window=False,
    ),
    "cohere2": over(hf.Cohere2Config, layer_types=MIXED, sliding_window=8),
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


@pytest.mark.parametrize("kind", FIT)
@torch.no_grad()
def test_what_resembles_it_is_not_refused(kind: str) -> None:
    torch.manual_seed(0)
    model = scramble(FIT[kind](), 0)
    inputs, marked = words()
    told = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
    plain = model.generate(**inputs, **told)
    cache = RotateKCache(model, marked, Settings.of(channels="full"))
    assert torch.equal(model.generate(**inputs, **with_cache(model, cache), **told), plain)


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
