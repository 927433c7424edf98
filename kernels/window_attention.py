"""Sums of the attention of the prompt's last queries, without a score in memory.

One kernel iterates over the tokens for each query, with o and the sums of p_n^2 (v_n - c) in
registers; one over the queries for each token, with the softmax of the first kernel. c is the mean
of a head's first Values, so that nothing cancels: sum p_n^2 |v_n - o|^2 =
sum p_n^2 |v_n - c|^2 + 2 (c - o) . sum p_n^2 (v_n - c) + |c - o|^2 sum p_n^2. Symbols as in
`kernels.reference`.
"""

import math
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from .plan import device_facts, padded
from .reference import Window
from .tiles import dot

LOG2E: Final = math.log2(math.e)


@triton.jit
def _states(p_x, o_n, s_n, o_d, end, D: tl.constexpr):
    """Rows [BLOCK, DP] of states, zero from `end` on."""
    m_x = (o_n < end)[:, None] & (o_d < D)[None, :]
    return tl.load(p_x + o_n.to(tl.int64)[:, None] * s_n + o_d[None, :], mask=m_x, other=0.0)


@triton.jit
def _centre(p_v, s_vn, o_d, end, D: tl.constexpr):
    """c [DP]: the mean of the first 16 Values."""
    b_v = _states(p_v, tl.arange(0, 16), s_vn, o_d, end, D)
    return tl.sum(b_v.to(tl.float32), 0) / tl.maximum(tl.minimum(end, 16), 1).to(tl.float32)


@triton.jit
def _columns(p_metric, o_d, start, D: tl.constexpr):
    """Columns [DP, 32] of a metric from `start` on, zero where there are none."""
    o_c = start + tl.arange(0, 32)
    m_s = (o_d < D)[:, None] & (o_c < D)[None, :]
    return tl.load(p_metric + o_d[:, None] * D + o_c[None, :], mask=m_s, other=0.0)


@triton.jit
def _softmax_step(b_s, b_m, b_l):
    """Online softmax over scores [BM, BLOCK] in log2 units: weights, what the past counts for now,
    largest score, sum."""
    b_next = tl.maximum(b_m, tl.max(b_s, 1))
    b_past = tl.exp2(b_m - b_next)
    b_p = tl.exp2(b_s - b_next[:, None])
    return b_p, b_past, b_next, b_l * b_past + tl.sum(b_p, 1)


@triton.jit(do_not_specialize=["M", "W", "G", "Hkv", "width"])
def rows_kernel(
    p_q, p_alive, p_k, p_v, p_lengths, p_tk, p_tv, p_tl, p_metric, p_lse, p_squares, p_spread,
    s_qb, s_qh, s_qw, s_kb, s_kh, s_kn, s_vb, s_vh, s_vn, s_tkb, s_tkh, s_tkn, s_tvb, s_tvh, s_tvn,
    M, W, G, Hkv, width, factor,
    D: tl.constexpr, DP: tl.constexpr, WP: tl.constexpr, BM: tl.constexpr, BLOCK: tl.constexpr,
    WIDEN: tl.constexpr,
):  # fmt: skip
    """BM queries of one head over all tokens: p_lse [BH, GW] the logarithm to base 2 of the sum of
    exponentials, infinite for rows that are not real; p_squares [BH, programs] sums of p_n^2, and
    p_spread [BH, width] of all of `spread` but its first term."""
    i_r, i_bh = tl.program_id(0), tl.program_id(1)
    i_b, i_h = (i_bh // Hkv).to(tl.int64), (i_bh % Hkv).to(tl.int64)
    o_r, o_d, o_w = i_r * BM + tl.arange(0, BM), tl.arange(0, DP), tl.arange(0, WP)
    o_g, o_q = o_r // W, o_r % W
    b_window = tl.load(p_alive + i_b * W + o_w, mask=o_w < W, other=0).to(tl.int32)
    b_place = tl.sum(tl.where(o_w[None, :] <= o_q[:, None], b_window[None, :], 0), 1)
    m_r = (o_r < G * W) & (tl.load(p_alive + i_b * W + o_q) != 0)
    p_q += i_b * s_qb + i_h * G * s_qh + o_g.to(tl.int64)[:, None] * s_qh + o_q[:, None] * s_qw
    b_q = tl.load(p_q + o_d[None, :], mask=m_r[:, None] & (o_d < D)[None, :], other=0.0)
    end = tl.load(p_lengths + i_b).to(tl.int32)
    p_k += i_b * s_kb + i_h * s_kh
    p_v += i_b * s_vb + i_h * s_vh
    b_c = _centre(p_v, s_vn, o_d, end, D)
    b_m, b_l = tl.full([BM], -1e30, tl.float32), tl.zeros([BM], tl.float32)
    b_squares, b_none = tl.zeros([BM], tl.float32), tl.zeros([BM, BLOCK], tl.float32)
    b_o, b_first = tl.zeros([BM, DP], tl.float32), tl.zeros([BM, DP], tl.float32)
    if p_tk is not None:
        length = M
        if p_tl is not None:
            length = tl.load(p_tl + i_b).to(tl.int32)
        b_last = length - tl.sum(b_window, 0) + b_place  # tokens that a query sees
        p_tk += i_b * s_tkb + i_h * s_tkh
        p_tv += i_b * s_tvb + i_h * s_tvh
        for start in tl.range(0, length, BLOCK):
            o_n = start + tl.arange(0, BLOCK)
            b_k = _states(p_tk, o_n, s_tkn, o_d, length, D)
            b_v = _states(p_tv, o_n, s_tvn, o_d, length, D)
            b_s = dot(b_q, b_k.T, b_none, p_k.dtype.element_ty, "tf32", WIDEN) * factor
            b_s = tl.where(o_n[None, :] < b_last[:, None], b_s, float("-inf"))
            b_p, b_past, b_m, b_l = _softmax_step(b_s, b_m, b_l)
            b_o = dot(b_p, b_v, b_o * b_past[:, None], tl.bfloat16, "tf32", WIDEN)
    for start in tl.range(0, end, BLOCK):
        o_n = start + tl.arange(0, BLOCK)
        b_k = _states(p_k, o_n, s_kn, o_d, end, D)
        b_v = _states(p_v, o_n, s_vn, o_d, end, D)
        b_s = dot(b_q, b_k.T, b_none, p_k.dtype.element_ty, "tf32", WIDEN) * factor
        b_s = tl.where((o_n < end)[None, :], b_s, float("-inf"))
        b_p, b_past, b_m, b_l = _softmax_step(b_s, b_m, b_l)
        b_o = dot(b_p, b_v, b_o * b_past[:, None], tl.bfloat16, "tf32", WIDEN)
        b_p, b_past = b_p * b_p, b_past * b_past
        b_squares = b_squares * b_past + tl.sum(b_p, 1)
        b_x = b_v.to(tl.float32) - b_c[None, :]
        b_first = dot(b_p, b_x, b_first * b_past[:, None], tl.bfloat16, "tf32", WIDEN)
    b_one = tl.where(m_r, 1 / tl.maximum(b_l, 1e-30), 0.0)
    b_away = b_c[None, :] - b_o * b_one[:, None]
    b_squares *= b_one * b_one
    b_first *= (b_one * b_one)[:, None]
    if p_metric is not None:
        p_metric += i_bh.to(tl.int64) * D * D
        b_none, b_rest = tl.zeros([BM, 32], tl.float32), tl.zeros([BM], tl.float32)
        for start in tl.range(0, D, 32):
            b_s = _columns(p_metric, o_d, start, D)
            b_a = dot(b_away, b_s, b_none, tl.bfloat16, "tf32", WIDEN)
            b_x = dot(b_first, b_s, b_none, tl.bfloat16, "tf32", WIDEN)
            b_rest += tl.sum(b_a * (2 * b_x + b_squares[:, None] * b_a), 1)
    else:
        b_rest = tl.sum(b_away * (2 * b_first + b_squares[:, None] * b_away), 1)
    b_lse = tl.where(m_r, b_m + tl.log2(tl.maximum(b_l, 1e-30)), float("inf"))
    tl.store(p_lse + i_bh.to(tl.int64) * G * W + o_r, b_lse, mask=o_r < G * W)
    tl.store(p_squares + i_bh * tl.num_programs(0) + i_r, tl.sum(b_squares, 0))
    tl.store(p_spread + i_bh * width + i_r, tl.sum(b_rest, 0))


@triton.jit(do_not_specialize=["N", "W", "G", "Hkv", "width"])
def tokens_kernel(
    p_q, p_k, p_v, p_lengths, p_metric, p_lse, p_mass, p_spread,
    s_qb, s_qh, s_qw, s_kb, s_kh, s_kn, s_vb, s_vh, s_vn, N, W, G, Hkv, width, factor,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BLOCK: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """BLOCK tokens of one head over all queries: p_mass [BH, N], and at the end of p_spread
    [BH, width] sums of p_n^2 |v_n - c|^2."""
    i_n, i_bh = tl.program_id(0), tl.program_id(1)
    i_b, i_h = (i_bh // Hkv).to(tl.int64), (i_bh % Hkv).to(tl.int64)
    o_n, o_d = i_n * BLOCK + tl.arange(0, BLOCK), tl.arange(0, DP)
    end = tl.load(p_lengths + i_b).to(tl.int32)
    p_k += i_b * s_kb + i_h * s_kh
    p_v += i_b * s_vb + i_h * s_vh
    p_q += i_b * s_qb + i_h * G * s_qh
    p_lse += i_bh.to(tl.int64) * G * W
    b_k = _states(p_k, o_n, s_kn, o_d, end, D)
    b_mass, b_squares = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, G * W, BM):
        o_r = start + tl.arange(0, BM)
        m_r = o_r < G * W
        p_row = p_q + ((o_r // W).to(tl.int64) * s_qh + (o_r % W) * s_qw)[:, None] + o_d[None, :]
        b_q = tl.load(p_row, mask=m_r[:, None] & (o_d < D)[None, :], other=0.0)
        b_lse = tl.load(p_lse + o_r, mask=m_r, other=float("inf"))
        b_none = tl.zeros([BLOCK, BM], tl.float32)
        b_s = dot(b_k, b_q.T, b_none, p_k.dtype.element_ty, "tf32", WIDEN)
        b_p = tl.exp2(b_s * factor - b_lse[None, :])
        b_mass += tl.sum(b_p, 1)
        b_squares += tl.sum(b_p * b_p, 1)
    tl.store(p_mass + i_bh.to(tl.int64) * N + o_n, tl.where(o_n < end, b_mass, 0.0), mask=o_n < N)
    b_x = _states(p_v, o_n, s_vn, o_d, end, D).to(tl.float32)
    b_x -= _centre(p_v, s_vn, o_d, end, D)[None, :]
    if p_metric is not None:
        p_metric += i_bh.to(tl.int64) * D * D
        b_none, b_far = tl.zeros([BLOCK, 32], tl.float32), tl.zeros([BLOCK], tl.float32)
        for start in tl.range(0, D, 32):
            b_s = _columns(p_metric, o_d, start, D)
            b_y = dot(b_x, b_s, b_none, tl.bfloat16, "tf32", WIDEN)
            b_far += tl.sum(b_y * b_y, 1)
    else:
        b_far = tl.sum(b_x * b_x, 1)
    b_own = tl.where(o_n < end, b_squares * b_far, 0.0)
    tl.store(p_spread + (i_bh + 1) * width - tl.num_programs(0) + i_n, tl.sum(b_own, 0))


def window_attention(seen: Window) -> tuple[Tensor, Tensor, Tensor]:
    """`kernels.reference.window_attention_plain` in two launches, and a sum over
    programs or heads each.

    Args:
        seen: of half-precision states with last strides of 1.

    Returns:
        mass [B, N] of all heads, zero beyond each length; spread and squares [B, Hkv]; float32.
    """
    B, Hkv, N, d = seen.keys.shape
    G, W = seen.queries.shape[1] // Hkv, seen.queries.shape[2]
    arch, _ = device_facts(seen.keys.device)
    block = 64 if d <= 128 else 32  # queries, and tokens, that a program takes at once
    rows, tiles = triton.cdiv(G * W, block), triton.cdiv(N, block)

    def empty(*shape: int) -> Tensor:
        return torch.empty(B, Hkv, *shape, device=seen.keys.device)

    lse, mass, squares, spread = empty(G * W), empty(N), empty(rows), empty(rows + tiles)
    text = (None, None, None) if seen.text is None else seen.text[:3]
    M = 0 if text[0] is None else text[0].shape[2]
    metric = None if seen.metric is None else seen.metric.contiguous()
    sizes = W, G, Hkv, rows + tiles, d**-0.5 * LOG2E
    states = seen.queries, seen.keys, seen.values
    own = [stride for each in states for stride in each.stride()[:3]]
    beside = [s for each in text[:2] for s in ((0,) * 3 if each is None else each.stride()[:3])]
    shape = {"D": d, "DP": padded(d), "BM": block, "BLOCK": block, "WIDEN": arch == 0}
    rows_kernel[rows, B * Hkv](
        seen.queries, seen.alive, seen.keys, seen.values, seen.lengths, *text, metric,
        lse, squares, spread, *own, *beside, M, *sizes,
        WP=triton.next_power_of_2(W), num_warps=8, num_stages=2, **shape,
    )  # fmt: skip
    if tiles:
        tokens_kernel[tiles, B * Hkv](
            *states, seen.lengths, metric, lse, mass, spread, *own, N, *sizes,
            num_warps=8, num_stages=2, **shape,
        )  # fmt: skip
    return mass.sum(1), spread.sum(-1).clamp(min=0), squares.sum(-1)
