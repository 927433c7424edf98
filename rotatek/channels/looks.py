"""How the prompt's last queries look at the picture: what its tokens and its heads are worth.

A head's output is o = sum_n p_n v_n. To first order, an error e_n of token n's logit moves it by
p_n e_n (v_n - o), and an error x_n of its Value by p_n x_n. Errors of different tokens are
independent, so their squared sizes in the output projection's metric add up:
    logits of variance E:          E * sum_n p_n^2 |v_n - o|^2    (`key_rate` a unit of variance)
    Values of squared error X:     X * sum_n p_n^2                (`value_rate`)
Their quotient is the exchange rate between bits of Keys and bits of Values. How much such an error
matters to the layers that follow depends on what the output is added to: both are divided by a
power of the residual stream's squared size there, or a model's first layers, where it is small,
are starved.
"""

from typing import Final, NamedTuple

import torch
from torch import Tensor

from kernels.reference import Text
from rotatek.rotation import token_mask

STREAM_POWER: Final = 0.5  # of the residual stream's squared size: what an output's error is over


class Looks(NamedTuple):
    """What the looks of layers say, B of them all together.

    mass: [B, N] mean attention of the window's queries in all heads, at most one in all.
    key_rate, value_rate: [B, Hkv] squared error of the output, relative to the residual stream,
        for a unit of variance.
    """

    mass: Tensor
    key_rate: Tensor
    value_rate: Tensor


class Seen(NamedTuple):
    """Whose looks: the fields of `LayerStates`, of one layer or of several that are alike.

    metric: S of the output projection [B, Hkv, d, d], or None; stream: the window's rows before
    the layer [B, 1, W, hidden], or None.
    """

    keys: Tensor
    values: Tensor
    lengths: Tensor
    queries: Tensor
    window_alive: Tensor
    metric: Tensor | None
    text: Text | None
    stream: Tensor | None


def looks(seen: Seen) -> Looks:
    """Attention of the window's queries [B, Hq, W, d] over visual tokens, text in the softmax.

    On a GPU products of half-precision states are bfloat16, on tensor cores; squares of small
    weights leave float16's range. Elsewhere everything is float32.
    """
    B, heads, N, d = seen.keys.shape
    half = seen.keys.is_cuda and seen.keys.dtype != torch.float32
    kind = torch.bfloat16 if half else torch.float32
    query = seen.queries.unflatten(1, (heads, -1)).flatten(2, 3).to(kind)
    rows = seen.window_alive[:, None].expand(B, query.shape[2] // seen.queries.shape[2], -1)
    alive = rows.flatten(1)[:, None, :, None]  # [B, 1, G W, 1]
    scores = query @ seen.keys.to(kind).mT * d**-0.5  # [B, Hkv, G W, N]
    scores = scores.masked_fill(~token_mask(seen.lengths, N)[:, None, None], float("-inf"))
    others = None
    if seen.text is not None:
        others = _text_scores(query, seen.text, seen.window_alive) * d**-0.5
        scores = torch.cat([scores, others], -1)
    weights = scores.softmax(-1).masked_fill(~alive, 0.0).nan_to_num(0.0)
    visual = weights[..., :N]
    values = seen.values.to(kind)
    out = visual @ values
    if seen.text is not None:
        out = out + weights[..., N:] @ seen.text.values.to(kind)
    squared = visual.square()
    count = alive.sum(2)[..., 0].clamp(min=1).float()  # [B, 1]
    stream = count
    if seen.stream is not None:
        size = seen.stream.float().square().sum((1, 2, 3)) / seen.window_alive.sum(1).clamp(min=1)
        stream = count * size.to(count).clamp(min=1e-30).pow(STREAM_POWER)[:, None]
    return Looks(
        visual.sum(2, dtype=torch.float32).mean(1) / count,
        _spread(squared, values, out, seen.metric) / stream,
        squared.sum((2, 3), dtype=torch.float32) / stream,
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


def _text_scores(query: Tensor, text: Text, window: Tensor) -> Tensor:
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
    return scores.masked_fill(dead[:, None], float("-inf"))
