"""Shared by methods that store every number in a few bits: packed codes, unpacked layer by layer.

They keep every channel of every token, so they have no figures of channels; they are compared with
at equal bytes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from kernels.reference import Narrow
from rotatek.errors import ModeUnsupported
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


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # a tensor for every later call
def hadamard(width: int, device: torch.device) -> Tensor:
    """The orthonormal, symmetric Hadamard matrix [width, width] (Sylvester's).

    Raises:
        ModeUnsupported: where width is no power of two.
    """
    if width & (width - 1):
        raise ModeUnsupported(
            "Methods with a Hadamard matrix need heads whose width is a power of two, and this "
            f'model\'s have {width}. Choose channels="rotatek" or "kivi".'
        )
    matrix = torch.ones(1, 1)
    while len(matrix) < width:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return (matrix / width**0.5).to(device)


@dataclass(frozen=True)
class Whole:
    """Visual tokens that stay at full width: some first ones and some last ones of each sample.

    Args:
        first: how many, from token 0 on.
        index: [B, n] the places of all of them, or None where there is none.
    """

    first: int
    index: Tensor | None

    @classmethod
    def of(cls, lengths: Tensor, tokens: int, first: int, last: int) -> Self:
        """Of samples of `lengths` [B] within N = tokens; all of them where there are fewer."""
        first = min(first, tokens)
        last = min(last, tokens - first)
        if not first + last:
            return cls(0, None)
        start = (lengths.long() - last).clamp(min=first)[:, None]
        front = torch.arange(first, device=lengths.device).expand(len(start), -1)
        back = start + torch.arange(last, device=lengths.device)
        return cls(first, torch.cat([front, back], 1))

    @property
    def count(self) -> int:
        """n."""
        return 0 if self.index is None else self.index.shape[1]

    def taken(self, states: Tensor, name: str) -> dict[str, Tensor]:
        """{name: [B, Hkv, n, d]} of states [B, Hkv, N, d]; nothing where none is whole."""
        return {} if self.index is None else {name: states.gather(2, self._placed(states))}

    def others(self, states: Tensor) -> Tensor:
        """[B, Hkv, N - n, d]: those between, as the longest sample has them."""
        return states[:, :, self.first : states.shape[2] - self.count + self.first]

    def put(self, others: Tensor, whole: Tensor | None) -> Tensor:
        """The inverse of `others` and `taken`: [B, Hkv, N, d]."""
        if whole is None:
            return others
        dense = pad(others, (0, 0, self.first, self.count - self.first))
        return dense.scatter(2, self._placed(dense), whole)

    def _placed(self, like: Tensor) -> Tensor:
        assert self.index is not None
        return self.index[:, None, :, None].expand(-1, like.shape[1], -1, like.shape[3])


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
        whole: how many first and last visual tokens are at full width, as key_whole and value_whole
            [B, Hkv, n, d] of `beside`.
    """

    visual: Narrow
    beside: dict[str, Tensor]
    key_bits: float
    value_bits: float
    width: int
    dtype: torch.dtype
    whole: tuple[int, int] = (0, 0)

    def dense(self, name: str, others: Tensor) -> Tensor:
        """Rebuilt numbers [B, Hkv, N - n, d] among the whole tokens': [B, Hkv, N, d]."""
        numbers, whole = others.to(self.dtype), self.beside.get(f"{name}_whole")
        if whole is None or self.visual.lengths is None:
            return numbers
        tokens = numbers.shape[2] + whole.shape[2]
        return Whole.of(self.visual.lengths, tokens, *self.whole).put(numbers, whole)

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
