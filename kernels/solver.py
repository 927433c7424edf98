"""The rotation's basis on the GPU: subspace iteration in one launch.

One program a matrix holds C through all iterations. The paper's Cholesky-QR does not
return orthonormal columns (the condition number is squared, and the factorisation fails once
lambda_1 / lambda_k passes ~1e3-1e4). Here columns stay ordered from one iteration to the next and
are scaled to unit length first, so that their Gram matrix is near the identity; a dependent column
is replaced and the pass repeated, on the device. Between two factorisations a Chebyshev filter
damps the remaining spectrum, with the largest degree whose growth stays below 1e4 (at most 8): for
trained Keys one shifted product, where plain power iteration needs four for less. The last of
the T iterations is skipped where the one before has converged, and a Newton step, two products,
replaces a second factorisation at the end.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .plan import padded
from .samples import start_basis

TINY = 1e-30
MOST_PRODUCTS = 8
GROWTH = 9.9  # log(2e4): a Chebyshev polynomial of degree m is about exp(m acosh t) / 2
DEPENDENT = 1e-6  # squared sine under which a column counts as dependent on those before it
ROUGH = tl.constexpr(0.01)  # the same, of a result that one Newton step brings to rounding
CONVERGED = tl.constexpr(0.05)  # converged: the energy left out fell by less than this share of it
RESOLVED = tl.constexpr(1e-4)  # of the trace: the least energy left out that float32 resolves
CHUNK = 32  # columns of C read at a time; 0 holds all of it
PREC = tl.constexpr("tf32x3")  # rounding by masks of our own was slower: .28 for .18 ms


@triton.jit
def _eliminate(b_g, o_k, k, TOL_: tl.constexpr):
    """Gaussian elimination of a Gram matrix [KP, KP] of unit columns: (L^-T, its pivots).

    L is the unit lower triangle. A column that depends on those before it has a pivot below TOL_
    and eliminates nothing. What remains stays symmetric, so that its row j is its column j. Every
    tile keeps the layout in which a warp has complete rows: only the row crosses warps.
    """
    b_none = tl.where(b_g > 1e30, b_g, 0.0)  # zero, laid out as b_g
    b_inv = tl.where(o_k[:, None] == o_k[None, :], 1.0, b_none)
    b_pivots = b_none
    for j in range(k):
        m_j = (o_k == j)[None, :]
        b_column = tl.sum(tl.where(m_j, b_g, 0.0), 1)
        b_row = b_column[None, :]
        b_pivot = tl.sum(tl.where(m_j, b_none + b_row, 0.0), 1)
        b_rate = tl.where(b_pivot > TOL_, 1.0 / tl.maximum(b_pivot, TOL_), 0.0)
        b_g -= (b_column * b_rate)[:, None] * b_row
        b_past = tl.sum(tl.where(m_j, b_inv, 0.0), 1)
        b_inv -= (b_past * b_rate)[:, None] * tl.where(m_j, 0.0, b_row)
        b_pivots = tl.where(m_j, b_pivot[:, None], b_pivots)
    return b_inv, tl.max(b_pivots, 0)


@triton.jit
def _orthonormalise(
    b_y, p_start, p_scratch, o_d, o_k, k, last,
    D: tl.constexpr, TINY_: tl.constexpr, TOL_: tl.constexpr,
):  # fmt: skip
    """Orthonormal columns of b_y [DP, KP] in order, by Cholesky-QR on columns of unit length.

    Ordered columns near eigenvectors make a Gram matrix near the identity, whatever the spectrum.
    A dependent column is replaced by a random one and the pass repeated, at most six times. `last`:
    also repeat until the result is near enough for `_polish`.
    """
    passes = 0
    again = True
    while again:
        # through the L2: a tensor core's layout would make every elimination step cross warps
        p_g = p_scratch + o_k[:, None] * k + o_k[None, :]
        m_g = (o_k < k)[:, None] & (o_k < k)[None, :]
        tl.debug_barrier()
        tl.store(p_g, tl.dot(b_y.T, b_y, input_precision=PREC), mask=m_g)
        tl.debug_barrier()
        b_g = tl.load(p_g, mask=m_g, other=0.0)
        m_eye = o_k[:, None] == o_k[None, :]
        b_across = tl.sum(tl.where(m_eye, b_g, 0.0), 0)
        b_down = tl.sum(tl.where(m_eye, b_g, 0.0), 1)
        b_unit = tl.where(b_across > TINY_, tl.rsqrt(tl.maximum(b_across, TINY_)), 0.0)
        b_side = tl.where(b_down > TINY_, tl.rsqrt(tl.maximum(b_down, TINY_)), 0.0)
        b_g = b_g * b_side[:, None] * b_unit[None, :]
        b_inv, b_pivots = _eliminate(b_g, o_k, k, TOL_)
        m_good = (b_pivots > TOL_) & (b_across > TINY_)
        b_y = tl.dot(b_y * b_unit[None, :], b_inv, input_precision=PREC)
        b_y = b_y * tl.where(m_good, tl.rsqrt(tl.maximum(b_pivots, TOL_)), 0.0)[None, :]
        m_bad = (o_k < k) & (m_good == 0)
        replaced = tl.max(m_bad.to(tl.int32), 0)
        if replaced > 0:
            o_from = (o_d + 64) % D  # the start, its rows shifted
            m_v = (o_d < D)[:, None] & m_bad[None, :]
            b_new = tl.load(p_start + o_from[:, None] * k + o_k[None, :], mask=m_v, other=0.0)
            b_y = tl.where(m_bad[None, :], b_new, b_y)
        weakest = tl.min(tl.where(o_k < k, b_pivots, 1.0), 0)
        passes += 1
        again = ((replaced > 0) | (last & (weakest < ROUGH))) & (passes < 6)
    return b_y


@triton.jit
def _polish(b_v):
    """Nearly orthonormal columns to rounding: a slip e becomes 3/4 e^2."""
    b_gram = tl.dot(b_v.T, b_v, input_precision=PREC)
    return 1.5 * b_v - 0.5 * tl.dot(b_v, b_gram, input_precision=PREC)


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
def _product(
    b_c, b_v, p_c, p_sigma, p_v, alive, factor, o_d, o_k, k,
    D: tl.constexpr, DP: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """C @ V [DP, KP]; with CHUNK, V passes through p_v [k, D], CHUNK columns of C at a time."""
    if CHUNK:
        m_v = (o_d < D)[:, None] & (o_k < k)[None, :]
        tl.debug_barrier()
        tl.store(p_v + o_k[None, :] * D + o_d[:, None], b_v, mask=m_v)
        tl.debug_barrier()
        b_y = tl.zeros_like(b_v)
        for start in range(0, DP, CHUNK):
            o_c = start + tl.arange(0, CHUNK)
            b_part = tl.where(alive, _weighted_block(p_c, p_sigma, o_d, o_c, D) * factor, 0.0)
            m_part = (o_c < D)[:, None] & (o_k < k)[None, :]
            b_rows = tl.load(p_v + o_k[None, :] * D + o_c[:, None], mask=m_part, other=0.0)
            b_y = tl.dot(b_part, b_rows, b_y, input_precision=PREC)
        return b_y
    else:
        return tl.dot(b_c, b_v, input_precision=PREC)


@triton.jit
def _filter_plan(
    b_v, b_y, trace, o_k, k, D: tl.constexpr, MOST: tl.constexpr, GROWTH: tl.constexpr
):
    """(interval end a, degree, trace left out) of the Chebyshev filter, from V and b_y = C V.

    By V's Rayleigh quotients: a lies between the mean of the spectrum left out and the smallest
    quotient kept; the degree is the largest whose growth at the top stays below e^GROWTH.
    """
    b_theta = tl.sum(b_v * b_y, 0)
    top = tl.max(tl.where(o_k < k, b_theta, 0.0), 0)
    low = tl.maximum(tl.min(tl.where(o_k < k, b_theta, float("inf")), 0), 0.0)
    left = tl.maximum(trace - tl.sum(b_theta, 0), 0.0)
    tail = left / tl.maximum(D - k, 1)
    end = tl.maximum(tl.maximum(tail, 0.9 * low + 0.1 * tail), 1e-12)
    t = tl.maximum(2.0 * top / end - 1.0, 1.0001)
    degree = GROWTH / tl.log(t + tl.sqrt(t * t - 1.0))
    return end, tl.maximum(tl.minimum(degree, MOST), 1.0).to(tl.int32), left


@triton.jit
def subspace_kernel(
    p_c, p_sigma, p_start, p_scratch, p_out, k, iterations,
    D: tl.constexpr, DP: tl.constexpr, KP: tl.constexpr, MOST: tl.constexpr,
    GROWTH: tl.constexpr, TINY_: tl.constexpr, TOL_: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """All iterations of one matrix; p_c [n, D, D], p_sigma [n, D] or None, p_start [D, k].

    CHUNK 0 keeps C on the multiprocessor; else C is read CHUNK columns at a time, and V passes
    through p_scratch [n, k, D] (in the L2).
    """
    i_n = tl.program_id(0).to(tl.int64)
    p_c += i_n * D * D
    p_scratch += i_n * D * k
    if p_sigma is not None:
        p_sigma += i_n * D
    o_d, o_k = tl.arange(0, DP), tl.arange(0, KP)
    m_v = (o_d < D)[:, None] & (o_k < k)[None, :]
    peak = 0.0
    total = 0.0
    trace = 0.0
    STEP: tl.constexpr = CHUNK if CHUNK else DP
    for start in tl.static_range(0, DP, STEP):
        o_c = start + tl.arange(0, STEP)
        b_c = _weighted_block(p_c, p_sigma, o_d, o_c, D)
        peak = tl.maximum(peak, tl.max(tl.max(tl.abs(b_c), 1), 0))
        total += tl.sum(tl.sum(tl.abs(b_c), 1), 0)
        trace += tl.sum(tl.sum(tl.where(o_d[:, None] == o_c[None, :], b_c, 0.0), 1), 0)
    alive = (total < float("inf")) & (peak > 0)
    scale = 1.0 / tl.where(alive, peak, 1.0)
    trace = tl.where(alive, trace * scale, 0.0)
    b_c = tl.where(alive, b_c * scale, 0.0)
    b_v = tl.load(p_start + o_d[:, None] * k + o_k[None, :], mask=m_v, other=0.0)
    b_y = _product(b_c, b_v, p_c, p_sigma, p_scratch, alive, scale, o_d, o_k, k, D, DP, CHUNK)
    last = iterations == 0
    b_v = _orthonormalise(b_y, p_start, p_scratch, o_d, o_k, k, last, D, TINY_, TOL_)
    i = 0
    end_at = iterations
    before = float("inf")
    while i < end_at:
        b_y = _product(b_c, b_v, p_c, p_sigma, p_scratch, alive, scale, o_d, o_k, k, D, DP, CHUNK)
        end, degree, left = _filter_plan(b_v, b_y, trace, o_k, k, D, MOST, GROWTH)
        converged = (before - left < left * CONVERGED) & (left > trace * RESOLVED)
        end_at = tl.where((i == iterations - 2) & converged, iterations - 1, end_at)
        before = left
        b_past = b_v
        b_v = (2.0 / end) * b_y - b_v
        for _ in range(1, degree):
            b_y = _product(
                b_c, b_v, p_c, p_sigma, p_scratch, alive, scale, o_d, o_k, k, D, DP, CHUNK
            )
            b_next = (4.0 / end) * b_y - 2.0 * b_v - b_past
            b_past = b_v
            b_v = b_next
        i += 1
        last = i == end_at
        b_v = _orthonormalise(b_v, p_start, p_scratch, o_d, o_k, k, last, D, TINY_, TOL_)
    p_tile = p_out + i_n * D * k + o_d[:, None] * k + o_k[None, :]
    tl.store(p_tile, _polish(b_v), mask=m_v)


def subspace(
    covariance: Tensor, k: int, iterations: int = 5, sigma: Tensor | None = None
) -> Tensor:
    """Orthonormal basis R [..., d, k] float32 of the top k directions of C, or of
    (sigma sigma^T) * C. A matrix that is zero or not finite gets some orthonormal basis.

    Args:
        covariance: [..., d, d] float32, d <= 128 for speed.
        k: columns.
        iterations: at most; the last is skipped where it would change little.
        sigma: [..., d].
    """
    d = covariance.shape[-1]
    matrices = covariance.float().reshape(-1, d, d).contiguous()
    if sigma is not None:
        sigma = sigma.float().reshape(-1, d).contiguous()
    out = torch.empty(*covariance.shape[:-1], k, device=covariance.device)
    scratch = torch.empty(matrices.shape[0] * k * d, device=covariance.device)
    start = start_basis(d, k, covariance.device)
    subspace_kernel[matrices.shape[0],](
        matrices, sigma, start, scratch, out, k, iterations,
        D=d, DP=padded(d), KP=padded(k), MOST=float(MOST_PRODUCTS), GROWTH=GROWTH, TINY_=TINY,
        TOL_=DEPENDENT, CHUNK=CHUNK, num_warps=4 if d <= 128 and k <= 32 else 8,
    )  # fmt: skip
    return out
