"""Projects states onto their stored rows: one launch finds steps, one quantises and packs."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .plan import device_facts, padded
from .planes import GRANULE, SAMPLED, STEPS, TILE, TRIED, Channels
from .tiles import dot


@triton.jit(do_not_specialize=["N", "Hkv", "W"])
def pack_kernel(
    p_x, p_mean, p_basis, p_steps, p_counts, p_offsets, p_data, s_xb, s_xh, s_xn, N, Hkv, W,
    D: tl.constexpr, DP: tl.constexpr, VALUES: tl.constexpr, PREC: tl.constexpr,
    WIDEN: tl.constexpr,
):  # fmt: skip
    """One tile of 128 tokens of one head: its granules one after the other.

    p_basis: [B, Hkv, D, W]; p_steps: [B, Hkv, W]. VALUES: words are stored channels by tokens.
    """
    i_t, i_bh = tl.program_id(0), tl.program_id(1)
    o_t, o_d, o_c = tl.arange(0, 128), tl.arange(0, DP), tl.arange(0, 16)
    m_d = o_d < D
    n0 = tl.load(p_counts + i_bh * 4) // 16
    n1 = tl.load(p_counts + i_bh * 4 + 1) // 16
    n2 = tl.load(p_counts + i_bh * 4 + 2) // 16
    n3 = tl.load(p_counts + i_bh * 4 + 3) // 16
    p_out = p_data + tl.load(p_offsets + i_bh) + i_t * (n0 + n1 + n2 + n3).to(tl.int64) * 256
    p_x += (i_bh // Hkv).to(tl.int64) * s_xb + (i_bh % Hkv).to(tl.int64) * s_xh
    token = (i_t * 128 + o_t).to(tl.int64)
    m_x = (token < N)[:, None] & m_d[None, :]
    b_x = tl.load(p_x + token[:, None] * s_xn + o_d[None, :], mask=m_x, other=0.0)
    b_mean = tl.load(p_mean + i_bh * D + o_d, mask=m_d, other=0.0).to(tl.float32)
    b_x = b_x.to(tl.float32) - b_mean[None, :]
    p_basis += i_bh.to(tl.int64) * D * W + o_d[:, None] * W + o_c[None, :]
    o_e = tl.arange(0, 16)
    o_w = o_e[:, None] * (1 if VALUES else 16) + o_c[None, :] * (16 if VALUES else 1)
    b_shift = 2 * tl.arange(0, 8)[:, None, None]
    for g in tl.range(0, n0):
        b_steps = tl.load(p_steps + i_bh * W + g * 16 + o_c)
        b_r = tl.load(p_basis + g * 16, mask=m_d[:, None] & (o_c < 16)[None, :], other=0.0)
        b_zero = tl.zeros([128, 16], tl.float32)
        b_y = dot(b_x, b_r.to(tl.float32), b_zero, tl.float32, PREC, WIDEN) / b_steps[None, :]
        two = (g < n1).to(tl.int32)
        three = (g < n2).to(tl.int32)
        four = (g < n3).to(tl.int32)
        half = (2 << (2 * (two + three + four))).to(tl.float32)
        b_c = tl.minimum(tl.maximum(tl.floor(b_y + half), 0.0), 2.0 * half - 1.0)
        b_c = tl.where((token < N)[:, None], b_c, 0.0).to(tl.int32)
        b_c = tl.reshape(b_c, [8, 16, 16])
        slot = g
        b_w = tl.sum((b_c & 3) << b_shift, 0).to(tl.int16)
        tl.store(p_out + slot * 256 + o_w, b_w)
        if two > 0:
            b_w = tl.sum(((b_c >> 2) & 3) << b_shift, 0).to(tl.int16)
            tl.store(p_out + (n0 + slot) * 256 + o_w, b_w)
        if three > 0:
            b_w = tl.sum(((b_c >> 4) & 3) << b_shift, 0).to(tl.int16)
            tl.store(p_out + (n0 + n1 + slot) * 256 + o_w, b_w)
        if four > 0:
            b_w = tl.sum(((b_c >> 6) & 3) << b_shift, 0).to(tl.int16)
            tl.store(p_out + (n0 + n1 + n2 + slot) * 256 + o_w, b_w)


@triton.jit(do_not_specialize=["N", "Hkv", "W"])
def steps_kernel(
    p_x, p_mean, p_basis, p_variance, p_counts, p_shares, p_lengths, p_out,
    s_xb, s_xh, s_xn, N, Hkv, W,
    D: tl.constexpr, DP: tl.constexpr, SAMPLES: tl.constexpr, BLOCK: tl.constexpr,
    USUAL: tl.constexpr, TRIES: tl.constexpr, PREC: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """The steps of a granule's channels of one head, on SAMPLES tokens at even distances.

    USUAL: a Gaussian's steps at 2, 4, 6 and 8 bits; TRIES: six multiples of them.
    """
    i_g, i_bh = tl.program_id(0), tl.program_id(1)
    i_b, i_h = i_bh // Hkv, i_bh % Hkv
    o_d, o_c = tl.arange(0, DP), i_g * 16 + tl.arange(0, 16)
    m_d, m_c = o_d < D, o_c < W
    one = (i_g * 16 < tl.load(p_counts + i_bh * 4)).to(tl.int32)  # has a digit of this level
    two = (i_g * 16 < tl.load(p_counts + i_bh * 4 + 1)).to(tl.int32)
    three = (i_g * 16 < tl.load(p_counts + i_bh * 4 + 2)).to(tl.int32)
    four = (i_g * 16 < tl.load(p_counts + i_bh * 4 + 3)).to(tl.int32)
    p_out += i_bh.to(tl.int64) * W + o_c
    if one > 0:
        deeper = two + three + four
        half = (2 << (2 * deeper)).to(tl.float32)
        usual = tl.where(deeper == 2, USUAL[2], tl.where(deeper == 3, USUAL[3], USUAL[1]))
        usual = tl.where(deeper == 0, USUAL[0], usual)
        b_v = tl.load(p_variance + i_bh.to(tl.int64) * W + o_c, mask=m_c, other=0.0)
        b_usual = tl.maximum(usual * tl.sqrt(b_v), 1e-30)
        length = tl.load(p_lengths + i_b).to(tl.float32)
        p_x += i_b.to(tl.int64) * s_xb + i_h.to(tl.int64) * s_xh
        b_mean = tl.load(p_mean + i_bh * D + o_d, mask=m_d, other=0.0).to(tl.float32)
        p_r = p_basis + i_bh.to(tl.int64) * D * W + o_d[:, None] * W + o_c[None, :]
        b_r = tl.load(p_r, mask=m_d[:, None] & m_c[None, :], other=0.0).to(tl.float32)
        b_none = tl.zeros([16], tl.float32)
        e0, e1, e2, e3, e4, e5 = b_none, b_none, b_none, b_none, b_none, b_none
        for start in tl.range(0, SAMPLES, BLOCK):
            o_s = start + tl.arange(0, BLOCK)
            b_token = tl.minimum(((o_s + 0.5) / SAMPLES * length).to(tl.int32), N - 1).to(tl.int64)
            b_w = tl.load(p_shares + i_b.to(tl.int64) * N + b_token)[:, None]
            p_tile = p_x + b_token[:, None] * s_xn + o_d[None, :]
            b_x = tl.load(p_tile, mask=(o_s >= 0)[:, None] & m_d[None, :], other=0.0)
            b_x = b_x.to(tl.float32) - b_mean[None, :]
            b_y = dot(b_x, b_r, tl.zeros([BLOCK, 16], tl.float32), tl.float32, PREC, WIDEN)
            e0 += _miss(b_y, b_w, b_usual * TRIES[0], half)
            e1 += _miss(b_y, b_w, b_usual * TRIES[1], half)
            e2 += _miss(b_y, b_w, b_usual * TRIES[2], half)
            e3 += _miss(b_y, b_w, b_usual * TRIES[3], half)
            e4 += _miss(b_y, b_w, b_usual * TRIES[4], half)
            e5 += _miss(b_y, b_w, b_usual * TRIES[5], half)
        b_best, b_least = b_none + TRIES[0], e0
        b_best, b_least = _less(b_best, b_least, TRIES[1], e1)
        b_best, b_least = _less(b_best, b_least, TRIES[2], e2)
        b_best, b_least = _less(b_best, b_least, TRIES[3], e3)
        b_best, b_least = _less(b_best, b_least, TRIES[4], e4)
        b_best, b_least = _less(b_best, b_least, TRIES[5], e5)
        tl.store(p_out, b_usual * b_best, mask=m_c)
    else:
        tl.store(p_out, tl.full([16], 1e-30, tl.float32), mask=m_c)


@triton.jit
def _miss(b_y, b_w, b_step, half):
    """Weighted squared error [16] of coordinates [tokens, 16] at a step."""
    b_level = tl.minimum(tl.maximum(tl.floor(b_y / b_step[None, :]), -half), half - 1.0) + 0.5
    b_off = b_level * b_step[None, :] - b_y
    return tl.sum(b_w * b_off * b_off, 0)


@triton.jit
def _less(b_best, b_least, multiple: tl.constexpr, b_error):
    return tl.where(b_error < b_least, multiple, b_best), tl.minimum(b_least, b_error)


def steps_of(states: Tensor, channels: Channels, shares: Tensor, lengths: Tensor) -> Tensor:
    """`kernels.planes.steps_along` in one launch; states have a last stride of 1."""
    B, heads, N, d = states.shape
    w = channels.forward.shape[-1]
    arch, _ = device_facts(states.device)
    out = torch.empty(B, heads, w, device=states.device)
    if out.numel() and N:
        mean, forward, variance, counts = (part.contiguous() for part in channels)
        steps_kernel[triton.cdiv(w, GRANULE), B * heads](
            states, mean, forward, variance, counts, shares.contiguous(), lengths, out,
            *states.stride()[:3], N, heads, w,
            D=d, DP=padded(d), SAMPLES=SAMPLED, BLOCK=64, USUAL=tuple(STEPS.values()), TRIES=TRIED,
            PREC="tf32", WIDEN=arch == 0, num_warps=4,
        )  # fmt: skip
    return out


def pack_states(
    states: Tensor,
    mean: Tensor,
    basis: Tensor,
    counts: Tensor,
    steps: Tensor,
    values: bool,
    offsets: Tensor,
    words: int,
) -> Tensor:
    """`Planes.data` as `pack` of (states - mean) basis; a code may differ by one where it rounds.

    Args:
        states: [B, Hkv, N, d], last stride 1.
        mean: [B, Hkv, d].
        basis: [B, Hkv, d, w], channels by falling depth.
        counts: [B, Hkv, 4] int32, as `pack` takes them.
        steps: [B, Hkv, w] float32.
        values: channels by tokens, as Values are stored.
        offsets: [B, Hkv], the first word of each head.
        words: of all heads.
    """
    B, Hkv, N, d = states.shape
    arch, _ = device_facts(states.device)
    data = torch.empty(words, dtype=torch.int16, device=states.device)
    if data.numel():
        pack_kernel[triton.cdiv(N, TILE), B * Hkv](
            states, mean.contiguous(), basis.contiguous(), steps.float().contiguous(),
            counts.contiguous(), offsets.contiguous(), data, *states.stride()[:3], N, Hkv,
            basis.shape[-1],
            D=d, DP=padded(d), VALUES=values, PREC="tf32", WIDEN=arch == 0, num_warps=4,
        )  # fmt: skip
    return data
