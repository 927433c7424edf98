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
    family: str, model: hf.PreTrainedModel, tokenizer: hf.PreTrainedTokenizerFast, images: Any,
    seed: int = 0,
) -> VisionLanguageModel:  # fmt: skip
    """A family's adapter over a network with random weights."""
    eos = tokenizer.convert_tokens_to_ids(tokenizer.eos_token)
    model.generation_config = hf.GenerationConfig(eos_token_id=eos, pad_token_id=0)
    adapter = FAMILIES[family].adapter
    return adapter(prepare(scramble(model, seed)), tokenizer, images, f"tiny-{family}")


def rope(**more: Any) -> dict[str, Any]:
    """Sections of M-RoPE."""
    sections = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 6, 6]}
    return {"rope_parameters": sections | more}


def qwen_like(
    kind: type, config: type, text: dict[str, Any], vision: dict[str, Any], seed: int = 0,
    **more: Any,
) -> VisionLanguageModel:  # fmt: skip
    """A model of one of Qwen's families."""
    special = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
    tokenizer = byte_tokenizer([*special, "<|image_pad|>", "<|video_pad|>"], "<|im_end|>")
    tokenizer.chat_template = QWEN_TEMPLATE
    names = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")
    ids = tokenizer.convert_tokens_to_ids([*special[2:], "<|image_pad|>", "<|video_pad|>"])
    tower = {"depth": 3, "num_heads": 4, "patch_size": 14, "spatial_merge_size": 2} | vision
    made = config(
        text_config=text | {"vocab_size": len(tokenizer)}, vision_config=tower,
        **dict(zip(names, ids, strict=True)), **more,
    )  # fmt: skip
    images = Qwen2VLImageProcessorPil(
        patch_size=tower["patch_size"], merge_size=2,
        size={"shortest_edge": 56 * 56, "longest_edge": 448 * 448},
    )  # fmt: skip
    return finish(made.model_type, kind(made), tokenizer, images, seed)


def tiny_qwen(seed: int = 0) -> VisionLanguageModel:
    """Qwen2.5-VL's structure: 7 query heads a kv head, M-RoPE sections, windowed vision blocks."""
    text = {
        "hidden_size": 14 * 32, "intermediate_size": 96, "num_hidden_layers": 4,
        "num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
    }  # fmt: skip
    vision = {
        "hidden_size": 64, "intermediate_size": 96, "out_hidden_size": 14 * 32, "window_size": 56,
        "fullatt_block_indexes": [0, 2],
    }  # fmt: skip
    kind, config = hf.Qwen2_5_VLForConditionalGeneration, hf.Qwen2_5_VLConfig
    return qwen_like(kind, config, text | rope(), vision, seed, tie_word_embeddings=True)


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
    images = LlavaNextImageProcessorPil(
        size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56},
        image_grid_pinpoints=config.image_grid_pinpoints, do_pad=True,
    )  # fmt: skip
    torch.manual_seed(seed)  # of the embeddings that are no matrices
    network = hf.LlavaNextForConditionalGeneration(config)
    return finish("llava_next", network, tokenizer, images, seed)


def save_small_pocket(folder: Path) -> None:
    """A random model of the pocket's class: two layers, real tokenizer and processor, in shards."""
    found = json.loads((POCKET / "config.json").read_text())
    found["text_config"] |= {"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}
    found["vision_config"] |= {
        "depth": 2, "fullatt_block_indexes": [0, 1], "num_heads": 1, "hidden_size": 64
    }  # fmt: skip
    torch.manual_seed(0)
    model = hf.Qwen2_5_VLForConditionalGeneration(hf.Qwen2_5_VLConfig(**found)).bfloat16()
    scramble(model, 0).bfloat16().save_pretrained(folder, max_shard_size="5MB")
    for path in (*POCKET.glob("*token*.json"), *POCKET.glob("*_config.json"), *POCKET.glob("*ja")):
        shutil.copy(path, folder)


TINY = {"qwen2_5_vl": tiny_qwen, "llava_next": tiny_llava}
