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

from typing import NamedTuple

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .tiles import (
    dot,
    end_split,
    load_query,
    load_tile,
    no_tokens,
    read_text,
    softmax_step,
    store_split,
)


class Compiled(NamedTuple):
    """What a compilation of the kernels fixes; names as in `kernels.tiles`.

    KP1, KP2: k as two padded blocks of channels, the second 0 where one does. TT: type of products;
    PT and PREC: type and precision of the query's with the basis. ONE_TILE: every split is one.
    SINGLE: a split reads everything, and writes the output. PDL: it may start before the kernel
    ahead ends.
    """

    GP: int
    D: int
    DP: int
    K: int
    KP1: int
    KP2: int
    TT: tl.dtype
    PT: tl.dtype
    PREC: str
    BLOCK_N: int
    BLOCK_M: int
    STAGES: int
    ONE_TILE: bool
    SINGLE: bool
    PDL: bool
    WIDEN: bool

    def constants(self) -> "Compiled":
        """Itself; in a kernel, a tuple of its constants."""
        return self


@triton.jit
def _project(p_q, s_qh, basis, p_index, m_g, o_k, C: tl.constexpr):
    """q in the Keys' basis, one block of channels: [len(o_k), GP] in TT."""
    p_basis, s_rd, s_rk = basis
    m_k = o_k < C.K
    if p_basis is not None:
        o_d = tl.arange(0, C.DP)
        b_x = load_query(p_q, s_qh, m_g, C)
        p_r = p_basis + o_d[:, None] * s_rd + o_k[None, :] * s_rk
        b_r = tl.load(p_r, mask=(o_d < C.D)[:, None] & m_k[None, :], other=0.0)
        b_zero = tl.zeros([o_k.shape[0], C.GP], tl.float32)
        b_q = dot(b_r.T, b_x, b_zero, C.PT, C.PREC, C.WIDEN)
    else:
        o_c = o_k
        if p_index is not None:
            o_c = tl.load(p_index + o_k, mask=m_k, other=0)
        p_tile = p_q + tl.arange(0, C.GP)[None, :] * s_qh + o_c[:, None]
        b_q = tl.load(p_tile, mask=m_k[:, None] & m_g[None, :], other=0.0)
    return b_q.to(C.TT)


@triton.jit
def _load_tile(p_k, p_v, s_kn, s_vn, left, C: tl.constexpr, WHOLE: tl.constexpr):
    """A tile of Keys, in one or two blocks of channels, and of Values; `left` tokens exist."""
    o_n = tl.arange(0, C.BLOCK_N)
    o_k = tl.arange(0, C.KP1)
    b_k1 = load_tile(p_k, o_n[:, None], s_kn, o_k[None, :], C.K, left, C.KP1 <= C.K, WHOLE)
    b_k2 = b_k1
    if C.KP2:
        FULL: tl.constexpr = C.KP1 + C.KP2 == C.K
        o_k = C.KP1 + tl.arange(0, C.KP2)
        b_k2 = load_tile(p_k, o_n[:, None], s_kn, o_k[None, :], C.K, left, FULL, WHOLE)
    o_d = tl.arange(0, C.DP)
    b_v = load_tile(p_v, o_n[None, :], s_vn, o_d[:, None], C.D, left, C.D == C.DP, WHOLE)
    return b_k1, b_k2, b_v


@triton.jit
def _tile_step(b_q1, b_q2, tile, b_f, state, left, C: tl.constexpr):
    """The softmax state with a tile in it; left: its tokens, None when it is whole."""
    b_k1, b_k2, b_v = tile
    b_m, b_l, b_acc = state
    b_s = tl.zeros([C.BLOCK_N, C.GP], tl.float32)
    b_s = dot(b_k1, b_q1, b_s, C.TT, "ieee", C.WIDEN)
    if C.KP2:
        b_s = dot(b_k2, b_q2, b_s, C.TT, "ieee", C.WIDEN)
    m_valid = None
    if left is not None:
        m_valid = tl.arange(0, C.BLOCK_N) < left
    b_p, b_past, b_m, b_l = softmax_step(b_s, b_f, m_valid, b_m, b_l)
    b_acc = dot(b_v, b_p, b_acc * b_past[None, :], C.TT, "ieee", C.WIDEN)
    return b_m, b_l, b_acc


@triton.jit
def _attend_visual(
    p_q, s_qh, visual, s_visual, d_keys, d_values, i_b, i_h, i_bh, lo, hi, N, visual_step, m_g,
    scale_log2, C: tl.constexpr,
):  # fmt: skip
    """The softmax state of a head's visual tiles from token lo, lo < hi, every `visual_step`."""
    p_k, p_v, _, p_basis, p_index, _ = visual
    s_kb, s_kh, s_kn, s_vb, s_vh, s_vn, s_rb, s_rh, s_rd, s_rk = s_visual
    p_k += i_b.to(tl.int64) * s_kb + i_h.to(tl.int64) * s_kh + lo.to(tl.int64) * s_kn
    p_v += i_b.to(tl.int64) * s_vb + i_h.to(tl.int64) * s_vh + lo.to(tl.int64) * s_vn
    if p_basis is not None:
        p_basis += i_b.to(tl.int64) * s_rb + i_h.to(tl.int64) * s_rh
    if p_index is not None:
        p_index += i_bh * C.K
    left = hi - lo
    # the first tile's loads leave before the query is ready
    tile = _load_tile(p_k, p_v, s_kn, s_vn, left, C, False)
    if C.PDL:
        gdc_wait()
    basis = p_basis, s_rd, s_rk
    b_q1 = _project(p_q, s_qh, basis, p_index, m_g, tl.arange(0, C.KP1), C)
    b_q2 = b_q1
    if C.KP2:
        b_q2 = _project(p_q, s_qh, basis, p_index, m_g, C.KP1 + tl.arange(0, C.KP2), C)
    b_f = tl.full([C.GP], 1.0, tl.float32) * scale_log2
    state = _tile_step(b_q1, b_q2, tile, b_f, no_tokens(C), left, C)
    if not C.ONE_TILE:
        tiles = tl.cdiv(left, visual_step)
        whole = (left + visual_step - C.BLOCK_N) // visual_step
        row = i_bh * N + lo
        for i_t in tl.range(1, whole, num_stages=C.STAGES):
            start = i_t * visual_step
            p_kt = p_k + start.to(tl.int64) * s_kn
            p_vt = p_v + start.to(tl.int64) * s_vn
            tile = _load_tile(p_kt, p_vt, s_kn, s_vn, C.BLOCK_N, C, True)
            if d_keys is not None:
                b_k = d_keys.load([row + start, 0])
                tile = b_k, b_k, d_values.load([row + start, 0]).T
            state = _tile_step(b_q1, b_q2, tile, b_f, state, None, C)
        start = (tiles - 1) * visual_step
        if (tiles > 1) & (start + C.BLOCK_N > left):
            p_k += start.to(tl.int64) * s_kn
            p_v += start.to(tl.int64) * s_vn
            tile = _load_tile(p_k, p_v, s_kn, s_vn, left - start, C, False)
            state = _tile_step(b_q1, b_q2, tile, b_f, state, left - start, C)
    return state


# these change from prompt to prompt and must not start a compilation, as numbers in a tuple would
CHANGING = (
    "N", "M", "visual_first", "visual_step", "visual_span", "text_size", "text_splits", "Hkv", "G",
)  # fmt: skip


@triton.jit(do_not_specialize=CHANGING)
def split_kernel(
    p_q, visual, text, partials, d_keys, d_values, s_q, s_visual, s_text,
    N, M, visual_first, visual_step, visual_span, text_size, text_splits, Hkv, G, scale_log2,
    COMPILED: tl.constexpr,
):  # fmt: skip
    """Attention of one token split for the G query heads of one key head, before the merge."""
    C: tl.constexpr = COMPILED.constants()
    if C.PDL:
        gdc_launch_dependents()
    s_qb, s_qh = s_q
    i_s = tl.program_id(0)
    i_bh = tl.program_id(1)
    i_b = i_bh // Hkv
    i_h = i_bh % Hkv
    o_g = tl.arange(0, C.GP)
    m_g = o_g < G
    p_q += i_b.to(tl.int64) * s_qb + i_h * G * s_qh
    o_slot = (i_bh * G + o_g) * tl.num_programs(0) + i_s
    if i_s < text_splits:
        if C.PDL:
            gdc_wait()
        end = M
        if text[2] is not None:
            end = tl.load(text[2] + i_b)
        lo = i_s * text_size
        hi = tl.minimum(lo + text_size, end)
        if lo < hi:
            state = read_text(
                p_q, s_qh, text, s_text, i_b, i_h, lo, hi, m_g, no_tokens(C), scale_log2, C
            )
            store_split(partials, state, o_slot, m_g, C)
    else:
        end = N
        if visual[2] is not None:
            end = tl.load(visual[2] + i_b)
        lo = (i_s - text_splits) * visual_first
        hi = tl.minimum(lo + visual_span, end)
        if lo < hi:
            state = _attend_visual(
                p_q, s_qh, visual, s_visual, d_keys, d_values, i_b, i_h, i_bh, lo, hi, N,
                visual_step, m_g, scale_log2, C,
            )  # fmt: skip
            store_split(partials, state, o_slot, m_g, C)
        else:
            if C.PDL:
                gdc_wait()


@triton.jit(do_not_specialize=CHANGING)
def joined_kernel(
    p_q, visual, text, partials, d_keys, d_values, s_q, s_visual, s_text,
    N, M, visual_first, visual_step, visual_span, text_size, text_splits, Hkv, G, scale_log2,
    COMPILED: tl.constexpr,
):  # fmt: skip
    """Attention of a share of one key head's visual and text tokens, up to the output's scale."""
    C: tl.constexpr = COMPILED.constants()
    if C.PDL:
        gdc_launch_dependents()
    s_qb, s_qh = s_q
    i_s = tl.program_id(0)
    i_bh = tl.program_id(1)
    i_b = i_bh // Hkv
    i_h = i_bh % Hkv
    m_g = tl.arange(0, C.GP) < G
    p_q += i_b.to(tl.int64) * s_qb + i_h * G * s_qh
    b_m, b_l, b_acc = no_tokens(C)
    end = N
    if visual[2] is not None:
        end = tl.load(visual[2] + i_b)
    lo = i_s * visual_first
    hi = tl.minimum(lo + visual_span, end)
    if lo < hi:
        b_m, b_l, b_acc = _attend_visual(
            p_q, s_qh, visual, s_visual, d_keys, d_values, i_b, i_h, i_bh, lo, hi, N, visual_step,
            m_g, scale_log2, C,
        )  # fmt: skip
        p_mean = visual[5]
        if p_mean is not None:  # q . mu adds the same to every visual score
            o_d = tl.arange(0, C.DP)
            b_x = load_query(p_q, s_qh, m_g, C).to(tl.float32)
            b_mean = tl.load(p_mean + i_bh * C.D + o_d, mask=o_d < C.D, other=0.0).to(tl.float32)
            b_m += tl.sum(b_x * b_mean[:, None], 0) * scale_log2
    else:
        if C.PDL:
            gdc_wait()
    end_split(
        p_q, s_qh, text, s_text, partials, i_b, i_h, i_bh, 0, M, text_size, G, m_g,
        (b_m, b_l, b_acc), scale_log2, C,
    )  # fmt: skip
