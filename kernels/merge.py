"""The merge of decode attention: folds the token splits of every query head, once.

Names and scratch layout as in `kernels.attention`.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _split_weights(
    p_max, p_sum, row, o_s, splits, text_splits, visual_first, text_size, visual_end, text_end,
    bias,
):  # fmt: skip
    """(log2 max with bias, sum, is live) of splits o_s; a dead one weighs nothing."""
    m_s = o_s < splits
    m_visual = o_s >= text_splits
    start = tl.where(m_visual, (o_s - text_splits) * visual_first, o_s * text_size)
    m_live = m_s & (start < tl.where(m_visual, visual_end, text_end))
    b_m = tl.load(p_max + row * splits + o_s, mask=m_s, other=float("-inf"))
    b_l = tl.load(p_sum + row * splits + o_s, mask=m_s, other=0.0)
    b_m = tl.where(m_live, b_m + tl.where(m_visual, bias, 0.0), float("-inf"))
    return b_m, tl.where(m_live, b_l, 0.0), m_live


@triton.jit
def _load_partials(p_row, o_s, splits, o_col, m_col, D: tl.constexpr):
    """Unscaled sums [len(o_s), len(o_col)] of one query head's splits."""
    p_tile = p_row + o_s[:, None] * D + o_col[None, :]
    return tl.load(p_tile, mask=(o_s < splits)[:, None] & m_col[None, :], other=0.0)


@triton.jit
def _fold(
    b_first, p_row, p_max, p_sum, row, o_col, m_col, top,
    splits, text_splits, visual_first, text_size, visual_end, text_end, bias,
    D: tl.constexpr, SP: tl.constexpr, SC: tl.constexpr,
):  # fmt: skip
    """Weighted sum of the splits' partials [len(o_col)]; SC splits at a time, b_first the first."""
    b_out = tl.zeros([o_col.shape[0]], tl.float32)
    for s0 in tl.static_range(0, SP, SC):
        o_s = s0 + tl.arange(0, SC)
        b_acc = b_first
        if s0:
            b_acc = _load_partials(p_row, o_s, splits, o_col, m_col, D)
        b_m, b_l, m_use = _split_weights(
            p_max, p_sum, row, o_s, splits, text_splits, visual_first, text_size,
            visual_end, text_end, bias,
        )  # fmt: skip
        b_w = tl.where(m_use, tl.exp2(b_m - top), 0.0)
        b_out += tl.sum(tl.where(m_use[:, None], b_acc, 0.0) * b_w[:, None], 0)
    return b_out


@triton.jit(
    do_not_specialize=[
        "N", "M", "visual_first", "text_size", "text_splits", "splits", "Hq", "G",
    ]
)  # fmt: skip
def merge_kernel(
    p_acc, p_max, p_sum, p_out, p_q, p_lengths, p_text_lengths,
    p_mean, s_qb, s_qh, s_ob, s_oh,
    N, M, visual_first, text_size, text_splits, splits, Hq, G, scale_log2,
    D: tl.constexpr, DP: tl.constexpr, SP: tl.constexpr, SC: tl.constexpr, BLOCK_D: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Fold the splits of one query head, and add the bias q . mu once."""
    if PDL:
        gdc_launch_dependents()
    row = tl.program_id(0)
    i_b = row // Hq
    i_hq = row % Hq
    kv_row = i_b * (Hq // G) + i_hq // G
    o_d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    m_d = o_d < D
    o_c = tl.arange(0, DP)
    bias = 0.0
    if p_mean is not None:
        b_mean = tl.load(p_mean + kv_row * D + o_c, mask=o_c < D, other=0.0).to(tl.float32)
    if PDL:
        gdc_wait()
    visual_end = N
    text_end = M
    if p_lengths is not None:
        visual_end = tl.load(p_lengths + i_b)
    if p_text_lengths is not None:
        text_end = tl.load(p_text_lengths + i_b)
    # every load leaves before the first sum waits for one
    p_row = p_acc + row.to(tl.int64) * splits * D
    o_first = tl.arange(0, SC)
    b_first = _load_partials(p_row, o_first, splits, o_d, m_d, D)
    if p_mean is not None:
        p_qh = p_q + i_b.to(tl.int64) * s_qb + i_hq * s_qh
        b_q = tl.load(p_qh + o_c, mask=o_c < D, other=0.0).to(tl.float32)
        bias = tl.sum(b_q * b_mean, 0) * scale_log2
    b_m, b_l, m_live = _split_weights(
        p_max, p_sum, row, tl.arange(0, SP), splits, text_splits, visual_first, text_size,
        visual_end, text_end, bias,
    )  # fmt: skip
    top = tl.max(b_m, 0)
    b_mass = tl.where(m_live, tl.exp2(b_m - top), 0.0) * b_l
    total = tl.sum(b_mass, 0)
    inverse = 1.0 / tl.where(total > 0, total, 1.0)
    b_out = _fold(
        b_first, p_row, p_max, p_sum, row, o_d, m_d, top,
        splits, text_splits, visual_first, text_size, visual_end, text_end, bias, D, SP, SC,
    )  # fmt: skip
    p_o = p_out + i_b.to(tl.int64) * s_ob + i_hq * s_oh + o_d
    tl.store(p_o, (b_out * inverse).to(p_out.dtype.element_ty), mask=m_d)
