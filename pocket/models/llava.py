"""The second pocket model: a small LLaVA-NeXT, its shape, its first weights, how it is saved."""

from pathlib import Path
from typing import Any, Final

import torch
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
)

from pocket.models import tokenizer
from pocket.models.config import MEAN, PATCH, STD, export, fresh

SIDE: Final = 336  # pixels of a tile's side
# Tilings, rows x columns. The 7B models lack the first: it spares small pictures blank tiles.
GRIDS: Final = ((1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (1, 3))


def llava_config(
    text_layers: int = 9,
    vision_layers: int = 7,
    text_hidden: int = 384,
    vision_hidden: int = 256,
    heads: int = 4,
    side: int = SIDE,
) -> LlavaNextConfig:
    """The shape that a training grows smaller weights to; smaller arguments give a quick one for
    tests.

    Heads of the decoder are 128 wide, as in the 7B and 8B models, whatever its hidden size. Of 18
    million parameters most are the decoder's: with 5 layers the tower's glyphs were read (.96 of an
    answer's bytes after its first), but the place where an answer begins was not found (.47).
    """
    text = LlamaConfig(
        vocab_size=tokenizer.VOCAB_SIZE,
        hidden_size=text_hidden,
        intermediate_size=2 * text_hidden,
        num_hidden_layers=text_layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 2),
        head_dim=128,
        max_position_embeddings=8192,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        bos_token_id=None,
        eos_token_id=tokenizer.IM_END,
        pad_token_id=tokenizer.PAD,
    )
    vision = CLIPVisionConfig(
        hidden_size=vision_hidden,
        intermediate_size=vision_hidden * 5 // 2,
        num_hidden_layers=vision_layers,
        num_attention_heads=vision_hidden // 64,
        image_size=side,
        patch_size=PATCH,
        projection_dim=vision_hidden,
    )
    return LlavaNextConfig(
        text_config=text,
        vision_config=vision,
        image_token_index=tokenizer.IMAGE_PAD,
        image_grid_pinpoints=[[rows * side, columns * side] for rows, columns in GRIDS],
        image_seq_length=(side // PATCH) ** 2,
        # No block was trained for another purpose than this one, so the last one is read.
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        tie_word_embeddings=True,
    )


def build_llava(config: LlavaNextConfig, seed: int = 0) -> LlavaNextForConditionalGeneration:
    """A model with fresh weights in float32 on the CPU."""
    return fresh(LlavaNextForConditionalGeneration, config, seed)


def vision_parts(model: Any) -> Any:
    """The tower's module that holds embeddings and encoder, wherever this release keeps it."""
    tower = model.model.vision_tower
    return getattr(tower, "vision_model", tower)


def save_llava(model: LlavaNextForConditionalGeneration, folder: Path) -> None:
    """Write the second pocket as `models.config.export` does, its matrices in float8."""
    export(model, folder, _preprocessor(model.config), torch.float8_e4m3fn)


def _preprocessor(config: LlavaNextConfig) -> dict[str, Any]:
    """The settings of the stock LLaVA-NeXT image processors."""
    side = config.vision_config.image_size
    return {
        "image_processor_type": "LlavaNextImageProcessor",
        "processor_class": "LlavaNextProcessor",
        "image_grid_pinpoints": config.image_grid_pinpoints,
        "size": {"shortest_edge": side},
        "crop_size": {"height": side, "width": side},
        "image_mean": list(MEAN),
        "image_std": list(STD),
        "do_resize": True,
        "do_center_crop": True,
        "do_rescale": True,
        "do_normalize": True,
        "do_convert_rgb": True,
        "do_pad": True,
        "rescale_factor": 1 / 255,
        "resample": 3,
    }
