"""The pocket model's shape, its files, and how it is saved."""

import json
from pathlib import Path
from typing import Any, Final

import torch
from transformers import (
    GenerationConfig,
    PreTrainedModel,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from pocket.models import tokenizer

PATCH: Final = 14
MERGE: Final = 2
UNIT: Final = PATCH * MERGE  # pixels of one visual token's side
MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
STD: Final = (0.26862954, 0.26130258, 0.27577711)
# smaller pictures are scaled up: of 157 questions about ones of 224 x 224, 131 right, 113 without
MIN_PIXELS: Final = 192 * UNIT**2
MOST_TOKENS: Final = 1440  # of a picture: the first token in some 3.3 s on two cores; 1024: 2.3 s
MAX_PIXELS: Final = MOST_TOKENS * UNIT**2
SHARD_BYTES: Final = 9_000_000


def scaled(width: int, height: int) -> tuple[int, int]:
    """The size at which the shipped processor shows the model a picture."""
    height, width = smart_resize(height, width, UNIT, MIN_PIXELS, MAX_PIXELS)
    return width, height


def model_config(
    text_layers: int = 10, vision_layers: int = 10, text_hidden: int = 512, vision_hidden: int = 256
) -> Qwen2_5_VLConfig:
    """The shipped configuration; smaller arguments give a quick one for tests.

    Heads are 128 wide, as in the 7B models, so that keeping k of 128 channels means the same.
    """
    text = {
        "vocab_size": tokenizer.VOCAB_SIZE,
        "hidden_size": text_hidden,
        "intermediate_size": 2 * text_hidden,
        "num_hidden_layers": text_layers,
        "num_attention_heads": text_hidden // 128,
        "num_key_value_heads": max(1, text_hidden // 256),
        "hidden_act": "silu",
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "mrope_section": [16, 24, 24],
        },
        "bos_token_id": None,
        "eos_token_id": tokenizer.IM_END,
        "pad_token_id": tokenizer.PAD,
    }
    vision = tower_shape(vision_hidden, vision_layers, 640, text_hidden)
    return Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=tokenizer.IMAGE_PAD,
        video_token_id=tokenizer.VIDEO_PAD,
        vision_start_token_id=tokenizer.VISION_START,
        vision_end_token_id=tokenizer.VISION_END,
        tie_word_embeddings=True,
    )


def tower_shape(hidden: int, layers: int, mlp: int, out: int) -> dict[str, Any]:
    """`vision_config` of a Qwen2.5-VL whose blocks all attend to the whole picture.

    Args:
        hidden: width of a block, a multiple of 64.
        layers: number of blocks.
        mlp: width inside a block's MLP.
        out: width of the language model.
    """
    return {
        "depth": layers,
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "num_heads": hidden // 64,
        "hidden_act": "silu",
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": 2,
        "in_channels": 3,
        "out_hidden_size": out,
        "fullatt_block_indexes": list(range(layers)),
        "window_size": 112,
    }


def fresh(kind: type[PreTrainedModel], config: Any, seed: int) -> Any:
    """A model of class `kind` with fresh weights, in float32 on the CPU."""
    torch.manual_seed(seed)
    model = kind(config)
    model.tie_weights()
    return model.float()


def build_model(config: Qwen2_5_VLConfig, seed: int = 0) -> Qwen2_5_VLForConditionalGeneration:
    """The first pocket with fresh weights in float32 on the CPU."""
    return fresh(Qwen2_5_VLForConditionalGeneration, config, seed)


def export(
    model: PreTrainedModel,
    folder: Path,
    preprocessor: dict[str, Any],
    matrices: torch.dtype = torch.bfloat16,
) -> None:
    """Write weights in shards of at most 9 MB, configuration, tokenizer and processor.

    Args:
        model: What to write; its weights become bfloat16.
        folder: Where to.
        preprocessor: The processor's settings.
        matrices: Of what type to store matrices. Float8 (e4m3fn) is stored unscaled:
            `from_pretrained` casts them to the configuration's bfloat16, so loading only rounds
            the weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.safetensors*"):
        old.unlink()
    copy: Any = type(model)(model.config).to(torch.bfloat16)
    copy.load_state_dict({k: v.detach().to("cpu") for k, v in model.state_dict().items()})
    copy.tie_weights()
    copy.generation_config = GenerationConfig(
        eos_token_id=tokenizer.IM_END,
        pad_token_id=tokenizer.PAD,
        do_sample=False,
        max_new_tokens=512,
        suppress_tokens=list(tokenizer.VISION_IDS),
    )
    state = {  # tied weights come once; the model keeps its own type, which the configuration names
        name: p.detach().to(matrices if p.ndim > 1 else p.dtype)
        for name, p in copy.named_parameters()
    }
    copy.save_pretrained(folder, state_dict=state, max_shard_size=SHARD_BYTES)
    tokenizer.save_tokenizer(folder)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(preprocessor, indent=1) + "\n", encoding="utf-8")


def save_model(model: Qwen2_5_VLForConditionalGeneration, folder: Path) -> None:
    """Write the first pocket as `export` does, its matrices in float8: twice as many fit."""
    export(model, folder, preprocessor(), torch.float8_e4m3fn)


def preprocessor() -> dict[str, Any]:
    """The settings of the stock Qwen2-VL image processors."""
    return {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2_5_VLProcessor",
        "patch_size": PATCH,
        "merge_size": MERGE,
        "temporal_patch_size": 2,
        "min_pixels": MIN_PIXELS,
        "max_pixels": MAX_PIXELS,
        "size": {"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS},
        "image_mean": list(MEAN),
        "image_std": list(STD),
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "do_convert_rgb": True,
        "rescale_factor": 1 / 255,
        "resample": 3,
    }


def text_length(width: int, height: int) -> int:
    """Text tokens of a training sequence whose image is `width` x `height` pixels."""
    return min(1024, 320 + width * height // UNIT**2 // 64 * 64)
