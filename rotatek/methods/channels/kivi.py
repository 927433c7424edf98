"""KIVI's form of quantisation (Liu et al., arXiv 2402.02750): groups without rotation.

Keys are quantised a channel at a time, in groups of 32 tokens; Values a token at a time, in groups
of 32 channels; groups of 64 or 128 have fewer scales. A group is stored as codes 0 to 2^bits - 1
with a scale and a zero point in float16, s = (max - min) / (2^bits - 1) and z = min, and read as
code * s + z. KIVI leaves the newest R = 128 tokens at full width. Here text and generated tokens
are, and with `residual` the last visual tokens, too; the others are quantised, the last few as a
shorter group.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.rebuilt import LARGEST, Form, PackedMethod, RebuiltStore, pack, unpack
from rotatek.methods.options import option

GROUPS: Final = ("32", "64", "128")
RESIDUALS: Final = ("0", "32", "128")
SMALLEST: Final = 2.0**-24  # float16's, so that a group of equal numbers divides by no zero


def channels_of_group(width: int, group: int) -> int:
    """Channels of a group of Values: `group`, or fewer where a head's width is no multiple."""
    return next(size for size in range(group, 0, -1) if width % size == 0)


def quantised(
    numbers: Tensor, dim: int, bits: int, alive: Tensor | None = None, clip: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, uint8 in the shape of the float32 numbers, and a scale and a zero point, float16, of
    each group along `dim`.

    alive: bool, broadcast to numbers: those that count, all by default; clip: share of a group's
    least and largest number that the codes reach to.
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
    return codes, scale.squeeze(dim), zero.squeeze(dim)


@dataclass(frozen=True)
class Kivi(PackedMethod):
    """Groups of few bits, without rotation."""

    name, label = "kivi", "KIVI"
    summary = "Every number in a few bits, Keys by channel and Values by token, in groups of 32."
    colour = "#cc3024"

    group: str = option(
        "32",
        "Numbers of a group",
        "numbers that share a scale and a zero point in KIVI",
        choices=[(size, size) for size in GROUPS],
    )
    residual: str = option(
        "0",
        "Recent visual tokens",
        "last visual tokens that KIVI leaves at full width, as it does all text",
        choices=[(count, count) for count in RESIDUALS],
    )

    @property
    def ends(self) -> tuple[int, int]:
        """The recent ones."""
        return 0, int(self.residual)

    def stored(self, side: str, numbers: Tensor, alive: Tensor, states: LayerStates) -> Form:
        """Quantise Keys along tokens and Values along channels.

        beside: key_scale, key_zero [B, Hkv, n / group, d]; value_scale, value_zero [B, Hkv, n, d /
        group], all float16.
        """
        (tokens, d), bits, group = numbers.shape[2:], int(self.bits_of(side)), int(self.group)
        if side == "key":
            spare = -tokens % group
            alive = pad(alive, (0, spare)).unflatten(1, (-1, group))[:, None, :, :, None]
            grouped = pad(numbers.float(), (0, 0, 0, spare)).unflatten(2, (-1, group))
            codes, scale, zero = quantised(grouped, 3, bits, alive)
            codes = codes.flatten(2, 3)[:, :, :tokens]
        else:
            grouped = numbers.float().unflatten(3, (-1, channels_of_group(d, group)))
            codes, scale, zero = quantised(grouped, 4, bits)
            codes = codes.flatten(3)
        return pack(codes, bits), {f"{side}_scale": scale, f"{side}_zero": zero}

    def rebuild(self, side: str, stored: Tensor, store: RebuiltStore) -> Tensor:
        """Codes times scales, and their zero points."""
        dim, group = 2, int(self.group)
        if side == "value":
            dim, group = 3, channels_of_group(store.width, group)
        codes = unpack(stored, int(self.bits_of(side)), store.width)
        scale, zero = (
            store.beside[f"{side}_{part}"].float().repeat_interleave(group, dim)
            for part in ("scale", "zero")
        )
        tokens = codes.shape[2]
        return codes * scale[:, :, :tokens] + zero[:, :, :tokens]
