"""Full-size models of some families with random weights: on the meta device, or on a GPU.

Numbers are those of the published `config.json` files; tokenizers are bytes and special tokens. No
16 GB checkpoint is needed to measure what the real shapes cost. Answers mean nothing.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from transformers import GenerationConfig, PreTrainedModel

from rotatek.bridge.attention import prepare
from rotatek.models import VisionLanguageModel
from rotatek.models.families import FAMILIES
from tests import families


class Full(NamedTuple):
    """A checkpoint's configuration, as changes to the tiny one of its family.

    Args:
        family: whose tiny model has its structure.
        text: the language model's numbers.
        vision: the tower's.
        whole: those of both together.
        images: of its image processor.
        vocabulary: of the language model; the tokenizer here has fewer.
    """

    family: str
    text: dict[str, Any]
    vision: dict[str, Any]
    whole: dict[str, Any]
    images: dict[str, Any]
    vocabulary: int


FULL: dict[str, Full] = {
    "qwen2.5-vl-7b": Full(
        "qwen2_5_vl",
        {
            "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
            "num_attention_heads": 28, "num_key_value_heads": 4,
            "max_position_embeddings": 128000, "tie_word_embeddings": False,
            "rope_parameters": {"rope_theta": 1e6, "mrope_section": [16, 24, 24]},
        },
        {
            "depth": 32, "hidden_size": 1280, "num_heads": 16, "intermediate_size": 3420,
            "out_hidden_size": 3584, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31],
        },
        {"tie_word_embeddings": False},
        {"size": {"shortest_edge": 3136, "longest_edge": 1003520}},
        152064,
    ),
    "llava-next-8b": Full(
        "llava_next",
        {
            "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192,
        },
        {
            "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
            "num_attention_heads": 16, "image_size": 336, "projection_dim": 768,
        },
        {
            "image_grid_pinpoints": [
                [336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]
            ],
        },
        {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}},
        128320,
    ),
    "qwen3.5-4b": Full(
        "qwen3_5",
        {
            "hidden_size": 2560, "intermediate_size": 9216, "num_hidden_layers": 32,
            "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256,
            "linear_key_head_dim": 128, "linear_value_head_dim": 128,
            "linear_num_key_heads": 16, "linear_num_value_heads": 32,
            "max_position_embeddings": 262144, "tie_word_embeddings": True,
            "rope_parameters": {"rope_theta": 1e7, "mrope_section": [11, 11, 10]},
        },
        {
            "depth": 24, "hidden_size": 1024, "num_heads": 16, "intermediate_size": 4096,
            "out_hidden_size": 2560, "num_position_embeddings": 2304,
        },
        {"tie_word_embeddings": True},
        {"size": {"shortest_edge": 65536, "longest_edge": 16777216}},
        248320,
    ),
    "smolvlm-256m": Full(
        "smolvlm",
        {
            "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
            "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64,
            "max_position_embeddings": 8192, "tie_word_embeddings": False,
        },
        {
            "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
            "num_attention_heads": 12, "image_size": 512, "patch_size": 16,
        },
        {"scale_factor": 4},
        {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}},
        49280,
    ),
    "gemma-3-4b": Full(
        "gemma3",
        {
            "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
            "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
            "max_position_embeddings": 131072, "sliding_window": 1024,
            "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5
            + ["sliding_attention"] * 4,
            "query_pre_attn_scalar": 256,
        },
        {
            "hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16,
            "patch_size": 14, "num_hidden_layers": 27, "image_size": 896,
        },
        {"mm_tokens_per_image": 256},
        {"size": {"height": 896, "width": 896}},
        262208,
    ),
    "gemma-4-e4b": Full(
        "gemma4",
        {
            "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 42,
            "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
            "global_head_dim": 512, "num_kv_shared_layers": 18, "sliding_window": 512,
            "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144,
            "max_position_embeddings": 131072, "tie_word_embeddings": True,
        },
        {
            "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16,
            "num_attention_heads": 12, "num_key_value_heads": 12, "head_dim": 64,
            "position_embedding_size": 10240,
        },
        {"tie_word_embeddings": True},
        {"max_soft_tokens": 280},
        262144,
    ),
}  # fmt: skip


def configured(name: str) -> tuple[type[PreTrainedModel], Any, VisionLanguageModel]:
    """The class and the full-size configuration, and the tiny model whose structure it has."""
    full = FULL[name]
    small = families.EVERY[full.family]()
    config = small.model.config.to_dict()
    text, vision = dict(config["text_config"]), dict(config["vision_config"])
    text.pop("head_dim", None)
    text.pop("layer_types", None)
    text.pop("per_layer_config", None)
    rope = text["rope_parameters"] | full.text.get("rope_parameters", {})
    text |= full.text | {"rope_parameters": rope}
    config |= full.whole
    config["text_config"] = text | {"vocab_size": full.vocabulary}
    config["vision_config"] = vision | full.vision
    kind = type(small.model.config)
    return type(small.model), kind.from_dict(config), small


def drawn(name: str, device: str = "cuda") -> tuple[PreTrainedModel, VisionLanguageModel]:
    """A full-size model as transformers has it, without weights on "meta" and with random ones in
    bfloat16 elsewhere; and the tiny one whose structure it has."""
    kind, config, small = configured(name)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model = kind(config)
            for weight in model.parameters():  # Gemma 3's projection begins at zero
                if device != "meta" and weight.dim() > 1 and not bool(weight.any()):
                    torch.nn.init.normal_(weight, std=0.02)
    finally:
        torch.set_default_dtype(torch.float32)
    eos = small.tokenizer.convert_tokens_to_ids(small.tokenizer.eos_token)
    model.generation_config = GenerationConfig(eos_token_id=eos)
    return model.eval(), small


def adapted(name: str, model: PreTrainedModel, small: VisionLanguageModel) -> VisionLanguageModel:
    """A model of `drawn` as `load` gives it."""
    family = FAMILIES[FULL[name].family]
    given = small.images.to_dict() | FULL[name].images
    if "image_grid_pinpoints" in FULL[name].whole:
        given["image_grid_pinpoints"] = FULL[name].whole["image_grid_pinpoints"]
    images = family.images(**{k: v for k, v in given.items() if not k.endswith("_type")})
    vlm = family.adapter(prepare(model), small.tokenizer, images, f"{name} (random)")
    if vlm.device.type == "cuda":
        vlm.optimise_for_gpu()
    return vlm


def built(name: str, device: str = "cuda") -> VisionLanguageModel:
    """A full-size model, with random weights."""
    return adapted(name, *drawn(name, device))


def qwen(tokens: int) -> VisionLanguageModel:
    """Qwen2.5-VL-7B, with pictures of up to so many visual tokens."""
    vlm = built("qwen2.5-vl-7b")
    vlm.images.size = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * tokens}
    return vlm


def noise(width: int, height: int, grain: int = 8, seed: int = 0) -> Image.Image:
    """A picture of random colours, in squares of `grain` pixels that run into one another."""
    generator = np.random.default_rng(seed)
    colours = generator.integers(0, 255, (height // grain, width // grain, 3), dtype=np.uint8)
    return Image.fromarray(colours).resize((width, height))
