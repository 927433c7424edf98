"""Sums of the attention of the prompt's last queries, in plain PyTorch.

With p_n the attention that a query gives token n, text in the softmax, and o = sum_n p_n v_n:
    mass:    sum over queries of p_n, for every visual token
    spread:  sum over queries and visual tokens of p_n^2 |v_n - o|^2, in a metric S^2
    squares: sum over queries and visual tokens of p_n^2
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .reference import Text


class Window(NamedTuple):
    """The states of a layer and the queries whose attention is summed.

    queries: [B, Hq, W, d], the last rows of the text; alive: [B, W] bool, those that are real;
    keys, values: [B, Hkv, N, d] visual tokens; lengths: [B]; text: at full width, or None;
    metric: S [B, Hkv, d, d] float32, or None.
    """

    queries: Tensor
    alive: Tensor
    keys: Tensor
    values: Tensor
    lengths: Tensor
    text: Text | None = None
    metric: Tensor | None = None


def window_attention_plain(seen: Window) -> tuple[Tensor, Tensor, Tensor]:
    """The sums that the module names.

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
