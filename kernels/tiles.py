"""Steps that all decode attention kernels share: products, softmax, loads, the text's share.

Names: p_ pointer, b_ block in registers, o_ offsets, m_ mask, i_ index, s_ stride; C is what is
compiled in. Symbols as in `kernels.reference`; GP = G padded to a power of two of at least 8, DP
the padded width of d. Products are taken transposed, tokens or channels by query heads: a
tensor-core tile is 16 x 8, so that up to eight heads fill one. Values are loaded channels by tokens
for that. Scores are kept in log2 units, so every exponential is a bare exp2. A softmax state is
(log2 maxima [GP], sums [GP], weighted Values [DP, GP]).
"""

import triton
import triton.language as tl


@triton.jit
def dot(b_a, b_b, b_acc, TYPE: tl.constexpr, PREC, WIDEN: tl.constexpr):
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
def load_tile(
    p_base, o_row, s_row, o_col, width, hi, FULL: tl.constexpr, WHOLE: tl.constexpr = False
):
    """Rows of a cache, rows by columns or columns by rows as the two offsets lie; zero past `hi`.

    The stream is read once: evict it first. FULL: every column exists; WHOLE: every row exists.
    """
    p_tile = p_base + o_row * s_row + o_col
    if FULL and WHOLE:
        return tl.load(p_tile, eviction_policy="evict_first")
    elif WHOLE:
        return tl.load(p_tile, mask=o_col < width, other=0.0, eviction_policy="evict_first")
    elif FULL:
        return tl.load(p_tile, mask=o_row < hi, other=0.0, eviction_policy="evict_first")
    else:
        m_tile = (o_row < hi) & (o_col < width)
        return tl.load(p_tile, mask=m_tile, other=0.0, eviction_policy="evict_first")


@triton.jit
def load_query(p_q, s_qh, m_g, C: tl.constexpr):
    """The queries of a key head [DP, GP]."""
    o_d = tl.arange(0, C.DP)[:, None]
    p_tile = p_q + tl.arange(0, C.GP)[None, :] * s_qh + o_d
    return tl.load(p_tile, mask=(o_d < C.D) & m_g[None, :], other=0.0)


@triton.jit
def no_tokens(C: tl.constexpr):
    """The softmax state before the first token."""
    b_m = tl.full([C.GP], float("-inf"), tl.float32)
    return b_m, tl.zeros([C.GP], tl.float32), tl.zeros([C.DP, C.GP], tl.float32)


@triton.jit
def read_text(
    p_q, s_qh, text, s_text, i_b, i_h, lo, hi, m_g, state, scale_log2, C: tl.constexpr
):  # fmt: skip
    """The softmax state with text tokens lo to hi, lo < hi, of one head in it."""
    p_keys, p_values, _ = text
    s_kb, s_kh, s_km, s_vb, s_vh, s_vm = s_text
    p_k = p_keys + i_b.to(tl.int64) * s_kb + i_h.to(tl.int64) * s_kh + lo.to(tl.int64) * s_km
    p_v = p_values + i_b.to(tl.int64) * s_vb + i_h.to(tl.int64) * s_vh + lo.to(tl.int64) * s_vm
    b_q = load_query(p_q, s_qh, m_g, C).to(C.TT)
    b_f = tl.full([C.GP], 1.0, tl.float32) * scale_log2
    o_d = tl.arange(0, C.DP)
    b_m, b_l, b_acc = state
    left = hi - lo
    for start in tl.range(0, left, C.BLOCK_M, num_stages=2):
        o_m = start + tl.arange(0, C.BLOCK_M)
        b_k = load_tile(p_k, o_m[:, None], s_km, o_d[None, :], C.D, left, C.D == C.DP)
        b_v = load_tile(p_v, o_m[None, :], s_vm, o_d[:, None], C.D, left, C.D == C.DP)
        b_zero = tl.zeros([C.BLOCK_M, C.GP], tl.float32)
        b_s = dot(b_k, b_q, b_zero, C.TT, "ieee", C.WIDEN)
        b_p, b_past, b_m, b_l = softmax_step(b_s, b_f, o_m < left, b_m, b_l)
        b_acc = dot(b_v, b_p, b_acc * b_past[None, :], C.TT, "ieee", C.WIDEN)
    return b_m, b_l, b_acc


@triton.jit
def store_split(partials, state, o_slot, m_g, C: tl.constexpr):
    """A split's softmax state in scratch rows, or in the output's (SINGLE) at its scale."""
    p_acc, p_max, p_sum = partials
    b_m, b_l, b_acc = state
    if C.SINGLE:
        b_acc = b_acc / tl.where(b_l > 0, b_l, 1.0)[None, :]
        b_acc = b_acc.to(p_acc.dtype.element_ty)
    else:
        tl.store(p_max + o_slot, b_m, mask=m_g)
        tl.store(p_sum + o_slot, b_l, mask=m_g)
    o_d = tl.arange(0, C.DP)
    p_tile = p_acc + o_slot.to(tl.int64)[None, :] * C.D + o_d[:, None]
    tl.store(p_tile, b_acc, mask=m_g[None, :] & (o_d < C.D)[:, None])


@triton.jit
def end_split(
    p_q, s_qh, text, s_text, partials, i_b, i_h, i_bh, behind, M, text_size, G, m_g, state,
    scale_log2, C: tl.constexpr,
):  # fmt: skip
    """A split that has read its visual tokens reads its share of the text, and leaves its result.

    The last split reads the text's first tokens, since it may have a visual tile less. behind: the
    text's last tokens that the query does not see, though it sees the first one of any text.
    """
    i_s = tl.program_id(0)
    splits = tl.num_programs(0)
    end = M
    if text[2] is not None:
        end = tl.load(text[2] + i_b)
    end = tl.maximum(end - behind, tl.minimum(end, 1))
    lo = (splits - 1 - i_s) * text_size
    hi = tl.minimum(lo + text_size, end)
    if lo < hi:
        state = read_text(p_q, s_qh, text, s_text, i_b, i_h, lo, hi, m_g, state, scale_log2, C)
    o_slot = (i_bh * G + tl.arange(0, C.GP)) * splits + i_s
    store_split(partials, state, o_slot, m_g, C)
