"""KIVI's form of quantisation (Liu et al., arXiv 2402.02750): groups without rotation.

Keys are quantised a channel at a time, in groups of 32 tokens; Values a token at a time, in groups
of 32 channels; groups of 64 or 128 have fewer scales. A group is stored as codes 0 to 2^bits - 1
with a scale and a zero point in float16, s = (max - min) / (2^bits - 1) and z = min, and read as
code * s + z. KIVI leaves the newest R = 128 tokens at full width. Here text and generated tokens
are, and with `residual` the last visual tokens, too; the others are quantised, the last few as a
shorter group.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from kernels.reference import Narrow
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.bit_packing import pack, unpack
from rotatek.methods.channels.quantised_method import (
    LARGEST,
    PackedMethod,
    PackedStore,
    Whole,
    bits_option,
    value_bits_option,
)
from rotatek.methods.options import choice
from rotatek.methods.rotation import token_mask

BITS: Final = ("2", "3", "4")
GROUPS: Final = ("32", "64", "128")
RESIDUALS: Final = ("0", "32", "128")
SMALLEST: Final = 2.0**-24  # float16's, so that a group of equal numbers divides by no zero


def channels_of_group(width: int, group: int) -> int:
    """Channels of a group of Values: `group`, or fewer where a head's width is no multiple."""
    return next(size for size in range(group, 0, -1) if width % size == 0)


class Groups(NamedTuple):
    """Quantised numbers.

    Attributes:
        codes: uint8, in the shape of the numbers.
        scale: float16, one a group.
        zero: float16, one a group.
    """

    codes: Tensor
    scale: Tensor
    zero: Tensor

    @classmethod
    def of(
        cls,
        numbers: Tensor,
        dim: int,
        bits: int,
        alive: Tensor | None = None,
        clip: float = 1.0,
    ) -> "Groups":
        """Quantise groups of numbers.

        Args:
            numbers: float32, with a group along `dim`.
            dim: along which a group shares a scale and a zero point.
            bits: of a code.
            alive: bool, broadcast to numbers: those that count; all by default.
            clip: share of a group's least and largest number that the codes reach to.
        """
        low = high = numbers
        if alive is not None:  # a group without any becomes zero
            low = numbers.masked_fill(~alive, float("inf"))
            high = numbers.masked_fill(~alive, float("-inf"))
        least = low.amin(dim, keepdim=True) * clip
        reach = high.amax(dim, keepdim=True) * clip - least
        empty = reach < 0
        zero = least.masked_fill(empty, 0.0).clamp(-LARGEST, LARGEST).half()
        scale = (reach.masked_fill(empty, 0.0) / (2**bits - 1)).clamp(max=LARGEST).half()
        codes = (numbers - zero.float()) / scale.float().clamp(min=SMALLEST)
        codes = codes.round().clamp(0, 2**bits - 1).to(torch.uint8)
        return cls(codes, scale.squeeze(dim), zero.squeeze(dim))


@dataclass
class KiviStore(PackedStore):
    """beside: key_scale, key_zero [B, Hkv, N / group, d]; value_scale, value_zero [B, Hkv, N, d /
    group], all float16. N counts the quantised tokens."""

    group: int = field(kw_only=True)

    def read(self) -> Narrow:
        """Rebuild dense Keys and Values [B, Hkv, N + R, d]."""
        visual, beside, tokens = self.visual, self.beside, self.visual.keys.shape[2]
        keys = unpack(visual.keys, int(self.key_bits), self.width)
        values = unpack(visual.values, int(self.value_bits), self.width)
        key_scale, key_zero = (
            beside[name].float().repeat_interleave(self.group, 2)[:, :, :tokens]
            for name in ("key_scale", "key_zero")
        )
        channels = channels_of_group(self.width, self.group)
        value_scale, value_zero = (
            beside[name].float().repeat_interleave(channels, 3)
            for name in ("value_scale", "value_zero")
        )
        keys = self.dense("key", keys * key_scale + key_zero)
        values = self.dense("value", values * value_scale + value_zero)
        return visual._replace(keys=keys, values=values, fresh=True)


@dataclass(frozen=True)
class Kivi(PackedMethod):
    """Groups of few bits, without rotation."""

    name: ClassVar[str] = "kivi"
    label: ClassVar[str] = "KIVI"
    summary: ClassVar[str] = (
        "Every number in a few bits, Keys by channel and Values by token, in groups of 32."
    )
    colour: ClassVar[str] = "#cc3024"
    marker: ClassVar[str] = "triangle-up"
    dash: ClassVar[str] = "dashdot"
    steps: ClassVar[tuple[str, ...]] = BITS

    bits: str = bits_option(BITS)
    value_bits: str = value_bits_option(BITS)
    group: str = choice(
        "32",
        "Numbers of a group",
        "numbers that share a scale and a zero point in KIVI",
        [(size, size) for size in GROUPS],
    )
    residual: str = choice(
        "0",
        "Recent visual tokens",
        "last visual tokens that KIVI leaves at full width, as it does all text",
        [(count, count) for count in RESIDUALS],
    )

    @property
    def whole_tokens(self) -> int:
        """The recent ones."""
        return int(self.residual)

    def compress(self, states: LayerStates) -> KiviStore:
        """Quantise Keys along tokens and Values along channels."""
        key_bits, value_bits = (int(bits) for bits in self.each)
        keys, values, group = states.keys, states.values, int(self.group)
        d, tokens = keys.shape[-1], keys.shape[2]
        whole = Whole.of(states.lengths, tokens, 0, int(self.residual))
        beside = whole.taken(keys, "key_whole") | whole.taken(values, "value_whole")
        keys, values, tokens = whole.others(keys), whole.others(values), tokens - whole.count
        spare = -tokens % group
        alive = pad(token_mask(states.lengths - whole.count, tokens), (0, spare))
        alive = alive.unflatten(1, (-1, group))[:, None, :, :, None]
        by_token = pad(keys.float(), (0, 0, 0, spare)).unflatten(2, (-1, group))
        for_keys = Groups.of(by_token, 3, key_bits, alive)
        by_channel = values.float().unflatten(3, (-1, channels_of_group(d, group)))
        for_values = Groups.of(by_channel, 4, value_bits)
        beside |= {
            "key_scale": for_keys.scale, "key_zero": for_keys.zero,
            "value_scale": for_values.scale, "value_zero": for_values.zero,
        }  # fmt: skip
        return KiviStore(
            Narrow(
                pack(for_keys.codes.flatten(2, 3)[:, :, :tokens], key_bits),
                pack(for_values.codes.flatten(3), value_bits),
                states.lengths,
            ),
            beside,
            key_bits,
            value_bits,
            d,
            keys.dtype,
            (0, whole.count),
            group=group,
        )
