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
from rotatek.channels.base import LayerStates
from rotatek.rotation import token_mask

STREAM_POWER: Final = 0.5  # of the residual stream's squared size: what an output's error is over


class Looks(NamedTuple):
    """One layer's looks.

    mass: [B, N] mean attention of the window's queries in all heads, at most one in all.
    key_rate, value_rate: [B, Hkv] squared error of the output, relative to the residual stream,
        for a unit of variance.
    """

    mass: Tensor
    key_rate: Tensor
    value_rate: Tensor


def looks(states: LayerStates) -> Looks:
    """Attention of the window's queries [B, Hq, W, d] over visual tokens, text in the softmax."""
    B, heads, N, d = states.keys.shape
    query = states.queries.float().unflatten(1, (heads, -1)).flatten(2, 3) * d**-0.5
    rows = states.window_alive[:, None].expand(B, query.shape[2] // states.queries.shape[2], -1)
    alive = rows.flatten(1)[:, None, :, None].float()  # [B, 1, G W, 1]
    scores = query @ states.keys.float().transpose(-1, -2)  # [B, Hkv, G W, N]
    dead = ~token_mask(states.lengths, N)[:, None, None]
    scores = scores.masked_fill(dead, float("-inf"))
    metric = None if states.value_metric is None else states.value_metric[0]
    values, others = _in_metric(states.values, metric), None
    if states.text is not None:
        others = _text_scores(query, states.text, states.window_alive)
        scores = torch.cat([scores, others], -1)
    weights = scores.softmax(-1).nan_to_num(0.0) * alive
    seen = weights[..., :N]
    out = seen @ values
    if states.text is not None and others is not None:
        out = out + weights[..., N:] @ _in_metric(states.text.values, metric)
    squared = seen.square()
    spread = values.square().sum(-1)[:, :, None] - 2 * out @ values.transpose(-1, -2)
    spread = (spread + out.square().sum(-1, keepdim=True)).clamp(min=0)
    count = alive.sum(2)[..., 0].clamp(min=1)  # [B, 1]
    stream = count
    if states.residual is not None:
        stream = count * states.residual.to(count).clamp(min=1e-30).pow(STREAM_POWER)[:, None]
    return Looks(
        seen.sum(2).mean(1) / count,
        (squared * spread).sum((2, 3)) / stream,
        squared.sum((2, 3)) / stream,
    )


def _in_metric(values: Tensor, metric: Tensor | None) -> Tensor:
    """Values [B, Hkv, n, d] as the output projection sees them."""
    return values.float() if metric is None else values.float() @ metric


def _text_scores(query: Tensor, text: Text, window: Tensor) -> Tensor:
    """Scores [B, Hkv, G W, M] of the text, -inf behind each query: the window is its last part."""
    M, W = text.keys.shape[2], window.shape[1]
    lengths = torch.full((len(window),), M) if text.lengths is None else text.lengths
    place = window.long().cumsum(1)  # 1 for the first row that is real
    last = lengths[:, None].to(place) - place[:, -1:] + place  # [B, W] tokens that a query sees
    scores = query @ text.keys.float().transpose(-1, -2)
    dead = torch.arange(M, device=query.device) >= last[..., None]
    dead = dead[:, None].expand(-1, query.shape[2] // W, -1, -1).flatten(1, 2)
    return scores.masked_fill(dead[:, None], float("-inf"))
