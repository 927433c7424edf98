"""One pass over a layer's states each: covariance, projection, and the channels' query weights.

covariance: every split centres its tokens on the mean of its first tile, and the splits are joined
by Chan's formula, so nothing cancels even when the mean dwarfs the spread (K^T K - N mu mu^T does).
Tokens may have shares; a split's weight is then the sum of its tokens' shares.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .plan import LARGE, device_facts, padded, unit


@triton.jit
def _halves(b_x, times: tl.constexpr):
    """x as two bfloat16 tiles that miss 2^-16 of it; the second one is taken `times`."""
    b_bits = (b_x.to(tl.int32, bitcast=True) + 32768) & -65536  # round to the upper 16 bits
    b_hi = b_bits.to(tl.float32, bitcast=True)
    return b_hi.to(tl.bfloat16), (times * (b_x - b_hi)).to(tl.bfloat16)


@triton.jit
def _dot_halves(b_a, b_b, b_acc, WIDEN: tl.constexpr):
    """acc + a @ b; WIDEN for the interpreter, which cannot multiply bfloat16."""
    if WIDEN:
        b_a = b_a.to(tl.float32)
        b_b = b_b.to(tl.float32)
    return tl.dot(b_a, b_b, b_acc)


@triton.jit
def covariance_kernel(
    p_k, p_lengths, p_shares, p_mean, p_cov, p_mass, s_kb, s_kh, s_kn, N, size, Hkv,
    D: tl.constexpr, DP: tl.constexpr, BLOCK: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """One split's mean and centred second moment: p_mean [BH, S, D], p_cov [BH, S, D, D].

    With p_shares [B, N] also what its tokens count for, p_mass [BH, S].
    """
    i_s, i_bh = tl.program_id(0), tl.program_id(1)
    i_b, i_h = i_bh // Hkv, i_bh % Hkv
    end = N
    if p_lengths is not None:
        end = tl.load(p_lengths + i_b).to(tl.int32)
    lo = i_s * size
    hi = tl.minimum(lo + size, end)
    if lo < hi:
        o_d = tl.arange(0, DP)
        m_d = o_d < D
        left = hi - lo
        p_k += i_b.to(tl.int64) * s_kb + i_h.to(tl.int64) * s_kh + lo.to(tl.int64) * s_kn
        o_n = tl.arange(0, BLOCK)
        m_first = (o_n < left)[:, None] & m_d[None, :]
        b_first = tl.load(p_k + o_n[:, None] * s_kn + o_d[None, :], mask=m_first, other=0.0)
        b_shift = tl.sum(b_first.to(tl.float32), 0) / tl.minimum(left, BLOCK)
        b_total = tl.zeros([BLOCK, DP], tl.float32)
        b_cov = tl.zeros([DP, DP], tl.float32)
        b_mass = tl.zeros([BLOCK], tl.float32)
        for start in tl.range(0, left, BLOCK, num_stages=2):
            o_n = start + tl.arange(0, BLOCK)
            m_x = (o_n < left)[:, None] & m_d[None, :]
            b_raw = tl.load(p_k + o_n[:, None] * s_kn + o_d[None, :], mask=m_x, other=0.0)
            b_x = tl.where(m_x, b_raw.to(tl.float32) - b_shift[None, :], 0.0)
            if p_shares is not None:
                p_share = p_shares + i_b.to(tl.int64) * N + lo + o_n
                b_share = tl.load(p_share, mask=o_n < left, other=0.0)
                b_mass += b_share
                b_total += b_share[:, None] * b_x
                b_x = tl.sqrt(b_share)[:, None] * b_x
            else:
                b_total += b_x
            b_hi, b_lo = _halves(b_x, 2.0)
            b_cov = _dot_halves(b_hi.T, b_hi, b_cov, WIDEN)
            b_cov = _dot_halves(b_hi.T, b_lo, b_cov, WIDEN)
        b_cov = 0.5 * (b_cov + b_cov.T)  # hi^T lo and lo^T hi are each other's transpose
        b_sum = tl.sum(b_total, 0)
        slot = (i_bh * tl.num_programs(0) + i_s).to(tl.int64)
        mass = left.to(tl.float32)
        if p_shares is not None:
            mass = tl.sum(b_mass, 0)
            tl.store(p_mass + slot, mass)
        b_off = b_sum / tl.maximum(mass, 1e-30)
        b_cov -= mass * b_off[:, None] * b_off[None, :]
        tl.store(p_mean + slot * D + o_d, b_shift + b_off, mask=m_d)
        p_tile = p_cov + slot * D * D + o_d[:, None] * D + o_d[None, :]
        tl.store(p_tile, b_cov, mask=m_d[:, None] & m_d[None, :])


@triton.jit
def join_kernel(
    p_mean, p_cov, p_mass, p_lengths, p_out_mean, p_out, N, size, splits, Hkv,
    D: tl.constexpr, DP: tl.constexpr, SP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Chan's formula over the splits, ROWS rows of C a program; all splits are loaded at once.

    C is around the mean as it is stored.
    """
    i_r, i_bh = tl.program_id(0), tl.program_id(1)
    end = N
    if p_lengths is not None:
        end = tl.load(p_lengths + i_bh // Hkv).to(tl.int32)
    o_d, o_s = tl.arange(0, DP), tl.arange(0, SP)
    m_d = o_d < D
    b_count = tl.maximum(tl.minimum(end - o_s * size, size), 0).to(tl.float32)
    b_count = tl.where(o_s < splits, b_count, 0.0)
    m_s = b_count > 0
    total = tl.maximum(end, 1).to(tl.float32)
    if p_mass is not None:
        b_count = tl.load(p_mass + i_bh.to(tl.int64) * splits + o_s, mask=m_s, other=0.0)
        total = tl.maximum(tl.sum(b_count, 0), 1e-30)
    slot = (i_bh * splits + o_s).to(tl.int64)
    p_tile = p_mean + slot[:, None] * D + o_d[None, :]
    b_means = tl.load(p_tile, mask=m_s[:, None] & m_d[None, :], other=0.0)
    b_share = b_count / total
    b_mean = tl.sum(b_share[:, None] * b_means, 0)
    b_kept = b_mean.to(p_out_mean.dtype.element_ty)
    b_away = b_mean - b_kept.to(tl.float32)
    b_off = tl.where(m_s[:, None], b_means - b_mean[None, :], 0.0)
    for i in tl.static_range(ROWS):
        o_r = i_r * ROWS + i
        p_tile = p_cov + slot[:, None] * D * D + o_r * D + o_d[None, :]
        b_part = tl.load(p_tile, mask=m_s[:, None] & m_d[None, :] & (o_r < D), other=0.0)
        b_turn = b_count * tl.sum(tl.where((o_d == o_r)[None, :], b_off, 0.0), 1)
        b_row = tl.sum(b_part + b_turn[:, None] * b_off, 0)
        b_row += total * tl.sum(tl.where(o_d == o_r, b_away, 0.0), 0) * b_away
        tl.store(p_out + (i_bh.to(tl.int64) * D + o_r) * D + o_d, b_row, mask=m_d & (o_r < D))
    tl.store(p_out_mean + i_bh * D + o_d, b_kept, mask=m_d & (i_r == 0))


@triton.jit
def project_kernel(
    p_k, p_mean, p_basis, p_out, s_kb, s_kh, s_kn, N, Hkv, k, tiles,
    D: tl.constexpr, DP: tl.constexpr, KP: tl.constexpr, BLOCK: tl.constexpr,
    HALVES: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """KP columns of K~ = (K - mu) R for `tiles` tiles of tokens of one key head.

    HALVES: products of bfloat16 halves, enough for a result of 16 bits; else of tf32 thirds.
    """
    i_n, i_bh = tl.program_id(0), tl.program_id(1)
    o_d, o_k = tl.arange(0, DP), tl.program_id(2) * KP + tl.arange(0, KP)
    m_d, m_k = o_d < D, o_k < k
    p_k += (i_bh // Hkv).to(tl.int64) * s_kb + (i_bh % Hkv).to(tl.int64) * s_kh
    p_out += i_bh.to(tl.int64) * N * k
    b_mean = tl.load(p_mean + i_bh * D + o_d, mask=m_d, other=0.0).to(tl.float32)
    p_r = p_basis + i_bh.to(tl.int64) * D * k + o_d[:, None] * k + o_k[None, :]
    b_r = tl.load(p_r, mask=m_d[:, None] & m_k[None, :], other=0.0).to(tl.float32)
    if HALVES:
        b_rh, b_rl = _halves(b_r, 1.0)
    lo = i_n * tiles * BLOCK
    for start in tl.range(lo, tl.minimum(lo + tiles * BLOCK, N), BLOCK, num_stages=2):
        o_n = (start + tl.arange(0, BLOCK)).to(tl.int64)
        m_x = (o_n < N)[:, None] & m_d[None, :]
        b_raw = tl.load(p_k + o_n[:, None] * s_kn + o_d[None, :], mask=m_x, other=0.0)
        b_x = b_raw.to(tl.float32) - b_mean[None, :]
        if HALVES:
            b_hi, b_lo = _halves(b_x, 1.0)
            b_y = _dot_halves(b_lo, b_rh, tl.zeros([BLOCK, KP], tl.float32), WIDEN)
            b_y = _dot_halves(b_hi, b_rl, b_y, WIDEN)
            b_y = _dot_halves(b_hi, b_rh, b_y, WIDEN)
        else:
            b_y = tl.dot(b_x, b_r, input_precision="tf32x3")
        m_y = (o_n < N)[:, None] & m_k[None, :]
        p_tile = p_out + o_n[:, None] * k + o_k[None, :]
        tl.store(p_tile, b_y.to(p_out.dtype.element_ty), mask=m_y)


@triton.jit
def weights_kernel(
    p_q, p_valid, p_out, s_qb, s_qh, s_qw, Hkv, G, W, floor_share, smallest,
    D: tl.constexpr, DP: tl.constexpr, BLOCK: tl.constexpr, MEAN_ONE: tl.constexpr,
):  # fmt: skip
    """sigma [D] of one key head: the norm of each channel over its G x W queries, floored."""
    i_bh = tl.program_id(0)
    i_b, i_h = i_bh // Hkv, i_bh % Hkv
    o_d = tl.arange(0, DP)
    m_d = o_d < D
    b_sum = tl.zeros([BLOCK, DP], tl.float32)
    p_q += i_b.to(tl.int64) * s_qb + (i_h * G).to(tl.int64) * s_qh
    for start in range(0, G * W, BLOCK):
        o_r = start + tl.arange(0, BLOCK)
        o_w = o_r % W
        m_r = o_r < G * W
        if p_valid is not None:
            m_r = m_r & (tl.load(p_valid + i_b * W + o_w, mask=m_r, other=0) != 0)
        p_tile = p_q + ((o_r // W) * s_qh + o_w * s_qw)[:, None] + o_d[None, :]
        b_q = tl.load(p_tile, mask=m_r[:, None] & m_d[None, :], other=0.0).to(tl.float32)
        b_sum += b_q * b_q
    b_sigma = tl.sqrt(tl.sum(b_sum, 0))
    # the lower median: the channel with (D - 1) // 2 smaller ones, ties in order
    b_other = tl.where(m_d, b_sigma, float("inf"))[None, :]
    b_mine = b_sigma[:, None]
    m_before = (b_other < b_mine) | ((b_other == b_mine) & (o_d[None, :] < o_d[:, None]))
    b_rank = tl.sum(m_before.to(tl.int32), 1)
    median = tl.sum(tl.where(m_d & (b_rank == (D - 1) // 2), b_sigma, 0.0), 0)
    b_sigma = tl.maximum(b_sigma, tl.maximum(floor_share * median, smallest))
    if MEAN_ONE:
        b_sigma = b_sigma / (tl.sum(tl.where(m_d, b_sigma, 0.0), 0) / D)
    tl.store(p_out + i_bh * D + o_d, b_sigma, mask=m_d)


def covariance(
    keys: Tensor,
    lengths: Tensor | None = None,
    shares: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """Mean mu [B, Hkv, d] and C = (K - mu)^T (K - mu) [B, Hkv, d, d] in float32.

    Args:
        keys: [B, Hkv, N, d], last stride 1.
        lengths: [B] valid tokens, on the device; None where all are.
        shares: [B, N] float32, what each token counts for in both, of sum one; by default one.
        dtype: of the mean; C is around it as it is rounded.
    """
    B, Hkv, N, d = keys.shape
    arch, sms = device_facts(keys.device)
    block, groups = (64 if arch in LARGE else 32), B * Hkv
    size = max(128, -(-N // max(1, min(64, sms // groups))))
    size = -(-size // block) * block
    splits = max(1, -(-N // size))
    mean = torch.empty(B, Hkv, d, dtype=dtype, device=keys.device)
    out = torch.empty(B, Hkv, d, d, device=keys.device)
    part_mean = torch.empty(groups * splits * d, device=keys.device)
    part = torch.empty(groups * splits * d * d, device=keys.device)
    mass = None if shares is None else torch.empty(groups * splits, device=keys.device)
    shares = None if shares is None else shares.float().contiguous()
    shape = {"D": d, "DP": padded(d)}
    covariance_kernel[splits, groups](
        keys, lengths, shares, part_mean, part, mass, *keys.stride()[:3], N, size, Hkv,
        BLOCK=block, WIDEN=arch == 0, num_warps=8, **shape,
    )  # fmt: skip
    rows = 4
    join_kernel[triton.cdiv(d, rows), groups](
        part_mean, part, mass, lengths, mean, out, N, size, splits, Hkv,
        SP=triton.next_power_of_2(splits), ROWS=rows, num_warps=4, **shape,
    )  # fmt: skip
    return mean, out


def project(keys: Tensor, mean: Tensor, basis: Tensor) -> Tensor:
    """K~ = (K - mu) R [B, Hkv, N, k] in K's type, in one pass over K [B, Hkv, N, d], whose last
    stride is 1; basis: R [B, Hkv, d, k]."""
    B, Hkv, N, d = keys.shape
    k = basis.shape[-1]
    out = torch.empty(B, Hkv, N, k, dtype=keys.dtype, device=keys.device)
    if N == 0:
        return out
    arch, sms = device_facts(keys.device)
    groups, roomy = B * Hkv, arch in LARGE and d <= 128
    block, columns = (64, padded(k)) if roomy else (32, min(padded(k), 32))
    every = triton.cdiv(N, block)
    tiles = max(1, min(8, every * groups // (2 * sms)))  # R is read and split once a program
    project_kernel[triton.cdiv(every, tiles), groups, triton.cdiv(k, columns)](
        keys, mean.contiguous(), basis.contiguous(), out, *keys.stride()[:3], N, Hkv, k, tiles,
        D=d, DP=padded(d), KP=columns, BLOCK=block,
        HALVES=out.dtype != torch.float32, WIDEN=arch == 0, num_warps=4,
    )  # fmt: skip
    return out


def weigh(
    queries: Tensor, kv_heads: int, valid: Tensor | None, floor: float, smallest: float,
    mean_one: bool = False,
) -> Tensor:  # fmt: skip
    """sigma [B, Hkv, d] float32, each query channel's norm over window and group, in one launch:
    the arguments of `rotatek.methods.rotation.query_weights`, and the least weight of all."""
    B, Hq, W, d = queries.shape
    queries = unit(queries)
    out = torch.empty(B, kv_heads, d, device=queries.device)
    weights_kernel[B * kv_heads,](
        queries, None if valid is None else valid.contiguous(), out, *queries.stride()[:3],
        kv_heads, Hq // kv_heads, W, floor, smallest,
        D=d, DP=padded(d), BLOCK=32, MEAN_ONE=mean_one, num_warps=4,
    )  # fmt: skip
    return out
