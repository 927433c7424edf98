"""Planes as complete codes, channel after channel: the order in which they compress best.

In memory a word holds one digit of eight tokens 16 apart, and the digits of one code are in
different words. In a file the codes of neighbouring tokens are adjacent, and so are channels of one
depth: four codes a byte of 2-bit channels, two of 4-bit ones, one of deeper ones. It is a
permutation of the digits, those of the tokens that fill up the last tile among them.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from .planes import GRANULE, LEVELS, TILE, Planes

TOKENS_A_WORD = TILE // GRANULE  # tokens a word
A_BYTE = (4, 2, 1, 1)  # codes of each depth


def is_dense(counts: Tensor, offsets: Tensor, words: int) -> bool:
    """Whether heads follow one another without gaps, in `words` words and complete tiles."""
    sizes = _tile_words(counts)
    tiles = words // max(1, int(sizes.sum()))
    ends = (sizes * tiles).cumsum(0)
    return int(sizes.sum()) * tiles == words and torch.equal(
        offsets.flatten().cpu(), ends - sizes * tiles
    )


def codes_of(planes: Planes, values: bool) -> list[Tensor] | None:
    """Bytes of the channels of 2, 4, 6 and 8 bits; None where heads are not one after the other.

    Args:
        planes: of one layer.
        values: whether they are Values.
    """
    counts, data = planes.counts.cpu(), planes.data
    if not data.numel() or not is_dense(counts, planes.offsets, data.numel()):
        return None
    sizes = _tile_words(counts)
    tiles = data.numel() // int(sizes.sum())
    found: list[list[Tensor]] = [[] for _ in range(LEVELS)]
    for head, own in zip(_granules(counts), data.split((sizes * tiles).tolist()), strict=True):
        words = own.view(tiles, -1, GRANULE, GRANULE).int()
        words = words.mT if values else words  # [tiles, granules, tokens, channels]
        digits = torch.stack([(words >> 2 * place) & 3 for place in range(TOKENS_A_WORD)], 2)
        digits = digits.permute(1, 4, 0, 2, 3).reshape(-1, GRANULE, tiles * TILE)
        levels = digits.split(head)
        for depth, (first, last) in enumerate(_of_depth(head)):
            codes = sum(levels[at][first:last] << 2 * at for at in range(depth + 1))
            found[depth].append(torch.as_tensor(codes).flatten())
    return [_packed(torch.cat(each), many) for each, many in zip(found, A_BYTE, strict=True)]


def data_of(codes: Sequence[Tensor], counts: Tensor, values: bool) -> Tensor:
    """`Planes.data` again, on the codes' device.

    Raises:
        ValueError: where the number of codes is not that of `counts`.
    """
    counts = counts.cpu()
    channels = GRANULE * torch.tensor([[b - a for a, b in _of_depth(g)] for g in _granules(counts)])
    each = [_unpacked(one, many) for one, many in zip(codes, A_BYTE, strict=True)]
    tokens = sum(map(len, each)) // max(1, int(channels.sum()))
    if tokens % TILE or [len(one) for one in each] != (channels.sum(0) * tokens).tolist():
        raise ValueError("there are not as many codes as channels and tokens")
    parts = [one.split((own * tokens).tolist())
             for one, own in zip(each, channels.T, strict=True)]  # fmt: skip
    return torch.cat([
        _head(head, [part[number].view(-1, GRANULE, tokens) for part in parts], values)
        for number, head in enumerate(_granules(counts))
    ])  # fmt: skip


def _head(head: list[int], codes: Sequence[Tensor], values: bool) -> Tensor:
    """One head's words, from codes [granules, channels, tokens] of each depth."""
    deepest_first = torch.cat(list(reversed(codes))).int()
    digits = torch.cat([(deepest_first[:own] >> 2 * level) & 3 for level, own in enumerate(head)])
    digits = digits.view(-1, GRANULE, digits.shape[-1] // TILE, TOKENS_A_WORD, GRANULE)
    digits = digits.permute(2, 0, 4, 1, 3)  # [tiles, granules, tokens, channels, digits]
    digits = digits.transpose(2, 3) if values else digits
    shifts = 2 * torch.arange(TOKENS_A_WORD, dtype=torch.int32, device=digits.device)
    words = (digits << shifts).sum(-1, dtype=torch.int32)
    return torch.where(words >= 1 << 15, words - (1 << 16), words).to(torch.int16).flatten()


def _granules(counts: Tensor) -> list[list[int]]:
    """Granules of every level of every head."""
    return (counts.flatten(0, -2) // GRANULE).tolist()


def _of_depth(head: list[int]) -> list[tuple[int, int]]:
    """The first and the last granule of 2, 4, 6 and 8 bits."""
    return list(zip([*head[1:], 0], head, strict=True))


def _tile_words(counts: Tensor) -> Tensor:
    """Words of a tile of every head, on the CPU."""
    return counts.cpu().long().sum(-1).flatten() * GRANULE


def _packed(codes: Tensor, many: int) -> Tensor:
    """So many codes a byte, the first one lowest."""
    places = (8 // many) * torch.arange(many, dtype=torch.int32, device=codes.device)
    return (codes.view(-1, many) << places).sum(-1).to(torch.uint8)


def _unpacked(packed: Tensor, many: int) -> Tensor:
    places = (8 // many) * torch.arange(many, dtype=torch.int32, device=packed.device)
    return ((packed.int()[:, None] >> places) & (2 ** (8 // many) - 1)).flatten()
