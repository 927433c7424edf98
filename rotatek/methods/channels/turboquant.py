"""TurboQuant's form of quantisation (Zandieh et al., arXiv 2504.19874): random rotation.

x is stored as its norm, in float16, and as codes of y = R x / |x| * sqrt(d), R random orthogonal:
the numbers of y are nearly independent standard Gaussians whatever x is, so one codebook, that of
Lloyd and Max for a Gaussian, serves every channel of every head. It is read as R^T codebook[code] *
|x| / sqrt(d). This is the paper's form of least squared error, for Keys and Values alike; its
unbiased form spends one of the bits on the sign of a projected residual. R is drawn once from a
fixed seed: it is a constant of the method, which no cache holds.

Half bits are the paper's treatment of outliers: a head's loudest channels and the others are two
vectors of their own, each with its rotation and its norm, and the loud ones get one bit more. The
paper gives it to 32 of 128 channels; here it is half of them, so that 2.5 bits are 2.5 bits, chosen
by their energy in this prompt.
"""

from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Final

import torch
from torch import Tensor

from rotatek.methods.channels import rebuilt
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.rebuilt import Form, PackedMethod, RebuiltStore

BITS: Final = ("1", "2", "2.5", "3", "3.5", "4")
SEED: Final = 20250428
ROUNDS: Final = 10_000  # of Lloyd's iteration, which ends where nothing moves any more
STILL: Final = 1e-12


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # a tensor for every later call
def codebook(bits: int, device: torch.device) -> Tensor:
    """The levels [2^bits], rising, that quantise a standard Gaussian with the least squared error.

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
    return torch.tensor(levels, device=device)


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # a tensor for every later call
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
    return codes.to(torch.uint8), norms[..., 0].clamp(max=rebuilt.LARGEST).half()


def decode(codes: Tensor, norms: Tensor, bits: int) -> Tensor:
    """The inverse of `encode`, as near as it gets: float32 [..., d]."""
    width = codes.shape[-1]
    rotated = codebook(bits, codes.device)[codes.int()]
    rotated = rotated * (norms.float() / width**0.5)[..., None]
    return rotated @ random_rotation(width, codes.device).T


def parts_of(width: int, bits: float) -> list[tuple[int, int]]:
    """(channels, bits of a code) of each vector that a head is stored as."""
    low = int(bits)
    return [(width, low)] if bits == low else [(width // 2, low + 1), (width - width // 2, low)]


@dataclass(frozen=True)
class TurboQuant(PackedMethod):
    """A random rotation, then one codebook for every number."""

    name, label = "turboquant", "TurboQuant"
    summary = "Every number in a few bits behind a random rotation, with each token's norm."
    colour = "#9c24fc"

    bits: str = rebuilt.bits_option(BITS)
    value_bits: str = rebuilt.value_bits_option(BITS)

    def stored(self, side: str, numbers: Tensor, alive: Tensor, states: LayerStates) -> Form:
        """Rotate and quantise, each vector's codes behind the one before.

        beside: key_norm and value_norm, float16 [B, Hkv, N, vectors]; with half bits key_channels
        and value_channels, uint8 [B, Hkv, d], those of the first vector first.
        """
        parts, beside = parts_of(numbers.shape[-1], self.bits_of(side)), {}
        sizes = [size for size, _ in parts]
        if len(parts) > 1:
            energy = numbers.float().square().sum(2)
            order = energy.argsort(dim=-1, descending=True, stable=True).split(sizes, -1)
            index = torch.cat([part.sort(-1).values for part in order], -1)
            beside[f"{side}_channels"] = index.to(torch.uint8)
            numbers = numbers.gather(-1, index[:, :, None].expand_as(numbers))
        packed, norms = [], []
        for part, (_, bits) in zip(numbers.split(sizes, -1), parts, strict=True):
            codes, norm = encode(part, bits)
            packed.append(rebuilt.pack(codes, bits))
            norms.append(norm)
        return torch.cat(packed, -1), beside | {f"{side}_norm": torch.stack(norms, -1)}

    def rebuild(self, side: str, stored: Tensor, store: RebuiltStore) -> Tensor:
        """Each vector's codes and norm, in the order of the channels."""
        parts = parts_of(store.width, self.bits_of(side))
        codes = stored.split([rebuilt.packed_width(*part) for part in parts], -1)
        vectors = zip(codes, store.beside[f"{side}_norm"].unbind(-1), parts, strict=True)
        numbers = [
            decode(rebuilt.unpack(own, bits, size), norms, bits)
            for own, norms, (size, bits) in vectors
        ]
        found = torch.cat(numbers, -1)
        channels = store.beside.get(f"{side}_channels")
        if channels is None:
            return found
        index = channels.long()[:, :, None].expand_as(found)
        return torch.empty_like(found).scatter_(-1, index, found)
