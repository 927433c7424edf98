"""Methods whose form no kernel reads: every step rebuilds their Keys and Values.

A method writes `stored`, the form of Keys or of Values and what is needed to read it, and
`rebuild`. Beside them is what such methods share: whole numbers of a few bits packed into bytes,
options, Hadamard matrices.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import gcd
from typing import Any, ClassVar, Final, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from kernels.reference import Narrow
from rotatek.errors import ModeUnsupported
from rotatek.methods.channels.base import ChannelMethod, LayerStates, Store
from rotatek.methods.options import option, options_of
from rotatek.methods.rotation import token_mask

FULL_BITS: Final = 16  # of a number in an uncompressed cache, as nominal shares count it
LARGEST: Final = torch.finfo(torch.float16).max
SAME: Final = "same"  # bits of Values, where Keys say them
BYTE: Final = 8
SIDES: Final = ("key", "value")
Form = tuple[Tensor, dict[str, Tensor]]  # Keys or Values as they are stored, and tensors beside


def bits_option(bits: Sequence[str]) -> Any:
    """The option `bits` of a method that stores every number in one of so many."""
    return option(
        "4",
        "Bits of a number",
        "bits in which every number of Keys and Values is stored",
        choices=[(one, f"{one} bits") for one in bits],
        key="number_bits",
        place="main",
    )


def value_bits_option(bits: Sequence[str]) -> Any:
    """The option `value_bits` beside it."""
    return option(
        SAME,
        "Bits of a Value",
        "bits of a number of the Values where they differ from the Keys'",
        choices=[(SAME, "as many as a Key"), *((one, f"{one} bits") for one in bits)],
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
    """Codes [..., n], whole numbers below 2^bits or bool, as uint8 [..., packed_width(n, bits)]
    along the last axis, lowest bits first."""
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
    """The orthonormal, symmetric Hadamard matrix [width, width] (Sylvester's); `ModeUnsupported`
    where width is no power of two."""
    if width & (width - 1):
        raise ModeUnsupported(
            "Methods with a Hadamard matrix need heads whose width is a power of two, and this "
            f'model\'s have {width}. Choose channels="rotatek" or "kivi".'
        )
    matrix = torch.ones(1, 1)
    while len(matrix) < width:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return (matrix / width**0.5).to(device)


@dataclass
class RebuiltStore(Store):
    """A layer's visual tokens in the form of a `RebuiltMethod`; beside them, if any, key_whole and
    value_whole, the n tokens [B, Hkv, n, d] at full width."""

    visual: Narrow  # keys and values [B, Hkv, N - n, ...]
    method: "RebuiltMethod" = field(kw_only=True)  # with its options, but for names of files
    width: int = field(kw_only=True)  # d
    dtype: torch.dtype = field(kw_only=True)  # of the numbers of `read`
    # tensors of a calibration, which belong to the model and are not counted
    turns: Tensor | None = field(default=None, kw_only=True)

    @property
    def per_token(self) -> tuple[str, ...]:
        return self.method.per_token

    def read(self) -> Narrow:
        """Rebuild dense Keys and Values [B, Hkv, N, d], whole tokens among the others."""
        dense = []
        for side, stored in zip(SIDES, self.visual[:2], strict=True):
            numbers = self.method.rebuild(side, stored, self).to(self.dtype)
            kept = self.beside.get(f"{side}_whole")
            if kept is not None and self.visual.lengths is not None:
                count = kept.shape[2]
                tokens = numbers.shape[2] + count
                first, places = whole_places(kept, self.visual.lengths, tokens, self.method.ends)
                numbers = pad(numbers, (0, 0, first, count - first)).scatter(2, places, kept)
            dense.append(numbers)
        return self.visual._replace(keys=dense[0], values=dense[1], fresh=True)


@dataclass(frozen=True)
class RebuiltMethod(ChannelMethod):
    """A method whose Keys and Values are rebuilt in every step."""

    per_token: ClassVar[tuple[str, ...]] = ()  # as `Store.per_token`

    @property
    def ends(self) -> tuple[int, int]:
        """First and last visual tokens that stay at full width."""
        return 0, 0

    @property
    def whole_tokens(self) -> int:
        return sum(self.ends)

    @abstractmethod
    def stored(self, side: str, numbers: Tensor, alive: Tensor, states: LayerStates) -> Form:
        """The form of the Keys or the Values of tokens that do not stay whole.

        Args:
            side: "key" or "value".
            numbers: [B, Hkv, n, d].
            alive: [B, n] bool, those that are no padding.
            states: of all tokens.

        Returns:
            [B, Hkv, n, ...], and what is stored beside it, named as in `Store`.
        """

    @abstractmethod
    def rebuild(self, side: str, stored: Tensor, store: RebuiltStore) -> Tensor:
        """Those numbers [B, Hkv, n, d] again."""

    def compress(self, states: LayerStates) -> RebuiltStore:
        """Take out the whole tokens, and store the others."""
        tokens, width = states.keys.shape[2:]
        first, places = whole_places(states.keys, states.lengths, tokens, self.ends)
        count = places.shape[2]
        between = slice(first, tokens - count + first)  # as the longest sample has them
        alive, forms = token_mask(states.lengths - count, tokens - count), []
        beside: dict[str, Tensor] = {}
        for side, numbers in zip(SIDES, (states.keys, states.values), strict=True):
            form, found = self.stored(side, numbers[:, :, between], alive, states)
            forms.append(form)
            beside |= found | ({f"{side}_whole": numbers.gather(2, places)} if count else {})
        paths = {one.name: None for one in options_of(self) if one.kind == "path"}
        turns = None if states.basis is None else states.basis.to(states.keys.device)
        return RebuiltStore(
            Narrow(forms[0], forms[1], states.lengths), beside, method=replace(self, **paths),
            width=width, dtype=states.keys.dtype, turns=turns,
        )  # fmt: skip


def whole_places(
    like: Tensor, lengths: Tensor, tokens: int, ends: tuple[int, int]
) -> tuple[int, Tensor]:
    """How many first tokens stay whole, and the places [B, Hkv, n, d] of all that do, like `like`:
    of `tokens`, the first and last `ends` of each length [B], or all where there are fewer."""
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

    def bits_of(self, side: str) -> float:
        """Bits of a number of Keys or of Values."""
        alike = side == "key" or self.value_bits == SAME
        return float(self.bits if alike else self.value_bits)

    @property
    def nominal_share(self) -> float:
        """Bits of a number over 16; scales and norms are not counted, as bases are not."""
        return sum(map(self.bits_of, SIDES)) / 2 / FULL_BITS

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
