"""VidKV: 1.5 bits for Keys and 1.58 for Values (Tao et al., arXiv 2503.16257), both by channel.

Groups are of 32 tokens of one channel. Of a head's Key channels the half with the largest range are
stored in 2 bits, as KIVI stores them; the others in one bit in the frequency domain, where outliers
are spread: the Fourier transform of a group less its mean is stored as signs with one scale. Values
are ternary, s * {-1, 0, 1}: what is nearer to 0 than half the group's mean size becomes 0.

From the paper are the halves, by what they are chosen, the transform before one bit, and ternary
Values by channel. Ours are what it leaves open or this project has otherwise: ranges count over the
whole prompt; the group's mean, in float16, is the zero frequency; a scale is the one of least
squared error; five ternary numbers lie in a byte (1.6 bits). The paper's protection of salient
tokens, which adds bits, is left out.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from rotatek.methods.channels import rebuilt
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.kivi import GROUPS, SMALLEST, quantised
from rotatek.methods.channels.rebuilt import Form, RebuiltMethod, RebuiltStore
from rotatek.methods.options import option

TRITS: Final = 5  # ternary numbers of a byte: 3^5 = 243
KEY_BITS: Final = 1.5
VALUE_BITS: Final = 1.6
LOUD: Final = 2  # bits of the channels with the largest range


def pack_trits(codes: Tensor) -> Tensor:
    """Whole numbers 0 to 2 [..., n] as uint8 [..., ceil(n / 5)]."""
    blocks = pad(codes.to(torch.uint8), (0, -codes.shape[-1] % TRITS)).unflatten(-1, (-1, TRITS))
    places = 3 ** torch.arange(TRITS, device=codes.device, dtype=torch.uint8)
    return (blocks * places).sum(-1, dtype=torch.uint8)


def unpack_trits(packed: Tensor, n: int) -> Tensor:
    """The inverse of `pack_trits`: uint8 [..., n]."""
    places = 3 ** torch.arange(TRITS, device=packed.device, dtype=torch.uint8)
    return (packed[..., None] // places % 3).flatten(-2)[..., :n]


def spectrum(groups: Tensor) -> Tensor:
    """The orthonormal Fourier transform of real groups [..., g, c] as g real numbers: the real
    parts of frequencies 0 to g / 2, then the imaginary parts of those between."""
    found = torch.fft.rfft(groups, dim=-2, norm="ortho")
    return torch.cat([found.real, found.imag[..., 1:-1, :]], -2)


def of_spectrum(numbers: Tensor) -> Tensor:
    """The inverse of `spectrum`."""
    size = numbers.shape[-2]
    real, rest = numbers.split([size // 2 + 1, size // 2 - 1], -2)
    imaginary = pad(rest, (0, 0, 1, 1))
    return torch.fft.irfft(torch.complex(real, imaginary), n=size, dim=-2, norm="ortho")


def mean_size(numbers: Tensor, counted: Tensor) -> Tensor:
    """Mean of |numbers| over dimension -2 where `counted` says so, as float16 holds it; kept."""
    total = numbers.abs().masked_fill(~counted, 0.0).sum(-2, keepdim=True)
    mean = total / counted.sum(-2, keepdim=True).clamp(min=1)
    return mean.clamp(max=rebuilt.LARGEST).half()


def signs(groups: Tensor, alive: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One bit a number: bool codes of groups [..., g, c] float32, and scale and mean [..., 1, c] in
    float16; alive: bool, broadcast to the groups."""
    alive = alive.expand(groups.shape)
    total = groups.masked_fill(~alive, 0.0).sum(-2, keepdim=True)
    mean = (
        (total / alive.sum(-2, keepdim=True).clamp(min=1))
        .clamp(-rebuilt.LARGEST, rebuilt.LARGEST)
        .half()
    )
    numbers = spectrum((groups - mean.float()).masked_fill(~alive, 0.0))
    varies = torch.arange(groups.shape[-2], device=groups.device)[:, None] > 0
    return numbers > 0, mean_size(numbers, varies.expand(alive.shape)), mean


def of_signs(codes: Tensor, scale: Tensor, mean: Tensor) -> Tensor:
    """What `signs` are read as, [..., g, c] float32."""
    numbers = torch.where(codes, scale.float(), -scale.float())
    numbers = torch.cat([torch.zeros_like(numbers[..., :1, :]), numbers[..., 1:, :]], -2)
    return of_spectrum(numbers) + mean.float()


@dataclass(frozen=True)
class VidKV(RebuiltMethod):
    """Keys in 1.5 bits, Values in three levels."""

    name, label = "vidkv", "VidKV"
    summary = "Keys in one or two bits by channel, Values in three levels."
    drops_channels = False
    colour = "#486c18"

    group: str = option(
        "32",
        "Numbers of a group",
        "tokens of a channel that share a scale",
        choices=[(size, size) for size in GROUPS],
    )

    @property
    def nominal_share(self) -> float:
        """Bits of a number over 16; scales are not counted, as bases are not."""
        return (KEY_BITS + VALUE_BITS) / 2 / rebuilt.FULL_BITS

    @property
    def form(self) -> str:
        """`1.5 and 1.58 bits`."""
        return "1.5 and 1.58 bits"

    def stored(self, side: str, numbers: Tensor, alive: Tensor, states: LayerStates) -> Form:
        """Quantise along tokens.

        keys: uint8 [B, Hkv, N', bytes], 2-bit codes of the loud half and signs of the other, N' a
        multiple of the group; values: uint8 [B, Hkv, N, d / 5]. beside: channels, uint8 [B, Hkv,
        d], the loud half first; key_scales, float16 [B, Hkv, N' / group, 4, d / 2], step and zero
        point of the loud half, scale and mean of the other; value_scale, float16 [B, Hkv, N' /
        group, d].
        """
        numbers, tokens, group = numbers.float(), numbers.shape[2], int(self.group)
        spare, dead = -tokens % group, ~alive[:, None, :, None]
        live = pad(alive, (0, spare)).unflatten(1, (-1, group))[:, None, :, :, None]
        if side == "key":
            high = numbers.masked_fill(dead, float("-inf")).amax(2)
            reach = high - numbers.masked_fill(dead, float("inf")).amin(2)
            order = reach.argsort(dim=-1, descending=True, stable=True)
            halves = order.split(numbers.shape[-1] // 2, -1)
            channels = torch.cat([part.sort(-1).values for part in halves], -1)
            numbers = numbers.gather(-1, channels[:, :, None].expand_as(numbers))
        groups = pad(numbers, (0, 0, 0, spare)).unflatten(2, (-1, group))
        if side == "key":
            loud, quiet = groups.split(numbers.shape[-1] // 2, -1)
            two, step, zero = quantised(loud, 3, LOUD, live)
            one, scale, mean = signs(quiet, live)
            packed = [rebuilt.pack(two.flatten(2, 3), LOUD), rebuilt.pack(one.flatten(2, 3), 1)]
            scales = torch.stack([step, zero, scale[:, :, :, 0], mean[:, :, :, 0]], 3)
            beside = {"channels": channels.to(torch.uint8), "key_scales": scales}
            return torch.cat(packed, -1), beside
        live = live.expand(groups.shape)
        trits = (groups / mean_size(groups, live).float().clamp(min=SMALLEST)).round().clamp(-1, 1)
        size = mean_size(groups, live & (trits != 0))[:, :, :, 0]
        return pack_trits((trits + 1).flatten(2, 3)[:, :, :tokens]), {"value_scale": size}

    def rebuild(self, side: str, stored: Tensor, store: RebuiltStore) -> Tensor:
        """The loud half's codes times scales, the other half's signs turned back; three levels."""
        beside, group, tokens = store.beside, int(self.group), store.visual.values.shape[2]
        if side == "value":
            sizes = beside["value_scale"].float().repeat_interleave(group, 2)[:, :, :tokens]
            return (unpack_trits(stored, store.width).float() - 1) * sizes
        half = store.width // 2
        packed = stored.split([rebuilt.packed_width(half, LOUD), rebuilt.packed_width(half, 1)], -1)
        loud = rebuilt.unpack(packed[0], LOUD, half).unflatten(2, (-1, group))
        quiet = rebuilt.unpack(packed[1], 1, half).bool().unflatten(2, (-1, group))
        step, zero, scale, mean = (part[:, :, :, None] for part in beside["key_scales"].unbind(3))
        first = (loud * step.float() + zero.float()).flatten(2, 3)
        found = torch.cat([first, of_signs(quiet, scale, mean).flatten(2, 3)], -1)[:, :, :tokens]
        index = beside["channels"].long()[:, :, None].expand_as(found)
        return torch.empty_like(found).scatter_(-1, index, found)
