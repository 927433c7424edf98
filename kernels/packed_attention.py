"""Triton kernel of decode attention over planes of 2-bit digits (`kernels.planes`).

Names as in `kernels.tiles`. Grid: (splits, B * Hkv). Every split reads groups of tiles of one head,
its share of the text, or both, as `kernels.attention.joined_kernel` does, and leaves its result in
the basis and at the scale of the output.

A word's eight digits become eight float16 operands by one mask each: a digit at bit p of a float16
whose other bits are zero is the number digit * 2^(p - 24), exactly. The factor 2^p belongs to a
sub-tile of tokens, so it joins the exponent's scale (Keys) and its shift (Values). The offset of a
digit, 1.5, adds the same number to every visual score, so it is added once a split. For Values it
is subtracted once a group of tiles, with the same rounded weights as the sums: subtracted at the
end, it would cancel most digits of a nearly uniform attention.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .tiles import dot, end_split, load_query, no_tokens


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


class Compiled(NamedTuple):
    """What a compilation of `digits_kernel` fixes; names as in `kernels.tiles`.

    K1 + K2, V1 + V2: granules of Keys and Values that are read at once, in blocks of powers of two;
    heads that need only the first skip the second. R: tiles a group; TT: type of the text. SINGLE:
    a split reads everything, and writes the output. PDL: it may start before the kernel ahead ends.
    """

    GP: int
    D: int
    DP: int
    K1: int
    K2: int
    V1: int
    V2: int
    R: int
    TT: tl.dtype
    BLOCK_M: int
    STAGES: int
    SINGLE: bool
    PDL: bool
    WIDEN: bool

    def constants(self) -> "Compiled":
        """Itself; in a kernel, a tuple of its constants."""
        return self


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
def _multiply(b_a, b_b, b_acc, WIDEN: tl.constexpr):
    return dot(b_a, b_b, b_acc, tl.float16, "ieee", WIDEN)


@triton.jit
def _head(planes, i_bh):
    """One head of planes: its first word, granules of levels 0, 1 and 2 and of all, first row."""
    p_words, p_counts, p_offsets, _, _, p_starts = planes
    n0 = tl.load(p_counts + i_bh * 4) // 16
    n1 = tl.load(p_counts + i_bh * 4 + 1) // 16
    n2 = tl.load(p_counts + i_bh * 4 + 2) // 16
    count = n0 + n1 + n2 + tl.load(p_counts + i_bh * 4 + 3) // 16
    p_words += tl.multiple_of(tl.load(p_offsets + i_bh), 256)
    return p_words, n0, n1, n2, count, tl.load(p_starts + i_bh)


@triton.jit
def _load_rows(planes, head, FIRST: tl.constexpr, SLOTS: tl.constexpr, C: tl.constexpr):
    """Rows of the basis from slot FIRST on, as words of two channels [16 SLOTS, DP / 2], and their
    steps times 4^level; zeros beyond a head's slots.

    A slot is a granule at one level: n0 of level 0, then n1 of level 1, and so on.
    """
    _, _, _, p_basis, p_steps, _ = planes
    _, n0, n1, n2, count, start = head
    WORDS: tl.constexpr = C.D // 2
    o_r = tl.arange(0, 16 * SLOTS)
    o_d = tl.arange(0, C.DP // 2)
    slot = FIRST + o_r // 16
    level = (slot >= n0).to(tl.int32) + (slot >= n0 + n1).to(tl.int32)
    level += (slot >= n0 + n1 + n2).to(tl.int32)
    before = tl.where(level > 0, n0, 0) + tl.where(level > 1, n1, 0) + tl.where(level > 2, n2, 0)
    row = (start + (slot - before) * 16 + o_r % 16).to(tl.int64)
    m_row = slot < count
    m_rows = m_row[:, None] & (o_d < WORDS)[None, :]
    b_steps = tl.load(p_steps + row, mask=m_row, other=0.0).to(tl.float32)
    b_rows = tl.load(p_basis + row[:, None] * WORDS + o_d[None, :], mask=m_rows, other=0)
    return b_rows, b_steps * (1 << (2 * level)).to(tl.float32)


@triton.jit
def _load_both(planes, head, FIRST: tl.constexpr, REST: tl.constexpr, C: tl.constexpr):
    """`_load_rows` of two blocks of slots, the second one where there is one."""
    rows = _load_rows(planes, head, 0, FIRST, C)
    beside = rows
    if REST:
        beside = _load_rows(planes, head, FIRST, REST, C)
    return rows, beside


@triton.jit
def _prefetch(p_x, WIDEN: tl.constexpr):
    """Asks for the lines of these addresses, so that a later load finds them in the L2."""
    if not WIDEN:
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [p_x.to(tl.int64)], dtype=tl.int32,
            is_pure=False, pack=1,
        )  # fmt: skip


@triton.jit
def _ask_for_rows(planes, head, SLOTS: tl.constexpr, C: tl.constexpr):
    """Prefetches the first rows of a head, at most 16 SLOTS, and their steps."""
    _, _, _, p_basis, p_steps, _ = planes
    _, n0, _, _, _, start = head
    row = (start + tl.minimum(tl.arange(0, 16 * SLOTS), n0 * 16 - 1)).to(tl.int64)
    _prefetch(p_steps + row, C.WIDEN)
    _prefetch(p_basis + row * (C.D // 2), C.WIDEN)


@triton.jit
def _turn(rows, b_even, b_odd, b_scale, WIDEN: tl.constexpr):
    """The query in a block's rows, times their steps: [16 SLOTS, GP]."""
    b_rows, b_steps = rows
    b_r0, b_r1 = pair(b_rows, WIDEN)
    b_y = tl.zeros([b_rows.shape[0], b_even.shape[1]], tl.float32)
    b_y = _multiply(b_r0, b_even, b_y, WIDEN)
    b_y = _multiply(b_r1, b_odd, b_y, WIDEN) * b_scale[None, :]
    return b_y * b_steps[:, None]


@triton.jit
def _outward(b_up0, b_up1, b_acc, rows, WIDEN: tl.constexpr):
    """Adds a block's sums [16 SLOTS, GP], turned into the output's basis: even channels to b_up0,
    odd ones to b_up1."""
    b_rows, b_steps = rows
    b_acc = b_acc * b_steps[:, None]
    b_r0, b_r1 = pair(b_rows, WIDEN)
    b_y, b_scale = _unit(b_acc)
    b_high = b_y.to(tl.float16)
    b_low = (b_y - b_high.to(tl.float32)).to(tl.float16)
    b_zero = tl.zeros([b_r0.shape[1], b_acc.shape[1]], tl.float32)
    b_y = _multiply(tl.trans(b_r0), b_high, b_zero, WIDEN)
    b_up0 += _multiply(tl.trans(b_r0), b_low, b_y, WIDEN) * b_scale[None, :]
    b_y = _multiply(tl.trans(b_r1), b_high, b_zero, WIDEN)
    b_up1 += _multiply(tl.trans(b_r1), b_low, b_y, WIDEN) * b_scale[None, :]
    return b_up0, b_up1


@triton.jit
def _unit(b_x):
    """(x over its largest in every column, that largest)."""
    b_top = tl.maximum(tl.max(tl.abs(b_x), 0), 1e-30)
    return b_x * (1.0 / b_top)[None, :], b_top


@triton.jit
def _fetch(
    p_words, count, left_tiles, FIRST: tl.constexpr, SLOTS: tl.constexpr, R: tl.constexpr,
    ACROSS: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Words of a block of slots in R tiles: [16 R, 16 SLOTS], or [16 SLOTS, 16 R] (ACROSS)."""
    o_t = tl.arange(0, 16 * R)
    o_c = tl.arange(0, 16 * SLOTS)
    tile = o_t // 16
    slot = FIRST + o_c // 16
    if ACROSS:
        o_w = (tile * count * 256 + o_t % 16)[None, :] + (slot * 256 + o_c % 16 * 16)[:, None]
        m_w = (slot < count)[:, None]
        if MASK:
            m_w = m_w & (tile < left_tiles)[None, :]
    else:
        o_w = (tile * count * 256 + o_t % 16 * 16)[:, None] + (slot * 256 + o_c % 16)[None, :]
        m_w = (slot < count)[None, :]
        if MASK:
            m_w = m_w & (tile < left_tiles)[:, None]
    return tl.load(p_words + o_w, mask=m_w, other=0, eviction_policy="evict_first")


@triton.jit
def _fetch_both(
    p_words, count, left_tiles, FIRST: tl.constexpr, REST: tl.constexpr, R: tl.constexpr,
    ACROSS: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """`_fetch` of two blocks of slots, the second one where there is one."""
    b_w1 = _fetch(p_words, count, left_tiles, 0, FIRST, R, ACROSS, MASK)
    b_w2 = b_w1
    if REST:
        b_w2 = _fetch(p_words, count, left_tiles, FIRST, REST, R, ACROSS, MASK)
    return b_w1, b_w2


@triton.jit
def _dead(b_s, j: tl.constexpr, left, R: tl.constexpr):
    """Scores of sub-tile j with those beyond `left` tokens taken out."""
    o_t = tl.arange(0, 16 * R)
    token = o_t // 16 * 128 + j * 16 + o_t % 16
    return tl.where((token < left)[:, None], b_s, float("-inf"))


@triton.jit
def _score(b_w, b_q, s, WIDEN: tl.constexpr):
    """Adds a block's products to the scores of all eight sub-tiles."""
    a0, a1, a2, a3, a4, a5, a6, a7 = digits(b_w, WIDEN)
    return (
        _multiply(a0, b_q, s[0], WIDEN),
        _multiply(a1, b_q, s[1], WIDEN),
        _multiply(a2, b_q, s[2], WIDEN),
        _multiply(a3, b_q, s[3], WIDEN),
        _multiply(a4, b_q, s[4], WIDEN),
        _multiply(a5, b_q, s[5], WIDEN),
        _multiply(a6, b_q, s[6], WIDEN),
        _multiply(a7, b_q, s[7], WIDEN),
    )


@triton.jit
def _weigh(b_w, p, b_sum, WIDEN: tl.constexpr):
    """A block's Values [16 SLOTS, 16 R] times the weights, their digits' offset taken off."""
    a = digits(b_w, WIDEN)
    b_t = tl.zeros([b_w.shape[0], p[0].shape[1]], tl.float32)
    for j in tl.static_range(8):
        b_t = _multiply(a[j], p[j], b_t, WIDEN)
    return b_t * 65536.0 - b_sum[None, :] * 1.5


@triton.jit
def _sum_weights(p, R: tl.constexpr, GP: tl.constexpr, WIDEN: tl.constexpr):
    """The sum of the rounded weights [GP], by the same products that weigh the Values."""
    b_sum = tl.zeros([16, GP], tl.float32)
    for j in tl.static_range(4):
        b_one = tl.full([16, 16 * R], 0.00390625 * 4**j, tl.float16)  # removes the factors 2^p
        b_sum = _multiply(b_one, p[j], b_sum, WIDEN)
        b_sum = _multiply(b_one, p[j + 4], b_sum, WIDEN)
    return tl.max(b_sum, 0)


@triton.jit
def _group(
    words, k_count, v_count, left, b_q1, b_q2, b_f, b_m, b_l, b_a1, b_a2,
    C: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """R tiles of one head: scores, online softmax, weighted Values."""
    b_k1, b_k2, b_v1, b_v2 = words
    s = (tl.zeros([16 * C.R, C.GP], tl.float32),) * 8
    s = _score(b_k1, b_q1, s, C.WIDEN)
    if C.K2:  # noqa: SIM102 (decided when compiling)
        if k_count > C.K1:
            s = _score(b_k2, b_q2, s, C.WIDEN)
    s0, s1, s2, s3, s4, s5, s6, s7 = s
    if MASK:
        s0, s1 = _dead(s0, 0, left, C.R), _dead(s1, 1, left, C.R)
        s2, s3 = _dead(s2, 2, left, C.R), _dead(s3, 3, left, C.R)
        s4, s5 = _dead(s4, 4, left, C.R), _dead(s5, 5, left, C.R)
        s6, s7 = _dead(s6, 6, left, C.R), _dead(s7, 7, left, C.R)
    b_top = tl.maximum(tl.maximum(s3, s7) * 0.015625, tl.maximum(s2, s6) * 0.0625)
    b_top = tl.maximum(b_top, tl.maximum(tl.maximum(s1, s5) * 0.25, tl.maximum(s0, s4)))
    b_next = tl.maximum(b_m, tl.max(b_top, 0) * b_f)
    b_past = tl.exp2(b_m - b_next)
    b_f1, b_f2, b_f3 = b_f * 0.25, b_f * 0.0625, b_f * 0.015625
    b_d0 = b_next - 8  # weights are raised by 2^8, so that small ones stay normal float16s
    b_d1, b_d2, b_d3 = b_d0 + 2, b_d0 + 4, b_d0 + 6
    p0 = tl.exp2(s0 * b_f[None, :] - b_d0[None, :]).to(tl.float16)
    p1 = tl.exp2(s1 * b_f1[None, :] - b_d1[None, :]).to(tl.float16)
    p2 = tl.exp2(s2 * b_f2[None, :] - b_d2[None, :]).to(tl.float16)
    p3 = tl.exp2(s3 * b_f3[None, :] - b_d3[None, :]).to(tl.float16)
    p4 = tl.exp2(s4 * b_f[None, :] - b_d0[None, :]).to(tl.float16)
    p5 = tl.exp2(s5 * b_f1[None, :] - b_d1[None, :]).to(tl.float16)
    p6 = tl.exp2(s6 * b_f2[None, :] - b_d2[None, :]).to(tl.float16)
    p7 = tl.exp2(s7 * b_f3[None, :] - b_d3[None, :]).to(tl.float16)
    p = (p0, p1, p2, p3, p4, p5, p6, p7)
    b_sum = _sum_weights(p, C.R, C.GP, C.WIDEN)
    b_a1 = b_a1 * b_past[None, :] + _weigh(b_v1, p, b_sum, C.WIDEN)
    if C.V2:  # noqa: SIM102
        if v_count > C.V1:
            b_a2 = b_a2 * b_past[None, :] + _weigh(b_v2, p, b_sum, C.WIDEN)
    return b_next, b_l * b_past + b_sum, b_a1, b_a2


@triton.jit(do_not_specialize=["N", "M", "spread", "text_size", "Hkv", "G", "T", "ahead"])
def digits_kernel(
    p_q, p_lengths, keys, values, p_mean, p_value_mean, text, partials, s_q, s_text,
    N, M, spread, text_size, Hkv, G, T, ahead, scale_log2, COMPILED: tl.constexpr,
):  # fmt: skip
    """Attention of a share of one key head's visual and text tokens, up to the output's scale.

    A sample's T new tokens are rows of their own, which see the text up to themselves; the sample
    has `ahead` more behind them.

    The first `spread` splits read visual tokens, and text is shared out from the last split on.
    keys, values: words, counts, offsets, basis (two channels a word), steps and starts of planes.
    """
    C: tl.constexpr = COMPILED.constants()
    if C.PDL:
        gdc_launch_dependents()
    s_qb, s_qh, s_qt = s_q
    i_s = tl.program_id(0)
    i_bh = tl.program_id(1)
    i_b = i_bh // (Hkv * T)
    i_t = i_bh // Hkv % T
    i_h = i_bh % Hkv
    i_vh = i_b * Hkv + i_h  # of the sample's tables
    o_d = tl.arange(0, C.DP)
    m_g = tl.arange(0, C.GP) < G
    p_q += i_b.to(tl.int64) * s_qb + i_t.to(tl.int64) * s_qt + i_h * G * s_qh
    end = N
    if p_lengths is not None:
        end = tl.load(p_lengths + i_b)
    k_head = _head(keys, i_vh)
    v_head = _head(values, i_vh)
    p_k, _, _, _, k_count, _ = k_head
    p_v, v0, _, _, v_count, _ = v_head
    b_m, b_l, b_acc = no_tokens(C)
    groups = tl.cdiv(end, 128 * C.R)
    if i_s < tl.minimum(groups, spread):
        # the last group of this split comes first: it may be partial, and its loads start early
        last = i_s + (groups - 1 - i_s) // spread * spread
        k_step = k_count.to(tl.int64) * (256 * C.R)
        v_step = v_count.to(tl.int64) * (256 * C.R)
        left = end - last * 128 * C.R
        tiles = (left + 127) // 128
        b_k = _fetch_both(p_k + last * k_step, k_count, tiles, C.K1, C.K2, C.R, False, True)
        b_v = _fetch_both(p_v + last * v_step, v_count, tiles, C.V1, C.V2, C.R, True, True)
        rows1, rows2 = _load_both(keys, k_head, C.K1, C.K2, C)
        if v0 > 0:
            _ask_for_rows(values, v_head, C.V1, C)
        b_shift = tl.load(p_value_mean + i_vh * C.D + o_d, mask=o_d < C.D, other=0.0)
        b_shift = b_shift.to(tl.float32)
        b_mean = tl.load(p_mean + i_vh * C.D + o_d, mask=o_d < C.D, other=0.0).to(tl.float32)
        if C.PDL:
            gdc_wait()
        b_x = load_query(p_q, s_qh, m_g, C).to(tl.float32)
        b_y, b_scale = _unit(b_x)
        b_even, b_odd = tl.split(tl.permute(tl.reshape(b_y, [C.DP // 2, 2, C.GP]), [0, 2, 1]))
        b_even = b_even.to(tl.float16)
        b_odd = b_odd.to(tl.float16)
        b_q1 = _turn(rows1, b_even, b_odd, b_scale, C.WIDEN)
        b_q2 = b_q1
        b_top = tl.max(tl.abs(b_q1), 0)
        if C.K2:
            b_q2 = _turn(rows2, b_even, b_odd, b_scale, C.WIDEN)
            b_top = tl.maximum(b_top, tl.max(tl.abs(b_q2), 0))
        b_top = tl.maximum(b_top, 1e-30)
        b_inverse = 1.0 / b_top
        b_q1 = (b_q1 * b_inverse[None, :]).to(tl.float16)
        b_q2 = (b_q2 * b_inverse[None, :]).to(tl.float16)
        b_bias = tl.sum(b_q1.to(tl.float32), 0)
        if C.K2:
            b_bias += tl.sum(b_q2.to(tl.float32), 0)
        b_top = b_top * scale_log2
        b_f = b_top * 16777216.0
        b_a1 = tl.zeros([16 * C.V1, C.GP], tl.float32)
        b_a2 = tl.zeros([16 * C.V2 if C.V2 else 16, C.GP], tl.float32)
        b_m, b_l, b_a1, b_a2 = _group(
            b_k + b_v, k_count, v_count, left, b_q1, b_q2, b_f, b_m, b_l, b_a1, b_a2, C, True,
        )  # fmt: skip
        for i_g in tl.range(i_s, last, spread, num_stages=C.STAGES):
            b_k = _fetch_both(p_k + i_g * k_step, k_count, C.R, C.K1, C.K2, C.R, False, False)
            b_v = _fetch_both(p_v + i_g * v_step, v_count, C.R, C.V1, C.V2, C.R, True, False)
            b_m, b_l, b_a1, b_a2 = _group(
                b_k + b_v, k_count, v_count, 128 * C.R, b_q1, b_q2, b_f, b_m, b_l, b_a1, b_a2,
                C, False,
            )  # fmt: skip
        b_m += -1.5 * b_bias * b_top
        rows1, rows2 = _load_both(values, v_head, C.V1, C.V2, C)
        b_up0 = tl.zeros([C.DP // 2, C.GP], tl.float32)
        b_up0, b_up1 = _outward(b_up0, b_up0, b_a1, rows1, C.WIDEN)
        if C.V2:
            b_up0, b_up1 = _outward(b_up0, b_up1, b_a2, rows2, C.WIDEN)
        b_acc = tl.reshape(tl.permute(tl.join(b_up0, b_up1), [0, 2, 1]), [C.DP, C.GP])
        b_acc += b_shift[:, None] * b_l[None, :]
        # q . mu adds the same to every visual score
        b_m += tl.sum(b_x * b_mean[:, None], 0) * scale_log2
    else:
        if C.PDL:
            gdc_wait()
    end_split(
        p_q, s_qh, text, s_text, partials, i_b, i_h, i_bh, T - 1 - i_t + ahead, M, text_size, G,
        m_g, (b_m, b_l, b_acc), scale_log2, C,
    )  # fmt: skip
