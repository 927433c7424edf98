"""Decode attention over a compressed visual cache in plain PyTorch: the truth the kernels obey.

Symbols: B batch, Hq query heads, Hkv key heads, G = Hq // Hkv, T queries of this step, N visual
tokens, M text slots, d head width, k stored Key channels, r stored Value channels.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import torch
from torch import Tensor

from .planes import GRANULE, Planes, rows_of, unpack
from .planes_plain import plane_scores, plane_sums

WIDEST_HEAD: Final = 256  # channels of the heads that kernels are written for


class Unsupported(ValueError):
    """A call that the attention kernel cannot compute; the message is the reason."""


class Narrow(NamedTuple):
    """The visual tokens of one layer's cache as numbers, fewer of each Key at will.

    keys: [B, Hkv, N, k].
    values: [B, Hkv, N, d].
    lengths: [B] int32, valid visual tokens; None when all N are.
    basis: [B, Hkv, d, k]; the projected query is q @ basis.
    index: [B, Hkv, k] int64; the projected query is q gathered at index (exclusive with basis).
    mean: [B, Hkv, d]; q . mean is added to every visual score before scaling.
    fresh: the work queued just before wrote some of it, so that no kernel may start reading early.
    cleared: Values beyond the lengths are zeros; otherwise they are undefined.
    """

    keys: Tensor
    values: Tensor
    lengths: Tensor | None = None
    basis: Tensor | None = None
    index: Tensor | None = None  # type: ignore[assignment]  # as a tuple has a method of the name
    mean: Tensor | None = None
    fresh: bool = False
    cleared: bool = False

    @property
    def tokens(self) -> int:
        """N."""
        return self.keys.shape[2]


class Packed(NamedTuple):
    """The same as digits of 2 bits, Keys and Values with bases of their own (`kernels.planes`).

    keys, values: planes of N = tokens.
    lengths: [B] int32, valid visual tokens; None when all N are.
    mean: [B, Hkv, d]; q . mean is added to every visual score before scaling.
    value_mean: [B, Hkv, d]; added times the visual attention mass.
    fresh: as in `Narrow`.
    """

    keys: Planes
    values: Planes
    tokens: int
    lengths: Tensor | None
    mean: Tensor
    value_mean: Tensor
    fresh: bool = False


Visual = Narrow | Packed


class Text(NamedTuple):
    """Prompt and generated text: keys, values [B, Hkv, M, d]; lengths [B] int32 of each row."""

    keys: Tensor
    values: Tensor
    lengths: Tensor | None = None


def opened(visual: Visual) -> Narrow:
    """The same visual tokens as numbers: planes unpacked, their Values turned back."""
    if isinstance(visual, Narrow):
        return visual
    (keys, values, tokens, lengths, mean, shift, _), d = visual, visual.mean.shape[-1]
    levels = unpack(keys, tokens, min(d, GRANULE * keys.widest))
    sums = unpack(values, tokens, min(d, GRANULE * values.widest), values=True)
    turned = sums @ rows_of(values, sums.shape[-1]) + shift.float()[:, :, None]
    return Narrow(levels, turned, lengths, rows_of(keys, levels.shape[-1]).mT, mean=mean)


def project_query(q: Tensor, visual: Narrow) -> tuple[Tensor, Tensor | None]:
    """Bring q [B, Hkv, G, T, d] to the visual Keys' basis: ([B, Hkv, G, T, k], bias or None)."""
    projected = q
    if visual.basis is not None:
        projected = _by_group(q, visual.basis.to(q.dtype))
    elif visual.index is not None:
        index = visual.index[:, :, None, None].expand(*q.shape[:-1], -1)
        projected = q.gather(-1, index)
    if visual.mean is None:
        return projected, None
    return projected, _by_group(q, visual.mean.to(q.dtype)[..., None])


def attend_reference(q: Tensor, visual: Visual | None, text: Text, scale: float) -> Tensor:
    """One softmax over compressed visual tokens and text.

    Args:
        q: [B, Hq, T, d], the last T text tokens' queries; query t sees text
            j < length - (T - 1 - t).
        visual: the compressed tokens, all of which every query sees; None where there are none.
        text: the others, with those of `q`.
        scale: what scores are multiplied by.

    Returns:
        [B, Hq, T, d] in q's dtype; every product is taken in float32.
    """
    B, Hq, T, d = q.shape
    Hkv = text.keys.shape[1]
    query = q.float().view(B, Hkv, Hq // Hkv, T, d)
    M = text.keys.shape[2]
    slot = torch.arange(M, device=q.device)
    ends = slot.new_full((B,), M) if text.lengths is None else text.lengths
    read_values = _alive(text.values, text.lengths)
    scores = _by_group(query, text.keys.float().mT)  # [B, Hkv, G, T, M]
    last = ends[:, None] - T + 1 + torch.arange(T, device=q.device)  # [B, T]
    dead = slot >= last[:, :, None].minimum(ends[:, None, None])
    scores = scores.masked_fill(dead[:, None, None], float("-inf"))
    if visual is None:
        weights = (scores * scale).softmax(-1)
        out = _by_group(weights, read_values)
        return out.reshape(B, Hq, T, d).to(q.dtype)
    if isinstance(visual, Packed) and reads_packed(q.device):
        visual_scores, sums = _over_planes(query, visual)
    else:
        visual_scores, sums = _over_numbers(query, opened(visual))
    N = visual_scores.shape[-1]
    weights = (torch.cat([visual_scores, scores], -1) * scale).softmax(-1)
    seen, read = weights[..., :N], weights[..., N:]
    out = sums(seen)
    out = out + _by_group(read, read_values)
    return out.reshape(B, Hq, T, d).to(q.dtype)


def reads_packed(device: torch.device) -> bool:
    """Whether digits are read as they are packed, with counts known to the host."""
    return device.type == "cpu"


def _over_numbers(query: Tensor, visual: Narrow) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Unscaled visual scores [B, Hkv, G, T, N], and what turns weights of that shape into sums of
    Values [B, Hkv, G, T, d]."""
    values = _alive(visual.values, None if visual.cleared else visual.lengths)
    projected, bias = project_query(query, visual)
    scores = _by_group(projected, visual.keys.float().mT)
    if bias is not None:
        scores = scores + bias
    return _masked_scores(scores, visual.lengths), lambda weights: _by_group(weights, values)


def _over_planes(query: Tensor, visual: Packed) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The same where digits stay packed, on a processor, which knows their counts."""
    own = [visual.tokens] * len(query) if visual.lengths is None else visual.lengths.tolist()
    scores = plane_scores(query, visual.keys, own)
    scores = scores + _by_group(query, visual.mean.float()[..., None])

    def sums(weights: Tensor) -> Tensor:
        shift = weights.sum(-1, keepdim=True) * visual.value_mean.float()[:, :, None, None]
        return plane_sums(weights, visual.values, own) + shift

    return _masked_scores(scores, visual.lengths), sums


def _masked_scores(scores: Tensor, lengths: Tensor | None) -> Tensor:
    """Scores [B, Hkv, G, T, N], -inf beyond each length [B]."""
    if lengths is None:
        return scores
    slot = torch.arange(scores.shape[-1], device=scores.device)
    dead = slot >= lengths[:, None, None, None, None]
    return scores.masked_fill(dead, float("-inf"))


def _by_group(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows [B, Hkv, G, T, m] times [B, Hkv, m, n], which a group's heads share: [B, Hkv, G, T, n].

    One product a head. A broadcast product would copy the matrix for each head, and the rounding of
    a product of stacked rows would depend on the capacity for tokens.
    """
    return torch.stack([each @ matrix for each in rows.unbind(2)], 2)


def expanded(visual: Visual, width: int) -> tuple[Tensor, Tensor]:
    """The Keys and Values that attention over compressed tokens amounts to.

    Args:
        visual: the compressed tokens.
        width: d of the heads.

    Returns:
        Twice [B, Hkv, N, d] in float32, zero beyond each length.
    """
    visual = opened(visual)
    keys, values = visual.keys.float(), visual.values
    if visual.basis is not None:
        keys = keys @ visual.basis.float().mT
    elif visual.index is not None:
        index = visual.index[:, :, None].expand_as(keys)
        keys = keys.new_zeros(*keys.shape[:-1], width).scatter_add_(-1, index, keys)
    if visual.mean is not None:
        keys = keys + visual.mean.float()[:, :, None]
    return _alive(keys, visual.lengths), _alive(values, visual.lengths)


def _alive(values: Tensor, lengths: Tensor | None) -> Tensor:
    """Values [B, Hkv, n, d] as float32, zero beyond each length: those slots are undefined.

    As bits, because `masked_fill` takes ten times as long where its mask is broadcast.
    """
    values = values.float()
    if lengths is None:
        return values
    live = torch.arange(values.shape[2], device=values.device) < lengths[:, None]
    every = -live[:, None, :, None].int()
    return (values.view(torch.int32) & every).view(torch.float32)
