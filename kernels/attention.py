"""Triton kernels of decode attention: token splits that a merge folds, or rows that need none.

Names as in `kernels.tiles`. Grid of both kernels: (splits, B * Hkv).

`split_kernel`: splits below `text_splits` read the full-width text, the others the visual cache. A
split is empty when it starts past its row's length: it writes nothing, and the merge, which knows
the lengths, does not read it. So one CUDA graph serves growing text.

`joined_kernel`: every split reads visual tokens and then its share of the text, the last split the
text's first tokens, since it may have a visual tile less. Its results are in the basis and at the
scale of the output: a single split writes the output, and several are folded by their weights
alone.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .text_attention import end_split, read_text
from .tiles import load_columns, load_rows, project, store_columns, tile_step


@triton.jit
def _attend_visual(
    p_q, p_keys, p_values, p_basis, p_index, d_keys, d_values,
    s_qh, s_kb, s_kh, s_kn, s_vb, s_vh, s_vn, s_rb, s_rh, s_rd, s_rk,
    i_b, i_h, i_bh, lo, hi, N, visual_step, m_g, scale_log2,
    GP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
    K: tl.constexpr, KP1: tl.constexpr, KP2: tl.constexpr,
    TT: tl.constexpr, PT: tl.constexpr, KPREC: tl.constexpr,
    BLOCK_N: tl.constexpr, STAGES: tl.constexpr, ONE_TILE: tl.constexpr,
    PDL: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Visual tiles of a head from token lo, lo < hi, every `visual_step`: (max, sum, [DP, GP])."""
    p_k = p_keys + i_b.to(tl.int64) * s_kb + i_h.to(tl.int64) * s_kh + lo.to(tl.int64) * s_kn
    p_v = p_values + i_b.to(tl.int64) * s_vb + i_h.to(tl.int64) * s_vh + lo.to(tl.int64) * s_vn
    if p_basis is not None:
        p_basis += i_b.to(tl.int64) * s_rb + i_h.to(tl.int64) * s_rh
    if p_index is not None:
        p_index += i_bh * K
    left = hi - lo
    o_k1 = tl.arange(0, KP1)
    o_d = tl.arange(0, DP)
    K1_FULL: tl.constexpr = KP1 <= K
    K2_FULL: tl.constexpr = KP1 + KP2 == K
    D_FULL: tl.constexpr = D == DP
    o_n = tl.arange(0, BLOCK_N)
    # the first tile's loads leave before the query is ready
    b_k1 = load_rows(p_k, o_n, s_kn, o_k1, K, left, K1_FULL)
    b_k2 = b_k1
    if KP2:
        o_k2 = KP1 + tl.arange(0, KP2)
        b_k2 = load_rows(p_k, o_n, s_kn, o_k2, K, left, K2_FULL)
    b_v = load_columns(p_v, o_n, s_vn, o_d, D, left, D_FULL)
    if PDL:
        gdc_wait()
    b_q1 = project(
        p_q, p_basis, p_index, s_rd, s_rk, m_g, o_k1, K, D, DP, GP, PT, KPREC, WIDEN, s_qh,
    )  # fmt: skip
    b_q2 = b_q1
    if KP2:
        b_q2 = project(
            p_q, p_basis, p_index, s_rd, s_rk, m_g, KP1 + tl.arange(0, KP2), K,
            D, DP, GP, PT, KPREC, WIDEN, s_qh,
        )  # fmt: skip
    b_f = tl.full([GP], 1.0, tl.float32) * scale_log2
    b_q1 = b_q1.to(TT)
    b_q2 = b_q2.to(TT)
    b_acc = tl.zeros([DP, GP], tl.float32)
    b_m = tl.full([GP], float("-inf"), tl.float32)
    b_l = tl.zeros([GP], tl.float32)
    b_m, b_l, b_acc = tile_step(
        b_q1, b_q2, b_k1, b_k2, b_v, b_f, b_m, b_l, b_acc, o_n, left,
        TT, KP2, WIDEN,
    )  # fmt: skip
    if not ONE_TILE:
        tiles = tl.cdiv(left, visual_step)
        whole = (left + visual_step - BLOCK_N) // visual_step
        row = i_bh * N + lo
        for i_t in tl.range(1, whole, num_stages=STAGES):
            start = i_t * visual_step
            p_kt = p_k + start.to(tl.int64) * s_kn
            p_vt = p_v + start.to(tl.int64) * s_vn
            if d_keys is None:
                b_k1 = load_rows(p_kt, o_n, s_kn, o_k1, K, BLOCK_N, K1_FULL, True)
                b_v = load_columns(p_vt, o_n, s_vn, o_d, D, BLOCK_N, D_FULL, True)
            else:
                b_k1 = d_keys.load([row + start, 0])
                b_v = d_values.load([row + start, 0]).T
            b_k2 = b_k1
            if KP2:
                o_k2 = KP1 + tl.arange(0, KP2)
                b_k2 = load_rows(p_kt, o_n, s_kn, o_k2, K, BLOCK_N, K2_FULL, True)
            b_m, b_l, b_acc = tile_step(
                b_q1, b_q2, b_k1, b_k2, b_v, b_f, b_m, b_l, b_acc, o_n, None,
                TT, KP2, WIDEN,
            )  # fmt: skip
        start = (tiles - 1) * visual_step
        if (tiles > 1) & (start + BLOCK_N > left):
            p_k += start.to(tl.int64) * s_kn
            p_v += start.to(tl.int64) * s_vn
            b_k1 = load_rows(p_k, o_n, s_kn, o_k1, K, left - start, K1_FULL)
            b_k2 = b_k1
            if KP2:
                o_k2 = KP1 + tl.arange(0, KP2)
                b_k2 = load_rows(p_k, o_n, s_kn, o_k2, K, left - start, K2_FULL)
            b_v = load_columns(p_v, o_n, s_vn, o_d, D, left - start, D_FULL)
            b_m, b_l, b_acc = tile_step(
                b_q1, b_q2, b_k1, b_k2, b_v, b_f, b_m, b_l, b_acc, o_n, left - start,
                TT, KP2, WIDEN,
            )  # fmt: skip
    return b_m, b_l, b_acc


# these change from one prompt to the next and must not start a compilation
@triton.jit(
    do_not_specialize=[
        "N", "M", "visual_first", "visual_step", "visual_span", "text_size",
        "text_splits", "Hkv", "G",
    ]
)  # fmt: skip
def split_kernel(
    p_q, p_keys, p_values, p_lengths, p_basis, p_index, p_text_keys, p_text_values, p_text_lengths,
    p_acc, p_max, p_sum, d_keys, d_values,
    s_qb, s_qh,
    s_kb, s_kh, s_kn, s_vb, s_vh, s_vn, s_rb, s_rh, s_rd, s_rk,
    s_tkb, s_tkh, s_tkm, s_tvb, s_tvh, s_tvm,
    N, M, visual_first, visual_step, visual_span, text_size, text_splits, Hkv, G,
    scale_log2,
    GP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
    K: tl.constexpr, KP1: tl.constexpr, KP2: tl.constexpr,
    TT: tl.constexpr, PT: tl.constexpr, KPREC: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, STAGES: tl.constexpr, TEXT_STAGES: tl.constexpr,
    ONE_TILE: tl.constexpr, PDL: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Attention of one token split for the G query heads of one key head, before the merge."""
    if PDL:
        gdc_launch_dependents()
    i_s = tl.program_id(0)
    i_bh = tl.program_id(1)
    i_b = i_bh // Hkv
    i_h = i_bh % Hkv
    splits = tl.num_programs(0)
    o_g = tl.arange(0, GP)
    m_g = o_g < G
    p_q += i_b.to(tl.int64) * s_qb + i_h * G * s_qh
    o_slot = (i_bh * G + o_g) * splits + i_s
    if i_s < text_splits:
        if PDL:
            gdc_wait()
        end = M
        if p_text_lengths is not None:
            end = tl.load(p_text_lengths + i_b)
        lo = i_s * text_size
        hi = tl.minimum(lo + text_size, end)
        if lo < hi:
            b_m = tl.full([GP], float("-inf"), tl.float32)
            b_l = tl.zeros([GP], tl.float32)
            b_acc = tl.zeros([DP, GP], tl.float32)
            b_m, b_l, b_acc = read_text(
                p_q, p_text_keys, p_text_values, s_qh, s_tkb, s_tkh, s_tkm, s_tvb, s_tvh, s_tvm,
                i_b, i_h, lo, hi, m_g, b_m, b_l, b_acc, scale_log2,
                GP, D, DP, TT, BLOCK_M, TEXT_STAGES, WIDEN,
            )  # fmt: skip
            tl.store(p_max + o_slot, b_m, mask=m_g)
            tl.store(p_sum + o_slot, b_l, mask=m_g)
            store_columns(p_acc, b_acc, o_slot, m_g, D, DP)
    else:
        end = N
        if p_lengths is not None:
            end = tl.load(p_lengths + i_b)
        lo = (i_s - text_splits) * visual_first
        hi = tl.minimum(lo + visual_span, end)
        if lo < hi:
            b_m, b_l, b_acc = _attend_visual(
                p_q, p_keys, p_values, p_basis, p_index, d_keys, d_values,
                s_qh, s_kb, s_kh, s_kn, s_vb, s_vh, s_vn, s_rb, s_rh, s_rd, s_rk,
                i_b, i_h, i_bh, lo, hi, N, visual_step, m_g, scale_log2,
                GP, D, DP, K, KP1, KP2, TT, PT, KPREC, BLOCK_N, STAGES, ONE_TILE, PDL, WIDEN,
            )  # fmt: skip
            tl.store(p_max + o_slot, b_m, mask=m_g)
            tl.store(p_sum + o_slot, b_l, mask=m_g)
            store_columns(p_acc, b_acc, o_slot, m_g, D, DP)
        else:
            if PDL:
                gdc_wait()


@triton.jit(
    do_not_specialize=[
        "N", "M", "visual_first", "visual_step", "visual_span", "text_size", "Hkv", "G",
    ]
)  # fmt: skip
def joined_kernel(
    p_q, p_keys, p_values, p_lengths, p_basis, p_index, p_text_keys, p_text_values, p_text_lengths,
    p_mean, p_acc, p_max, p_sum, d_keys, d_values,
    s_qb, s_qh,
    s_kb, s_kh, s_kn, s_vb, s_vh, s_vn, s_rb, s_rh, s_rd, s_rk,
    s_tkb, s_tkh, s_tkm, s_tvb, s_tvh, s_tvm,
    N, M, visual_first, visual_step, visual_span, text_size, Hkv, G, scale_log2,
    GP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
    K: tl.constexpr, KP1: tl.constexpr, KP2: tl.constexpr,
    TT: tl.constexpr, PT: tl.constexpr, KPREC: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, STAGES: tl.constexpr, TEXT_STAGES: tl.constexpr,
    SINGLE: tl.constexpr, PDL: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Attention of a share of one key head's visual and text tokens, up to the output's scale.

    SINGLE: the share is everything, and p_acc is the output [B, Hq, d], contiguous.
    """
    if PDL:
        gdc_launch_dependents()
    i_s = tl.program_id(0)
    i_bh = tl.program_id(1)
    i_b = i_bh // Hkv
    i_h = i_bh % Hkv
    splits = tl.num_programs(0)
    o_d = tl.arange(0, DP)
    o_g = tl.arange(0, GP)
    m_g = o_g < G
    p_q += i_b.to(tl.int64) * s_qb + i_h * G * s_qh
    b_m = tl.full([GP], float("-inf"), tl.float32)
    b_l = tl.zeros([GP], tl.float32)
    b_acc = tl.zeros([DP, GP], tl.float32)
    end = N
    if p_lengths is not None:
        end = tl.load(p_lengths + i_b)
    lo = i_s * visual_first
    hi = tl.minimum(lo + visual_span, end)
    if lo < hi:
        b_m, b_l, b_acc = _attend_visual(
            p_q, p_keys, p_values, p_basis, p_index, d_keys, d_values,
            s_qh, s_kb, s_kh, s_kn, s_vb, s_vh, s_vn, s_rb, s_rh, s_rd, s_rk,
            i_b, i_h, i_bh, lo, hi, N, visual_step, m_g, scale_log2,
            GP, D, DP, K, KP1, KP2, TT, PT, KPREC, BLOCK_N, STAGES, False, PDL, WIDEN,
        )  # fmt: skip
        if p_mean is not None:  # q . mu adds the same to every visual score
            m_q = (o_d < D)[:, None] & m_g[None, :]
            b_x = tl.load(p_q + o_g[None, :] * s_qh + o_d[:, None], mask=m_q, other=0.0)
            b_mean = tl.load(p_mean + i_bh * D + o_d, mask=o_d < D, other=0.0).to(tl.float32)
            b_m += tl.sum(b_x.to(tl.float32) * b_mean[:, None], 0) * scale_log2
    else:
        if PDL:
            gdc_wait()
    end_split(
        p_q, p_text_keys, p_text_values, p_text_lengths, p_acc, p_max, p_sum,
        s_qh, s_tkb, s_tkh, s_tkm, s_tvb, s_tvh, s_tvm,
        i_s, splits, i_b, i_h, i_bh, 0, M, text_size, G, m_g, b_m, b_l, b_acc, scale_log2,
        GP, D, DP, TT, BLOCK_M, TEXT_STAGES, SINGLE, WIDEN,
    )  # fmt: skip
