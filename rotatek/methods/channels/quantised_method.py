"""Shared by methods that store every number in a few bits: packed codes, unpacked layer by layer.

They keep every channel of every token, so they have no figures of channels; they are compared with
at equal bytes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self

import torch
from torch import Tensor

from rotatek.methods.channels.base import ChannelMethod
from rotatek.methods.channels.store import Store
from rotatek.methods.options import choice

FULL_BITS: Final = 16  # of a number in an uncompressed cache, as nominal shares count it
LARGEST: Final = torch.finfo(torch.float16).max
SAME: Final = "same"  # bits of Values, where Keys say them


def bits_option(bits: Sequence[str]) -> Any:
    """The option `bits` of a method that stores every number in one of so many."""
    return choice(
        "4",
        "Bits of a number",
        "bits in which every number of Keys and Values is stored",
        [(one, f"{one} bits") for one in bits],
        key="number_bits",
        place="main",
    )


def value_bits_option(bits: Sequence[str]) -> Any:
    """The option `value_bits` beside it."""
    return choice(
        SAME,
        "Bits of a Value",
        "bits of a number of the Values where they differ from the Keys'",
        [(SAME, "as many as a Key"), *((one, f"{one} bits") for one in bits)],
        place="more",
    )


@dataclass
class PackedStore(Store):
    """Codes in place of Keys and Values, and their scales; subclasses write `read`.

    Args:
        visual: keys and values are packed codes, uint8 [B, Hkv, N, bytes].
        beside: scales, zero points or norms by name; a name begins with "key" or "value".
        key_bits: of a code of Keys, on average.
        value_bits: of one of Values.
        width: d, numbers of a head.
        dtype: of the numbers of `read`.
    """

    beside: dict[str, Tensor]
    key_bits: float
    value_bits: float
    width: int
    dtype: torch.dtype

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """(kind, tensor) of all tensors."""
        yield from super().tensors()
        for name, tensor in self.beside.items():
            yield "visual_keys" if name.startswith("key") else "visual_values", tensor

    def select(self, change: Callable[[Tensor], Tensor]) -> None:
        """Apply a batch selection to every tensor."""
        super().select(change)
        self.beside = {name: change(tensor) for name, tensor in self.beside.items()}


@dataclass(frozen=True)
class PackedMethod(ChannelMethod):
    """A method whose options are numbers of bits; its own field `bits` has `steps`."""

    drops_channels: ClassVar[bool] = False
    steps: ClassVar[tuple[str, ...]]

    bits: str
    value_bits: str

    @property
    def each(self) -> tuple[float, float]:
        """Bits of a number of Keys, and of Values."""
        keys = float(self.bits)
        return keys, keys if self.value_bits == SAME else float(self.value_bits)

    @property
    def nominal_share(self) -> float:
        """Bits of a number over 16; scales and norms are not counted, as bases are not."""
        return sum(self.each) / 2 / FULL_BITS

    @property
    def form(self) -> str:
        """`4 bits`, or `4 and 2 bits` of Keys and Values."""
        alike = self.value_bits in (SAME, self.bits)
        return f"{self.bits} bits" if alike else f"{self.bits} and {self.value_bits} bits"

    def with_share(self, share: float) -> Self:
        """As many bits as fit into `share`, for Keys and Values alike; the fewest where none do."""
        fit = [bits for bits in self.steps if float(bits) / FULL_BITS <= share]
        return replace(self, bits=max(fit, key=float, default=self.steps[0]), value_bits=SAME)
