"""Steps of the decode attention kernels over one tile: loads, products, softmax.

Names: p_ pointer, b_ block in registers, o_ offsets, m_ mask, i_ index, s_ stride. Symbols as in
`kernels.reference`; GP = G padded to a power of two of at least 8, DP and KP1 + KP2 the padded
widths of d and k. Products are taken transposed, tokens or channels by query heads: a
tensor-core tile is 16 x 8, so that up to eight heads fill one. Values are loaded channels by tokens
for that. Scores are kept in log2 units, so every exponential is a bare exp2.
"""

import triton
import triton.language as tl


@triton.jit
def dot(b_a, b_b, b_acc, TYPE: tl.constexpr, PREC: tl.constexpr, WIDEN: tl.constexpr):
    """acc + a @ b in TYPE; WIDEN for the interpreter, which cannot multiply bfloat16."""
    b_a = b_a.to(TYPE)
    b_b = b_b.to(TYPE)
    if WIDEN:
        b_a = b_a.to(tl.float32)
        b_b = b_b.to(tl.float32)
    return tl.dot(b_a, b_b, b_acc, input_precision=PREC)


@triton.jit
def softmax_step(b_s, b_f, m_valid, b_m, b_l):
    """Online softmax over b_s * b_f, b_s [BLOCK, GP]: (weights, rescale of the past, max, sum)."""
    if m_valid is not None:
        b_s = tl.where(m_valid[:, None], b_s, float("-inf"))
    b_next = tl.maximum(b_m, tl.max(b_s, 0) * b_f)
    b_past = tl.exp2(b_m - b_next)
    b_p = tl.exp2(b_s * b_f[None, :] - b_next[None, :])
    return b_p, b_past, b_next, b_l * b_past + tl.sum(b_p, 0)


@triton.jit
def load_rows(
    p_base, o_row, s_row, o_col, width, hi, FULL: tl.constexpr, WHOLE: tl.constexpr = False
):
    """Rows [BLOCK, width] of a cache; zero past `hi`. The stream is read once: evict it first.

    FULL: every column exists; WHOLE: every row exists.
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
def load_columns(
    p_base, o_row, s_row, o_col, width, hi, FULL: tl.constexpr, WHOLE: tl.constexpr = False
):
    """`load_rows` transposed: [width, BLOCK]."""
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
def pair(b_x, WIDEN: tl.constexpr):
    """The two int8 numbers of every int16, as two float16 tiles (exact)."""
    if WIDEN:  # the interpreter runs no assembly
        return (b_x & 0xFF).to(tl.int8).to(tl.float16), (b_x >> 8).to(tl.int8).to(tl.float16)
    else:  # 0x6400 | u is the float16 1024 + u: no slow integer conversion
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


@triton.jit
def tile_step(
    b_q1, b_q2, b_k1, b_k2, b_v, b_f, b_m, b_l, b_acc, o_n, hi,
    TYPE: tl.constexpr, KP2: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """One visual tile: scores from one or two blocks of channels, softmax, weighted Values.

    hi: tokens left in the split; None when the tile is whole.
    """
    b_s = tl.zeros([b_k1.shape[0], b_q1.shape[1]], tl.float32)
    b_s = dot(b_k1, b_q1, b_s, TYPE, "ieee", WIDEN)
    if KP2:
        b_s = dot(b_k2, b_q2, b_s, TYPE, "ieee", WIDEN)
    m_valid = None
    if hi is not None:
        m_valid = o_n < hi
    b_p, b_past, b_m, b_l = softmax_step(b_s, b_f, m_valid, b_m, b_l)
    b_acc = dot(b_v, b_p, b_acc * b_past[None, :], TYPE, "ieee", WIDEN)
    return b_m, b_l, b_acc


@triton.jit
def project(
    p_q, p_basis, p_index, s_rd, s_rk, m_g, o_k, k,
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
        b_q = dot(b_r.T, b_x, b_zero, CT, PREC, WIDEN)
    else:
        b_q = tl.load(p_q + o_g[None, :] * s_qh + o_k[:, None], mask=m_q, other=0.0)
        b_q = b_q.to(tl.float32)
    return b_q


@triton.jit
def store_columns(p_acc, b_acc, o_slot, m_g, D: tl.constexpr, DP: tl.constexpr):
    """Accumulators [DP, GP] at scratch rows of D."""
    o_d = tl.arange(0, DP)
    p_tile = p_acc + o_slot.to(tl.int64)[None, :] * D + o_d[:, None]
    tl.store(p_tile, b_acc, mask=m_g[None, :] & (o_d < D)[:, None])
