"""The library form on bare model classes, without adapter or processor: `generate` with a
`RotateKCache`.

Random tiny models of each class. k = d must give the plain model's tokens, and a compressed run
must hold fewer bytes. `test_families.py` has the same models behind their adapters.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    CLIPVisionConfig,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    InternVLConfig,
    InternVLForConditionalGeneration,
    InternVLVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    PreTrainedModel,
    Qwen2Config,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    SiglipVisionConfig,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)

from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.methods.settings import Settings
from tests.tiny import scramble

IMAGE = 90
TEXT: dict[str, Any] = {
    "vocab_size": 100, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 512,
}  # fmt: skip
SIGLIP: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "image_size": 56, "patch_size": 14,
}  # fmt: skip
Made = tuple[PreTrainedModel, int, dict[str, torch.Tensor]]


def _llava() -> Made:
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**SIGLIP), text_config=LlamaConfig(**TEXT),
        image_token_index=IMAGE,
    )  # fmt: skip
    return LlavaForConditionalGeneration(config), 16, {"pixel_values": torch.randn(1, 3, 56, 56)}


def _onevision() -> Made:
    config = LlavaOnevisionConfig(
        vision_config=SiglipVisionConfig(**SIGLIP, vision_use_head=False),
        text_config=Qwen2Config(**TEXT), image_token_index=IMAGE, video_token_index=91,
        image_grid_pinpoints=[[56, 56], [56, 112]],
    )  # fmt: skip
    pixels = {"pixel_values": torch.randn(1, 2, 3, 56, 56), "image_sizes": torch.tensor([[56, 56]])}
    return LlavaOnevisionForConditionalGeneration(config), 36, pixels


def _qwen3() -> Made:
    config = Qwen3VLConfig(
        text_config=TEXT | {
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32,
            "out_hidden_size": 64, "patch_size": 14, "spatial_merge_size": 2,
            "deepstack_visual_indexes": [0], "num_position_embeddings": 64,
        },
        image_token_id=IMAGE, video_token_id=91, vision_start_token_id=92, vision_end_token_id=93,
    )  # fmt: skip
    pixels = {
        "pixel_values": torch.randn(64, 3 * 2 * 14 * 14),
        "image_grid_thw": torch.tensor([[1, 8, 8]]),
    }
    return Qwen3VLForConditionalGeneration(config), 16, pixels


def _smolvlm() -> Made:
    config = SmolVLMConfig(
        vision_config=SIGLIP, text_config=LlamaConfig(**TEXT), image_token_id=IMAGE, scale_factor=2
    )
    return SmolVLMForConditionalGeneration(config), 4, {
        "pixel_values": torch.randn(1, 1, 3, 56, 56)
    }  # fmt: skip


def _internvl() -> Made:
    config = InternVLConfig(
        vision_config=InternVLVisionConfig(
            hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            image_size=[56, 56], patch_size=[14, 14],
        ),
        text_config=Qwen2Config(**TEXT), image_token_id=IMAGE, image_seq_length=4,
    )  # fmt: skip
    return InternVLForConditionalGeneration(config), 4, {"pixel_values": torch.randn(1, 3, 56, 56)}


def _gemma3() -> Made:
    config = Gemma3Config(
        text_config=Gemma3TextConfig(**TEXT, layer_types=["full_attention"] * 3),
        vision_config=SiglipVisionConfig(**SIGLIP, vision_use_head=False),
        image_token_index=IMAGE, mm_tokens_per_image=4,
    )  # fmt: skip
    return Gemma3ForConditionalGeneration(config), 4, {"pixel_values": torch.randn(1, 3, 56, 56)}


CLASSES: dict[str, Callable[[], Made]] = {
    "LLaVA-1.5": _llava,
    "LLaVA-OneVision": _onevision,
    "Qwen3-VL": _qwen3,
    "SmolVLM": _smolvlm,
    "InternVL": _internvl,
    "Gemma3": _gemma3,
}


def prompted(name: str) -> tuple[Any, dict[str, torch.Tensor]]:
    """A model of a class, and a processor's output for a picture and a question."""
    torch.manual_seed(0)
    model, tokens, pixels = CLASSES[name]()
    scramble(model, 0)
    ids = torch.tensor([[1, 5, *[IMAGE] * tokens, 6, 7, 8, 9]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **pixels}
    if name in ("Qwen3-VL", "Gemma3"):
        kind = (ids == IMAGE).long()
        inputs["token_type_ids" if name == "Gemma3" else "mm_token_type_ids"] = kind
    return model, inputs


@pytest.mark.parametrize("name", CLASSES)
def test_generate_with_a_compressed_cache(name: str) -> None:
    model, inputs = prompted(name)
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
    plain = model.generate(**inputs, **options)
    for settings in (
        Settings.of(keep_channels=1.0),
        Settings.of(channels="spark", keep_channels=1.0),
    ):
        cache = RotateKCache(model, inputs, settings)
        assert torch.equal(model.generate(**inputs, **options, **with_cache(model, cache)), plain)
    full = RotateKCache(model, inputs, Settings.of(channels="full", keep_channels=1.0))
    small = RotateKCache(model, inputs, Settings.of(channels="think", keep_channels=0.25))
    for cache in (full, small):
        model.generate(**inputs, **options, **with_cache(model, cache))
    assert small.bytes().parts["visual_keys"] * 4 == full.bytes().parts["visual_keys"]
