"""Quantises and packs channels on a processor: only those that a head stores, a row each.

A row has a channel's coordinates of all tokens, ordered as the digits of a word are: first the
tokens that come first in every word, then those that come second. So every step is one pass along
rows, and the eight digits of a word are eight pieces of a row. `kernels.planes` has the layout, and
the same computation for any device.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from .planes import (
    DIGITS_A_WORD,
    GRANULE,
    LEVELS,
    SAMPLED,
    STEPS,
    TILE,
    TRIED,
    Channels,
    depths_of,
    head_words,
    often_sampled,
    sampled_tokens,
)

_BYTES = 2  # of a word


@torch.no_grad()
def pack_on_processor(
    states: Tensor, channels: Channels, shares: Tensor, lengths: Tensor, values: bool = False
) -> tuple[Tensor, Tensor]:
    """Find the steps of channels, as `steps_along`, and pack their digits, as `pack`.

    Args:
        states: [B, Hkv, N, d], on a processor.
        channels: of those states; their counts are multiples of 16, falling along the levels.
        shares: [B, N] float32, what an error at each token counts for.
        lengths: [B] valid tokens.
        values: channels by tokens, as Values are stored.

    Returns:
        data of `Planes`, and steps [B, Hkv, w], meaningless for channels without bits.
    """
    heads, tokens = states.shape[1], states.shape[2]
    depths = depths_of(channels.counts, channels.forward.shape[-1])
    stored, counts = depths > 0, channels.counts.flatten(0, 1).tolist()
    steps = torch.ones_like(channels.variance)
    if not any(levels[0] for levels in counts):
        return torch.empty(0, dtype=torch.int16), steps
    rows = _coordinates(states, channels, counts)
    bits, variance = depths[stored], channels.variance[stored]
    each = [sum(own[0] for own in counts[i : i + heads]) for i in range(0, len(counts), heads)]
    found = _steps(rows, bits, variance, _weights(shares, lengths), each)
    steps.masked_scatter_(stored, found)
    top = ((1 << bits) - 1).float()[:, None]
    rows.div_(found[:, None]).add_((top + 1) / 2).nan_to_num_(0.0).clamp_(min=0)
    codes = torch.minimum(rows, top, out=rows).to(torch.uint8)
    spare = -tokens % TILE
    if spare:
        last = codes.view(len(codes), DIGITS_A_WORD, -1, GRANULE)[:, :, -1]
        last *= (torch.arange(TILE) < TILE - spare).view(-1, GRANULE)
    sizes = head_words(channels.counts, tokens).flatten().tolist()
    data = torch.empty(sum(sizes), dtype=torch.int16)
    _write(data.split(sizes), codes, counts, values)
    return data, steps


def _coordinates(states: Tensor, channels: Channels, counts: Sequence[Sequence[int]]) -> Tensor:
    """Rows [R, tiles * 128] of the channels that are stored, head by head."""
    each, tokens = states.flatten(0, 1), states.shape[2]
    mean = channels.mean.float().flatten(0, 1)[:, None, None, None]
    tiles, spare = -(-tokens // TILE), -tokens % TILE
    centred = mean.new_empty(len(each), DIGITS_A_WORD, tiles, GRANULE, each.shape[2])
    whole = tokens // TILE
    shape = -1, DIGITS_A_WORD, GRANULE
    full = each[:, : whole * TILE].unflatten(1, shape).transpose(1, 2)
    torch.sub(full, mean, out=centred[:, :, :whole])
    if spare:
        last = torch.nn.functional.pad(each[:, whole * TILE :], (0, 0, 0, spare))
        torch.sub(last.unflatten(1, shape).transpose(1, 2), mean, out=centred[:, :, whole:])
    centred = centred.flatten(1, 3)
    sizes = [own[0] for own in counts]
    rows = centred.new_empty(sum(sizes), tiles * TILE)
    parts = zip(rows.split(sizes), centred, channels.forward.flatten(0, 1), sizes, strict=True)
    for out, x, forward, width in parts:
        if width:
            torch.mm(forward[:, :width].mT, x.mT, out=out)
    return rows


def _weights(shares: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor | None]:
    """What errors count for, and where in a row: [B, S] of each token that is sampled, or of all of
    a row where these are no fewer."""
    tokens = shares.shape[1]
    index = sampled_tokens(lengths, tokens)
    place = _places(tokens)
    if tokens > SAMPLED:
        return shares.gather(1, index), place[index]
    whole = shares.new_zeros(len(shares), -(-tokens // TILE) * TILE)
    return whole.index_copy_(1, place, often_sampled(index, shares)), None


def _steps(
    rows: Tensor,
    bits: Tensor,
    variance: Tensor,
    counted: tuple[Tensor, Tensor | None],
    each: Sequence[int],
) -> Tensor:
    """The best step of every row [R].

    Args:
        rows: [R, tokens].
        bits: [R] of their channels.
        variance: [R].
        counted: of `_weights`.
        each: rows of every sample.
    """
    weights, places = counted
    known = [STEPS.get(depth, 0.0) for depth in range(2 * LEVELS + 1)]
    usual = torch.tensor(known, dtype=torch.float32)[bits]
    usual = (usual * variance.sqrt()).clamp_(min=1e-30)
    if places is not None:
        parts = zip(rows.split(list(each)), places, strict=True)
        rows = torch.cat([part.index_select(1, own) for part, own in parts])
    unit = rows / usual[:, None]
    half = (1 << (bits - 1)).float()[:, None]
    low, high, middle = -half, half - 1, torch.full((), -0.5, dtype=torch.float32)
    place, level, sizes = torch.empty_like(unit), torch.empty_like(unit), list(each)
    errors = unit.new_empty(len(TRIED), len(unit))
    for multiple, error in zip(TRIED, errors, strict=True):
        # in units of the usual step; levels are half a step off whole numbers
        torch.add(middle, unit, alpha=1 / multiple, out=place)
        torch.maximum(torch.round(place, out=level), low, out=level)
        torch.minimum(level, high, out=level).sub_(place).square_()
        for part, own, out in zip(level.split(sizes), weights, error.split(sizes), strict=True):
            torch.mv(part, own, out=out)
        error.mul_(multiple**2)
    errors.nan_to_num_(float("inf"))
    return usual * torch.tensor(TRIED, dtype=usual.dtype)[errors.argmin(0)]


def _write(
    data: Sequence[Tensor],
    codes: Tensor,
    counts: Sequence[Sequence[int]],
    values: bool,
) -> None:
    """Write the digits of codes [R, tokens] to the words of every head."""
    tiles = codes.shape[1] // TILE
    each = codes.split([head[0] for head in counts])
    wanted = [(level, number) for level in range(LEVELS) for number in range(len(counts))]
    sizes = [counts[number][level] for level, number in wanted]
    shifts = torch.tensor([2 * level for level, _ in wanted], dtype=torch.uint8)
    shifts = shifts.repeat_interleave(torch.tensor(sizes))[:, None]
    own = torch.cat([each[number][:size] for (_, number), size in zip(wanted, sizes, strict=True)])
    digits = (own >> shifts).bitwise_and_(3)
    digits = digits.view(len(own), _BYTES, DIGITS_A_WORD // _BYTES, -1)
    first, second, third, fourth = digits.unbind(2)
    low = torch.add(first, second, alpha=4)
    high = torch.add(third, fourth, alpha=4)
    words = torch.add(low, high, alpha=16)  # [R, 2, tiles * 16] bytes
    words = words.transpose(1, 2).contiguous().view(torch.int16)
    words = words.view(-1, GRANULE, tiles, GRANULE)  # granules, channels, tiles, tokens
    words = words.permute((2, 0, 1, 3) if values else (2, 0, 3, 1))
    parts = words.split([size // GRANULE for size in sizes], 1)
    for (level, number), part in zip(wanted, parts, strict=True):
        place = data[number].view(tiles, -1, GRANULE, GRANULE)
        begin = sum(counts[number][:level]) // GRANULE
        place[:, begin : begin + part.shape[1]] = part


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # a tensor for every later call
def _places(tokens: int) -> Tensor:
    """[tokens]: where in a row each token is."""
    tiles, n = -(-tokens // TILE), torch.arange(tokens)
    tile, within = n // TILE, n % TILE
    return within // GRANULE * (tiles * GRANULE) + tile * GRANULE + within % GRANULE
