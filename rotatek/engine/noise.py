"""Random numbers that depend on a seed and a position only: they are the same on every device,
alone and in a batch, and after an answer continues on another machine.

Each number is a hash of (seed, draw, position of the token in its answer, token of the
vocabulary), so there is no generator whose state rows could share.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

LOW: Final = 0xFFFFFFFF  # the lower 32 bits; tensors have no unsigned arithmetic
BELOW_ONE: Final = 1 - 2**-24  # the largest float32 below 1


def keys_of(seed: int, draw: int, position: int) -> tuple[int, int]:
    """Two keys of 32 bits for one token of one answer.

    Args:
        seed: of the request.
        draw: 0 for its first answer, 1 for the second, and so on.
        position: of the token in its answer.
    """
    digest = hashlib.blake2b(f"{seed} {draw} {position}".encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")


def gumbel(keys: Sequence[tuple[int, int]], vocabulary: int, device: torch.device) -> Tensor:
    """[rows, vocabulary] of standard Gumbel numbers in float32.

    The largest of log-probabilities plus these is a draw from the distribution. Where two models
    nearly agree on it, they nearly always draw the same token.

    Args:
        keys: of each row.
        vocabulary: numbers a row.
        device: where they are needed.
    """
    first, second = torch.tensor(keys, dtype=torch.long, device=device).T[:, :, None]
    mixed = torch.arange(vocabulary, device=device)[None] * 0x9E3779B1
    for key in (first, second):
        mixed = (mixed + key) & LOW
        mixed ^= mixed >> 16
        mixed = (mixed * 0x7FEB352D) & LOW
        mixed ^= mixed >> 15
        mixed = (mixed * 0x846CA68B) & LOW
        mixed ^= mixed >> 16
    uniform = (mixed.float() * 2**-32 + 2**-33).clamp_(max=BELOW_ONE)
    return -(-torch.log1p(-uniform)).log_()
