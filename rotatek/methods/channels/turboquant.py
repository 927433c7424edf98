"""TurboQuant's form of quantisation (Zandieh et al., arXiv 2504.19874): random rotation.

x is stored as its norm, in float16, and as codes of y = R x / |x| * sqrt(d), R random orthogonal:
the numbers of y are nearly independent standard Gaussians whatever x is, so one codebook, that of
Lloyd and Max for a Gaussian, serves every channel of every head. It is read as R^T codebook[code] *
|x| / sqrt(d). This is the paper's form of least squared error, for Keys and Values alike; its
unbiased form spends one of the bits on the sign of a projected residual. R is drawn once from a
fixed seed: it is a constant of the method, which no cache holds.
"""

from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import ClassVar, Final

import torch
from torch import Tensor

from kernels.reference import Visual
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.bit_packing import pack, packed_width
from rotatek.methods.channels.quantised_method import LARGEST, PackedMethod, PackedStore
from rotatek.methods.channels.store import Store

SEED: Final = 20250428
ROUNDS: Final = 10_000  # of Lloyd's iteration, which ends where nothing moves any more
STILL: Final = 1e-12


def lloyd_max(bits: int) -> tuple[float, ...]:
    """The 2^bits levels, rising, that quantise a standard Gaussian with the least squared error.

    Lloyd's iteration from its quantiles: every level becomes the mean of what is nearest to it.
    """
    normal, count = NormalDist(), 2**bits
    levels = [normal.inv_cdf((place + 0.5) / count) for place in range(count)]
    for _ in range(ROUNDS):
        edges = [(low + high) / 2 for low, high in zip(levels, levels[1:], strict=False)]
        heights = [0.0, *map(normal.pdf, edges), 0.0]
        shares = [0.0, *map(normal.cdf, edges), 1.0]
        moved = [(heights[i] - heights[i + 1]) / (shares[i + 1] - shares[i]) for i in range(count)]
        step = max(abs(new - old) for new, old in zip(moved, levels, strict=True))
        levels = moved
        if step < STILL:
            break
    return tuple(levels)


@lru_cache(maxsize=16)
def codebook(bits: int, device: torch.device) -> Tensor:
    """`lloyd_max` as float32 [2^bits]."""
    return torch.tensor(lloyd_max(bits), device=device)


@lru_cache(maxsize=16)
def random_rotation(width: int, device: torch.device) -> Tensor:
    """R^T: one orthogonal [width, width] drawn evenly from all of them, the same everywhere."""
    generator = torch.Generator().manual_seed(SEED)
    drawn = torch.randn(width, width, generator=generator, dtype=torch.float64)
    basis, triangle = torch.linalg.qr(drawn)
    return (basis * triangle.diagonal().sign()).float().to(device)


def encode(states: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes uint8 [..., d] and norms float16 [...] of states [..., d]."""
    numbers, width = states.float(), states.shape[-1]
    norms = numbers.norm(dim=-1, keepdim=True)
    rotated = numbers @ random_rotation(width, states.device)
    rotated = rotated * (width**0.5 / norms.clamp(min=torch.finfo(torch.float32).tiny))
    levels = codebook(bits, states.device)
    codes = torch.bucketize(rotated, (levels[1:] + levels[:-1]) / 2)
    return codes.to(torch.uint8), norms[..., 0].clamp(max=LARGEST).half()


def decode(codes: Tensor, norms: Tensor, bits: int) -> Tensor:
    """The inverse of `encode`, as near as it gets: float32 [..., d]."""
    width = codes.shape[-1]
    rotated = codebook(bits, codes.device)[codes.int()]
    rotated = rotated * (norms.float() / width**0.5)[..., None]
    return rotated @ random_rotation(width, codes.device).T


@dataclass
class TurboQuantStore(PackedStore):
    """beside: key_norm and value_norm, float16 [B, Hkv, N]."""

    def read(self) -> Visual:
        """Rebuild dense Keys and Values [B, Hkv, N, d]."""
        keys, values = self.codes()
        return self.visual._replace(
            keys=decode(keys, self.beside["key_norm"], self.bits).to(self.dtype),
            values=decode(values, self.beside["value_norm"], self.bits).to(self.dtype),
            fresh=True,
        )


@dataclass(frozen=True)
class TurboQuant(PackedMethod):
    """A random rotation, then one codebook for every number."""

    name: ClassVar[str] = "turboquant"
    label: ClassVar[str] = "TurboQuant"
    summary: ClassVar[str] = (
        "Every number in a few bits behind a random rotation, with each token's norm."
    )
    colour: ClassVar[str] = "#9c24fc"
    marker: ClassVar[str] = "triangle-down"
    dash: ClassVar[str] = "longdash"

    def compress(self, states: LayerStates) -> Store:
        """Rotate and quantise Keys and Values alike."""
        bits, d = int(self.bits), states.keys.shape[-1]
        keys, key_norm = encode(states.keys, bits)
        values, value_norm = encode(states.values, bits)
        return TurboQuantStore(
            Visual(pack(keys, bits), pack(values, bits), states.lengths),
            {"key_norm": key_norm, "value_norm": value_norm},
            bits,
            d,
            states.keys.dtype,
        )

    def head_bytes(
        self, keys: Tensor, values: Tensor, tokens: Tensor, d: int, itemsize: int
    ) -> Tensor:
        """Codes, and a norm for every token's Key and Value."""
        each = 2 * (packed_width(d, int(self.bits)) + 2)
        return tokens.long().expand(keys.shape) * each
