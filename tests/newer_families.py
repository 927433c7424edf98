"""Small random models of families whose processors transformers has with torchvision: Mistral 3 and
Pixtral, whose image processor has a form of Pillow, and LFM2-VL and Molmo 2, which are given their
processor as a whole."""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from unittest import mock

import transformers
from transformers import (
    Lfm2Config,
    Lfm2VlConfig,
    Lfm2VlForConditionalGeneration,
    LlavaConfig,
    LlavaForConditionalGeneration,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    MistralConfig,
    PixtralVisionConfig,
    PreTrainedTokenizerFast,
    Siglip2VisionConfig,
)

from rotatek.models import VisionLanguageModel
from rotatek.models.families import FAMILIES
from tests.tiny import SIGLIP, TEXT, byte_tokenizer, finish

CHATML = (
    "{%- for m in messages -%}<|im_start|>{{ m['role'] }}\n"
    "{%- for part in m['content'] -%}"
    "{{ 'PICTURE' if part['type'] == 'image' else part['text'] }}{%- endfor -%}<|im_end|>\n"
    "{%- endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant\n{%- endif -%}"
)


def pixtral_processor() -> type:
    """`PixtralProcessor`: what it needs of torchvision's module, Pillow's has, too."""
    package = "transformers.models.pixtral"
    pillow = import_module(f"{package}.image_processing_pil_pixtral")
    with mock.patch.dict(sys.modules, {f"{package}.image_processing_pixtral": pillow}):
        found: type = import_module(f"{package}.processing_pixtral").PixtralProcessor
    return found


def _mistral_tokenizer() -> PreTrainedTokenizerFast:
    special = ["<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"]
    tokenizer = byte_tokenizer([*special, "[IMG]", "[IMG_BREAK]", "[IMG_END]"], "</s>")
    tokenizer.bos_token = "<s>"
    return tokenizer


def _tower() -> PixtralVisionConfig:
    return PixtralVisionConfig(**SIGLIP, head_dim=12)


def tiny_mistral3() -> VisionLanguageModel:
    """Mistral 3: pictures in their own shape, four patches a token, a token behind each row."""
    tokenizer = _mistral_tokenizer()
    config = Mistral3Config(
        vision_config=_tower(),
        text_config=MistralConfig(**TEXT, vocab_size=len(tokenizer), sliding_window=None),
        image_token_index=tokenizer.convert_tokens_to_ids("[IMG]"), tie_word_embeddings=False,
    )  # fmt: skip
    images = FAMILIES["mistral3"].images(size={"longest_edge": 140}, patch_size=14)
    return finish("mistral3", Mistral3ForConditionalGeneration(config), tokenizer, images)


def tiny_pixtral() -> VisionLanguageModel:
    """Pixtral: the same tower under LLaVA's class, a patch a token."""
    tokenizer = _mistral_tokenizer()
    config = LlavaConfig(
        vision_config=_tower(),
        text_config=MistralConfig(**TEXT, vocab_size=len(tokenizer), sliding_window=None),
        image_token_index=tokenizer.convert_tokens_to_ids("[IMG]"), vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )  # fmt: skip
    images = FAMILIES["pixtral"].images(size={"longest_edge": 140}, patch_size=14)
    return finish("pixtral", LlavaForConditionalGeneration(config), tokenizer, images)


def lfm2_model(tokenizer: PreTrainedTokenizerFast) -> Any:
    """LFM2-VL's network: convolutions in every second layer."""
    text = TEXT | {"layer_types": ["conv", "full_attention"] * 2, "vocab_size": len(tokenizer)}
    del text["head_dim"]
    vision = {k: v for k, v in SIGLIP.items() if k not in ("image_size", "patch_size")}
    config = Lfm2VlConfig(
        vision_config=Siglip2VisionConfig(**vision, patch_size=16, num_patches=16),
        text_config=Lfm2Config(**text, block_auto_adjust_ff_dim=False),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"), projector_hidden_size=64,
        tie_word_embeddings=False,
    )  # fmt: skip
    return Lfm2VlForConditionalGeneration(config)


def lfm2_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, and the names of tiles."""
    tiles = [f"<|img_row_{r}_col_{c}|>" for r in range(1, 5) for c in range(1, 5)]
    special = ["<|im_start|>", "<|im_end|>", "<image>", "<|image_start|>", "<|image_end|>"]
    tokenizer = byte_tokenizer([*special, "<|img_thumbnail|>", *tiles], "<|im_end|>")
    tokenizer.chat_template = CHATML.replace("PICTURE", "<image>")
    return tokenizer


def tiny_lfm2() -> VisionLanguageModel:
    """LFM2-VL: named tiles and a thumbnail, a tower without padding, convolutions."""
    tokenizer = lfm2_tokenizer()
    images = transformers.Lfm2VlImageProcessor(
        tile_size=64, min_image_tokens=1, max_image_tokens=4, max_tiles=6, max_pixels_tolerance=1.0
    )
    processor = transformers.Lfm2VlProcessor(images, tokenizer)
    return finish("lfm2_vl", lfm2_model(tokenizer), tokenizer, processor)


def molmo2_model(tokenizer: PreTrainedTokenizerFast) -> Any:
    """Molmo 2's network."""
    names = ("im_patch", "im_start", "low_res_im_start", "im_end", "frame_start", "frame_end")
    ids = dict(
        zip(names, tokenizer.convert_tokens_to_ids([f"<{name}>" for name in names]), strict=True)
    )
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 12, "hidden_size": 48}
    config = transformers.Molmo2Config(
        text_config=TEXT | {"vocab_size": len(tokenizer), "additional_vocab_size": 0},
        vision_config=heads | {
            "intermediate_size": 64, "num_hidden_layers": 3, "image_size": [56, 56],
        },
        adapter_config=heads | {
            "intermediate_size": 64, "text_hidden_size": TEXT["hidden_size"],
            "vision_feature_layer": [2, 1],
        },
        image_patch_id=ids["im_patch"], image_start_token_id=ids["im_start"],
        low_res_image_start_token_id=ids["low_res_im_start"], image_end_token_id=ids["im_end"],
        frame_start_token_id=ids["frame_start"], frame_end_token_id=ids["frame_end"],
    )  # fmt: skip
    return transformers.Molmo2ForConditionalGeneration(config)


def molmo2_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, and the tokens of pictures."""
    special = ["<|im_start|>", "<|im_end|>", "<|image|>", "<|video|>", "<im_patch>", "<im_col>"]
    special += ["<im_start>", "<low_res_im_start>", "<im_end>", "<im_low>", "<frame_start>"]
    tokenizer = byte_tokenizer([*special, "<frame_end>", "<|endoftext|>"], "<|im_end|>")
    tokenizer.bos_token = "<|endoftext|>"
    tokenizer.chat_template = CHATML.replace("PICTURE", "<|image|>")
    return tokenizer


def tiny_molmo2() -> VisionLanguageModel:
    """Molmo 2: a view and overlapping crops, features added to embeddings, pictures' tokens that
    see each other both ways."""
    tokenizer = molmo2_tokenizer()
    images = transformers.Molmo2ImageProcessor(
        size={"height": 56, "width": 56}, overlap_margins=[1, 1], max_crops=4
    )
    clips = transformers.Molmo2VideoProcessor()
    processor = transformers.Molmo2Processor(
        images, clips, tokenizer, use_single_crop_col_tokens=False
    )
    return finish("molmo2", molmo2_model(tokenizer), tokenizer, processor)


NEWER: dict[str, Callable[[], VisionLanguageModel]] = {
    "mistral3": tiny_mistral3,
    "pixtral": tiny_pixtral,
}
WHOLE: dict[str, Callable[[], VisionLanguageModel]] = {  # these are given their processor
    "lfm2_vl": tiny_lfm2,
    "molmo2": tiny_molmo2,
}
CONFIGS = {"lfm2_vl": "Lfm2VlConfig", "molmo2": "Molmo2Config"}
AT_HAND = {  # transformers of 5.17 has no Molmo 2
    family: made
    for family, made in WHOLE.items()
    if find_spec("torchvision") and hasattr(transformers, CONFIGS[family])
}
