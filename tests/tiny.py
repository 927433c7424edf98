"""Small random-weight models of the real classes, with the real configurations' structure."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from rotatek.bridge.attention import prepare
from rotatek.models import VisionLanguageModel
from rotatek.models.families import FAMILIES
from rotatek.models.llava import LlavaNext
from rotatek.models.qwen import Qwen25VL

POCKET = Path(__file__).parents[1] / "assets" / "pocket"


def chat_template(
    picture: str, begin: str = "<|im_start|>", end: str = "<|im_end|>", before: str = ""
) -> str:
    """A chat template with these texts for a picture and around a turn; `before` each turn."""
    return (
        "{%- for m in messages -%}" + before + begin + "{{ m['role'] }}\n"
        "{%- for part in m['content'] -%}{%- if part['type'] == 'image' -%}"
        "{{ '" + picture + "' }}{%- else -%}{{ part['text'] }}{%- endif -%}"
        "{%- endfor -%}" + end + "\n{%- endfor -%}"
        "{%- if add_generation_prompt -%}" + begin + "assistant\n{%- endif -%}"
    )


QWEN_TEMPLATE = chat_template("<|vision_start|><|image_pad|><|vision_end|>")

TEXT: dict[str, Any] = {
    "hidden_size": 4 * 32, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "max_position_embeddings": 8192, "pad_token_id": 0,
}  # fmt: skip
SIGLIP: dict[str, Any] = {
    "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "image_size": 56, "patch_size": 14,
}  # fmt: skip


def byte_tokenizer(special: list[str], eos: str) -> hf.PreTrainedTokenizerFast:
    """One id a byte, then the special tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=eos)
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    return tokenizer


def scramble(model: hf.PreTrainedModel, seed: int) -> hf.PreTrainedModel:
    """Weights large enough that tokens vary and attention is not flat."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            spread = 0.5 if "embed" in name else 1.6 / weight[0].numel() ** 0.5
            weight.data = torch.randn(weight.shape, generator=generator) * spread
    return model.eval()


def finish(
    family: str, model: hf.PreTrainedModel, tokenizer: hf.PreTrainedTokenizerFast, images: Any
) -> VisionLanguageModel:
    """A family's adapter over a network with random weights."""
    eos = tokenizer.convert_tokens_to_ids(tokenizer.eos_token)
    model.generation_config = hf.GenerationConfig(eos_token_id=eos, pad_token_id=0)
    adapter = FAMILIES[family].adapter
    return adapter(prepare(scramble(model, 0)), tokenizer, images, f"tiny-{family}")


def tiny_qwen(seed: int = 0) -> VisionLanguageModel:
    """Qwen2.5-VL's structure: 7 query heads a kv head, M-RoPE sections, windowed vision blocks."""
    special = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
    tokenizer = byte_tokenizer([*special, "<|image_pad|>", "<|video_pad|>"], "<|im_end|>")
    tokenizer.chat_template = QWEN_TEMPLATE
    ids = dict(zip(special, tokenizer.convert_tokens_to_ids(special), strict=True))
    config = hf.Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer), "hidden_size": 14 * 32, "intermediate_size": 96,
            "num_hidden_layers": 4, "num_attention_heads": 14, "num_key_value_heads": 2,
            "max_position_embeddings": 4096, "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 6, 6]
            },
        },
        vision_config={
            "depth": 3, "hidden_size": 64, "num_heads": 4, "intermediate_size": 96,
            "out_hidden_size": 14 * 32, "patch_size": 14, "spatial_merge_size": 2,
            "window_size": 56, "fullatt_block_indexes": [0, 2],
        },
        image_token_id=tokenizer.convert_tokens_to_ids("<|image_pad|>"),
        video_token_id=tokenizer.convert_tokens_to_ids("<|video_pad|>"),
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = scramble(hf.Qwen2_5_VLForConditionalGeneration(config), seed)
    model.generation_config = hf.GenerationConfig(eos_token_id=ids["<|im_end|>"])
    images = Qwen2VLImageProcessorPil(
        patch_size=14, merge_size=2, size={"shortest_edge": 56 * 56, "longest_edge": 448 * 448}
    )
    return Qwen25VL(prepare(model), tokenizer, images, "tiny-qwen")


def tiny_llava(seed: int = 0) -> VisionLanguageModel:
    """LLaVA-NeXT's structure: CLIP tower with CLS, tiles, unpadding, newline, 4 heads a kv head."""
    special = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<image>"]
    tokenizer = byte_tokenizer(special, "<|eot_id|>")
    config = hf.LlavaNextConfig(
        vision_config=hf.CLIPVisionConfig(
            hidden_size=48, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
            image_size=56, patch_size=14,
        ),
        text_config=hf.LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=8 * 32, intermediate_size=96, head_dim=32,
            num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2,
            max_position_embeddings=4096,
        ),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_grid_pinpoints=[[56, 112], [112, 56], [112, 112], [168, 56], [56, 168]],
        vision_feature_layer=-2,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = scramble(hf.LlavaNextForConditionalGeneration(config), seed)
    eos = tokenizer.convert_tokens_to_ids("<|eot_id|>")
    model.generation_config = hf.GenerationConfig(eos_token_id=eos)
    images = LlavaNextImageProcessorPil(
        size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56},
        image_grid_pinpoints=config.image_grid_pinpoints, do_pad=True,
    )  # fmt: skip
    return LlavaNext(prepare(model), tokenizer, images, "tiny-llava")


def small_config(folder: Path, text: dict[str, Any], vision: dict[str, Any]) -> hf.Qwen2_5_VLConfig:
    """An embedded model's configuration, of two layers in both halves and other sizes."""
    found = json.loads((folder / "config.json").read_text())
    layers = {"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}
    found["text_config"] |= layers | text
    found["vision_config"] |= {"depth": 2, "fullatt_block_indexes": [0, 1], "num_heads": 1}
    found["vision_config"] |= {"hidden_size": 64, **vision}
    return hf.Qwen2_5_VLConfig(**found)


def save_small_pocket(folder: Path) -> None:
    """A random model of the pocket's class: two layers, real tokenizer and processor, in shards."""
    torch.manual_seed(0)
    model = hf.Qwen2_5_VLForConditionalGeneration(small_config(POCKET, {}, {})).bfloat16()
    scramble(model, 0).bfloat16().save_pretrained(folder, max_shard_size="5MB")
    for path in (*POCKET.glob("*token*.json"), *POCKET.glob("*_config.json"), *POCKET.glob("*ja")):
        shutil.copy(path, folder)


TINY = {"qwen2_5_vl": tiny_qwen, "llava_next": tiny_llava}
