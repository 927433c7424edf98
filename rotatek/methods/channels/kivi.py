"""KIVI's form of quantisation (Liu et al., arXiv 2402.02750): groups without rotation.

Keys are quantised a channel at a time, in groups of 32 tokens; Values a token at a time, in groups
of 32 channels. A group is stored as codes 0 to 2^bits - 1 with a scale and a zero point in float16,
s = (max - min) / (2^bits - 1) and z = min, and read as code * s + z. KIVI leaves the most recent
tokens at full width; here text and generated tokens are, and all visual tokens are quantised, the
last few of a prompt as a shorter group.
"""

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from kernels.reference import Visual
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.bit_packing import pack, packed_width
from rotatek.methods.channels.quantised_method import LARGEST, PackedMethod, PackedStore
from rotatek.methods.channels.store import Store
from rotatek.methods.rotation import token_mask

GROUP: Final = 32
SMALLEST: Final = 2.0**-24  # float16's, so that a group of equal numbers divides by no zero


def channels_of_group(width: int) -> int:
    """Channels of a group of Values: 32, or fewer where a head's width is no multiple of that."""
    return next(size for size in range(GROUP, 0, -1) if width % size == 0)


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
    def of(cls, numbers: Tensor, dim: int, bits: int, alive: Tensor | None = None) -> "Groups":
        """Quantise groups of numbers.

        Args:
            numbers: float32, with a group along `dim`.
            dim: whose places share a scale and a zero point.
            bits: of a code.
            alive: bool, broadcast to numbers: those that count; all by default.
        """
        low = high = numbers
        if alive is not None:  # a group without any becomes zero
            low = numbers.masked_fill(~alive, float("inf"))
            high = numbers.masked_fill(~alive, float("-inf"))
        least = low.amin(dim, keepdim=True)
        reach = high.amax(dim, keepdim=True) - least
        empty = reach < 0
        zero = least.masked_fill(empty, 0.0).clamp(-LARGEST, LARGEST).half()
        scale = (reach.masked_fill(empty, 0.0) / (2**bits - 1)).clamp(max=LARGEST).half()
        codes = (numbers - zero.float()) / scale.float().clamp(min=SMALLEST)
        codes = codes.round().clamp(0, 2**bits - 1).to(torch.uint8)
        return cls(codes, scale.squeeze(dim), zero.squeeze(dim))


@dataclass
class KiviStore(PackedStore):
    """beside: key_scale, key_zero [B, Hkv, N / 32, d]; value_scale, value_zero [B, Hkv, N, d / 32],
    all float16."""

    def read(self) -> Visual:
        """Rebuild dense Keys and Values [B, Hkv, N, d]."""
        keys, values = self.codes()
        key_scale, key_zero = (
            self.beside[name].float().repeat_interleave(GROUP, 2)[:, :, : keys.shape[2]]
            for name in ("key_scale", "key_zero")
        )
        channels = channels_of_group(self.width)
        value_scale, value_zero = (
            self.beside[name].float().repeat_interleave(channels, 3)
            for name in ("value_scale", "value_zero")
        )
        keys, values = keys * key_scale + key_zero, values * value_scale + value_zero
        return self.visual._replace(
            keys=keys.to(self.dtype), values=values.to(self.dtype), fresh=True
        )


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

    def compress(self, states: LayerStates) -> Store:
        """Quantise Keys along tokens and Values along channels."""
        bits, (keys, values) = int(self.bits), (states.keys.float(), states.values.float())
        tokens, d = keys.shape[2:]
        spare = -tokens % GROUP
        alive = pad(token_mask(states.lengths, tokens), (0, spare))
        alive = alive.unflatten(1, (-1, GROUP))[:, None, :, :, None]
        by_token = pad(keys, (0, 0, 0, spare)).unflatten(2, (-1, GROUP))
        for_keys = Groups.of(by_token, 3, bits, alive)
        for_values = Groups.of(values.unflatten(3, (-1, channels_of_group(d))), 4, bits)
        key_codes = for_keys.codes.flatten(2, 3)[:, :, :tokens]
        value_codes = for_values.codes.flatten(3)
        return KiviStore(
            Visual(pack(key_codes, bits), pack(value_codes, bits), states.lengths),
            {
                "key_scale": for_keys.scale,
                "key_zero": for_keys.zero,
                "value_scale": for_values.scale,
                "value_zero": for_values.zero,
            },
            bits,
            d,
            states.keys.dtype,
        )

    def head_bytes(
        self, keys: Tensor, values: Tensor, tokens: Tensor, d: int, itemsize: int
    ) -> Tensor:
        """Codes, and a scale and a zero point for every group."""
        tokens = tokens.long().expand(keys.shape)
        groups = d * (-(-tokens // GROUP)) + tokens * (d // channels_of_group(d))
        return 2 * tokens * packed_width(d, int(self.bits)) + 4 * groups
