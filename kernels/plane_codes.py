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
    rows = data.view(-1, GRANULE, GRANULE)
    tiles = data.numel() // int(_tile_words(counts).sum())
    found = []
    for at, many in zip(_rows_of_depth(counts, tiles), A_BYTE, strict=True):
        words = rows[at.to(data.device)].int()  # [levels, granules, tiles, tokens, channels]
        words = words.mT if values else words
        digits = (words[..., None] >> _shifts(TOKENS_A_WORD, words)) & 3
        shifts = _shifts(len(at), words).view(-1, *[1] * (digits.dim() - 1))
        codes = (digits << shifts).sum(0, dtype=torch.int32)
        found.append(_packed(codes.permute(0, 3, 1, 4, 2).flatten(), many))
    return found


def data_of(codes: Sequence[Tensor], counts: Tensor, values: bool) -> Tensor:
    """`Planes.data` again, on the codes' device.

    Raises:
        ValueError: where the number of codes is not that of `counts`.
    """
    counts = counts.cpu()
    each = [_unpacked(one, many) for one, many in zip(codes, A_BYTE, strict=True)]
    own = [GRANULE * at.shape[1] for at in _rows_of_depth(counts, 1)]  # channels
    tokens = sum(map(len, each)) // max(1, sum(own))
    if tokens % TILE or [len(one) for one in each] != [many * tokens for many in own]:
        raise ValueError("there are not as many codes as channels and tokens")
    tiles = tokens // TILE
    size = int(_tile_words(counts).sum()) * tiles
    data = torch.empty(size // GRANULE**2, GRANULE, GRANULE, dtype=torch.int16)
    data = data.to(codes[0].device)
    for at, one in zip(_rows_of_depth(counts, tiles), each, strict=True):
        code = one.view(-1, GRANULE, tiles, TOKENS_A_WORD, GRANULE).permute(0, 2, 4, 1, 3)
        digits = (code >> _shifts(len(at), code).view(-1, *[1] * code.dim())) & 3
        words = (digits << _shifts(TOKENS_A_WORD, code)).sum(-1, dtype=torch.int32)
        words = torch.where(words >= 1 << 15, words - (1 << 16), words).to(torch.int16)
        data[at.to(data.device)] = words.mT if values else words
    return data.flatten()


def _rows_of_depth(counts: Tensor, tiles: int) -> list[Tensor]:
    """Which blocks of 16 x 16 words hold the digits of the channels of 2, 4, 6 and 8 bits.

    Args:
        counts: of one layer, on the CPU.
        tiles: of every head.

    Returns:
        for each depth int64 [levels, granules, tiles]: heads in order, a granule's tiles in a row.
    """
    firsts: list[list[list[int]]] = [[[] for _ in range(depth + 1)] for depth in range(LEVELS)]
    strides: list[list[int]] = [[] for _ in range(LEVELS)]
    begin = 0
    for head in _granules(counts):
        many = sum(head)
        for depth, (first, last) in enumerate(_of_depth(head)):
            for level in range(depth + 1):
                above = begin + sum(head[:level])
                firsts[depth][level] += range(above + first, above + last)
            strides[depth] += [many] * (last - first)
        begin += many * tiles
    tile = torch.arange(tiles)
    return [
        torch.tensor(first, dtype=torch.int64)[..., None]
        + torch.tensor(stride, dtype=torch.int64)[:, None] * tile
        for first, stride in zip(firsts, strides, strict=True)
    ]


def _shifts(many: int, beside: Tensor) -> Tensor:
    """0, 2, 4 and so on: the bits below each of `many` digits."""
    return 2 * torch.arange(many, dtype=torch.int32, device=beside.device)


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
