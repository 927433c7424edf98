"""Whole numbers of a few bits, packed into bytes: what masks, signs and quantised states are."""

from math import gcd

import torch
from torch import Tensor
from torch.nn.functional import pad

BYTE = 8


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
