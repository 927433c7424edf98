"""What benchmarks of whole models have in common: questions, settings, and Qwen2.5-VL-7B with
random weights on a GPU.

Numbers are those of the published `config.json`; the tokenizer is bytes and special tokens. No 16
GB checkpoint is needed to measure what the real shapes cost. Answers mean nothing.
"""

from typing import Any, Final

import numpy as np
import torch
from PIL import Image
from transformers import GenerationConfig, PreTrainedModel

from rotatek.bridge.attention import prepare
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel
from rotatek.models.qwen import Qwen25VL
from tests.tiny import tiny_qwen

QUESTION: Final = "What is the total on this receipt?"
SIDES: Final = (1680, 1344)  # pixels: 2,880 visual tokens
SETTINGS: Final = {
    "uncompressed": BASELINE,
    "k=d/4": Settings.of(keep_channels=0.25),
    "smaller=8": Settings.of(smaller=8),
}
TEXT: dict[str, Any] = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 128000,
    "tie_word_embeddings": False, "vocab_size": 152064,
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24],
    },
}  # fmt: skip
VISION: dict[str, Any] = {
    "depth": 32, "hidden_size": 1280, "num_heads": 16, "intermediate_size": 3420,
    "out_hidden_size": 3584, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31],
}  # fmt: skip


def drawn() -> tuple[PreTrainedModel, VisionLanguageModel]:
    """A full-size model as transformers has it, with random weights in bfloat16 on the GPU; and the
    tiny one whose structure it has."""
    small = tiny_qwen()
    config = small.model.config.to_dict()
    text = {name: value for name, value in config["text_config"].items()
            if name not in ("head_dim", "layer_types", "per_layer_config")}  # fmt: skip
    config |= {"tie_word_embeddings": False, "text_config": text | TEXT}
    config["vision_config"] = config["vision_config"] | VISION
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            model = type(small.model)(type(small.model.config).from_dict(config))
    finally:
        torch.set_default_dtype(torch.float32)
    eos = small.tokenizer.convert_tokens_to_ids(small.tokenizer.eos_token)
    model.generation_config = GenerationConfig(eos_token_id=eos)
    return model.eval(), small


def adapted(model: PreTrainedModel, small: VisionLanguageModel) -> VisionLanguageModel:
    """A model of `drawn` as `load` gives it."""
    vlm = Qwen25VL(prepare(model), small.tokenizer, small.images, "qwen2.5-vl-7b (random)")
    vlm.optimise_for_gpu()
    return vlm


def noise(width: int, height: int, grain: int = 8, seed: int = 0) -> Image.Image:
    """A picture of random colours, in squares of `grain` pixels that run into one another."""
    generator = np.random.default_rng(seed)
    colours = generator.integers(0, 255, (height // grain, width // grain, 3), dtype=np.uint8)
    return Image.fromarray(colours).resize((width, height))


def model_and_sides(tiny: bool) -> tuple[VisionLanguageModel, tuple[int, int]]:
    """Qwen2.5-VL-7B's shapes and a picture's pixels; or a tiny model on a processor."""
    if tiny:
        return tiny_qwen(), (224, 168)
    vlm = adapted(*drawn())
    vlm.images.size = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 2880}
    return vlm, SIDES
