"""Qwen3.5 and 3.6: one layer in four has Keys, of 256 channels, and is compressed; the others keep
a state of linear attention (`rotatek.bridge.state_layers`).

Prompts are Qwen3-VL's, and the tower is its tower without deeper features. The gate that
multiplies attention's output comes after our attention, inside the model's own module.
"""

from typing import ClassVar

from rotatek.models.qwen2_vl import Qwen2VL
from rotatek.models.qwen3_vl import Qwen3VL


class Qwen35(Qwen3VL):
    """`Qwen3_5ForConditionalGeneration` and its tokenizer and image processor."""

    family: ClassVar[str] = "qwen3_5"
    features = Qwen2VL.features
    read = Qwen2VL.read


class Qwen35MoE(Qwen35):
    """`Qwen3_5MoeForConditionalGeneration`: the same with experts."""

    family: ClassVar[str] = "qwen3_5_moe"
