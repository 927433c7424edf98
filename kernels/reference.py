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

MULTIPLE: Final = 4  # every width and offset of 1-D blocks is one of it: what kernels load at once
WIDEST_HEAD = 256  # channels of the heads that kernels are written for

EIGHT = 127  # the largest number of a text's 8 bits


class Unsupported(ValueError):
    """A call that the attention kernel cannot compute; the message is the reason."""


class Visual(NamedTuple):
    """The visual part of one layer's cache, as the attention reads it.

    keys: [B, Hkv, N, k]; or 1-D when heads differ in width: head (b, h) then holds a row-major
        [N, key_widths[b, h]] block at element key_offsets[b, h], both multiples of `MULTIPLE`.
    values: [B, Hkv, N, r]; or 1-D with value_widths and value_offsets.
    lengths: [B] int32, valid visual tokens, or [B, Hkv] where heads differ; None when all N are.
    basis: [B, Hkv, d, k]; the projected query is q @ basis (zero columns beyond a head's width).
    mean: [B, Hkv, d]; q . mean is added to every visual score before scaling.
    index: [B, Hkv, k] int64; the projected query is q gathered at index (exclusive with basis).
    value_basis: [B, Hkv, r, d]; rotates the accumulated Values up, once.
    value_mean: [B, Hkv, d]; added times the visual attention mass.
    key_scale: [B, Hkv, k] float32; dequantises keys per channel (folds into the query).
    value_scale: [B, Hkv, N]; dequantises values per token, times value_top where that is given.
    value_top: [B, Hkv] float32; with it every value_scale is at most one (float16 holds it).
    key_planes: Keys as digits of 2 bits with their own basis (see `kernels.planes`); keys and
        values are then [B, Hkv, 0, 0], `tokens` is given, and of the other fields only lengths,
        mean, value_mean and fresh are.
    value_planes: the same for the Values; given exactly where key_planes are.
    fresh: the work queued just before wrote some of it, so that no kernel may start reading early.
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
    key_scale: Tensor | None = None
    value_scale: Tensor | None = None
    value_top: Tensor | None = None
    key_widths: Tensor | None = None
    key_offsets: Tensor | None = None
    value_widths: Tensor | None = None
    value_offsets: Tensor | None = None
    tokens: int | None = None  # N, needed only when keys are 1-D or planes
    fresh: bool = False
    key_planes: Planes | None = None
    value_planes: Planes | None = None
    cleared: bool = False


class QuantisedText(NamedTuple):
    """Text behind a recent window, in 8 bits: a token's Key and its Value side by side.

    data: [B, Hkv, P, 2, d] int8, contiguous: the Key over `gain`, and the Value.
    scales: [B, Hkv, P, 2] bfloat16, contiguous; what each of the two is multiplied by.
    gain: [B, Hkv, d] float32; what every Key was divided by (folds into the query), since a few
        channels of a Key may be a hundred times the others.
    """

    data: Tensor
    scales: Tensor
    gain: Tensor


class Text(NamedTuple):
    """Prompt and generated text: keys, values [B, Hkv, M, d]; lengths [B] int32 of each row.

    With `past` the full-width part is a ring of the newest M tokens, token j of a row in slot
    j % M, and an older token j is `past`'s j.
    """

    keys: Tensor
    values: Tensor
    lengths: Tensor | None = None
    past: QuantisedText | None = None


def misaligned(visual: Visual) -> list[str]:
    """Names of the fields that break what kernels rely on, which waits for the device.

    They load `MULTIPLE` channels of a 1-D cache at once, and whole granules of planes.
    """
    found = []
    for side in ("key", "value"):
        names = (f"{side}_widths", f"{side}_offsets")
        fields = [(name, getattr(visual, name), MULTIPLE) for name in names]
        planes = getattr(visual, f"{side}_planes")
        if planes is not None:
            fields.append((f"{side}_planes", planes.offsets, GRANULE * GRANULE))
        found += [name for name, at, step in fields if at is not None and bool((at % step).any())]
    return found


def value_scales(visual: Visual) -> Tensor:
    """[B, Hkv, N] float32: what every token's stored Values are multiplied by."""
    scale = visual.value_scale.float()
    return scale if visual.value_top is None else scale * visual.value_top[..., None]


def pad_heads(flat: Tensor, widths: Tensor, offsets: Tensor, tokens: int, width: int) -> Tensor:
    """Expand 1-D per-head blocks, with zeros beyond each head's own width.

    Args:
        flat: 1-D; head (b, h) has a row-major [tokens, widths[b, h]] block in it.
        widths: [B, Hkv].
        offsets: [B, Hkv], each block's first element.
        tokens: N, or more, where slots behind a head's tokens are not read.
        width: of the result, at least the widest head's.

    Returns:
        [B, Hkv, N, width].
    """
    channel, token = (torch.arange(n, device=flat.device) for n in (width, tokens))
    wide = widths.long()[..., None, None]
    place = offsets[..., None, None] + token[:, None] * wide + channel  # [B, Hkv, N, width]
    bits = (
        flat.view(torch.uint8) if flat.itemsize == 1 else flat
    )  # few operations know 8-bit floats
    found = bits[place.clamp(max=flat.numel() - 1)].masked_fill(channel >= wide, 0)
    return found.view(flat.dtype)


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
    if visual.key_scale is not None:
        projected = projected * visual.key_scale.to(q.dtype)[:, :, None, None]
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
    keys, read_values, place = opened_text(text)
    scores = _by_group(query, keys.mT)  # [B, Hkv, G, T, M]
    ends = text.lengths
    if ends is None:
        ends = torch.full((B,), keys.shape[2], device=q.device)
    last = ends[:, None] - T + 1 + torch.arange(T, device=q.device)  # [B, T]
    dead = (place[:, None] >= last[:, :, None]) | (place < 0)[:, None]
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
    past = text.past and QuantisedText(*(part.flatten(0, 1)[:, None] for part in text.past))
    lengths = text.lengths[:, None].expand(-1, Hkv).flatten()
    return (
        q.reshape(B * Hkv, -1, *q.shape[2:]),
        visual._replace(keys=keys, values=values, lengths=visual.lengths.flatten()),
        Text(own_keys, own_values, lengths, past),
    )


def reads_packed(device: torch.device) -> bool:
    """Whether digits are read as they are packed, with `places` and counts known to the host."""
    return device.type == "cpu"


def _over_numbers(query: Tensor, visual: Visual) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Unscaled visual scores [B, Hkv, G, T, N], and what turns weights of that shape into sums of
    Values [B, Hkv, G, T, d] without their mean."""
    scores, values = _visual_scores(query, visual)
    return scores, lambda weights: _turned_up(_by_group(weights, values), visual)


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


def opened_text(text: Text) -> tuple[Tensor, Tensor, Tensor]:
    """Every slot of a text at full width.

    Returns:
        Keys and Values [B, Hkv, M, d] in float32, the Values zero in empty slots, and each slot's
        position [B, M] among its row's tokens, -1 for an empty slot.
    """
    B, _, M, _ = text.keys.shape
    slot = torch.arange(M, device=text.keys.device)
    ends = slot.new_full((B,), M) if text.lengths is None else text.lengths.long()
    keys, values = text.keys.float(), text.values.float()
    if text.past is None:
        place = torch.where(slot < ends[:, None], slot, -1)
    else:
        newest = ends[:, None] - 1
        place = newest - (newest - slot) % max(M, 1)  # the newest token whose slot this is
        data, scales, gain = text.past
        old = torch.arange(data.shape[2], device=data.device)
        old = torch.where(old < ends[:, None] - M, old, -1)
        numbers = data.float() * scales.float()[..., None]
        keys = torch.cat([numbers[..., 0, :] * gain[:, :, None], keys], 2)
        values = torch.cat([numbers[..., 1, :], values], 2)
        place = torch.cat([old, place.clamp(min=-1)], 1)
    return keys, _masked(values, place >= 0), place


def append_plain(text: Text, keys: Tensor, values: Tensor, added: Tensor) -> None:
    """Add tokens to a text with 8-bit rows, in place; `text.lengths` do not change.

    A token enters the ring. It is quantised one token before its slot in the ring is overwritten.
    So a step that is undone and repeated leaves the same state as a single one.

    Args:
        text: with `past`, of a capacity for the row's tokens less the ring's, and one.
        keys: [B, Hkv, T, d].
        values: [B, Hkv, T, d].
        added: [B] how many of them are a row's, the first ones.
    """
    assert text.past is not None and text.lengths is not None
    data, scales, gain = text.past
    T, M, P = keys.shape[2], text.keys.shape[2], data.shape[2]
    start = text.lengths.long()[:, None]
    end = start + added.long()[:, None]
    slot = torch.arange(M, device=keys.device)
    old = (start + slot) % M  # the ring by age, its oldest token first
    recent = [
        torch.cat([_taken(ring, old), new], 2)
        for ring, new in ((text.keys, keys), (text.values, values))
    ]  # tokens start - M to start + T
    first, last = (start - M + 1).clamp(min=0), (end - M).clamp(min=0)
    count = torch.arange(min(T, P), device=keys.device)
    place = torch.minimum(first + count, last)  # where none is left, the last one again
    source = place - start + M
    rounded = [_taken(each, source).float() for each in recent]
    both = torch.stack([rounded[0] / gain[:, :, None], rounded[1]], 3)
    scale = (both.abs().amax(-1) / EIGHT).clamp(min=1e-30).to(scales.dtype)
    whole = (both / scale.float()[..., None]).round().clamp(-EIGHT, EIGHT).to(data.dtype)
    index = place[:, None, :, None].expand_as(scale)
    scales.scatter_(2, index, scale)
    data.scatter_(2, index[..., None].expand_as(whole), whole)
    newest = slot + end - start
    index = ((end + slot) % M)[:, None, :, None].expand_as(text.keys)
    for ring, each in zip((text.keys, text.values), recent, strict=True):
        ring.scatter_(2, index, _taken(each, newest))


def _taken(states: Tensor, index: Tensor) -> Tensor:
    """Tokens `index` [B, n] of states [B, Hkv, T, d]."""
    index = index[:, None, :, None].expand(-1, states.shape[1], -1, states.shape[3])
    return states.gather(2, index)


def expanded(visual: Visual, width: int) -> tuple[Tensor, Tensor]:
    """The Keys and Values that attention over compressed tokens amounts to.

    Args:
        visual: the compressed tokens.
        width: d of the heads.

    Returns:
        Twice [B, Hkv, N, d] in float32, zero beyond each length.
    """
    visual = opened(visual)
    keys, values = _numbers(visual)
    if visual.key_scale is not None:
        keys = keys * visual.key_scale[:, :, None]
    if visual.basis is not None:
        keys = keys @ visual.basis.float().mT
    elif visual.index is not None:
        index = visual.index[:, :, None].expand_as(keys)
        keys = keys.new_zeros(*keys.shape[:-1], width).scatter_add_(-1, index, keys)
    if visual.mean is not None:
        keys = keys + visual.mean.float()[:, :, None]
    if visual.value_basis is not None:
        values = values @ visual.value_basis.float()
    if visual.value_mean is not None:
        values = values + visual.value_mean.float()[:, :, None]
    return _alive(keys, visual.lengths), _alive(values, visual.lengths)


def _turned_up(values: Tensor, visual: Visual) -> Tensor:
    """Sums of stored Values [B, Hkv, G, T, r] in the model's own channels, without their mean."""
    if visual.value_basis is not None:
        return _by_group(values, visual.value_basis.float())
    return values


def _alive(values: Tensor, lengths: Tensor | None) -> Tensor:
    """Values as float32 with the slots beyond each length set to zero (their content is
    undefined)."""
    values = values.float()
    if lengths is None:
        return values
    slot = torch.arange(values.shape[2], device=values.device)
    return _masked(values, slot < lengths[..., None])


def _visual_scores(query: Tensor, visual: Visual) -> tuple[Tensor, Tensor]:
    """Unscaled visual scores [B, Hkv, G, T, N] and dequantised values [B, Hkv, N, r]."""
    keys, values = _numbers(visual)
    projected, bias = project_query(query, visual)
    scores = _by_group(projected, keys.mT)
    if bias is not None:
        scores = scores + bias
    return _masked_scores(scores, visual.lengths), values


def _numbers(visual: Visual) -> tuple[Tensor, Tensor]:
    """Stored Keys [B, Hkv, N, k] and Values [B, Hkv, N, r], these times their scales and zero
    beyond each length, in float32."""
    keys, values = visual.keys, visual.values
    if keys.dim() == 1:
        width = visual.basis.shape[-1] if visual.basis is not None else visual.index.shape[-1]
        keys = pad_heads(keys, visual.key_widths, visual.key_offsets, visual.tokens, width)
    if values.dim() == 1:
        width = visual.value_basis.shape[-2]
        values = pad_heads(values, visual.value_widths, visual.value_offsets, visual.tokens, width)
    values = _alive(values, None if visual.cleared else visual.lengths)
    if visual.value_scale is not None:
        values = values * value_scales(visual)[..., None]
    return keys.float(), values
