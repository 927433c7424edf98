"""The text's share of decode attention, and the result of a split: shared by all kernels.

Names as in `kernels.tiles`.
"""

import triton
import triton.language as tl

from .tiles import dot, load_columns, load_rows, softmax_step, store_columns


@triton.jit
def read_text(
    p_q, p_text_keys, p_text_values, s_qh, s_tkb, s_tkh, s_tkm, s_tvb, s_tvh, s_tvm,
    i_b, i_h, lo, hi, m_g, b_m, b_l, b_acc, scale_log2,
    GP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, TT: tl.constexpr,
    BLOCK_M: tl.constexpr, TEXT_STAGES: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Text tokens lo to hi, lo < hi, of one head: the softmax state (max, sum, [DP, GP]) with them
    in it."""
    p_text_keys += i_b.to(tl.int64) * s_tkb + i_h.to(tl.int64) * s_tkh
    p_text_values += i_b.to(tl.int64) * s_tvb + i_h.to(tl.int64) * s_tvh
    o_d = tl.arange(0, DP)
    o_g = tl.arange(0, GP)
    m_q = (o_d < D)[:, None] & m_g[None, :]
    b_q = tl.load(p_q + o_g[None, :] * s_qh + o_d[:, None], mask=m_q, other=0.0).to(TT)
    b_f = tl.full([GP], 1.0, tl.float32) * scale_log2
    p_k = p_text_keys + lo.to(tl.int64) * s_tkm
    p_v = p_text_values + lo.to(tl.int64) * s_tvm
    left = hi - lo
    for start in tl.range(0, left, BLOCK_M, num_stages=TEXT_STAGES):
        o_m = start + tl.arange(0, BLOCK_M)
        b_k = load_rows(p_k, o_m, s_tkm, o_d, D, left, D == DP)
        b_v = load_columns(p_v, o_m, s_tvm, o_d, D, left, D == DP)
        b_zero = tl.zeros([BLOCK_M, GP], tl.float32)
        b_s = dot(b_k, b_q, b_zero, TT, "ieee", WIDEN)
        b_p, b_past, b_m, b_l = softmax_step(b_s, b_f, o_m < left, b_m, b_l)
        b_acc = dot(b_v, b_p, b_acc * b_past[None, :], TT, "ieee", WIDEN)
    return b_m, b_l, b_acc


@triton.jit
def end_split(
    p_q, p_text_keys, p_text_values, p_text_lengths, p_acc, p_max, p_sum,
    s_qh, s_tkb, s_tkh, s_tkm, s_tvb, s_tvh, s_tvm,
    i_s, splits, i_b, i_h, i_bh, behind, M, text_size, G, m_g, b_m, b_l, b_acc, scale_log2,
    GP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, TT: tl.constexpr,
    BLOCK_M: tl.constexpr, TEXT_STAGES: tl.constexpr, SINGLE: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """A split that has read its visual tokens reads its share of the text, and leaves its result.

    The last split reads the text's first tokens, since it may have a visual tile less. behind: the
    text's last tokens that the query does not see, though it sees the first one of any text.
    SINGLE: the share is everything, and p_acc is the output.
    """
    end = M
    if p_text_lengths is not None:
        end = tl.load(p_text_lengths + i_b)
    end = tl.maximum(end - behind, tl.minimum(end, 1))
    lo = (splits - 1 - i_s) * text_size
    hi = tl.minimum(lo + text_size, end)
    if lo < hi:
        b_m, b_l, b_acc = read_text(
            p_q, p_text_keys, p_text_values, s_qh, s_tkb, s_tkh, s_tkm, s_tvb, s_tvh, s_tvm,
            i_b, i_h, lo, hi, m_g, b_m, b_l, b_acc, scale_log2,
            GP, D, DP, TT, BLOCK_M, TEXT_STAGES, WIDEN,
        )  # fmt: skip
    o_slot = (i_bh * G + tl.arange(0, GP)) * splits + i_s
    if SINGLE:
        b_acc = b_acc / tl.where(b_l > 0, b_l, 1.0)[None, :]
        b_acc = b_acc.to(p_acc.dtype.element_ty)
    else:
        tl.store(p_max + o_slot, b_m, mask=m_g)
        tl.store(p_sum + o_slot, b_l, mask=m_g)
    store_columns(p_acc, b_acc, o_slot, m_g, D, DP)
