"""Methods whose form no kernel reads: every step rebuilds their Keys and Values.

A method writes `stored`, the form and what is needed to read it, and `rebuild`. Its stores have
attention calls of their own. Beside them is what such methods share: whole numbers of a few bits
packed into bytes, options, Hadamard matrices.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import gcd
from typing import Any, ClassVar, Final, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from kernels.reference import Narrow
from rotatek.errors import ModeUnsupported
from rotatek.methods.channels.base import ChannelMethod, LayerStates, Store
from rotatek.methods.options import choice, options_of
from rotatek.methods.rotation import token_mask

FULL_BITS: Final = 16  # of a number in an uncompressed cache, as nominal shares count it
LARGEST: Final = torch.finfo(torch.float16).max
SAME: Final = "same"  # bits of Values, where Keys say them
BYTE: Final = 8


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


def _block(bits: int) -> tuple[int, int, torch.dtype]:
    """Codes that fill whole bytes, those bytes, and a type that holds them while they are moved."""
    codes = BYTE // gcd(BYTE, bits)
    width = bits * codes
    dtype = torch.uint8 if width == BYTE else torch.int32 if width < 32 else torch.int64
    return codes, width // BYTE, dtype


def packed_width(count: int, bits: int) -> int:
    """Bytes of `count` codes."""
    codes, width, _ = _block(bits)
    return -(-count // codes) * width


def pack(codes: Tensor, bits: int) -> Tensor:
    """Pack codes along the last axis, lowest bits first.

    Args:
        codes: [..., n], whole numbers below 2^bits, or bool.
        bits: 1 to 8.

    Returns:
        uint8 [..., packed_width(n, bits)].
    """
    each, width, dtype = _block(bits)
    blocks = pad(codes.to(dtype), (0, -codes.shape[-1] % each)).unflatten(-1, (-1, each))
    shifts = bits * torch.arange(each, device=codes.device, dtype=dtype)
    words = (blocks << shifts).sum(-1, dtype=dtype)
    if width == 1:
        return words
    places = BYTE * torch.arange(width, device=codes.device, dtype=dtype)
    return (words[..., None] >> places & 255).to(torch.uint8).flatten(-2)


def unpack(packed: Tensor, bits: int, n: int) -> Tensor:
    """The inverse of `pack`: uint8 [..., n]."""
    each, width, dtype = _block(bits)
    words = packed[..., None] if width == 1 else packed.unflatten(-1, (-1, width)).to(dtype)
    if width > 1:
        places = BYTE * torch.arange(width, device=packed.device, dtype=dtype)
        words = (words << places).sum(-1, keepdim=True, dtype=dtype)
    shifts = bits * torch.arange(each, device=packed.device, dtype=dtype)
    return (words >> shifts & (2**bits - 1)).to(torch.uint8).flatten(-2)[..., :n]


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


class Form(NamedTuple):
    """Keys and Values of one layer as a method stores them, and further tensors by name."""

    keys: Tensor
    values: Tensor
    beside: dict[str, Tensor]


@dataclass
class RebuiltStore(Store):
    """A layer's visual tokens in the form of a `RebuiltMethod`.

    Args:
        visual: keys and values [B, Hkv, N - n, ...] as the method stores them.
        beside: further tensors by name; key_whole and value_whole are the n tokens [B, Hkv, n, d]
            at full width, if any.
        method: with its options, but for names of files.
        width: d, numbers of a head.
        dtype: of the numbers of `read`.
        turns: tensors of a calibration, which belong to the model and are not counted.
    """

    visual: Narrow
    method: "RebuiltMethod" = field(kw_only=True)
    width: int = field(kw_only=True)
    dtype: torch.dtype = field(kw_only=True)
    turns: Tensor | None = field(default=None, kw_only=True)

    @property
    def per_token(self) -> tuple[str, ...]:
        """As the method says."""
        return self.method.per_token

    def read(self) -> Narrow:
        """Rebuild dense Keys and Values [B, Hkv, N, d]."""
        keys, values = (each.to(self.dtype) for each in self.method.rebuild(self))
        return self.visual._replace(keys=keys, values=values, fresh=True)

    def dense(self, name: str, others: Tensor) -> Tensor:
        """Rebuilt numbers [B, Hkv, N - n, d] among the whole tokens': [B, Hkv, N, d]."""
        numbers, kept = others.to(self.dtype), self.beside.get(f"{name}_whole")
        if kept is None or self.visual.lengths is None:
            return numbers
        count, ends = kept.shape[2], self.method.ends
        tokens = numbers.shape[2] + count
        first, places = whole_places(kept, self.visual.lengths, tokens, ends)
        return pad(numbers, (0, 0, first, count - first)).scatter(2, places, kept)


@dataclass(frozen=True)
class RebuiltMethod(ChannelMethod):
    """A method whose Keys and Values are rebuilt in every step.

    Class attributes, besides those of `ChannelMethod`:
        per_token: as `Store.per_token`.
    """

    per_token: ClassVar[tuple[str, ...]] = ()

    @property
    def ends(self) -> tuple[int, int]:
        """First and last visual tokens that stay at full width."""
        return 0, 0

    @property
    def whole_tokens(self) -> int:
        """Visual tokens at full width, at most."""
        return sum(self.ends)

    @abstractmethod
    def stored(self, keys: Tensor, values: Tensor, alive: Tensor, states: LayerStates) -> Form:
        """The form of the tokens that do not stay whole.

        Args:
            keys: [B, Hkv, n, d]; values likewise.
            alive: [B, n] bool, those that are no padding.
            states: of all tokens.
        """

    @abstractmethod
    def rebuild(self, store: RebuiltStore) -> tuple[Tensor, Tensor]:
        """Keys and Values [B, Hkv, N, d] again, whole tokens put back by `store.dense`."""

    def compress(self, states: LayerStates) -> RebuiltStore:
        """Take out the whole tokens, and store the others."""
        tokens, width = states.keys.shape[2:]
        first, places = whole_places(states.keys, states.lengths, tokens, self.ends)
        count = places.shape[2]
        between = slice(first, tokens - count + first)  # as the longest sample has them
        alive = token_mask(states.lengths - count, tokens - count)
        keys, values, beside = self.stored(
            states.keys[:, :, between], states.values[:, :, between], alive, states
        )
        if count:
            beside["key_whole"] = states.keys.gather(2, places)
            beside["value_whole"] = states.values.gather(2, places)
        paths = {one.name: None for one in options_of(self) if one.kind == "path"}
        visual, method = Narrow(keys, values, states.lengths), replace(self, **paths)
        turns = None if states.basis is None else states.basis.to(keys.device)
        return RebuiltStore(
            visual, beside, method=method, width=width, dtype=states.keys.dtype, turns=turns
        )


def whole_places(
    like: Tensor, lengths: Tensor, tokens: int, ends: tuple[int, int]
) -> tuple[int, Tensor]:
    """Where the whole tokens are: how many first ones, and the places of all of them.

    Args:
        like: [B, Hkv, ..., d].
        lengths: [B] of samples within `tokens`.
        tokens: N.
        ends: first and last ones; all of them where there are fewer.

    Returns:
        the number of first ones, and [B, Hkv, n, d].
    """
    first = min(ends[0], tokens)
    last = min(ends[1], tokens - first)
    start = (lengths.long() - last).clamp(min=first)[:, None]
    front = torch.arange(first, device=lengths.device).expand(len(start), -1)
    back = start + torch.arange(last, device=lengths.device)
    places = torch.cat([front, back], 1)[:, None, :, None]
    return first, places.expand(-1, like.shape[1], -1, like.shape[3])


@dataclass(frozen=True)
class PackedMethod(RebuiltMethod):
    """A method whose options are numbers of bits."""

    drops_channels: ClassVar[bool] = False

    bits: str = bits_option(("2", "3", "4"))
    value_bits: str = value_bits_option(("2", "3", "4"))

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
        (steps,) = (one.values for one in options_of(self) if one.name == "bits")
        fit = [bits for bits in steps if float(bits) / FULL_BITS <= share]
        return replace(self, bits=max(fit, key=float, default=steps[0]), value_bits=SAME)
