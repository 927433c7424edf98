"""Attention in plain PyTorch, the truth the kernels obey: of decoding over a compressed visual
cache, and of a prompt's last queries in sums.

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
    """The visual tokens of one layer's cache as numbers, fewer of each Key at will."""

    keys: Tensor  # [B, Hkv, N, k]
    values: Tensor  # [B, Hkv, N, d]
    lengths: Tensor | None = None  # [B] int32, valid visual tokens; None when all N are
    basis: Tensor | None = None  # [B, Hkv, d, k]; the projected query is q @ basis
    # [B, Hkv, k] int64; the projected query is q gathered there (exclusive with basis)
    index: Tensor | None = None  # type: ignore[assignment]  # as a tuple has a method of the name
    mean: Tensor | None = None  # [B, Hkv, d]; q . mean is added to every score before scaling
    fresh: bool = False  # the work queued just before wrote some of it: no kernel may read early
    cleared: bool = False  # Values beyond the lengths are zeros; otherwise they are undefined

    @property
    def tokens(self) -> int:
        """N."""
        return self.keys.shape[2]


class Packed(NamedTuple):
    """The same as digits of 2 bits, Keys and Values with bases of their own (`kernels.planes`)."""

    keys: Planes
    values: Planes
    tokens: int  # N
    lengths: Tensor | None  # this, mean and fresh as in `Narrow`
    mean: Tensor
    value_mean: Tensor  # [B, Hkv, d]; added times the visual attention mass
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


# Sums of the attention of the prompt's last queries. With p_n the attention that a query gives
# token n, text in the softmax, and o = sum_n p_n v_n:
#     mass:    sum over queries of p_n, for every visual token
#     spread:  sum over queries and visual tokens of p_n^2 |v_n - o|^2, in a metric S^2
#     squares: sum over queries and visual tokens of p_n^2


class Window(NamedTuple):
    """The states of a layer and the queries whose attention is summed."""

    queries: Tensor  # [B, Hq, W, d], the last rows of the text
    alive: Tensor  # [B, W] bool, those that are real
    keys: Tensor  # [B, Hkv, N, d] of visual tokens; values likewise
    values: Tensor
    lengths: Tensor  # [B]
    text: Text | None = None  # at full width
    metric: Tensor | None = None  # S [B, Hkv, d, d] float32


def window_attention_plain(seen: Window) -> tuple[Tensor, Tensor, Tensor]:
    """The sums that are named above.

    On a GPU products of half-precision states are bfloat16, on tensor cores; squares of small
    weights leave float16's range. Elsewhere everything is float32.

    Returns:
        mass [B, N] of all heads, zero beyond each length; spread and squares [B, Hkv]; float32.
    """
    B, heads, N, d = seen.keys.shape
    half = seen.keys.is_cuda and seen.keys.dtype != torch.float32
    kind = torch.bfloat16 if half else torch.float32
    query = seen.queries.unflatten(1, (heads, -1)).flatten(2, 3).to(kind)
    rows = seen.alive[:, None].expand(B, query.shape[2] // seen.queries.shape[2], -1)
    alive = rows.flatten(1)[:, None, :, None]  # [B, 1, G W, 1]
    live = torch.arange(N, device=seen.lengths.device) < seen.lengths[:, None]
    scores = (query @ seen.keys.to(kind).mT).mul_(d**-0.5)  # [B, Hkv, G W, N]
    scores.masked_fill_(~live[:, None, None], float("-inf"))
    if seen.text is not None:
        scores = torch.cat([scores, text_scores(query, seen.text, seen.alive) * d**-0.5], -1)
    weights = scores.softmax(-1).masked_fill_(~alive, 0.0).nan_to_num_(0.0)
    visual, values = weights[..., :N], seen.values.to(kind)
    out = visual @ values
    if seen.text is not None:
        out = out + weights[..., N:] @ seen.text.values.to(kind)
    squared = visual.square()
    return (
        visual.sum((1, 2), dtype=torch.float32),
        _spread(squared, values, out, seen.metric),
        squared.sum((2, 3), dtype=torch.float32),
    )


def _spread(squared: Tensor, values: Tensor, out: Tensor, metric: Tensor | None) -> Tensor:
    """Sum of p_n^2 |v_n - o|^2 over queries and tokens [B, Hkv], in the metric S^2.

    By moments around the mean m that the p_n^2 give, so that no product is as long as all tokens
    and queries but two: sum |v_n - m|^2, 2 (m - o) . sum (v_n - m), and |m - o|^2.
    """
    by_token, by_query = squared.sum(2, dtype=torch.float32), squared.sum(3, dtype=torch.float32)
    total = by_token.sum(-1, keepdim=True).clamp(min=1e-30)
    mean = ((by_token / total)[:, :, None].to(values.dtype) @ values).float()  # [B, Hkv, 1, d]
    centred = values - mean.to(values.dtype)
    away = mean - out.float()
    first = (squared @ centred).float()  # [B, Hkv, G W, d]
    if metric is None:
        own = (centred.float().square().sum(-1) * by_token).sum(-1)
    else:
        turned = metric.to(centred.dtype)
        own = ((centred @ turned).float().square().sum(-1) * by_token).sum(-1)
        away, first = away @ metric, first @ metric
    rest = 2 * away * first + by_query[..., None] * away.square()
    return (own + rest.sum((2, 3))).clamp(min=0)


def text_scores(query: Tensor, text: Text, window: Tensor) -> Tensor:
    """Products [B, Hkv, G W, M] with the text, -inf behind each query: the window is its last part.

    query: [B, Hkv, G W, d].
    """
    M, W = text.keys.shape[2], window.shape[1]
    place = window.long().cumsum(1)  # 1 for the first row that is real
    lengths = M if text.lengths is None else text.lengths[:, None].to(place)
    last = lengths - place[:, -1:] + place  # [B, W] tokens that a query sees
    scores = query @ text.keys.to(query.dtype).mT
    dead = torch.arange(M, device=query.device) >= last[..., None]
    dead = dead[:, None].expand(-1, query.shape[2] // W, -1, -1).flatten(1, 2)
    return scores.masked_fill_(dead[:, None], float("-inf"))
