"""A small file of SmolLM2's form: as few layers and tokens as make a language model."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pocket.models.smol import TINY
from pocket.models.tokenizer import byte_symbols
from rotatek.models import smollm2
from rotatek.models.smollm2 import MATRICES, NORMS

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
    """The file of a language model of the shape `TINY`, all numbers as they are."""
    theirs = dict(MATRICES) | dict(NORMS)
    tensors = {
        "token_embd.weight": (state["embed_tokens.weight"].numpy(), F32),
        "output_norm.weight": (state["norm.weight"].numpy(), F32),
    }
    for layer in range(TINY.layers):
        for name, other in theirs.items():
            values = state[f"layers.{layer}.{name}.weight"].numpy()
            if other in ("attn_q", "attn_k"):
                values = paired(values, TINY.heads if other == "attn_q" else TINY.kv_heads)
            tensors[f"blk.{layer}.{other}.weight"] = (values, F32)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<s{i}>" for i in range(14))]
    tokens = [*special, *byte_symbols()]
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": TINY.layers,
        "llama.attention.head_count": TINY.heads,
        "llama.attention.head_count_kv": TINY.kv_heads,
        "llama.rope.freq_base": TINY.theta,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(special) + [1] * 256,
        "tokenizer.ggml.merges": [],
    }
    write(path, metadata, tensors)
    assert len(tokens) == TINY.vocabulary and len(special) > smollm2.VIDEO_PAD
