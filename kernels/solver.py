"""The rotation's basis on the GPU: covariance in one pass over K, subspace iteration in one launch.

covariance: every split centres its tokens on the mean of its first tile, and the splits are joined
by Chan's formula, so nothing cancels even when the mean dwarfs the spread (K^T K - N mu mu^T does).

subspace: one program a matrix holds C in registers through all iterations. The paper's Cholesky-QR
does not return orthonormal columns (the condition number is squared, and the Cholesky factorisation
fails once lambda_1 / lambda_k passes ~1e3-1e4); Householder reflections do, on every spectrum, with
no test, no fallback and no host synchronisation. Where the spectrum is flat, T = 5 products are too
few for 0.99 of eigh's energy, so several products fit between two factorisations: as many as keep
(lambda_1 / lambda_k)^m below 1e4, at most 8, both estimated from the diagonal of the last R factor.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import device_facts

TINY = 1e-30
LARGE = (90, 100, 103)  # architectures with more than 200 KB of shared memory a program
MOST_PRODUCTS = 8
LOG2_SPREAD = 13.287712  # log2(1e4)
SEED = 0


@triton.jit
def covariance_kernel(
    p_k, p_lengths, p_mean, p_cov, s_kb, s_kh, s_kn, N, size, Hkv,
    D: tl.constexpr, DP: tl.constexpr, BLOCK: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """One split's mean and centred second moment: p_mean [BH, S, D], p_cov [BH, S, D, D]."""
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
        b_sum = tl.zeros([DP], tl.float32)
        b_cov = tl.zeros([DP, DP], tl.float32)
        for start in tl.range(0, left, BLOCK, num_stages=2):
            o_n = start + tl.arange(0, BLOCK)
            m_x = (o_n < left)[:, None] & m_d[None, :]
            b_raw = tl.load(p_k + o_n[:, None] * s_kn + o_d[None, :], mask=m_x, other=0.0)
            b_x = tl.where(m_x, b_raw.to(tl.float32) - b_shift[None, :], 0.0)
            b_sum += tl.sum(b_x, 0)
            if WIDEN:
                b_cov = tl.dot(b_x.T, b_x, b_cov)
            else:  # two bfloat16 hold 16 bits of x: their product misses 2^-16 of it
                b_hi = b_x.to(tl.bfloat16)
                b_lo = (b_x - b_hi.to(tl.float32)).to(tl.bfloat16)
                b_cov = tl.dot(b_hi.T, b_lo, b_cov)
                b_cov = tl.dot(b_lo.T, b_hi, b_cov)
                b_cov = tl.dot(b_hi.T, b_hi, b_cov)
        b_off = b_sum / left
        b_cov -= left * b_off[:, None] * b_off[None, :]
        slot = (i_bh * tl.num_programs(0) + i_s).to(tl.int64)
        tl.store(p_mean + slot * D + o_d, b_shift + b_off, mask=m_d)
        p_tile = p_cov + slot * D * D + o_d[:, None] * D + o_d[None, :]
        tl.store(p_tile, b_cov, mask=m_d[:, None] & m_d[None, :])


@triton.jit
def join_kernel(
    p_mean, p_cov, p_lengths, p_out_mean, p_out, N, size, splits, Hkv,
    D: tl.constexpr, DP: tl.constexpr, SP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Chan's formula over the splits, ROWS rows of C a program; all splits are loaded at once."""
    i_r, i_bh = tl.program_id(0), tl.program_id(1)
    end = N
    if p_lengths is not None:
        end = tl.load(p_lengths + i_bh // Hkv).to(tl.int32)
    o_d, o_s = tl.arange(0, DP), tl.arange(0, SP)
    m_d = o_d < D
    b_count = tl.maximum(tl.minimum(end - o_s * size, size), 0).to(tl.float32)
    b_count = tl.where(o_s < splits, b_count, 0.0)
    m_s = b_count > 0
    slot = (i_bh * splits + o_s).to(tl.int64)
    p_tile = p_mean + slot[:, None] * D + o_d[None, :]
    b_means = tl.load(p_tile, mask=m_s[:, None] & m_d[None, :], other=0.0)
    b_share = b_count / tl.maximum(end, 1).to(tl.float32)
    b_mean = tl.sum(b_share[:, None] * b_means, 0)
    b_off = tl.where(m_s[:, None], b_means - b_mean[None, :], 0.0)
    for i in tl.static_range(ROWS):
        o_r = i_r * ROWS + i
        p_tile = p_cov + slot[:, None] * D * D + o_r * D + o_d[None, :]
        b_part = tl.load(p_tile, mask=m_s[:, None] & m_d[None, :] & (o_r < D), other=0.0)
        b_turn = b_count * tl.sum(tl.where((o_d == o_r)[None, :], b_off, 0.0), 1)
        b_row = tl.sum(b_part + b_turn[:, None] * b_off, 0)
        tl.store(p_out + (i_bh.to(tl.int64) * D + o_r) * D + o_d, b_row, mask=m_d & (o_r < D))
    tl.store(p_out_mean + i_bh * D + o_d, b_mean, mask=m_d & (i_r == 0))


@triton.jit
def _reflect(b_a, o_k, o_d, k, TINY_: tl.constexpr):
    """Householder QR of b_a^T: (Q^T's first k rows, largest and smallest |R_jj|).

    b_a [KP, DP] holds one column of the matrix a row, so that a warp owns whole columns: every
    inner product stays inside a warp, and only the current column crosses the program.
    """
    b_w = tl.zeros_like(b_a)  # reflectors, one a row
    top = 0.0
    low = float("inf")
    for j in range(k):
        m_row = o_k == j
        b_x = tl.sum(tl.where(m_row[:, None], b_a, 0.0), 0)
        b_x = tl.where(o_d >= j, b_x, 0.0)
        norm = tl.sqrt(tl.sum(b_x * b_x, 0))
        alpha = tl.sum(tl.where(o_d == j, b_x, 0.0), 0)
        beta = tl.where(alpha > 0, -norm, norm)
        length = 2.0 * norm * (norm + tl.abs(alpha))  # v . v
        unit = tl.where(length > TINY_, tl.sqrt(2.0 / tl.maximum(length, TINY_)), 0.0)
        b_v = unit * (b_x - tl.where(o_d == j, beta, 0.0))  # I - v v^T reflects
        b_a -= tl.sum(b_a * b_v[None, :], 1)[:, None] * b_v[None, :]
        b_w = tl.where(m_row[:, None], b_v[None, :], b_w)
        top = tl.maximum(top, norm)
        low = tl.minimum(low, norm)
    b_q = ((o_k[:, None] == o_d[None, :]) & (o_k < k)[:, None]).to(tl.float32)
    for back in range(k):
        m_row = o_k == k - 1 - back
        b_v = tl.sum(tl.where(m_row[:, None], b_w, 0.0), 0)
        b_q -= tl.sum(b_q * b_v[None, :], 1)[:, None] * b_v[None, :]
    return b_q, top, low


@triton.jit
def _weighted_block(p_c, p_sigma, o_row, o_col, D: tl.constexpr):
    """C, or (sigma sigma^T) * C, at rows o_row and columns o_col."""
    m_row, m_col = o_row < D, o_col < D
    p_tile = p_c + o_row[:, None] * D + o_col[None, :]
    b_c = tl.load(p_tile, mask=m_row[:, None] & m_col[None, :], other=0.0)
    if p_sigma is not None:
        b_row = tl.load(p_sigma + o_row, mask=m_row, other=0.0)
        b_col = tl.load(p_sigma + o_col, mask=m_col, other=0.0)
        b_c = b_c * b_row[:, None] * b_col[None, :]
    return b_c


@triton.jit
def _chunked_product(
    p_c, p_sigma, p_v, k, alive, factor, o_d, o_k, D: tl.constexpr,
    KP: tl.constexpr, DP: tl.constexpr, CHUNK: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """factor * C @ V [DP, KP], with C and V (stored transposed, [KP, D]) read in chunks."""
    b_y = tl.zeros([DP, KP], tl.float32)
    for start in range(0, DP, CHUNK):
        o_c = start + tl.arange(0, CHUNK)
        b_c = tl.where(alive, _weighted_block(p_c, p_sigma, o_d, o_c, D) * factor, 0.0)
        m_v = (o_c < D)[:, None] & (o_k < k)[None, :]
        b_v = tl.load(p_v + o_k[None, :] * D + o_c[:, None], mask=m_v, other=0.0)
        b_y = tl.dot(b_c, b_v, b_y, input_precision=PREC)
    return b_y


@triton.jit
def subspace_kernel(
    p_c, p_sigma, p_start, p_scratch, p_out, k, iterations,
    D: tl.constexpr, DP: tl.constexpr, KP: tl.constexpr, MOST: tl.constexpr,
    SPREAD: tl.constexpr, TINY_: tl.constexpr, CHUNK: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """All iterations of one matrix; p_c [n, D, D], p_sigma [n, D] or None, p_start [D, k].

    V passes through p_scratch [n, k, D] (transposed, in the L2) between products and reflections.
    CHUNK 0 keeps C on the multiprocessor (about 160 KB); else C is read CHUNK columns at a time.
    """
    i_n = tl.program_id(0).to(tl.int64)
    p_c += i_n * D * D
    p_scratch += i_n * D * k
    if p_sigma is not None:
        p_sigma += i_n * D
    o_d, o_k = tl.arange(0, DP), tl.arange(0, KP)
    m_v = (o_d < D)[:, None] & (o_k < k)[None, :]
    m_t = (o_k < k)[:, None] & (o_d < D)[None, :]
    p_v = p_scratch + o_k[None, :] * D + o_d[:, None]
    p_t = p_scratch + o_k[:, None] * D + o_d[None, :]
    tl.store(p_t, tl.load(p_start + o_d[None, :] * k + o_k[:, None], mask=m_t, other=0.0), mask=m_t)
    if CHUNK:
        peak = 0.0
        total = 0.0
        for start in range(0, DP, CHUNK):
            b_part = tl.abs(_weighted_block(p_c, p_sigma, o_d, start + tl.arange(0, CHUNK), D))
            peak = tl.maximum(peak, tl.max(tl.max(b_part, 1), 0))
            total += tl.sum(tl.sum(b_part, 1), 0)
    else:
        b_c = _weighted_block(p_c, p_sigma, o_d, o_d, D)
        peak = tl.max(tl.max(tl.abs(b_c), 1), 0)
        total = tl.sum(tl.sum(tl.abs(b_c), 1), 0)
    alive = (total < float("inf")) & (peak > 0)
    scale = 1.0 / tl.where(alive, peak, 1.0)
    if not CHUNK:
        b_c = tl.where(alive, b_c * scale, 0.0)
    products = 1
    inverse = 1.0
    for _ in range(iterations):
        for _ in range(products):
            tl.debug_barrier()
            if CHUNK:
                b_y = _chunked_product(
                    p_c, p_sigma, p_scratch, k, alive, scale, o_d, o_k, D, KP, DP, CHUNK, PREC
                )
            else:
                b_v = tl.load(p_v, mask=m_v, other=0.0)
                b_y = tl.dot(b_c, b_v, input_precision=PREC)
            tl.debug_barrier()
            tl.store(p_v, b_y * inverse, mask=m_v)
        tl.debug_barrier()
        b_q, top, low = _reflect(tl.load(p_t, mask=m_t, other=0.0), o_k, o_d, k, TINY_)
        tl.store(p_t, b_q, mask=m_t)
        # a product scales column j by ~ lambda_j * inverse: read lambda_1 and lambda_k off R
        used = products.to(tl.float32)
        spread = tl.log2(tl.maximum(top, TINY_) / tl.maximum(low, TINY_)) / used
        step = tl.where(top > TINY_, tl.log2(tl.maximum(top, TINY_)) / used, 0.0)
        inverse = inverse / tl.exp2(step)
        fit = SPREAD / tl.maximum(spread, 1e-3)
        products = tl.maximum(tl.minimum(fit, MOST), 1.0).to(tl.int32)
    tl.debug_barrier()
    p_to = p_out + i_n * D * k + o_d[:, None] * k + o_k[None, :]
    tl.store(p_to, tl.load(p_v, mask=m_v, other=0.0), mask=m_v)


@triton.jit
def project_kernel(
    p_k, p_mean, p_basis, p_out, s_kb, s_kh, s_kn, N, Hkv, k,
    D: tl.constexpr, DP: tl.constexpr, KP: tl.constexpr, BLOCK: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """K~ = (K - mu) R for one tile of tokens of one key head."""
    i_n, i_bh = tl.program_id(0), tl.program_id(1)
    o_d, o_k = tl.arange(0, DP), tl.arange(0, KP)
    m_d, m_k = o_d < D, o_k < k
    o_n = i_n * BLOCK + tl.arange(0, BLOCK)
    p_k += (i_bh // Hkv).to(tl.int64) * s_kb + (i_bh % Hkv).to(tl.int64) * s_kh
    m_x = (o_n < N)[:, None] & m_d[None, :]
    b_raw = tl.load(p_k + o_n.to(tl.int64)[:, None] * s_kn + o_d[None, :], mask=m_x, other=0.0)
    b_mean = tl.load(p_mean + i_bh * D + o_d, mask=m_d, other=0.0)
    b_x = b_raw.to(tl.float32) - b_mean[None, :].to(tl.float32)
    p_r = p_basis + i_bh.to(tl.int64) * D * k + o_d[:, None] * k + o_k[None, :]
    b_r = tl.load(p_r, mask=m_d[:, None] & m_k[None, :], other=0.0).to(tl.float32)
    b_y = tl.dot(b_x, b_r, input_precision=PREC)
    p_tile = p_out + (i_bh.to(tl.int64) * N + o_n.to(tl.int64))[:, None] * k + o_k[None, :]
    m_y = (o_n < N)[:, None] & m_k[None, :]
    tl.store(p_tile, b_y.to(p_out.dtype.element_ty), mask=m_y)


def _padded(width: int) -> int:
    return max(16, triton.next_power_of_2(width))


def covariance(keys: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean [B, Hkv, d] and C = (K - mu)^T (K - mu) [B, Hkv, d, d] in float32.

    keys: [B, Hkv, N, d], last stride 1; lengths: [B] valid tokens, on the device, or None.
    """
    B, Hkv, N, d = keys.shape
    arch, sms = device_facts(keys.device)
    block, groups = (64 if arch in LARGE else 32), B * Hkv
    size = max(128, -(-N // max(1, min(64, sms // groups))))
    size = -(-size // block) * block
    splits = max(1, -(-N // size))
    mean = torch.empty(B, Hkv, d, device=keys.device)
    out = torch.empty(B, Hkv, d, d, device=keys.device)
    part_mean = torch.empty(groups * splits * d, device=keys.device)
    part = torch.empty(groups * splits * d * d, device=keys.device)
    shape = {"D": d, "DP": _padded(d)}
    covariance_kernel[splits, groups](
        keys, lengths, part_mean, part, *keys.stride()[:3], N, size, Hkv,
        BLOCK=block, WIDEN=arch == 0, num_warps=8, **shape,
    )  # fmt: skip
    rows = 4
    join_kernel[triton.cdiv(d, rows), groups](
        part_mean, part, lengths, mean, out, N, size, splits, Hkv,
        SP=triton.next_power_of_2(splits), ROWS=rows, num_warps=4, **shape,
    )  # fmt: skip
    return mean, out


def start_basis(d: int, k: int, device: torch.device) -> Tensor:
    """The private, seeded start [d, k] of every iteration, the one `rotatek.rotation` draws."""
    generator = torch.Generator().manual_seed(SEED)
    return torch.randn(d, k, dtype=torch.float64, generator=generator).float().to(device)


def subspace(
    covariance: Tensor,
    k: int,
    iterations: int = 5,
    sigma: Tensor | None = None,
    start: Tensor | None = None,
    chunk: int | None = None,
    warps: int | None = None,
) -> Tensor:
    """Orthonormal basis R [..., d, k] of the top k directions of C, or of (sigma sigma^T) * C.

    covariance: [..., d, d] float32, d <= 128 for speed; sigma: [..., d]; start: [d, k] float32, to
    be passed in when a CUDA graph is captured (`start_basis` copies from the host). A matrix that
    is zero or not finite gets some orthonormal basis. chunk and warps override the table.
    """
    d = covariance.shape[-1]
    matrices = covariance.float().reshape(-1, d, d).contiguous()
    if sigma is not None:
        sigma = sigma.float().reshape(-1, d).contiguous()
    if start is None:
        start = start_basis(d, k, covariance.device)
    out = torch.empty(*covariance.shape[:-1], k, device=covariance.device)
    scratch = torch.empty(matrices.shape[0] * k * d, device=covariance.device)
    width = _padded(k)
    if chunk is None:  # ~160 KB of shared memory: data-centre parts, d = 128
        arch, sms = device_facts(covariance.device)
        held = arch in LARGE and d <= 128 and k <= 64 and matrices.shape[0] <= sms
        chunk = 0 if held else 32
    subspace_kernel[matrices.shape[0],](
        matrices, sigma, start.contiguous(), scratch, out, k, iterations,
        D=d, DP=_padded(d), KP=width, MOST=float(MOST_PRODUCTS), SPREAD=LOG2_SPREAD, TINY_=TINY,
        CHUNK=chunk, PREC="tf32x3", num_warps=warps or 4,
    )  # fmt: skip
    return out


def project(keys: Tensor, mean: Tensor, basis: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """K~ = (K - mu) R [B, Hkv, N, k] in `dtype` (the Keys' own by default), in one pass over K."""
    B, Hkv, N, d = keys.shape
    k = basis.shape[-1]
    out = torch.empty(B, Hkv, N, k, dtype=dtype or keys.dtype, device=keys.device)
    if N == 0:
        return out
    block = 64
    project_kernel[triton.cdiv(N, block), B * Hkv](
        keys, mean.contiguous(), basis.contiguous(), out, *keys.stride()[:3], N, Hkv, k,
        D=d, DP=_padded(d), KP=_padded(k), BLOCK=block, PREC="tf32x3", num_warps=4,
    )  # fmt: skip
    return out
