"""A reader of GGUF files: their metadata, and their tensors as plain numbers.

It knows the few forms of storage that SmolLM2's published file has; others are refused.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

ALIGNMENT: Final = 32  # bytes, unless the metadata say otherwise
BLOCK: Final = 32  # numbers that share a scale
# struct's letters of the metadata's number types; 8 is a string and 9 an array
NUMBERS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q",
                  11: "q", 12: "d"}  # fmt: skip
STRING, ARRAY = 8, 9
F32, Q4_1, Q8_0 = 0, 3, 8
BYTES: Final = {F32: 4.0, Q4_1: 20 / BLOCK, Q8_0: 34 / BLOCK}  # of one number


@dataclass(frozen=True)
class Stored:
    """Where a tensor is: its shape as PyTorch has it, its form, its first byte in the file."""

    shape: tuple[int, ...]
    form: int
    start: int


class GGUF:
    """An open file. Tensors are read when they are asked for.

    Args:
        path: the file.

    Raises:
        ValueError: for a file that is not GGUF, or that ends too early.
    """

    def __init__(self, path: Path) -> None:
        self._data = np.memmap(path, np.uint8, "r")
        self._at = 0
        if bytes(self._data[:4]) != b"GGUF":
            raise ValueError(f"{path.name} is no GGUF file")
        self._at = 4
        try:
            self._number("I")  # the version
            tensors, entries = self._number("Q"), self._number("Q")
            self.metadata: dict[str, Any] = {}
            for _ in range(entries):
                key = self._string()
                self.metadata[key] = self._value(self._number("I"))
            found = [self._tensor() for _ in range(tensors)]
        except (struct.error, UnicodeDecodeError) as exc:
            raise ValueError(f"{path.name} ends too early, or is damaged") from exc
        align = int(self.metadata.get("general.alignment", ALIGNMENT))
        base = -(-self._at // align) * align
        self.tensors = {
            name: Stored(shape, form, base + start) for name, shape, form, start in found
        }

    def read(self, name: str) -> np.ndarray:
        """A tensor as float32, of its shape.

        Raises:
            KeyError: for a name that the file has not.
            ValueError: for a form of storage that this reader does not know, or a file cut off.
        """
        stored = self.tensors[name]
        if stored.form not in BYTES:
            raise ValueError(f"{name} is stored in form {stored.form}, which is not read here")
        count = int(np.prod(stored.shape))
        end = stored.start + int(count * BYTES[stored.form])
        if end > len(self._data):
            raise ValueError(f"the file ends before {name}")
        return _plain(np.array(self._data[stored.start : end]), stored.form).reshape(stored.shape)

    def _number(self, letter: str) -> Any:
        size = struct.calcsize(f"<{letter}")
        value = struct.unpack(f"<{letter}", self._data[self._at : self._at + size].tobytes())[0]
        self._at += size
        return value

    def _string(self) -> str:
        size = self._number("Q")
        text = self._data[self._at : self._at + size].tobytes()
        if len(text) < size:
            raise struct.error("a string is cut off")
        self._at += size
        return text.decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            inner, size = self._number("I"), self._number("Q")
            return [self._value(inner) for _ in range(size)]
        if kind not in NUMBERS:
            raise struct.error(f"metadata of kind {kind}")
        return self._number(NUMBERS[kind])

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name, axes = self._string(), self._number("I")
        shape = tuple(self._number("Q") for _ in range(axes))[::-1]  # the fastest axis comes first
        return name, shape, self._number("I"), self._number("Q")


def _plain(data: np.ndarray, form: int) -> np.ndarray:
    """Bytes of one tensor as float32, flat."""
    if form == F32:
        return data.view("<f4").astype(np.float32)
    if form == Q8_0:  # a scale, then 32 signed bytes
        blocks = data.reshape(-1, 34)
        scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
        return (blocks[:, 2:].copy().view(np.int8) * scale).ravel()
    blocks = data.reshape(-1, 20)  # a scale, a least value, then 16 low and 16 high halves of bytes
    scale, least = blocks[:, :4].copy().view("<f2").astype(np.float32).T[..., None]
    halves = np.concatenate((blocks[:, 4:] & 15, blocks[:, 4:] >> 4), 1)
    return (halves * scale + least).ravel().astype(np.float32)
