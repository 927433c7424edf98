"""Shared by methods that store every number in a few bits: packed codes, unpacked layer by layer.

They keep every channel of every token, so they have no figures of channels; they are compared with
at equal bytes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self

import torch
from torch import Tensor

from rotatek.methods.channels.base import ChannelMethod
from rotatek.methods.channels.bit_packing import unpack
from rotatek.methods.channels.store import Store
from rotatek.methods.options import choice

BITS: Final = (2, 3, 4)
FULL_BITS: Final = 16  # of a number in an uncompressed cache, as nominal shares count it
LARGEST: Final = torch.finfo(torch.float16).max


def bits_option() -> Any:
    """The option `bits` of a method that stores every number in as many."""
    return choice(
        "4",
        "Bits of a number",
        "bits in which every number of Keys and Values is stored",
        [(str(bits), f"{bits} bits") for bits in BITS],
        key="number_bits",
        place="main",
    )


@dataclass
class PackedStore(Store):
    """Codes in place of Keys and Values, and their scales; subclasses write `read`.

    Args:
        visual: keys and values are packed codes, uint8 [B, Hkv, N, bytes].
        beside: scales, zero points or norms by name; a name begins with "key" or "value".
        bits: of a code.
        width: d, numbers of a head.
        dtype: of the numbers of `read`.
    """

    beside: dict[str, Tensor]
    bits: int
    width: int
    dtype: torch.dtype

    def codes(self) -> tuple[Tensor, Tensor]:
        """Those of Keys and of Values, uint8 [B, Hkv, N, d]."""
        keys, values = self.visual.keys, self.visual.values
        return unpack(keys, self.bits, self.width), unpack(values, self.bits, self.width)

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
    """A method whose one option is the number of bits."""

    drops_channels: ClassVar[bool] = False

    bits: str = bits_option()

    @property
    def nominal_share(self) -> float:
        """Bits of a number over 16; scales and norms are not counted, as bases are not."""
        return int(self.bits) / FULL_BITS

    @property
    def form(self) -> str:
        """`4 bits`."""
        return f"{self.bits} bits"

    def with_share(self, share: float) -> Self:
        """As many bits as fit into `share`; the fewest where none do."""
        fit = [bits for bits in BITS if bits / FULL_BITS <= share]
        return replace(self, bits=str(max(fit, default=BITS[0])))
