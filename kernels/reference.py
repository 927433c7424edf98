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


class Visual(NamedTuple):
    """The visual part of one layer's cache, as the attention reads it.

    keys: [B, Hkv, N, k].
    values: [B, Hkv, N, d].
    lengths: [B] int32, valid visual tokens, or [B, Hkv] where heads differ; None when all N are.
    basis: [B, Hkv, d, k]; the projected query is q @ basis.
    mean: [B, Hkv, d]; q . mean is added to every visual score before scaling.
    index: [B, Hkv, k] int64; the projected query is q gathered at index (exclusive with basis).
    value_basis: [B, Hkv, r, d], of planes that were `opened`: rotates sums of their values
        [B, Hkv, N, r] up, once.
    value_mean: [B, Hkv, d]; added times the visual attention mass.
    tokens: N, needed only for planes.
    fresh: the work queued just before wrote some of it, so that no kernel may start reading early.
    key_planes: Keys as digits of 2 bits with their own basis (see `kernels.planes`); keys and
        values are then [B, Hkv, 0, 0], `tokens` is given, and of the other fields only lengths,
        mean, value_mean and fresh are.
    value_planes: the same for the Values; given exactly where key_planes are.
    cleared: Values beyond the lengths are zeros; otherwise they are undefined.
    """

    keys: Tensor
    values: Tensor
    lengths: Tensor | None = None
    basis: Tensor | None = None
    mean: Tensor | None = None
    index: Tensor | None = None
    value_basis: Tensor | None = None
    value_mean: Tensor | None = None
    tokens: int | None = None
    fresh: bool = False
    key_planes: Planes | None = None
    value_planes: Planes | None = None
    cleared: bool = False


class Text(NamedTuple):
    """Prompt and generated text: keys, values [B, Hkv, M, d]; lengths [B] int32 of each row."""

    keys: Tensor
    values: Tensor
    lengths: Tensor | None = None


def misaligned(visual: Visual) -> list[str]:
    """Names of planes whose heads do not begin at whole granules, which kernels load at once; waits
    for the device."""
    return [
        name
        for name in ("key_planes", "value_planes")
        if (planes := getattr(visual, name)) is not None
        and bool((planes.offsets % (GRANULE * GRANULE)).any())
    ]


def opened(visual: Visual) -> Visual:
    """The same visual tokens with planes unpacked to levels, [B, Hkv, N, w] float32."""
    keys, values = visual.key_planes, visual.value_planes
    if keys is None or values is None:
        return visual
    tokens, d = visual.tokens or 0, keys.basis.shape[-1]
    levels = unpack(keys, tokens, min(d, GRANULE * keys.widest))
    sums = unpack(values, tokens, min(d, GRANULE * values.widest), values=True)
    return visual._replace(
        keys=levels,
        values=sums,
        basis=rows_of(keys, levels.shape[-1]).mT,
        value_basis=rows_of(values, sums.shape[-1]),
        key_planes=None,
        value_planes=None,
    )


def project_query(q: Tensor, visual: Visual) -> tuple[Tensor, Tensor | None]:
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
    read_values = _masked(text.values.float(), slot < ends[:, None])
    scores = _by_group(query, text.keys.float().mT)  # [B, Hkv, G, T, M]
    last = ends[:, None] - T + 1 + torch.arange(T, device=q.device)  # [B, T]
    dead = slot >= last[:, :, None].minimum(ends[:, None, None])
    scores = scores.masked_fill(dead[:, None, None], float("-inf"))
    if visual is None:
        weights = (scores * scale).softmax(-1)
        out = _by_group(weights, read_values)
        return out.reshape(B, Hq, T, d).to(q.dtype)
    if visual.key_planes is not None and reads_packed(q.device):
        visual_scores, sums = _over_planes(query, visual)
    else:
        visual_scores, sums = _over_numbers(query, opened(visual))
    N = visual_scores.shape[-1]
    weights = (torch.cat([visual_scores, scores], -1) * scale).softmax(-1)
    seen, read = weights[..., :N], weights[..., N:]
    out = sums(seen)
    if visual.value_mean is not None:
        out = out + seen.sum(-1, keepdim=True) * visual.value_mean.float()[:, :, None, None]
    out = out + _by_group(read, read_values)
    return out.reshape(B, Hq, T, d).to(q.dtype)


def heads_as_samples(q: Tensor, visual: Visual, text: Text) -> tuple[Tensor, Visual, Text]:
    """The same call with each Key head as a sample of its own, which may have its own length.

    Args:
        q: [B, Hq, 1, d].
        visual: dense Keys and Values, with lengths [B, Hkv] and nothing else.
        text: the other tokens, with lengths.

    Returns:
        Views with B * Hkv samples of one Key head; the output's heads are in the same order.
    """
    B, Hkv = visual.keys.shape[:2]
    assert visual.lengths is not None and text.lengths is not None
    keys, values, own_keys, own_values = (
        part.flatten(0, 1)[:, None] for part in (visual.keys, visual.values, text.keys, text.values)
    )
    lengths = text.lengths[:, None].expand(-1, Hkv).flatten()
    return (
        q.reshape(B * Hkv, -1, *q.shape[2:]),
        visual._replace(keys=keys, values=values, lengths=visual.lengths.flatten()),
        Text(own_keys, own_values, lengths),
    )


def reads_packed(device: torch.device) -> bool:
    """Whether digits are read as they are packed, with counts known to the host."""
    return device.type == "cpu"


def _over_numbers(query: Tensor, visual: Visual) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Unscaled visual scores [B, Hkv, G, T, N], and what turns weights of that shape into sums of
    Values [B, Hkv, G, T, d] without their mean."""
    values, turn = (
        _alive(visual.values, None if visual.cleared else visual.lengths),
        visual.value_basis,
    )
    projected, bias = project_query(query, visual)
    scores = _by_group(projected, visual.keys.float().mT)
    if bias is not None:
        scores = scores + bias

    def sums(weights: Tensor) -> Tensor:
        found = _by_group(weights, values)
        return found if turn is None else _by_group(found, turn.float())

    return _masked_scores(scores, visual.lengths), sums


def _over_planes(query: Tensor, visual: Visual) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The same where digits stay packed, on a processor."""
    keys, values, lengths = visual.key_planes, visual.value_planes, visual.lengths
    assert keys is not None and values is not None
    B = len(query)
    own = [visual.tokens or 0] * B if lengths is None else lengths.tolist()
    scores = plane_scores(query, keys, own)
    if visual.mean is not None:
        scores = scores + _by_group(query, visual.mean.float()[..., None])
    scores = _masked_scores(scores, lengths)
    return scores, lambda weights: plane_sums(weights, values, own)


def _masked_scores(scores: Tensor, lengths: Tensor | None) -> Tensor:
    """Scores [B, Hkv, G, T, N], -inf beyond each length, [B] or [B, Hkv]."""
    if lengths is None:
        return scores
    slot = torch.arange(scores.shape[-1], device=scores.device)
    dead = slot >= lengths.view(len(scores), -1, 1, 1, 1)  # [B, 1 or Hkv, 1, 1, N]
    return scores.masked_fill(dead, float("-inf"))


def _by_group(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows [B, Hkv, G, T, m] times [B, Hkv, m, n], which a group's heads share: [B, Hkv, G, T, n].

    One product a head. A broadcast product would copy the matrix for each head, and the rounding of
    a product of stacked rows would depend on the capacity for tokens.
    """
    return torch.stack([each @ matrix for each in rows.unbind(2)], 2)


def _masked(values: Tensor, live: Tensor) -> Tensor:
    """values [B, Hkv, n, d] float32, zero where `live` [B, n] or [B, Hkv, n] is False: those slots
    are undefined.

    As bits, because `masked_fill` takes ten times as long where its mask is broadcast.
    """
    every = -live.view(len(live), *(live.shape[1:-1] or (1,)), live.shape[-1], 1).int()
    return (values.view(torch.int32) & every).view(torch.float32)


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
    values = _alive(values, None if visual.cleared else visual.lengths)
    if visual.value_basis is not None:
        values = values @ visual.value_basis.float()
    if visual.value_mean is not None:
        values = values + visual.value_mean.float()[:, :, None]
    return _alive(keys, visual.lengths), _alive(values, visual.lengths)


def _alive(values: Tensor, lengths: Tensor | None) -> Tensor:
    """Values as float32 with the slots beyond each length set to zero (their content is
    undefined)."""
    values = values.float()
    if lengths is None:
        return values
    slot = torch.arange(values.shape[2], device=values.device)
    return _masked(values, slot < lengths[..., None])
