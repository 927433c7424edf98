"""A small file of SmolLM2's form, and the parts that make an embedded model of it."""

import gzip
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from tokenizers import pre_tokenizers
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel as Tower,
)

from rotatek.models import smollm2
from rotatek.models.assembly import DOWN, LANGUAGE, RECIPE, STEP, UP, VISUAL
from rotatek.models.loading import POCKET_SMOL
from rotatek.models.smollm2 import MATRICES, NORMS
from tests.tiny import small_config

LAYERS, HEADS, KV_HEADS, WIDTH, INNER, VOCABULARY = 2, 4, 2, 16, 96, 273
HIDDEN = HEADS * WIDTH
STRING, ARRAY, UNSIGNED, REAL = 8, 9, 4, 6
F32, F16, Q4_1, Q8_0 = 0, 1, 3, 8


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key: str, value: Any) -> bytes:
    if isinstance(value, str):
        return text(key) + struct.pack("<I", STRING) + text(value)
    if isinstance(value, list):
        kind = STRING if value and isinstance(value[0], str) else UNSIGNED
        body = b"".join(text(v) if kind == STRING else struct.pack("<I", v) for v in value)
        return text(key) + struct.pack("<IIQ", ARRAY, kind, len(value)) + body
    letter, kind = ("f", REAL) if isinstance(value, float) else ("I", UNSIGNED)
    return text(key) + struct.pack("<I", kind) + struct.pack(f"<{letter}", value)


def packed(values: np.ndarray, form: int) -> bytes:
    """Numbers as the file stores them; those of blocks are rounded to what a block can say."""
    if form in (F32, F16):
        return values.astype("<f4" if form == F32 else "<f2").tobytes()
    out = b""
    for block in values.reshape(-1, 32):
        if form == Q8_0:
            scale = np.float16(np.abs(block).max() / 127 or 1)
            out += scale.tobytes() + np.round(block / np.float32(scale)).astype(np.int8).tobytes()
        else:
            least = np.float16(block.min())
            scale = np.float16((block.max() - block.min()) / 15 or 1)
            levels = np.clip(np.round((block - np.float32(least)) / np.float32(scale)), 0, 15)
            low, high = levels.astype(np.uint8).reshape(2, 16)
            out += scale.tobytes() + least.tobytes() + (low | high << 4).tobytes()
    return out


def write(path: Path, metadata: dict[str, Any], tensors: dict[str, tuple[np.ndarray, int]]) -> None:
    """A GGUF file of version 3."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(entry(key, value) for key, value in metadata.items())
    data = b""
    for name, (values, form) in tensors.items():
        shape = values.shape[::-1]
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        head += struct.pack("<IQ", form, len(data))
        stored = packed(values, form)
        data += stored + bytes(-len(stored) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def paired(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries or Keys in the file's order: channels i and i + d / 2 side by side."""
    width = rows.shape[1]
    return rows.reshape(heads, 2, -1, width).swapaxes(1, 2).reshape(-1, width)


def small(path: Path, state: dict[str, torch.Tensor]) -> None:
    """The file of a language model of that shape, all numbers as they are."""
    theirs = dict(MATRICES) | dict(NORMS)
    tensors = {
        "token_embd.weight": (state["embed_tokens.weight"].numpy(), F32),
        "output_norm.weight": (state["norm.weight"].numpy(), F32),
    }
    for layer in range(LAYERS):
        for name, other in theirs.items():
            values = state[f"layers.{layer}.{name}.weight"].numpy()
            if other in ("attn_q", "attn_k"):
                values = paired(values, HEADS if other == "attn_q" else KV_HEADS)
            tensors[f"blk.{layer}.{other}.weight"] = (values, F32)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<s{i}>" for i in range(14))]
    tokens = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": LAYERS,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.rope.freq_base": 100_000.0,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(special) + [1] * 256,
        "tokenizer.ggml.merges": [],
    }
    write(path, metadata, tensors)
    assert len(tokens) == VOCABULARY and len(special) > smollm2.VIDEO_PAD


def random_state(seed: int) -> dict[str, torch.Tensor]:
    """Tensors of such a language model, by their names in transformers' `LlamaModel`."""
    generator = torch.Generator().manual_seed(seed)
    kv = KV_HEADS * WIDTH
    sizes = ((HIDDEN, HIDDEN), (kv, HIDDEN), (kv, HIDDEN), (HIDDEN, HIDDEN), (INNER, HIDDEN),
             (INNER, HIDDEN), (HIDDEN, INNER))  # fmt: skip
    state = {
        "embed_tokens.weight": torch.randn(VOCABULARY, HIDDEN, generator=generator) * 0.1,
        "norm.weight": torch.ones(HIDDEN),
    }
    for layer in range(LAYERS):
        for name in NORMS:
            state[f"layers.{layer}.{name}.weight"] = torch.ones(HIDDEN)
        for name, size in zip(MATRICES, sizes, strict=True):
            value = torch.randn(size, generator=generator) * size[1] ** -0.5
            state[f"layers.{layer}.{name}.weight"] = value
    return state


def changes(state: dict[str, torch.Tensor], rank: int) -> dict[str, torch.Tensor]:
    """Random low-rank factors of every matrix, in the form that is shipped: int8 with steps."""
    generator = torch.Generator().manual_seed(2)
    found = {}
    for name, value in state.items():
        stem = LANGUAGE + name.removesuffix("weight")
        if value.dim() < 2 or not name.startswith("layers."):
            continue
        for kind, size in ((UP, (len(value), rank)), (DOWN, (rank, value.shape[1]))):
            factor = torch.randint(-127, 128, size, generator=generator)
            found[stem + kind] = factor.to(torch.int8)
            found[stem + kind + STEP] = torch.full((size[0], 1), 0.1 / 64).half()
    return found


def parts(folder: Path, state: dict[str, torch.Tensor]) -> None:
    """What is shipped beside that language model: a small tower, factors, configuration, recipe."""
    text = {
        "hidden_size": HIDDEN, "intermediate_size": INNER, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "vocab_size": VOCABULARY,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e5, "mrope_section": [2, 3, 3]
        },
    }  # fmt: skip
    config = small_config(POCKET_SMOL, text, {"hidden_size": 128, "out_hidden_size": HIDDEN})
    torch.manual_seed(2)
    tower = Tower._from_config(config.vision_config).state_dict()
    own = {
        VISUAL + name: value.to(torch.float8_e4m3fn if value.ndim > 1 else torch.bfloat16)
        for name, value in tower.items()
    }
    config.save_pretrained(folder)
    for number, held in enumerate((own, changes(state, 4)), 1):
        packed = gzip.compress(save(held))
        (folder / f"parts-{number:05d}-of-00002.safetensors.gz").write_bytes(packed)
    recipe = json.loads((POCKET_SMOL / RECIPE).read_text()) | {"sha256": smollm2.SHA256}
    (folder / RECIPE).write_text(json.dumps(recipe))
    for name in ("generation_config.json", "preprocessor_config.json", "chat_template.jinja"):
        shutil.copy(POCKET_SMOL / name, folder)
