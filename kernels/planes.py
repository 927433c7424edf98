"""Rotated channels in 2, 4, 6 or 8 bits each, as planes of 2-bit digits: their layout, in PyTorch.

A channel of b bits has codes c of 0 to 2^b - 1 that mean (c - (2^b - 1) / 2) steps. Its digits to
base 4 are stored separately, and each is a symmetric 2-bit channel itself, of steps 4^level as
large: c - (2^b - 1) / 2 = sum over levels of (digit - 1.5) * 4^level. So every number in memory has
two bits, and one kernel reads any mixture of depths.

A head's channels are ordered by falling depth: `counts[level]` of them, the first ones, have a
digit of that level, always a multiple of 16. Level 0 of all channels comes first, then level 1, and
so on; 16 channels of one level are a granule.

Tokens come in tiles of 128. One int16 word holds the digits of one channel at eight tokens that
are 16 apart: bits 2j and 2j + 1 are token 16j + e of the tile, e the word's position. Shift and
mask turn a word into eight sub-tiles. A tile of a granule is 16 x 16 words, 512 bytes: tokens by
channels for Keys, channels by tokens for Values (each with the sum of its product last). A head is
[tiles, granules, 16, 16], row-major; the tokens beyond N in its last tile are zeros.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

GRANULE = 16  # channels
TILE = 128  # tokens
LEVELS = 4  # digits of the deepest channel
DEPTHS = (2, 4, 6, 8)  # bits
DIGITS_A_WORD = TILE // GRANULE
SAMPLED: Final = 512  # tokens on which a channel's step is chosen
# Steps of a uniform quantiser of a Gaussian, in standard deviations, and the multiples to try.
STEPS: Final = {2: 0.996, 4: 0.335, 6: 0.104, 8: 0.031}
TRIED: Final = (0.6, 0.75, 0.9, 1.0, 1.15, 1.4)


class Planes(NamedTuple):
    """The Keys or the Values of one layer's visual tokens, as digits with the basis they are in.

    Keys: the score is the sum over channels of (q . row) * step * level of the code, plus q . mean.
    Values: the output is the sum over channels of level * step * row, plus the mean's share.
    """

    data: Tensor  # 1-D int16; see the module for a head's words, which begin at offsets[b, h]
    counts: Tensor  # [B, Hkv, 4] int32, channels that have a digit of each level
    offsets: Tensor  # [B, Hkv] int64
    basis: Tensor  # [rows, d] int8; a head's are the counts[b, h, 0] rows from starts[b, h] on
    steps: Tensor  # [rows] float32: a row and its code are times this, the row's scale included
    starts: Tensor  # [B, Hkv] int32
    widest: int  # granules of the head that has most (the host's, which sizes a launch)

    @property
    def own(self) -> dict[str, Tensor]:
        """The tensors by name."""
        return {name: part for name, part in self._asdict().items() if isinstance(part, Tensor)}


def samples(planes: Planes, rows: Tensor) -> Planes:
    """Some samples' planes, `rows` of the batch; words and basis stay where they are."""
    counts, offsets, starts = (t[rows] for t in (planes.counts, planes.offsets, planes.starts))
    return planes._replace(counts=counts, offsets=offsets, starts=starts)


def counts_of(depths: Tensor) -> Tensor:
    """Channels [B, Hkv, 4] int32 that have a digit of each level; depths: [B, Hkv, w] bits of every
    channel, 0 to 8, even; in falling order a head."""
    levels = torch.arange(0, 2 * LEVELS, 2, device=depths.device)
    return (depths[..., None] > levels).sum(2, dtype=torch.int32)


def depths_of(counts: Tensor, width: int) -> Tensor:
    """Bits [B, Hkv, width] of every channel, 0 where it is not stored; `counts_of` undone."""
    channel = torch.arange(width, device=counts.device)
    return 2 * (channel < counts[..., None]).sum(-2)


def granules(counts: Tensor) -> Tensor:
    """Granules of digits [B, Hkv] of every head."""
    return counts.sum(-1) // GRANULE


def head_words(counts: Tensor, tokens: int | Tensor) -> Tensor:
    """Words [B, Hkv] of every head's digits, with those that fill up the last tile; tokens: of all
    samples, or [B, 1]."""
    return granules(counts).long() * -(-tokens // TILE) * GRANULE * GRANULE


def covered(planes: Sequence[tuple[Planes, int]]) -> bool:
    """Whether the data of each has every word of its tokens; planes, all on one device, and the
    tokens of each."""
    if not planes:
        return True
    counts = torch.cat([one.counts.flatten(0, 1) for one, _ in planes])
    offsets = torch.cat([one.offsets.flatten() for one, _ in planes])
    heads = torch.tensor([one.offsets.numel() for one, _ in planes])
    told = torch.tensor([(-(-tokens // TILE), one.data.numel()) for one, tokens in planes])
    tiles, words = told.repeat_interleave(heads, 0).to(offsets.device).unbind(1)
    ends = offsets + granules(counts).long() * tiles * GRANULE * GRANULE
    return bool(((offsets >= 0) & (ends <= words)).all())


class Channels(NamedTuple):
    """Channels of some heads that are to be quantised, w of each by falling depth."""

    mean: Tensor  # [B, Hkv, d]
    forward: Tensor  # [B, Hkv, d, w], a state less the mean to coordinates
    variance: Tensor  # [B, Hkv, w] of the coordinates
    counts: Tensor  # [B, Hkv, 4], as `Planes` has them


def sampled_tokens(lengths: Tensor, tokens: int) -> Tensor:
    """[B, S] int64: `SAMPLED` tokens of each sample, evenly apart; one is taken again where there
    are fewer. lengths: [B] valid ones of so many `tokens`."""
    place = (torch.arange(SAMPLED, device=lengths.device, dtype=torch.float32) + 0.5) / SAMPLED
    return (place * lengths[:, None]).long().clamp(max=tokens - 1)


def often_sampled(index: Tensor, shares: Tensor) -> Tensor:
    """Shares [B, N] of an error, times how often `sampled_tokens` took each token."""
    once = torch.ones_like(index, dtype=shares.dtype)
    return shares * torch.zeros_like(shares).scatter_add_(1, index, once)


def coordinates_of(states: Tensor, channels: Channels) -> Tensor:
    """Of states [B, Hkv, N, d] along their channels, [B, Hkv, N, w] float32."""
    return (states.float() - channels.mean.float()[:, :, None]) @ channels.forward


def steps_along(coordinates: Tensor, channels: Channels, shares: Tensor, lengths: Tensor) -> Tensor:
    """Every channel's step [B, Hkv, w] float32, the best of a few multiples of a Gaussian's, on
    `SAMPLED` tokens; positive, and meaningless for channels without bits.

    Args:
        coordinates: [B, Hkv, N, w], of `coordinates_of`.
        channels: of those states.
        shares: [B, N] float32, what an error at each token counts for.
        lengths: [B] valid tokens.
    """
    _, _, variance, counts = channels
    B, heads, N, w = coordinates.shape
    depths = depths_of(counts, w)
    index = sampled_tokens(lengths, N)
    if N > SAMPLED:
        sample = coordinates.gather(2, index[:, None, :, None].expand(-1, heads, -1, w))
        counted = shares.gather(1, index)
    else:  # every token once, counted as often as it is sampled
        sample, counted = coordinates, often_sampled(index, shares)
    usual = torch.zeros_like(variance)
    for bits, step in STEPS.items():
        usual = torch.where(depths == bits, step, usual)
    usual = (usual * variance.sqrt()).clamp(min=1e-30)
    stored = depths > 0
    coordinates = sample.transpose(2, 3)[stored]  # [R, S]
    weight = counted[stored.nonzero()[:, 0]]
    half = 2.0 ** (depths[stored].float() - 1)[:, None]
    gaussian = usual[stored]
    best, least = gaussian, torch.full_like(gaussian, float("inf"))
    for multiple in TRIED:
        steps = gaussian * multiple
        levels = (coordinates / steps[:, None]).floor_().clamp_(-half, half - 1).add_(0.5)
        rounded = levels.mul_(steps[:, None])
        error = rounded.sub_(coordinates).square_().mul_(weight).sum(1)
        best = torch.where(error < least, steps, best)
        least = torch.minimum(error, least)
    return usual.masked_scatter(stored, best)


def pack(
    coordinates: Tensor, counts: Tensor, steps: Tensor, values: bool = False
) -> tuple[Tensor, Tensor]:
    """Quantise coordinates to their levels and pack the digits.

    Args:
        coordinates: [B, Hkv, N, w] in the stored basis, channels by falling depth; values beyond
            a head's channels are not read.
        counts: [B, Hkv, 4], multiples of 16, falling along the levels, at most w.
        steps: [B, Hkv, w] in the coordinates' unit, positive.
        values: channels by tokens, as Values are stored.

    Returns:
        data and offsets of `Planes`.

    Raises:
        ValueError: where counts are no multiples of 16, rise along the levels, or exceed w.
    """
    B, Hkv, N, w = coordinates.shape
    if bool(((counts % GRANULE) != 0).any() | (counts.diff(dim=-1) > 0).any() | (counts > w).any()):
        raise ValueError("counts must be multiples of 16, fall along the levels and fit the width")
    top = ((1 << depths_of(counts, w)) - 1).float()[:, :, None]  # 0 where nothing is stored
    levels = coordinates.float() / steps[:, :, None].float()
    levels.add_((top + 1) / 2).floor_().nan_to_num_(0.0).clamp_(min=0)
    codes = torch.minimum(levels, top, out=levels).to(torch.uint8)
    tiles, wide = -(-N // TILE), -(-w // GRANULE)
    codes = torch.nn.functional.pad(codes, (0, wide * GRANULE - w, 0, tiles * TILE - N))
    codes = codes.view(B, Hkv, tiles, DIGITS_A_WORD, GRANULE, wide, GRANULE)
    codes = codes.permute(0, 1, 2, 5, 6, 4, 3) if values else codes.permute(0, 1, 2, 5, 4, 6, 3)
    stored = torch.arange(wide, device=counts.device) * GRANULE < counts[..., None]
    stored = stored[:, :, None].expand(-1, -1, tiles, -1, -1)  # in the order a head stores them
    sample, head, tile, level, granule = stored.nonzero().unbind(1)
    shifts = (2 * level).to(torch.uint8)[:, None, None, None]
    digits = ((codes[sample, head, tile, granule] >> shifts) & 3).to(torch.int16)
    shifts = 2 * torch.arange(DIGITS_A_WORD, device=codes.device, dtype=torch.int16)
    words = (digits << shifts).sum(-1, dtype=torch.int16)  # [granules, 16, 16]
    sizes = head_words(counts, N)
    offsets = (sizes.flatten().cumsum(0) - sizes.flatten()).view(B, Hkv)
    return words.flatten(), offsets


def unpack(planes: Planes, tokens: int, width: int | None = None, values: bool = False) -> Tensor:
    """The levels c - (2^b - 1) / 2 of every code, in steps: [B, Hkv, N, width] float32, zeros
    beyond a head's channels.

    Args:
        planes: of one layer.
        tokens: N, or more, where slots behind a head's tokens are not read.
        width: as of `rows_of`.
        values: whether they are Values.
    """
    counts, data = planes.counts // GRANULE, planes.data
    B, Hkv, _ = counts.shape
    width = int(planes.counts.max()) if width is None and counts.numel() else width or 0
    tiles, wide, device = -(-tokens // TILE), max(1, -(-width // GRANULE)), counts.device
    out = torch.zeros(B * Hkv * tiles * wide, GRANULE**2 * DIGITS_A_WORD, device=device)
    if data.numel() and planes.widest:
        slot, ends = torch.arange(planes.widest, device=device), counts.cumsum(-1)
        level = (slot >= ends[..., None]).sum(2)  # [B, Hkv, slots]
        before = (ends - counts).gather(-1, level.clamp(max=LEVELS - 1))
        granule = slot - before
        weight = torch.where((level < LEVELS) & (granule < wide), 4.0**level, 0.0)
        tile = torch.arange(tiles, device=device)[:, None]
        place = planes.offsets[..., None, None] // GRANULE**2 + tile * ends[..., -1:, None] + slot
        words = data[: len(data) // GRANULE**2 * GRANULE**2].view(-1, GRANULE**2)
        words = words[place.clamp(max=len(words) - 1)]  # [B, Hkv, tiles, slots, 256]
        digits = torch.nn.functional.embedding(words.view(torch.uint8).int(), _digits(device))
        digits = digits * weight[:, :, None, :, None, None]
        head = torch.arange(B * Hkv, device=device).view(B, Hkv, 1, 1)
        index = (head * tiles + tile) * wide + granule.clamp(max=wide - 1)[:, :, None]
        out.index_add_(0, index.flatten(), digits.view(index.numel(), -1))
    out = out.view(B, Hkv, tiles, wide, GRANULE, GRANULE, DIGITS_A_WORD)
    order = (0, 1, 2, 6, 5, 3, 4) if values else (0, 1, 2, 6, 4, 3, 5)
    levels = out.permute(order).reshape(B, Hkv, tiles * TILE, -1)
    return levels[:, :, :tokens, :width]


def _digits(device: torch.device) -> Tensor:
    """[256, 4]: the values of the four digits of every byte, in steps of their level."""
    shifts = 2 * torch.arange(DIGITS_A_WORD // 2, device=device)
    return ((torch.arange(256, device=device)[:, None] >> shifts) & 3).float() - 1.5


def rows_of(planes: Planes, width: int | None = None) -> Tensor:
    """Basis rows times steps, [B, Hkv, width, d] float32, zeros beyond a head's channels; width:
    that of the widest head by default, which synchronises with the device."""
    own = planes.counts[..., 0]
    width = int(own.max()) if width is None else width
    channel = torch.arange(width, device=own.device)
    live = channel < own[..., None]
    row = torch.where(live, planes.starts[..., None] + channel, 0).long()
    if not len(planes.steps):
        return planes.steps.new_zeros(*row.shape, planes.basis.shape[-1])
    scaled = planes.basis[row].float() * planes.steps[row][..., None].float()
    return scaled * live[..., None]
