"""Triton kernels of decode attention: one launch over token splits, one that merges them.

Names: p_ pointer, b_ block in registers, o_ offsets, m_ mask, i_ index, s_ stride. Symbols as in
`kernels.reference`; GP = G padded to a power of two of at least 8, DP, KP1 + KP2 and RP the padded
widths of d, k and r. Products are taken transposed, tokens or channels by query heads: a
tensor-core tile is 16 x 8, so that up to eight heads fill one. Values are loaded channels by tokens
for that. Scores are kept in log2 units, so every exponential is a bare exp2.

Grid of the split kernel: (splits, B * Hkv). Splits below `text_splits` read the full-width text,
the others the visual cache. A split is empty when it starts past its row's length: it writes
nothing, and the merge, which knows the lengths, never looks at it. So one CUDA graph serves growing
text.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _dot(b_a, b_b, b_acc, TYPE: tl.constexpr, PREC: tl.constexpr, WIDEN: tl.constexpr):
    """acc + a @ b in TYPE; WIDEN for the interpreter, which cannot multiply bfloat16."""
    b_a = b_a.to(TYPE)
    b_b = b_b.to(TYPE)
    if WIDEN:
        b_a = b_a.to(tl.float32)
        b_b = b_b.to(tl.float32)
    return tl.dot(b_a, b_b, b_acc, input_precision=PREC)


@triton.jit
def _softmax_step(b_s, b_f, m_valid, b_m, b_l):
    """Online softmax over b_s * b_f, b_s [BLOCK, GP]: (weights, rescale of the past, max, sum)."""
    if m_valid is not None:
        b_s = tl.where(m_valid[:, None], b_s, float("-inf"))
    b_next = tl.maximum(b_m, tl.max(b_s, 0) * b_f)
    b_past = tl.exp2(b_m - b_next)
    b_p = tl.exp2(b_s * b_f[None, :] - b_next[None, :])
    return b_p, b_past, b_next, b_l * b_past + tl.sum(b_p, 0)


@triton.jit
def _load_rows(
    p_base, o_row, s_row, o_col, width, hi, FULL: tl.constexpr, WHOLE: tl.constexpr = False
):
    """Rows [BLOCK, width] of a cache; zero past `hi`. The stream is read once: evict it first.

    FULL: every column exists; WHOLE: every row does.
    """
    p_tile = p_base + o_row[:, None] * s_row + o_col[None, :]
    if FULL and WHOLE:
        return tl.load(p_tile, eviction_policy="evict_first")
    elif WHOLE:
        m_tile = (o_col < width)[None, :]
        return tl.load(p_tile, mask=m_tile, other=0.0, eviction_policy="evict_first")
    elif FULL:
        return tl.load(p_tile, mask=(o_row < hi)[:, None], other=0.0, eviction_policy="evict_first")
    else:
        m_tile = (o_row < hi)[:, None] & (o_col < width)[None, :]
        return tl.load(p_tile, mask=m_tile, other=0.0, eviction_policy="evict_first")


@triton.jit
def _load_columns(
    p_base, o_row, s_row, o_col, width, hi, FULL: tl.constexpr, WHOLE: tl.constexpr = False
):
    """`_load_rows` transposed: [width, BLOCK]."""
    p_tile = p_base + o_row[None, :] * s_row + o_col[:, None]
    if FULL and WHOLE:
        return tl.load(p_tile, eviction_policy="evict_first")
    elif WHOLE:
        m_tile = (o_col < width)[:, None]
        return tl.load(p_tile, mask=m_tile, other=0.0, eviction_policy="evict_first")
    elif FULL:
        return tl.load(p_tile, mask=(o_row < hi)[None, :], other=0.0, eviction_policy="evict_first")
    else:
        m_tile = (o_row < hi)[None, :] & (o_col < width)[:, None]
        return tl.load(p_tile, mask=m_tile, other=0.0, eviction_policy="evict_first")


@triton.jit
def _pair(b_x, TYPE: tl.constexpr, WIDEN: tl.constexpr):
    """The two 8-bit numbers of every int16, as two float16 tiles (exact)."""
    if WIDEN:  # the interpreter runs no assembly
        b_even = (b_x & 0xFF).to(tl.int8)
        b_odd = (b_x >> 8).to(tl.int8)
        if tl.int8 != TYPE:
            b_even = b_even.to(TYPE, bitcast=True)
            b_odd = b_odd.to(TYPE, bitcast=True)
        return b_even.to(tl.float16), b_odd.to(tl.float16)
    elif tl.int8 == TYPE:  # 0x6400 | u is the float16 1024 + u: no slow integer conversion
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 u, e, o, c;
            xor.b32 u, $2, 0x80808080;
            mov.b32 c, 0x64806480;
            prmt.b32 e, u, 0x64646464, 0x4240;
            prmt.b32 o, u, 0x64646464, 0x4341;
            sub.f16x2 $0, e, c;
            sub.f16x2 $1, o, c;
            }""",
            "=r,=r,r", [b_x], dtype=(tl.float16, tl.float16), is_pure=True, pack=2,
        )  # fmt: skip
    else:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 t;
            .reg .b16 e, o;
            prmt.b32 t, $2, 0, 0x3120;
            mov.b32 {e, o}, t;
            cvt.rn.f16x2.e4m3x2 $0, e;
            cvt.rn.f16x2.e4m3x2 $1, o;
            }""",
            "=r,=r,r", [b_x], dtype=(tl.float16, tl.float16), is_pure=True, pack=2,
        )  # fmt: skip


@triton.jit
def _weigh_values(
    b_accs, b_past, b_p, b_v, o_row, p_scale, s_scale, hi,
    PT: tl.constexpr, PACKED: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """accs * past + v^T @ p. Per-token scales (at most one) join p.

    b_accs: one accumulator [RP, GP]; or two, of the even and the odd channels, for 8-bit Values
    read in pairs (PACKED is then their type): the hardware transposes 16-bit elements only.
    """
    b_f = b_past[None, :]
    if p_scale is not None:
        if hi is None:
            b_scale = tl.load(p_scale + o_row * s_scale)
        else:
            b_scale = tl.load(p_scale + o_row * s_scale, mask=o_row < hi, other=0.0)
        b_p = b_p * b_scale.to(tl.float32)[:, None]
    if PACKED is None:
        b_accs = (_dot(b_v, b_p, b_accs[0] * b_f, PT, "ieee", WIDEN),)
    else:
        b_a0, b_a1 = b_accs
        b_even, b_odd = _pair(b_v, PACKED, WIDEN)
        b_a0 = _dot(b_even, b_p, b_a0 * b_f, PT, "ieee", WIDEN)
        b_a1 = _dot(b_odd, b_p, b_a1 * b_f, PT, "ieee", WIDEN)
        b_accs = (b_a0, b_a1)
    return b_accs


@triton.jit
def _tile_step(
    b_q1, b_q2, b_k1, b_k2, b_v, b_f, b_m, b_l, b_accs, o_n, hi, p_scale, s_scale,
    KT: tl.constexpr, VT: tl.constexpr, KP2: tl.constexpr, KEY_PAIRS: tl.constexpr,
    PACKED: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """One visual tile: scores from one or two blocks of channels, softmax, weighted Values.

    hi: tokens left in the split; None when the tile is whole.
    """
    if KEY_PAIRS is not None:
        b_k1, b_k2 = _pair(b_k1, KEY_PAIRS, WIDEN)
    b_s = tl.zeros([b_k1.shape[0], b_q1.shape[1]], tl.float32)
    b_s = _dot(b_k1, b_q1, b_s, KT, "ieee", WIDEN)
    if KP2:
        b_s = _dot(b_k2, b_q2, b_s, KT, "ieee", WIDEN)
    m_valid = None
    if hi is not None:
        m_valid = o_n < hi
    b_p, b_past, b_m, b_l = _softmax_step(b_s, b_f, m_valid, b_m, b_l)
    b_accs = _weigh_values(
        b_accs, b_past, b_p, b_v, o_n, p_scale, s_scale, hi, VT, PACKED, WIDEN
    )  # fmt: skip
    return b_m, b_l, b_accs


@triton.jit
def _project(
    p_q, p_basis, p_index, p_key_scale, s_rd, s_rk, m_g, o_k, k,
    D: tl.constexpr, DP: tl.constexpr, GP: tl.constexpr, CT: tl.constexpr, PREC: tl.constexpr,
    WIDEN: tl.constexpr, s_qh,
):  # fmt: skip
    """q in the Keys' basis, one block of channels: [len(o_k), GP] float32."""
    o_g = tl.arange(0, GP)
    m_k = o_k < k
    m_q = m_k[:, None] & m_g[None, :]
    if p_index is not None:
        o_c = tl.load(p_index + o_k, mask=m_k, other=0)
        b_q = tl.load(p_q + o_g[None, :] * s_qh + o_c[:, None], mask=m_q, other=0.0)
        b_q = b_q.to(tl.float32)
    elif p_basis is not None:
        o_d = tl.arange(0, DP)
        m_d = o_d < D
        m_x = m_d[:, None] & m_g[None, :]
        b_x = tl.load(p_q + o_g[None, :] * s_qh + o_d[:, None], mask=m_x, other=0.0)
        p_r = p_basis + o_d[:, None] * s_rd + o_k[None, :] * s_rk
        b_r = tl.load(p_r, mask=m_d[:, None] & m_k[None, :], other=0.0)
        b_zero = tl.zeros([o_k.shape[0], GP], tl.float32)
        b_q = _dot(b_r.T, b_x, b_zero, CT, PREC, WIDEN)
    else:
        b_q = tl.load(p_q + o_g[None, :] * s_qh + o_k[:, None], mask=m_q, other=0.0)
        b_q = b_q.to(tl.float32)
    if p_key_scale is not None:
        b_q = b_q * tl.load(p_key_scale + o_k, mask=m_k, other=0.0)[:, None]
    return b_q


@triton.jit
def _store_columns(p_acc, b_acc, o_slot, m_g, WIDTH, first, CP: tl.constexpr, STEP: tl.constexpr):
    """Channels first, first + STEP, ... of the partial accumulators [CP, GP] at scratch rows."""
    o_c = first + STEP * tl.arange(0, CP)
    p_tile = p_acc + o_slot.to(tl.int64)[None, :] * WIDTH + o_c[:, None]
    tl.store(p_tile, b_acc, mask=m_g[None, :] & (o_c < WIDTH)[:, None])


# these change from one prompt to the next and must not start a compilation
@triton.jit(
    do_not_specialize=[
        "N", "M", "visual_first", "visual_step", "visual_span", "text_size", "text_splits", "Hkv",
        "G",
    ]
)  # fmt: skip
def split_kernel(
    p_q, p_keys, p_values, p_lengths,
    p_basis, p_index, p_key_scale, p_value_scale, p_value_top,
    p_key_widths, p_key_offsets, p_value_widths, p_value_offsets,
    p_text_keys, p_text_values, p_text_lengths,
    p_acc, p_max, p_sum, d_keys, d_values,
    s_qb, s_qh,
    s_kb, s_kh, s_kn, s_vb, s_vh, s_vn, s_sb, s_sh, s_sn,
    s_rb, s_rh, s_rd, s_rk,
    s_tkb, s_tkh, s_tkm, s_tvb, s_tvh, s_tvm,
    N, M, visual_first, visual_step, visual_span, text_size, text_splits, Hkv, G, scale_log2,
    GP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
    K: tl.constexpr, KP1: tl.constexpr, KP2: tl.constexpr, R: tl.constexpr, RP: tl.constexpr,
    WIDTH: tl.constexpr, KT: tl.constexpr, VT: tl.constexpr, TT: tl.constexpr,
    PT: tl.constexpr, KPREC: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, STAGES: tl.constexpr, TEXT_STAGES: tl.constexpr,
    ONE_TILE: tl.constexpr, KEY_PAIRS: tl.constexpr, PACKED: tl.constexpr, ALIGN: tl.constexpr,
    PDL: tl.constexpr, WIDEN: tl.constexpr,
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
    b_m = tl.full([GP], float("-inf"), tl.float32)
    b_l = tl.zeros([GP], tl.float32)
    if i_s < text_splits:
        if PDL:
            gdc_wait()
        end = M
        if p_text_lengths is not None:
            end = tl.load(p_text_lengths + i_b)
        lo = i_s * text_size
        hi = tl.minimum(lo + text_size, end)
        if lo < hi:
            o_d = tl.arange(0, DP)
            m_q = (o_d < D)[:, None] & m_g[None, :]
            b_q = tl.load(p_q + o_g[None, :] * s_qh + o_d[:, None], mask=m_q, other=0.0).to(TT)
            b_f = tl.full([GP], 1.0, tl.float32) * scale_log2
            p_k = p_text_keys + i_b.to(tl.int64) * s_tkb + i_h.to(tl.int64) * s_tkh
            p_v = p_text_values + i_b.to(tl.int64) * s_tvb + i_h.to(tl.int64) * s_tvh
            p_k += lo.to(tl.int64) * s_tkm
            p_v += lo.to(tl.int64) * s_tvm
            left = hi - lo
            b_accs = (tl.zeros([DP, GP], tl.float32),)
            for start in tl.range(0, left, BLOCK_M, num_stages=TEXT_STAGES):
                o_m = start + tl.arange(0, BLOCK_M)
                b_k = _load_rows(p_k, o_m, s_tkm, o_d, D, left, D == DP)
                b_v = _load_columns(p_v, o_m, s_tvm, o_d, D, left, D == DP)
                b_zero = tl.zeros([BLOCK_M, GP], tl.float32)
                b_s = _dot(b_k, b_q, b_zero, TT, "ieee", WIDEN)
                b_p, b_past, b_m, b_l = _softmax_step(b_s, b_f, o_m < left, b_m, b_l)
                b_accs = _weigh_values(
                    b_accs, b_past, b_p, b_v, o_m, None, 0, left, TT, None, WIDEN
                )  # fmt: skip
            tl.store(p_max + o_slot, b_m, mask=m_g)
            tl.store(p_sum + o_slot, b_l, mask=m_g)
            _store_columns(p_acc, b_accs[0], o_slot, m_g, WIDTH, 0, DP, 1)
    else:
        end = N
        if p_lengths is not None:
            end = tl.load(p_lengths + i_b)
        lo = (i_s - text_splits) * visual_first
        hi = tl.minimum(lo + visual_span, end)
        PACK: tl.constexpr = 1 if PACKED is None else 2
        k = K if KEY_PAIRS is None else K // 2
        r = R // PACK
        if p_key_widths is not None:
            k = tl.multiple_of(tl.load(p_key_widths + i_bh), ALIGN)
            s_kn = k
            p_k = p_keys + tl.multiple_of(tl.load(p_key_offsets + i_bh).to(tl.int64), ALIGN)
        else:
            p_k = p_keys + i_b.to(tl.int64) * s_kb + i_h.to(tl.int64) * s_kh
        if p_value_widths is not None:
            r = tl.multiple_of(tl.load(p_value_widths + i_bh), ALIGN)
            s_vn = r
            p_v = p_values + tl.multiple_of(tl.load(p_value_offsets + i_bh).to(tl.int64), ALIGN)
        else:
            p_v = p_values + i_b.to(tl.int64) * s_vb + i_h.to(tl.int64) * s_vh
        if lo < hi:
            p_k += lo.to(tl.int64) * s_kn
            p_v += lo.to(tl.int64) * s_vn
            if p_value_scale is not None:
                p_value_scale += i_b.to(tl.int64) * s_sb + i_h.to(tl.int64) * s_sh
                p_value_scale += lo.to(tl.int64) * s_sn
                top = tl.load(p_value_top + i_bh)
            if p_basis is not None:
                p_basis += i_b.to(tl.int64) * s_rb + i_h.to(tl.int64) * s_rh
            if p_index is not None:
                p_index += i_bh * K
            if p_key_scale is not None:
                p_key_scale += i_bh * K
            left = hi - lo
            o_k1 = tl.arange(0, KP1)
            o_r = tl.arange(0, RP // PACK)
            # 8-bit Keys: the first block is the even channels of every pair, the second the odd
            STRIDE: tl.constexpr = 1 if KEY_PAIRS is None else 2
            LOAD2: tl.constexpr = KP2 if KEY_PAIRS is None else 0
            K1_FULL: tl.constexpr = (p_key_widths is None) and (KP1 * STRIDE <= K)
            K2_FULL: tl.constexpr = (p_key_widths is None) and (KP1 + KP2 == K)
            R_FULL: tl.constexpr = (p_value_widths is None) and (R == RP)
            o_n = tl.arange(0, BLOCK_N)
            # the first tile's loads leave before the query is ready
            b_k1 = _load_rows(p_k, o_n, s_kn, o_k1, k, left, K1_FULL)
            b_k2 = b_k1
            if LOAD2:
                o_k2 = KP1 + tl.arange(0, KP2)
                b_k2 = _load_rows(p_k, o_n, s_kn, o_k2, k, left, K2_FULL)
            b_v = _load_columns(p_v, o_n, s_vn, o_r, r, left, R_FULL)
            if PDL:
                gdc_wait()
            if KEY_PAIRS is None:
                b_q1 = _project(
                    p_q, p_basis, p_index, p_key_scale, s_rd, s_rk, m_g, o_k1, K,
                    D, DP, GP, PT, KPREC, WIDEN, s_qh,
                )  # fmt: skip
                b_q2 = b_q1
                if KP2:
                    b_q2 = _project(
                        p_q, p_basis, p_index, p_key_scale, s_rd, s_rk, m_g,
                        KP1 + tl.arange(0, KP2), K, D, DP, GP, PT, KPREC, WIDEN, s_qh,
                    )  # fmt: skip
            else:  # whole rows of R: reading every other channel takes 2 bytes at a time
                b_q = _project(
                    p_q, p_basis, p_index, p_key_scale, s_rd, s_rk, m_g, tl.arange(0, 2 * KP1), K,
                    D, DP, GP, PT, KPREC, WIDEN, s_qh,
                )  # fmt: skip
                b_q = tl.permute(tl.reshape(b_q, [KP1, 2, GP]), [0, 2, 1])
                b_q1, b_q2 = tl.split(b_q)
            b_f = tl.full([GP], 1.0, tl.float32) * scale_log2
            if p_key_scale is not None:  # float16 operands: bring every row's largest to one
                b_top = tl.maximum(tl.max(tl.abs(b_q1), 0), tl.max(tl.abs(b_q2), 0))
                b_top = tl.maximum(b_top, 1e-30)
                b_f = b_f * b_top
                b_q1 = b_q1 / b_top[None, :]
                b_q2 = b_q2 / b_top[None, :]
            b_q1 = b_q1.to(KT)
            b_q2 = b_q2.to(KT)
            b_zero = tl.zeros([RP // PACK, GP], tl.float32)
            b_accs = (b_zero,) if PACK == 1 else (b_zero, b_zero)
            b_m, b_l, b_accs = _tile_step(
                b_q1, b_q2, b_k1, b_k2, b_v, b_f, b_m, b_l, b_accs, o_n, left,
                p_value_scale, s_sn, KT, VT, KP2, KEY_PAIRS, PACKED, WIDEN,
            )  # fmt: skip
            if not ONE_TILE:
                tiles = tl.cdiv(left, visual_step)
                whole = (left + visual_step - BLOCK_N) // visual_step
                row = i_bh * N + lo
                for i_t in tl.range(1, whole, num_stages=STAGES):
                    start = i_t * visual_step
                    p_kt = p_k + start.to(tl.int64) * s_kn
                    p_vt = p_v + start.to(tl.int64) * s_vn
                    p_st = p_value_scale
                    if p_value_scale is not None:
                        p_st += start * s_sn
                    if d_keys is None:
                        b_k1 = _load_rows(p_kt, o_n, s_kn, o_k1, k, BLOCK_N, K1_FULL, True)
                        b_v = _load_columns(p_vt, o_n, s_vn, o_r, r, BLOCK_N, R_FULL, True)
                    else:
                        b_k1 = d_keys.load([row + start, 0])
                        b_v = d_values.load([row + start, 0]).T
                    b_k2 = b_k1
                    if LOAD2:
                        o_k2 = KP1 + tl.arange(0, KP2)
                        b_k2 = _load_rows(p_kt, o_n, s_kn, o_k2, k, BLOCK_N, K2_FULL, True)
                    b_m, b_l, b_accs = _tile_step(
                        b_q1, b_q2, b_k1, b_k2, b_v, b_f, b_m, b_l, b_accs, o_n, None,
                        p_st, s_sn, KT, VT, KP2, KEY_PAIRS, PACKED, WIDEN,
                    )  # fmt: skip
                start = (tiles - 1) * visual_step
                if (tiles > 1) & (start + BLOCK_N > left):
                    p_k += start.to(tl.int64) * s_kn
                    p_v += start.to(tl.int64) * s_vn
                    p_st = p_value_scale
                    if p_value_scale is not None:
                        p_st += start * s_sn
                    b_k1 = _load_rows(p_k, o_n, s_kn, o_k1, k, left - start, K1_FULL)
                    b_k2 = b_k1
                    if LOAD2:
                        o_k2 = KP1 + tl.arange(0, KP2)
                        b_k2 = _load_rows(p_k, o_n, s_kn, o_k2, k, left - start, K2_FULL)
                    b_v = _load_columns(p_v, o_n, s_vn, o_r, r, left - start, R_FULL)
                    b_m, b_l, b_accs = _tile_step(
                        b_q1, b_q2, b_k1, b_k2, b_v, b_f, b_m, b_l, b_accs, o_n, left - start,
                        p_st, s_sn, KT, VT, KP2, KEY_PAIRS, PACKED, WIDEN,
                    )  # fmt: skip
            tl.store(p_max + o_slot, b_m, mask=m_g)
            tl.store(p_sum + o_slot, b_l, mask=m_g)
            if PACK == 1:
                b_acc = b_accs[0] * top if p_value_scale is not None else b_accs[0]
                _store_columns(p_acc, b_acc, o_slot, m_g, WIDTH, 0, RP, 1)
            else:
                _store_columns(p_acc, b_accs[0] * top, o_slot, m_g, WIDTH, 0, RP // 2, 2)
                _store_columns(p_acc, b_accs[1] * top, o_slot, m_g, WIDTH, 1, RP // 2, 2)
        else:
            if PDL:
                gdc_wait()
