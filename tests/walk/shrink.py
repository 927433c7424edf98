"""Small configurations of any class: its own defaults, with fewer layers and narrower matrices.

Only fields that a class declares are changed, before it derives others from them, so that what it
computes in `__post_init__` fits. Head widths stay: rotary sections are written for them.
"""

from typing import Any, Final

from transformers import CONFIG_MAPPING, PreTrainedConfig

VOCABULARY: Final = 1024
SMALL: Final[dict[str, Any]] = {
    "vocab_size": VOCABULARY, "vocab_size_per_layer_input": VOCABULARY, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
    "num_hidden_layers": 4, "num_layers": 4, "depth": 3, "layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "hidden_size": 512, "d_model": 512, "hidden_dim": 512,
    "intermediate_size": 64, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "ffn_dim": 64,
    "mlp_dim": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_heads": 4,
    "attention_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "moe_intermediate_size": 32, "n_routed_experts": 4, "num_experts": 4, "num_local_experts": 4,
    "moe_num_experts": 4, "num_experts_per_tok": 2, "out_hidden_size": 512,
    "text_hidden_size": 512, "projection_dim": 512, "deepstack_visual_indexes": [0, 1],
}  # fmt: skip
TOWER: Final = SMALL | {
    "hidden_size": 64, "embed_dim": 64, "num_key_value_heads": 4, "num_hidden_layers": 3,
}  # fmt: skip
LISTS: Final = ("deepstack_visual_indexes",)
PINPOINTS: Final = [[224, 448], [448, 224], [448, 448]]
HALF: Final = {"text_config": {"rope_parameters": {
    "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
    "mrope_section": [8, 12, 12],
}}}  # fmt: skip
MIXED: Final = ["sliding_attention", "full_attention"] * 2
# What a class's own defaults leave open, or want to agree.
HINTS: Final[dict[str, dict[str, Any]]] = {
    "apertus1p5": {
        "audio_config": {"hidden_size": 512, "codebook_size": 64},
        "vision_config": {"base_channels": 32, "embed_dim": 256, "codebook_size": 64},
        "image_token_offset": 512, "audio_token_offset": 576,
    },
    "aria": {"vision_config": {"image_size": 490, "patch_size": 14}},
    "chameleon": {
        "vocabulary_map": {"<image>": 5}
        | {f"IMGIMG{letter}Z": 300 + i for i, letter in enumerate("ABCDEFGH")},
        "vq_config": {"base_channels": 32, "num_embeddings": 8, "latent_channels": 64},
    },
    "cohere2_vision": {"vision_config": {"image_size": 512, "patch_size": 16}},
    "cohere_compass": {"text_config": {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}},
    "deepseek_ocr2": {
        "text_config": {"mlp_layer_types": ["dense"] * 4},
        "vision_config": {"encoder_config": {"hidden_size": 896}},
    },
    "diffusion_gemma": {
        "text_config": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32},
    },
    "deepseek_vl": {"vision_config": {"image_size": 384}},
    "deepseek_vl_hybrid": {"vision_config": {"image_size": 384}},
    "dots3_note": {
        "text_config": {"num_key_value_heads": 4},
        "audio_config": {"hidden_size": 1280, "adapter_out_dim": 512},
        "vision_config": {"num_hidden_layers": 42, "adapter_in_dim": 64, "adapter_out_dim": 512},
    },
    "emu3": {
        "vocabulary_map": {"<image>": 5, "<|extra_200|>": 6}
        | {f"<|visual token {i:06d}|>": 300 + i for i in range(8)},
        "vq_config": {"base_channels": 32, "codebook_size": 8, "hidden_size": 128},
    },
    "ernie4_5_vl_moe": {"text_config": {"moe_k": 2}},
    "fast_vlm": {
        "vision_config": {"architecture": "fastvit_t8", "hidden_size": 768, "patch_size": 32},
    },
    "gemma3n": {"text_config": {"num_kv_shared_layers": 2, "layer_types": MIXED}},
    "gemma4": {"vision_config": {
        "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 4,
    }},
    "gemma4_unified": {
        "text_config": {"layer_types": MIXED},
        "vision_config": {"mm_embed_dim": 512, "output_proj_dims": 512},
    },
    "glm46v": HALF, "glm4v": HALF, "glm_ocr": HALF, "glmga": HALF,
    "glm5_next": {"text_config": {"num_key_value_heads": 4}},
    "granite4_vision": {
        "downsample_rate": "4/8", "deepstack_layer_map": [[-1, 0], [-2, 1]],
        "spatial_target_layers": [2, 3], "vision_config": {"patch_size": 28},
        "image_grid_pinpoints": PINPOINTS,
    },
    "hunyuan_vl": {"text_config": {"head_dim": 128, "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e4, "mrope_section": [16, 16, 16, 16],
    }}},
    "inkling2": {"text_config": {"unpadded_vocab_size": VOCABULARY}},
    "inkling2_loop": {"text_config": {"unpadded_vocab_size": VOCABULARY}},
    "janus": {"vq_config": {"base_channels": 32}},
    "kimi_k25": {
        "projection_hidden_size": 64,
        "text_config": {"num_key_value_heads": 4, "n_group": 2, "topk_group": 1},
    },
    "llava_next_video": {"image_grid_pinpoints": PINPOINTS},
    "minicpm_ocr": {"image_token_id": 18}, "minicpmv4_6": {"image_token_id": 18},
    "minicpmv4_7": {"image_token_id": 18},
    "molmo2": {"adapter_config": {"vision_feature_layer": [2, 1]}},
    "muse_glimmer": {"out_hidden_size": 256},
    "muse_spark": {"audio_config": {"num_hidden_layers": 4}, "out_hidden_size": 256},
    "nemotron_h_omni": {"vision_config": {"video_temporal_patch_size": 2}, "image_token_id": 18},
    "perception_lm": {
        "projector_pooling_ratio": 2,
        "vision_config": {
            "architecture": "vit_pe_core_tiny_patch16_384", "image_size": 64, "patch_size": 16,
            "model_args": {"embed_dim": 192, "img_size": [64, 64]},
        },
    },
    "qwen2_5_omni_thinker": {"vision_start_token_id": 20},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 20},
    "qwen4_exp": {
        "text_config": {
            "indexer_budget": 64, "indexer_compress_ratio": 4, "indexer_head_dim": 256,
            "indexer_kv_heads": 1, "indexer_n_heads": 4,
        },
    },
    "shieldgemma2": {"mm_tokens_per_image": 49},
    "step3p7": {"text_config": {"sliding_window": 512}},
    "vipllava": {"vision_feature_layers": [-2, -3]},
}  # fmt: skip


def small_config(kind: str) -> PreTrainedConfig:
    """A small configuration of a model type, whose parts are small, too."""
    made = CONFIG_MAPPING[kind]
    values = _shrunk(made, SMALL)
    config: PreTrainedConfig = made(**_merged(values, HINTS.get(kind, {})))
    return config


def _merged(values: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Nested arguments, some of them replaced."""
    both = {name: values.get(name) for name in more}
    inner = {
        name: _merged(old, more[name]) if isinstance(old, dict) else more[name]
        for name, old in both.items()
    }
    return values | inner


def _shrunk(kind: type[PreTrainedConfig], small: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a configuration's class, as plain dictionaries."""
    fields = kind.__dataclass_fields__
    values = {
        name: value
        for name, value in small.items()
        if name in fields and (name in LISTS or isinstance(getattr(kind, name, None), int))
    }
    whole = kind()
    for name in kind.sub_configs:
        part = getattr(whole, name, None)
        if part is not None:
            told = {"model_type": part.model_type}
            inner = SMALL if name in ("text_config", "decoder", "encoder") else TOWER
            values[name] = told | _shrunk(type(part), inner)
    return values
