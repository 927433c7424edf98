"""Triton kernel of decode attention over planes of 2-bit digits (`kernels.planes`).

Names as in `kernels.tiles`. Grid: (splits, B * Hkv). Every split reads groups of tiles of one head,
then its share of the text, as `kernels.attention.joined_kernel` does, and leaves its result in the
basis and at the scale of the output.

A word's eight digits become eight float16 operands by one mask each: a digit at bit p of a float16
whose other bits are zero is the number digit * 2^(p - 24), exactly. The factor 2^p belongs to a
sub-tile of tokens, so it joins the exponent's scale (Keys) and its shift (Values). A digit's offset
of 1.5 adds the same to every visual score, and is added once a split; of the Values it is taken
off once a group of tiles, with the same rounded weights that the sums were made of, since sums that
keep it until the end lose what a flat attention leaves.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .attention import attend_text
from .tiles import dot, pair, store_columns

WORDS = tl.constexpr(256)  # of a granule's tile
RAISED = tl.constexpr(8)  # log2 of what weights are multiplied by, so that small ones stay normal


@triton.jit
def digits(b_w, WIDEN: tl.constexpr):
    """The eight digits of every int16, each times 2^(2 (j % 4) - 24), as float16."""
    if WIDEN:  # the interpreter runs no assembly
        b_h = (b_w >> 8) & 0xFF
        return (
            (b_w & 0x03).to(tl.float16, bitcast=True),
            (b_w & 0x0C).to(tl.float16, bitcast=True),
            (b_w & 0x30).to(tl.float16, bitcast=True),
            (b_w & 0xC0).to(tl.float16, bitcast=True),
            (b_h & 0x03).to(tl.float16, bitcast=True),
            (b_h & 0x0C).to(tl.float16, bitcast=True),
            (b_h & 0x30).to(tl.float16, bitcast=True),
            (b_h & 0xC0).to(tl.float16, bitcast=True),
        )
    else:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 h;
            shr.u32 h, $8, 8;
            and.b32 $0, $8, 0x00030003;
            and.b32 $1, $8, 0x000c000c;
            and.b32 $2, $8, 0x00300030;
            and.b32 $3, $8, 0x00c000c0;
            and.b32 $4, h, 0x00030003;
            and.b32 $5, h, 0x000c000c;
            and.b32 $6, h, 0x00300030;
            and.b32 $7, h, 0x00c000c0;
            }""",
            "=r,=r,=r,=r,=r,=r,=r,=r,r", [b_w],
            dtype=(tl.float16, tl.float16, tl.float16, tl.float16,
                   tl.float16, tl.float16, tl.float16, tl.float16),
            is_pure=True, pack=2,
        )  # fmt: skip


@triton.jit
def _terms(b_x, TWO: tl.constexpr):
    """float32 as one float16, or as the sum of two."""
    b_high = b_x.to(tl.float16)
    if TWO:
        return b_high, (b_x - b_high.to(tl.float32)).to(tl.float16)
    else:
        return b_high, b_high


@triton.jit
def _multiply(b_a, b_high, b_low, b_acc, TWO: tl.constexpr, WIDEN: tl.constexpr):
    b_acc = dot(b_a, b_high, b_acc, tl.float16, "ieee", WIDEN)
    if TWO:
        b_acc = dot(b_a, b_low, b_acc, tl.float16, "ieee", WIDEN)
    return b_acc


@triton.jit
def _place(slot, n0, n1, n2):
    """(granule of channels, factor 4^level) of a head's slot."""
    level = (slot >= n0).to(tl.int32) + (slot >= n0 + n1).to(tl.int32)
    level += (slot >= n0 + n1 + n2).to(tl.int32)
    first = tl.where(level > 0, n0, 0) + tl.where(level > 1, n1, 0) + tl.where(level > 2, n2, 0)
    return slot - first, (1 << (2 * level)).to(tl.float32)


@triton.jit
def _rows(
    p_basis, p_steps, start, slot, count, n0, n1, n2, D: tl.constexpr, DP: tl.constexpr,
    EIGHT: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """A slot's rows of the basis and their steps [16]; zeros beyond the head's slots.

    Rows: of int8 the even channels and the odd ones as float16 [16, DP / 2] (EIGHT), since the
    hardware transposes 16-bit elements only; else all [16, DP], twice.
    """
    granule, factor = _place(slot, n0, n1, n2)
    WORDS: tl.constexpr = D // 2 if EIGHT else D
    o_r = tl.arange(0, 16)
    o_d = tl.arange(0, DP // 2 if EIGHT else DP)
    live = slot < count
    row = (start + granule * 16 + o_r).to(tl.int64)
    m_row = (o_d < WORDS)[None, :] & live
    b_rows = tl.load(p_basis + row[:, None] * WORDS + o_d[None, :], mask=m_row, other=0)
    b_steps = tl.load(p_steps + row, mask=(o_r < 16) & live, other=0.0)
    b_steps = b_steps.to(tl.float32) * factor
    if EIGHT:
        b_even, b_odd = pair(b_rows, tl.int8, WIDEN)
        return b_even, b_odd, b_steps
    else:
        return b_rows, b_rows, b_steps


@triton.jit
def _unit(b_x):
    """(x over its largest in every column, that largest)."""
    b_top = tl.maximum(tl.max(tl.abs(b_x), 0), 1e-30)
    return b_x / b_top[None, :], b_top


@triton.jit
def _fetch(p_words, count, slot, left_tiles, R: tl.constexpr, ACROSS: tl.constexpr,
           MASK: tl.constexpr):  # fmt: skip
    """Words of one slot in R tiles: [16 R, 16] of Keys, [16, 16 R] of Values (ACROSS)."""
    o_t = tl.arange(0, 16 * R)
    o_c = tl.arange(0, 16)
    tile = o_t // 16
    if ACROSS:
        o_w = (tile * count * 256 + o_t % 16)[None, :] + o_c[:, None] * 16
        m_w = (tile < left_tiles)[None, :] & (o_c < 16)[:, None]
    else:
        o_w = (tile * count * 256 + o_t % 16 * 16)[:, None] + o_c[None, :]
        m_w = (tile < left_tiles)[:, None] & (o_c < 16)[None, :]
    m_w = m_w & (slot < count)
    p_w = p_words + slot * 256 + o_w
    if MASK:
        return tl.load(p_w, mask=m_w, other=0, eviction_policy="evict_first")
    else:
        return tl.load(p_w, mask=slot < count, other=0, eviction_policy="evict_first")


@triton.jit
def _dead(b_s, j: tl.constexpr, left, R: tl.constexpr):
    """Scores of sub-tile j with those beyond `left` tokens taken out."""
    o_t = tl.arange(0, 16 * R)
    token = o_t // 16 * 128 + j * 16 + o_t % 16
    return tl.where((token < left)[:, None], b_s, float("-inf"))


@triton.jit
def _group(
    p_k, p_v, k_count, v_count, left, b_high, b_low, b_f, b_m, b_l, b_accs,
    GK: tl.constexpr, GV: tl.constexpr, GP: tl.constexpr, R: tl.constexpr, TWO: tl.constexpr,
    MASK: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """R tiles of one head: scores, online softmax, weighted Values."""
    left_tiles = (left + 127) // 128
    b_zero = tl.zeros([16 * R, GP], tl.float32)
    s0, s1, s2, s3, s4, s5, s6, s7 = (b_zero,) * 8
    for g in tl.static_range(GK):
        b_w = _fetch(p_k, k_count, g, left_tiles, R, False, MASK)
        a0, a1, a2, a3, a4, a5, a6, a7 = digits(b_w, WIDEN)
        s0 = _multiply(a0, b_high[g], b_low[g], s0, TWO, WIDEN)
        s1 = _multiply(a1, b_high[g], b_low[g], s1, TWO, WIDEN)
        s2 = _multiply(a2, b_high[g], b_low[g], s2, TWO, WIDEN)
        s3 = _multiply(a3, b_high[g], b_low[g], s3, TWO, WIDEN)
        s4 = _multiply(a4, b_high[g], b_low[g], s4, TWO, WIDEN)
        s5 = _multiply(a5, b_high[g], b_low[g], s5, TWO, WIDEN)
        s6 = _multiply(a6, b_high[g], b_low[g], s6, TWO, WIDEN)
        s7 = _multiply(a7, b_high[g], b_low[g], s7, TWO, WIDEN)
    if MASK:
        s0 = _dead(s0, 0, left, R)
        s1 = _dead(s1, 1, left, R)
        s2 = _dead(s2, 2, left, R)
        s3 = _dead(s3, 3, left, R)
        s4 = _dead(s4, 4, left, R)
        s5 = _dead(s5, 5, left, R)
        s6 = _dead(s6, 6, left, R)
        s7 = _dead(s7, 7, left, R)
    b_top = tl.maximum(tl.maximum(s3, s7) * 0.015625, tl.maximum(s2, s6) * 0.0625)
    b_top = tl.maximum(b_top, tl.maximum(tl.maximum(s1, s5) * 0.25, tl.maximum(s0, s4)))
    b_next = tl.maximum(b_m, tl.max(b_top, 0) * b_f)
    b_past = tl.exp2(b_m - b_next)
    b_f1, b_f2, b_f3 = b_f * 0.25, b_f * 0.0625, b_f * 0.015625
    b_d0 = b_next - 8
    b_d1, b_d2, b_d3 = b_d0 + 2, b_d0 + 4, b_d0 + 6
    p0 = tl.exp2(s0 * b_f[None, :] - b_d0[None, :])
    p1 = tl.exp2(s1 * b_f1[None, :] - b_d1[None, :])
    p2 = tl.exp2(s2 * b_f2[None, :] - b_d2[None, :])
    p3 = tl.exp2(s3 * b_f3[None, :] - b_d3[None, :])
    p4 = tl.exp2(s4 * b_f[None, :] - b_d0[None, :])
    p5 = tl.exp2(s5 * b_f1[None, :] - b_d1[None, :])
    p6 = tl.exp2(s6 * b_f2[None, :] - b_d2[None, :])
    p7 = tl.exp2(s7 * b_f3[None, :] - b_d3[None, :])
    p0, r0 = _terms(p0, TWO)
    p1, r1 = _terms(p1, TWO)
    p2, r2 = _terms(p2, TWO)
    p3, r3 = _terms(p3, TWO)
    p4, r4 = _terms(p4, TWO)
    p5, r5 = _terms(p5, TWO)
    p6, r6 = _terms(p6, TWO)
    p7, r7 = _terms(p7, TWO)
    b_one = tl.full([16, 16 * R], 0.00390625, tl.float16)
    b_sum = tl.zeros([16, GP], tl.float32)
    b_sum = _multiply(b_one, p0, r0, b_sum, TWO, WIDEN)
    b_sum = _multiply(b_one, p4, r4, b_sum, TWO, WIDEN)
    b_one = tl.full([16, 16 * R], 0.015625, tl.float16)
    b_sum = _multiply(b_one, p1, r1, b_sum, TWO, WIDEN)
    b_sum = _multiply(b_one, p5, r5, b_sum, TWO, WIDEN)
    b_one = tl.full([16, 16 * R], 0.0625, tl.float16)
    b_sum = _multiply(b_one, p2, r2, b_sum, TWO, WIDEN)
    b_sum = _multiply(b_one, p6, r6, b_sum, TWO, WIDEN)
    b_one = tl.full([16, 16 * R], 0.25, tl.float16)
    b_sum = _multiply(b_one, p3, r3, b_sum, TWO, WIDEN)
    b_sum = _multiply(b_one, p7, r7, b_sum, TWO, WIDEN)
    b_next_accs = ()
    for g in tl.static_range(GV):
        b_w = _fetch(p_v, v_count, g, left_tiles, R, True, MASK)
        a0, a1, a2, a3, a4, a5, a6, a7 = digits(b_w, WIDEN)
        b_t = tl.zeros([16, GP], tl.float32)
        b_t = _multiply(a0, p0, r0, b_t, TWO, WIDEN)
        b_t = _multiply(a1, p1, r1, b_t, TWO, WIDEN)
        b_t = _multiply(a2, p2, r2, b_t, TWO, WIDEN)
        b_t = _multiply(a3, p3, r3, b_t, TWO, WIDEN)
        b_t = _multiply(a4, p4, r4, b_t, TWO, WIDEN)
        b_t = _multiply(a5, p5, r5, b_t, TWO, WIDEN)
        b_t = _multiply(a6, p6, r6, b_t, TWO, WIDEN)
        b_t = _multiply(a7, p7, r7, b_t, TWO, WIDEN)
        b_t = b_t * 65536.0 - b_sum * 1.5
        b_next_accs = b_next_accs + (b_accs[g] * b_past[None, :] + b_t,)
    return b_next, b_l * b_past[None, :] + b_sum, b_next_accs


@triton.jit(do_not_specialize=["N", "M", "text_size", "Hkv", "G"])
def digits_kernel(
    p_q, p_lengths, p_keys, p_key_counts, p_key_offsets, p_key_basis, p_key_steps, p_key_starts,
    p_values, p_value_counts, p_value_offsets, p_value_basis, p_value_steps, p_value_starts,
    p_text_keys, p_text_values, p_text_lengths, p_mean, p_value_mean, p_acc, p_max, p_sum,
    s_qb, s_qh, s_tkb, s_tkh, s_tkm, s_tvb, s_tvh, s_tvm,
    N, M, text_size, Hkv, G, scale_log2,
    GP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, GK: tl.constexpr, GV: tl.constexpr,
    R: tl.constexpr, TT: tl.constexpr, PREC: tl.constexpr, TWO: tl.constexpr, EIGHT: tl.constexpr,
    BLOCK_M: tl.constexpr, STAGES: tl.constexpr, SINGLE: tl.constexpr, PDL: tl.constexpr,
    WIDEN: tl.constexpr,
):  # fmt: skip
    """Attention of a share of one key head's visual and text tokens, up to the output's scale.

    GK, GV: granules of Keys and Values of the head that has most. R: tiles a group. TWO: operands
    of two float16 terms, for float32. EIGHT: the bases are int8. SINGLE: the share is everything,
    and p_acc is the output.
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
    end = N
    if p_lengths is not None:
        end = tl.load(p_lengths + i_b)
    k0 = tl.load(p_key_counts + i_bh * 4) // 16
    k1 = tl.load(p_key_counts + i_bh * 4 + 1) // 16
    k2 = tl.load(p_key_counts + i_bh * 4 + 2) // 16
    k_count = k0 + k1 + k2 + tl.load(p_key_counts + i_bh * 4 + 3) // 16
    v0 = tl.load(p_value_counts + i_bh * 4) // 16
    v1 = tl.load(p_value_counts + i_bh * 4 + 1) // 16
    v2 = tl.load(p_value_counts + i_bh * 4 + 2) // 16
    v_count = v0 + v1 + v2 + tl.load(p_value_counts + i_bh * 4 + 3) // 16
    k_start = tl.load(p_key_starts + i_bh)
    v_start = tl.load(p_value_starts + i_bh)
    p_k = p_keys + tl.multiple_of(tl.load(p_key_offsets + i_bh), 256)
    p_v = p_values + tl.multiple_of(tl.load(p_value_offsets + i_bh), 256)
    if PDL:
        gdc_wait()
    b_m = tl.full([GP], float("-inf"), tl.float32)
    b_l = tl.zeros([GP], tl.float32)
    b_acc = tl.zeros([DP, GP], tl.float32)
    m_q = (o_d < D)[:, None] & m_g[None, :]
    lo = i_s * (128 * R)
    if lo < end:
        b_x = tl.load(p_q + o_g[None, :] * s_qh + o_d[:, None], mask=m_q, other=0.0)
        b_x = b_x.to(tl.float32)
        if EIGHT:
            b_y, b_scale = _unit(b_x)
            b_y = tl.permute(tl.reshape(b_y, [DP // 2, 2, GP]), [0, 2, 1])
            b_even, b_odd = tl.split(b_y)
            b_eh, b_el = _terms(b_even, TWO)
            b_oh, b_ol = _terms(b_odd, TWO)
        b_top = tl.full([GP], 1e-30, tl.float32)
        b_qs = ()
        for g in tl.static_range(GK):
            b_r0, b_r1, b_steps = _rows(
                p_key_basis, p_key_steps, k_start, g, k_count, k0, k1, k2, D, DP, EIGHT, WIDEN
            )  # fmt: skip
            b_qg = tl.zeros([16, GP], tl.float32)
            if EIGHT:
                b_qg = _multiply(b_r0, b_eh, b_el, b_qg, TWO, WIDEN)
                b_qg = _multiply(b_r1, b_oh, b_ol, b_qg, TWO, WIDEN)
                b_qg = b_qg * b_scale[None, :]
            else:
                b_qg = dot(b_r0, b_x, b_qg, tl.float32, PREC, WIDEN)
            b_qg = b_qg * b_steps[:, None]
            b_top = tl.maximum(b_top, tl.max(tl.abs(b_qg), 0))
            b_qs = b_qs + (b_qg,)
        b_high = ()
        b_low = ()
        b_bias = tl.zeros([GP], tl.float32)
        for g in tl.static_range(GK):
            b_h, b_r = _terms(b_qs[g] / b_top[None, :], TWO)
            b_high = b_high + (b_h,)
            b_low = b_low + (b_r,)
            b_bias += tl.sum(b_h.to(tl.float32), 0)
            if TWO:
                b_bias += tl.sum(b_r.to(tl.float32), 0)
        b_top = b_top * scale_log2
        b_f = b_top * 16777216.0
        b_ls = tl.zeros([16, GP], tl.float32)
        b_accs = (tl.zeros([16, GP], tl.float32),) * GV
        groups = tl.cdiv(end, 128 * R)
        whole = end // (128 * R)
        k_step = k_count.to(tl.int64) * (256 * R)
        v_step = v_count.to(tl.int64) * (256 * R)
        for i_t in tl.range(i_s, whole, splits, num_stages=STAGES):
            b_m, b_ls, b_accs = _group(
                p_k + i_t * k_step, p_v + i_t * v_step, k_count, v_count, 128 * R,
                b_high, b_low, b_f, b_m, b_ls, b_accs, GK, GV, GP, R, TWO, False, WIDEN,
            )  # fmt: skip
        if (whole < groups) & (whole % splits == i_s):
            b_m, b_ls, b_accs = _group(
                p_k + whole * k_step, p_v + whole * v_step, k_count, v_count,
                end - whole * 128 * R,
                b_high, b_low, b_f, b_m, b_ls, b_accs, GK, GV, GP, R, TWO, True, WIDEN,
            )  # fmt: skip
        b_l = tl.max(b_ls, 0)
        b_m += -1.5 * b_bias * b_top
        b_up0 = tl.zeros([DP // 2 if EIGHT else DP, GP], tl.float32)
        b_up1 = b_up0
        for g in tl.static_range(GV):
            b_r0, b_r1, b_steps = _rows(
                p_value_basis, p_value_steps, v_start, g, v_count, v0, v1, v2, D, DP, EIGHT, WIDEN
            )  # fmt: skip
            b_a = b_accs[g] * b_steps[:, None]
            if EIGHT:
                b_y, b_scale = _unit(b_a)
                b_yh, b_yl = _terms(b_y, True)
                b_zero = tl.zeros([DP // 2, GP], tl.float32)
                b_y = _multiply(tl.trans(b_r0), b_yh, b_yl, b_zero, True, WIDEN)
                b_up0 += b_y * b_scale[None, :]
                b_y = _multiply(tl.trans(b_r1), b_yh, b_yl, b_zero, True, WIDEN)
                b_up1 += b_y * b_scale[None, :]
            else:
                b_up0 = dot(tl.trans(b_r0), b_a, b_up0, tl.float32, PREC, WIDEN)
        if EIGHT:
            b_up0 = tl.reshape(tl.permute(tl.join(b_up0, b_up1), [0, 2, 1]), [DP, GP])
        b_acc = b_up0
        if p_value_mean is not None:
            b_shift = tl.load(p_value_mean + i_bh * D + o_d, mask=o_d < D, other=0.0)
            b_acc += b_shift.to(tl.float32)[:, None] * b_l[None, :]
        if p_mean is not None:  # q . mu adds the same to every visual score
            b_mean = tl.load(p_mean + i_bh * D + o_d, mask=o_d < D, other=0.0).to(tl.float32)
            b_m += tl.sum(b_x * b_mean[:, None], 0) * scale_log2
    end = M
    if p_text_lengths is not None:
        end = tl.load(p_text_lengths + i_b)
    lo = (splits - 1 - i_s) * text_size
    hi = tl.minimum(lo + text_size, end)
    if lo < hi:
        p_text_keys += i_b.to(tl.int64) * s_tkb + i_h.to(tl.int64) * s_tkh
        p_text_values += i_b.to(tl.int64) * s_tvb + i_h.to(tl.int64) * s_tvh
        b_m, b_l, b_acc = attend_text(
            p_q, p_text_keys, p_text_values, s_qh, s_tkm, s_tvm, lo, hi, m_g, b_m, b_l, b_acc,
            scale_log2, GP, D, DP, TT, BLOCK_M, 2, WIDEN,
        )  # fmt: skip
    o_slot = (i_bh * G + o_g) * splits + i_s
    if SINGLE:
        b_acc = b_acc / tl.where(b_l > 0, b_l, 1.0)[None, :]
        b_acc = b_acc.to(p_acc.dtype.element_ty)
    else:
        tl.store(p_max + o_slot, b_m, mask=m_g)
        tl.store(p_sum + o_slot, b_l, mask=m_g)
    store_columns(p_acc, b_acc, o_slot, m_g, D, 0, DP, 1)
