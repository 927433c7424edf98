"""Attention over planes on a processor, head by head: digits are read packed, and expand no further
than one product needs.

A byte holds four digits of one channel, those of tokens that are 16 apart. Masked with 3 << 2i it
is the i-th digit times 4^i, so that four masks and one product a head take the place of unpacking:
that power leaves with the products or joins the weights, and the level of a digit's plane goes to
the query or to the sum. A digit means (digit - 1.5), which is taken off before the product: a flat
attention's sum is small beside that of its digits.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from .planes import GRANULE, TILE, Planes

DIGITS = 4  # of a byte
_BYTES = TILE // DIGITS  # of a channel in a tile
_HALVES = TILE // GRANULE // DIGITS  # bytes a word


class _Head(NamedTuple):
    """One head: masked [K, 4 bytes] float32, what the i-th digit of every byte means, times 4^i, of
    K channels level by level; counts of each level; rows [counts[0], d], its basis times steps."""

    masked: Tensor
    counts: list[int]
    rows: Tensor


def plane_scores(query: Tensor, planes: Planes, lengths: Sequence[int]) -> Tensor:
    """Products [B, Hkv, G, T, N] of queries with the Keys of planes, less their mean.

    What a row says is the same beside rows of more tokens. Behind its own it means nothing.

    Args:
        query: [B, Hkv, G, T, d] float32.
        planes: of Keys, on a processor.
        lengths: tokens of every sample; N is the most.
    """
    B, heads, G, T, d = query.shape
    tokens = max(lengths)
    out, powers = query.new_zeros(B * heads, G * T, tokens), _digits()[1]
    flat = query.reshape(B * heads, G * T, d)
    for scores, q, head in zip(out, flat, _heads(planes, lengths, False), strict=True):
        if head is None:
            continue
        asked = q @ head.rows.mT  # [G T, counts[0]]
        asked = torch.cat([4**i * asked[:, :n] for i, n in enumerate(head.counts) if n], 1)
        found = (asked @ head.masked).view(G * T, DIGITS, -1).mul_(powers)
        found = found.view(G * T, DIGITS, -1, GRANULE, _HALVES).permute(0, 2, 4, 1, 3)
        found = found.reshape(G * T, -1)[:, :tokens]
        scores[:, : found.shape[1]] = found
    return out.view(B, heads, G, T, tokens)


def plane_sums(weights: Tensor, planes: Planes, lengths: Sequence[int]) -> Tensor:
    """Sums [B, Hkv, G, T, d] of the Values of planes, less their mean.

    Args:
        weights: [B, Hkv, G, T, N] float32, zero beyond each length.
        planes: of Values, on a processor.
        lengths: tokens of every sample.
    """
    B, heads, G, T, tokens = weights.shape
    flat, d = weights.reshape(B * heads, G * T, tokens), planes.basis.shape[-1]
    out, powers = weights.new_zeros(B * heads, G * T, d), _digits()[1]
    for sums, p, head in zip(out, flat, _heads(planes, lengths, True), strict=True):
        if head is None:
            continue
        length = head.masked.shape[1]
        own = torch.nn.functional.pad(p, (0, length - tokens))  # or cut to it
        laid = own.view(G * T, -1, _HALVES, DIGITS, GRANULE).permute(0, 3, 1, 4, 2)
        laid = (laid.reshape(G * T, DIGITS, -1) * powers).view(G * T, -1)
        found = laid @ head.masked.mT  # [G T, K]
        total, *deeper = found.split(head.counts, 1)
        for level, part in enumerate(deeper, 1):
            total[:, : part.shape[1]].add_(part, alpha=4**level)
        torch.matmul(total, head.rows, out=sums)
    return out.view(B, heads, G, T, d)


def _heads(planes: Planes, lengths: Sequence[int], values: bool) -> Iterator[_Head | None]:
    """Every head of every sample; None where it stores no channel."""
    data, heads = planes.data, planes.counts.shape[1]
    where = planes.offsets.flatten().tolist(), planes.starts.flatten().tolist()
    tokens = [length for length in lengths for _ in range(heads)]
    each = zip(planes.counts.flatten(0, 1).tolist(), *where, tokens, strict=True)
    for counts, offset, start, own in each:
        tile = sum(counts) * GRANULE  # words
        tiles = -(-own // TILE)
        if not tile * tiles:
            yield None
            continue
        words = data[offset : offset + tiles * tile].view(tiles, -1, GRANULE, GRANULE)
        words = words.permute((1, 2, 0, 3) if values else (1, 3, 0, 2)).contiguous()
        packed = words.view(torch.uint8).view(-1, 1, tiles * _BYTES)
        masks, _, centres = _digits()
        masked = (packed & masks).float().sub_(centres).flatten(1)
        steps = planes.steps[start : start + counts[0], None]
        rows = planes.basis[start : start + counts[0]]
        yield _Head(masked, counts, rows.float() * steps.float())


@lru_cache(maxsize=1)
@torch.inference_mode(False)  # tensors for every later call
def _digits() -> tuple[Tensor, Tensor, Tensor]:
    """Of a byte's digits, [4, 1] each: masks, uint8; what takes off the power that a mask leaves;
    and the middle of what a masked digit may be."""
    place = torch.arange(DIGITS, dtype=torch.uint8)[:, None]
    powers = 0.25 ** place.float()
    return 3 << 2 * place, powers, 1.5 / powers
