"""The text's share of decode attention, and the result of a split: shared by all kernels.

Names as in `kernels.tiles`. Text counts through: token j of a row is in slot j of the full-width
buffer, or, where there is a past in 8 bits (`kernels.reference.Past`), at j of the past as long as
it is not among the newest tokens, which the buffer holds in any order. A kernel without a past is
compiled without a trace of it.
"""

import triton
import triton.language as tl

from .tiles import dot, load_columns, load_rows, softmax_step, store_columns, weigh_values


@triton.jit
def _attend_text(
    p_q, p_text_keys, p_text_values, s_qh, s_tkm, s_tvm, lo, hi, m_g, b_m, b_l, b_acc, scale_log2,
    GP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, TT: tl.constexpr,
    BLOCK_M: tl.constexpr, TEXT_STAGES: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Text tokens lo to hi of one head: the softmax state (max, sum, [DP, GP]) with them in it."""
    o_d = tl.arange(0, DP)
    o_g = tl.arange(0, GP)
    m_q = (o_d < D)[:, None] & m_g[None, :]
    b_q = tl.load(p_q + o_g[None, :] * s_qh + o_d[:, None], mask=m_q, other=0.0).to(TT)
    b_f = tl.full([GP], 1.0, tl.float32) * scale_log2
    p_k = p_text_keys + lo.to(tl.int64) * s_tkm
    p_v = p_text_values + lo.to(tl.int64) * s_tvm
    left = hi - lo
    b_accs = (b_acc,)
    for start in tl.range(0, left, BLOCK_M, num_stages=TEXT_STAGES):
        o_m = start + tl.arange(0, BLOCK_M)
        b_k = load_rows(p_k, o_m, s_tkm, o_d, D, left, D == DP)
        b_v = load_columns(p_v, o_m, s_tvm, o_d, D, left, D == DP)
        b_zero = tl.zeros([BLOCK_M, GP], tl.float32)
        b_s = dot(b_k, b_q, b_zero, TT, "ieee", WIDEN)
        b_p, b_past, b_m, b_l = softmax_step(b_s, b_f, o_m < left, b_m, b_l)
        b_accs = weigh_values(
            b_accs, b_past, b_p, b_v, o_m, None, 0, left, TT, None, WIDEN
        )  # fmt: skip
    return b_m, b_l, b_accs[0]


@triton.jit
def _attend_past(
    p_q, p_past, p_past_scales, p_past_gain, s_qh, lo, hi, m_g, b_m, b_l, b_acc, scale_log2,
    GP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, TT: tl.constexpr,
    BLOCK_M: tl.constexpr, TEXT_STAGES: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Tokens lo to hi of one head's past: the softmax state (max, sum, [DP, GP]) with them in it.

    The gains join the query, a Key's scale its score and a Value's scale its weight, both relative
    to the tile's largest, so that 16-bit weights stay normal.
    """
    o_d = tl.arange(0, DP)
    o_g = tl.arange(0, GP)
    m_q = (o_d < D)[:, None] & m_g[None, :]
    b_x = tl.load(p_q + o_g[None, :] * s_qh + o_d[:, None], mask=m_q, other=0.0).to(tl.float32)
    b_x = b_x * tl.load(p_past_gain + o_d, mask=o_d < D, other=0.0)[:, None]
    b_top = tl.maximum(tl.max(tl.abs(b_x), 0), 1e-30)
    b_q = (b_x / b_top[None, :]).to(TT)
    b_f = b_top * scale_log2
    p_k = p_past + lo.to(tl.int64) * (2 * D)
    p_s = p_past_scales + lo.to(tl.int64) * 2
    left = hi - lo
    for start in tl.range(0, left, BLOCK_M, num_stages=TEXT_STAGES):
        o_m = start + tl.arange(0, BLOCK_M)
        m_m = o_m < left
        b_k = load_rows(p_k, o_m, 2 * D, o_d, D, left, D == DP).to(tl.float32)
        b_v = load_columns(p_k + D, o_m, 2 * D, o_d, D, left, D == DP).to(tl.float32)
        b_ks = tl.load(p_s + 2 * o_m, mask=m_m, other=0.0).to(tl.float32)
        b_vs = tl.load(p_s + 2 * o_m + 1, mask=m_m, other=0.0).to(tl.float32)
        b_s = dot(b_k, b_q, tl.zeros([BLOCK_M, GP], tl.float32), TT, "ieee", WIDEN)
        b_p, b_past, b_m, b_l = softmax_step(b_s * b_ks[:, None], b_f, m_m, b_m, b_l)
        largest = tl.maximum(tl.max(b_vs, 0), 1e-30)
        b_p = b_p * (b_vs / largest)[:, None]
        b_new = dot(b_v, b_p, tl.zeros([DP, GP], tl.float32), TT, "ieee", WIDEN)
        b_acc = b_acc * b_past[None, :] + b_new * largest
    return b_m, b_l, b_acc


@triton.jit
def read_text(
    p_q, p_text_keys, p_text_values, p_past, p_past_scales, p_past_gain,
    s_qh, s_tkb, s_tkh, s_tkm, s_tvb, s_tvh, s_tvm,
    i_b, i_h, i_bh, lo, hi, end, M, recent, m_g, b_m, b_l, b_acc, scale_log2,
    GP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, TT: tl.constexpr,
    BLOCK_M: tl.constexpr, TEXT_STAGES: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Text tokens lo to hi, lo < hi <= end, of one head, recent or past: the softmax state.

    M: slots in all; recent: of them those at full width.
    """
    p_text_keys += i_b.to(tl.int64) * s_tkb + i_h.to(tl.int64) * s_tkh
    p_text_values += i_b.to(tl.int64) * s_tvb + i_h.to(tl.int64) * s_tvh
    if p_past is not None:
        past = tl.maximum(end - recent, 0)
        first = i_bh.to(tl.int64) * (M - recent) * 2
        if lo < past:
            b_m, b_l, b_acc = _attend_past(
                p_q, p_past + first * D, p_past_scales + first, p_past_gain + i_bh * D, s_qh,
                lo, tl.minimum(hi, past), m_g, b_m, b_l, b_acc, scale_log2,
                GP, D, DP, TT, BLOCK_M, TEXT_STAGES, WIDEN,
            )  # fmt: skip
        lo = tl.maximum(lo - past, 0)
        hi = hi - past
        if lo < hi:
            b_m, b_l, b_acc = _attend_text(
                p_q, p_text_keys, p_text_values, s_qh, s_tkm, s_tvm, lo, hi, m_g, b_m, b_l, b_acc,
                scale_log2, GP, D, DP, TT, BLOCK_M, TEXT_STAGES, WIDEN,
            )  # fmt: skip
    else:
        b_m, b_l, b_acc = _attend_text(
            p_q, p_text_keys, p_text_values, s_qh, s_tkm, s_tvm, lo, hi, m_g, b_m, b_l, b_acc,
            scale_log2, GP, D, DP, TT, BLOCK_M, TEXT_STAGES, WIDEN,
        )  # fmt: skip
    return b_m, b_l, b_acc


@triton.jit
def end_split(
    p_q, p_text_keys, p_text_values, p_text_lengths, p_past, p_past_scales, p_past_gain,
    p_acc, p_max, p_sum, s_qh, s_tkb, s_tkh, s_tkm, s_tvb, s_tvh, s_tvm,
    i_s, splits, i_b, i_h, i_bh, behind, M, recent, text_size, G, m_g, b_m, b_l, b_acc, scale_log2,
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
            p_q, p_text_keys, p_text_values, p_past, p_past_scales, p_past_gain,
            s_qh, s_tkb, s_tkh, s_tkm, s_tvb, s_tvh, s_tvm, i_b, i_h, i_bh, lo, hi, end, M, recent,
            m_g, b_m, b_l, b_acc, scale_log2, GP, D, DP, TT, BLOCK_M, TEXT_STAGES, WIDEN,
        )  # fmt: skip
    o_slot = (i_bh * G + tl.arange(0, GP)) * splits + i_s
    if SINGLE:
        b_acc = b_acc / tl.where(b_l > 0, b_l, 1.0)[None, :]
        b_acc = b_acc.to(p_acc.dtype.element_ty)
    else:
        tl.store(p_max + o_slot, b_m, mask=m_g)
        tl.store(p_sum + o_slot, b_l, mask=m_g)
    store_columns(p_acc, b_acc, o_slot, m_g, D, 0, DP, 1)
