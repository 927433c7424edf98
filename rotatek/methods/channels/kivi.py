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
from rotatek.methods.options import choice

GROUPS: Final = ("32", "64", "128")
RESIDUALS: Final = ("0", "32", "128")
SMALLEST: Final = 2.0**-24  # float16's, so that a group of equal numbers divides by no zero


def channels_of_group(width: int, group: int) -> int:
    """Channels of a group of Values: `group`, or fewer where a head's width is no multiple."""
    return next(size for size in range(group, 0, -1) if width % size == 0)


def quantised(
    numbers: Tensor, dim: int, bits: int, alive: Tensor | None = None, clip: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Quantise groups of numbers.

    Args:
        numbers: float32, with a group along `dim`.
        dim: along which a group shares a scale and a zero point.
        bits: of a code.
        alive: bool, broadcast to numbers: those that count; all by default.
        clip: share of a group's least and largest number that the codes reach to.

    Returns:
        codes, uint8 in the shape of the numbers, and a scale and a zero point of each group,
        float16.
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
    def ends(self) -> tuple[int, int]:
        """The recent ones."""
        return 0, int(self.residual)

    def stored(self, keys: Tensor, values: Tensor, alive: Tensor, states: LayerStates) -> Form:
        """Quantise Keys along tokens and Values along channels.

        beside: key_scale, key_zero [B, Hkv, n / group, d]; value_scale, value_zero [B, Hkv, n, d /
        group], all float16.
        """
        (key_bits, value_bits), group = map(int, self.each), int(self.group)
        tokens, d = keys.shape[2:]
        spare = -tokens % group
        alive = pad(alive, (0, spare)).unflatten(1, (-1, group))[:, None, :, :, None]
        by_token = pad(keys.float(), (0, 0, 0, spare)).unflatten(2, (-1, group))
        key_codes, key_scale, key_zero = quantised(by_token, 3, key_bits, alive)
        by_channel = values.float().unflatten(3, (-1, channels_of_group(d, group)))
        value_codes, value_scale, value_zero = quantised(by_channel, 4, value_bits)
        return Form(
            pack(key_codes.flatten(2, 3)[:, :, :tokens], key_bits),
            pack(value_codes.flatten(3), value_bits),
            {
                "key_scale": key_scale, "key_zero": key_zero,
                "value_scale": value_scale, "value_zero": value_zero,
            },
        )  # fmt: skip

    def rebuild(self, store: RebuiltStore) -> tuple[Tensor, Tensor]:
        """Codes times scales, and their zero points."""
        found = []
        sides = zip(("key", "value"), store.visual[:2], self.each, strict=True)
        for dim, (name, packed, bits) in enumerate(sides, 2):
            group = int(self.group)
            group = group if dim == 2 else channels_of_group(store.width, group)
            codes = unpack(packed, int(bits), store.width)
            scale, zero = (
                store.beside[f"{name}_{part}"]
                .float()
                .repeat_interleave(group, dim)[:, :, : codes.shape[2]]
                for part in ("scale", "zero")
            )
            found.append(store.dense(name, codes * scale + zero))
        return found[0], found[1]
