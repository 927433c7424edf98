"""The rotation: the centred covariance of the Keys, the weights of the queries, and the bases.

K: keys [B, Hkv, N, d]; Q_W: window queries [B, Hq, W, d]; sigma: weights [B, Hkv, d]; C: covariance
[B, Hkv, d, d]; R: basis [B, Hkv, d, k]. Everything here is float32 or wider. Source: RotateK (arXiv
2605.19218), section 3, appendix C and algorithm 1, with the deviations stated below.
"""

import os
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from kernels.dispatch import solve
from kernels.samples import start_basis
from rotatek.errors import CalibrationUnusable

LOGIT_FLOOR = 0.5  # of the median, in logits: the next queries may use what the window's do not
SIGMA_FLOOR = 1e-3  # of the median weight: a channel no query touched keeps a finite inverse
ITERATIONS = 5  # T of the paper
BLOCK = 32  # columns of `ordered_basis` that are found at once
BLOCK_ITERATIONS = 4  # of each of its blocks
BLOCK_RIDGE = 1e-3  # of the mean eigenvalue, so that the remainder stays above rounding
RIDGE = 1e-6  # of the mean eigenvalue; shifts eigenvalues, never eigenvectors
NARROW = 256  # columns of a matrix that one thread solves
PRINTED_RIDGE: Final = 1e-4  # epsilon, which the paper does not give: 1e-6 fails on trained Keys


def token_mask(lengths: Tensor, tokens: int) -> Tensor:
    """[B, N] bool, true for the valid tokens of each sample."""
    return torch.arange(tokens, device=lengths.device) < lengths[:, None]


def centred_covariance(keys: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Mean mu [B, Hkv, d] and C = (K - mu)^T (K - mu) [B, Hkv, d, d], in float32.

    Centred before the product: K^T K - N mu mu^T loses 39 % with a large mean.
    """
    done = solve("covariance", keys, lengths)
    if done is not None:
        return done
    alive = token_mask(lengths, keys.shape[2])[:, None, :, None]
    keys = keys.float().masked_fill(~alive, 0.0)
    mean = keys.sum(2) / lengths.clamp(min=1)[:, None, None]
    centred = (keys - mean[:, :, None]).masked_fill(~alive, 0.0)
    return mean, centred.transpose(-1, -2) @ centred


def query_weights(
    queries: Tensor,
    kv_heads: int,
    valid: Tensor | None = None,
    mean_one: bool = False,
    floor: float = SIGMA_FLOOR,
) -> Tensor:
    """sigma [B, Hkv, d] float32, the weight of each channel's variation: the norm of all G x W
    queries that read the head (the natural reading of the paper for grouped heads).

    Args:
        queries: [B, Hq, W, d], the window's.
        kv_heads: Hkv.
        valid: [B, W] bool, the queries that are real; None where all are.
        mean_one: divide by the mean over a head's channels.
        floor: the least weight, as a share of the head's median.
    """
    tiny = torch.finfo(torch.float32).tiny ** 0.5
    done = solve("weigh", queries, kv_heads, valid, floor, tiny, mean_one)
    if done is not None:
        return done
    B, Hq, W, d = queries.shape
    squared = queries.float().square()
    if valid is not None:
        squared = squared.masked_fill(~valid[:, None, :, None], 0.0)
    sigma = squared.sum(2).view(B, kv_heads, Hq // kv_heads, d).sum(2).sqrt()
    least = floor * sigma.median(-1, keepdim=True).values
    sigma = torch.maximum(sigma, least.clamp(min=tiny))
    return sigma / sigma.mean(-1, keepdim=True) if mean_one else sigma


def logit_weights(queries: Tensor, kv_heads: int, valid: Tensor | None = None) -> Tensor:
    """S [B, Hkv, d] float32, a Key channel's weight in a logit: its queries' root mean square.

    Over window and group, and over sqrt(d), so that (S x) . (S x) of an error x of a Key is the
    variance of the logit's error: comparable between heads and layers, whatever the scale of their
    Keys. Floored at half the median: a channel that the few last queries leave out may be the next
    one's, and its inverse stays small. Arguments as of `query_weights`.
    """
    sigma = query_weights(queries, kv_heads, valid, floor=LOGIT_FLOOR)
    numbers = queries.shape[1] // kv_heads * queries.shape[3]  # of a row, over sqrt(d)
    if valid is None:
        return sigma / (numbers * queries.shape[2]) ** 0.5
    return sigma * (numbers * valid.sum(1).clamp(min=1)).to(sigma).rsqrt()[:, None, None]


def weighted_moments(states: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Mean [B, Hkv, d], in the states' own type, and C = sum_n share_n (x_n - mean) (x_n - mean)^T
    [B, Hkv, d, d] float32; shares: [B, 1, N], of sum one, zero for padding."""
    done = solve("covariance", states, None, shares[:, 0], states.dtype)
    if done is not None:
        return done
    wide = states.float()
    mean = (shares[:, :, None] @ wide).squeeze(2).to(states.dtype)
    centred = (wide - mean.float()[:, :, None]).mul_(shares.sqrt()[..., None])
    return mean, centred.transpose(-1, -2) @ centred


def weighted(covariance: Tensor, sigma: Tensor | None) -> Tensor:
    """C_q = (sigma sigma^T) * C; C itself without weights."""
    if sigma is None:
        return covariance
    return covariance * sigma[..., :, None] * sigma[..., None, :]


def project(states: Tensor, mean: Tensor, basis: Tensor, lengths: Tensor) -> Tensor:
    """(states - mean) F of a basis F [B, Hkv, d, k]: [B, Hkv, N, k] in the states' dtype; rows
    beyond a length are undefined."""
    done = solve("project", states, mean, basis)
    if done is not None:
        return done
    centred = (states.float() - mean[:, :, None]) @ basis
    alive = token_mask(lengths, states.shape[2])[:, None, :, None]
    return centred.masked_fill(~alive, 0.0).to(states.dtype)


def metric_root(metric: Tensor) -> tuple[Tensor, Tensor]:
    """S = metric^(1/2) and S^-1 of symmetric [..., d, d], floored at 1e-6 of the largest."""
    values, vectors = torch.linalg.eigh(metric.double())
    values = torch.maximum(values, 1e-6 * values.amax(-1, keepdim=True)).clamp(min=1e-30)
    root = values.sqrt()
    forward = (vectors * root[..., None, :]) @ vectors.transpose(-1, -2)
    back = (vectors / root[..., None, :]) @ vectors.transpose(-1, -2)
    return forward.float(), back.float()


def _normalised(covariance: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """C over its trace, symmetric; zero where C is not finite."""
    covariance = covariance.to(dtype)
    whole = covariance.sum((-2, -1), keepdim=True, dtype=torch.float64)  # where none overflows
    finite = whole.isfinite()  # of one that is not, neither is it
    covariance = torch.where(finite, covariance, 0.0)
    trace = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    covariance = covariance / torch.where(trace > 0, trace, 1.0)
    return (covariance + covariance.transpose(-1, -2)).div_(2)


def _cholesky_qr(basis: Tensor, shift: float = 0.0) -> Tensor:
    """One pass in float64; `shift` is relative to the Gram matrix's trace."""
    gram = basis.transpose(-1, -2) @ basis
    ridge = shift * gram.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    factor, _ = torch.linalg.cholesky_ex(gram + ridge * eye, check_errors=False)
    return torch.linalg.solve_triangular(factor.transpose(-1, -2), basis, upper=True, left=False)


def subspace_basis(covariance: Tensor, k: int) -> Tensor:
    """Orthonormal top-k basis [..., d, k] float32 of C [..., d, d], by subspace iteration, fixed
    shapes, no host sync; columns only roughly ordered: no slice of them is a basis of fewer.

    The paper's shifted Cholesky-QR alone does not return orthonormal columns, and fails outright
    once lambda_1 / lambda_k passes about 1e3. Here C is shifted by a ridge (its eigenvectors stay),
    Gram matrices are float64, and two plain passes follow the shifted ones (shifted Cholesky-QR-3:
    Fukaya et al., SIAM J. Sci. Comput. 2020). T = 5 leaves a flat spectrum up to 6 % short of
    eigh's energy, so two steps of C^8 follow where they gain: safe there, refused on steep spectra.
    """
    d = covariance.shape[-1]
    ridge = RIDGE / d * torch.eye(d, dtype=torch.float64, device=covariance.device)
    operator = _normalised(covariance) + ridge
    start = start_basis(d, k, covariance.device, torch.float64)
    basis = start.expand(*covariance.shape[:-2], d, k)
    for _ in range(ITERATIONS):
        basis = _cholesky_qr(operator @ basis, shift=1e-15)
    basis = _cholesky_qr(_cholesky_qr(basis))
    power = torch.linalg.matrix_power(operator, 8)
    eye = torch.eye(k, dtype=torch.float64, device=covariance.device)
    for _ in range(2):
        trial = _cholesky_qr(_cholesky_qr(power @ basis))
        slip = (trial.mT @ trial - eye).abs().amax((-1, -2))
        new, old = (((operator @ each) * each).sum((-1, -2)) for each in (trial, basis))
        better = (slip < 1e-9) & (new > old)  # NaN never is
        basis = torch.where(better[..., None, None], trial, basis)
    return basis.float()


def full_basis(
    covariance: Tensor, sigma: Tensor | None = None, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """All eigenvectors [..., d, d] by falling eigenvalue, and the eigenvalues [..., d], of C or of
    (sigma sigma^T) * C, computed in `dtype`. On the CPU, whatever the device: torch gives a GPU
    matrix after matrix, each slower than here."""
    covariance = weighted(covariance, sigma)
    values, vectors = _eigh(_normalised(covariance, dtype).cpu())
    values, vectors = values.to(covariance.device), vectors.to(covariance.device)
    trace = covariance.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True)
    return vectors.flip(-1).float().contiguous(), values.flip(-1).clamp(min=0).float() * trace


def _eigh(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """On the CPU, narrow matrices by one thread: a second one has nothing to gain there, and waits
    for a core that other processes keep busy (40 of 128: 209 ms beside three processes, or 16)."""
    threads = torch.get_num_threads()
    if threads == 1 or matrices.shape[-1] > NARROW:
        return torch.linalg.eigh(matrices)
    torch.set_num_threads(1)  # of this Python thread
    try:
        return torch.linalg.eigh(matrices)
    finally:
        torch.set_num_threads(threads)


def ordered_basis(covariance: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k axes [..., d, k] of C [..., d, d] by falling energy, for quantisation along them, and
    those energies [..., k].

    On a GPU, `BLOCK` columns after the other, each block from the remainder of earlier ones: the
    solver takes a fifth of the time for 32 columns that it takes for 64. Columns of a block are not
    exact eigenvectors, so quantisation errors are a few thousandths larger; they are orthonormal to
    rounding. Nothing waits for the device. Elsewhere all eigenvectors in float32: a third faster,
    and what that misses, a millionth of the largest energy, is below the error of 8 bits.
    """
    finite = covariance.abs().amax((-2, -1), keepdim=True) < float("inf")
    covariance = torch.where(finite, covariance, 0.0)
    ridge = BLOCK_RIDGE * covariance.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)
    left = covariance.clone()
    left.diagonal(dim1=-2, dim2=-1).add_(ridge.clamp(min=torch.finfo(torch.float32).tiny))
    basis = covariance[..., :0]
    while basis.shape[-1] < k:
        width = min(BLOCK, k - basis.shape[-1])
        found = solve("subspace", left, width, BLOCK_ITERATIONS)
        if (
            found is None and left.is_cuda
        ):  # heads too wide for it: eigh takes 17 ms a matrix of 512
            found = subspace_basis(left, width)
        if found is None:
            basis, energy = full_basis(covariance, dtype=torch.float32)
            return basis[..., :k], energy[..., :k]
        if basis.shape[-1]:
            found = _plus(found, basis, basis.mT @ found, -1)
        basis = torch.cat([basis, found], -1) if basis.shape[-1] else found
        if basis.shape[-1] < k:
            product = left @ found  # of (I - B B^T) C (I - B B^T), symmetric
            half = _plus(product, found, found.mT @ product, -0.5)
            left = _plus(_plus(left, half, found.mT, -1), found, half.mT, -1)
    for _ in range(2):  # Newton: a slip e becomes 3/4 e^2
        basis = _plus(basis, basis, basis.mT @ basis, -0.5, 1.5)
    energy = ((covariance @ basis) * basis).sum(-2).clamp(min=0)
    energy, order = energy.sort(dim=-1, descending=True)
    return basis.gather(-1, order[..., None, :].expand_as(basis)), energy


def _plus(first: Tensor, left: Tensor, right: Tensor, share: float, own: float = 1.0) -> Tensor:
    """own first + share left right, in one launch: [..., n, m]."""
    flat = (each.reshape(-1, *each.shape[-2:]) for each in (first, left, right))
    return torch.baddbmm(*flat, beta=own, alpha=share).view(first.shape)


def top_basis(covariance: Tensor, k: int, sigma: Tensor | None = None) -> Tensor:
    """R_k, the k < d directions of most energy [..., d, k] of C or of (sigma sigma^T) * C, by T = 5
    steps of subspace iteration."""
    done = solve("subspace", covariance, k, ITERATIONS, sigma)
    return subspace_basis(weighted(covariance, sigma), k) if done is None else done


def printed_basis(covariance: Tensor, k: int) -> Tensor:
    """R_k [..., d, k] float32 of C_q by T steps of V <- C V, G = V^T V,
    L = Cholesky(G + epsilon tr(G) / k), V <- V L^-T.

    The subject of an ablation: its columns are not orthonormal, and a factorisation may fail. A
    step whose factorisation fails is skipped; the paper does not cover this case. A matrix of zeros
    keeps its random start.
    """
    covariance = covariance.float()
    d = covariance.shape[-1]
    start = start_basis(d, k, covariance.device)
    basis = start.expand(*covariance.shape[:-2], d, k)
    eye = torch.eye(k, device=covariance.device)
    for _ in range(ITERATIONS):
        moved = covariance @ basis
        gram = moved.mT @ moved
        shift = PRINTED_RIDGE * gram.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None] / k
        factor, _ = torch.linalg.cholesky_ex(gram + shift * eye, check_errors=False)
        step = torch.linalg.solve_triangular(factor.mT, moved, upper=True, left=False)
        good = step.isfinite().all(-1, keepdim=True).all(-2, keepdim=True)
        basis = torch.where(good, step, basis)
    return basis.contiguous()


def load_bases(path: str | os.PathLike[str], layers: int, kind: str = "layer") -> list[Tensor]:
    """Eigenvectors [Hkv, d, d] of each layer, or with `kind` "oscar", rotations [2, d, d];
    `CalibrationUnusable` if the file is missing, damaged, or of another number of layers."""
    try:
        with safe_open(Path(path), "pt") as file:
            if sum(name.startswith(f"{kind}.") for name in file.keys()) != layers:  # noqa: SIM118
                raise CalibrationUnusable
            return [file.get_tensor(f"{kind}.{i}") for i in range(layers)]
    except (OSError, SafetensorError) as exc:
        raise CalibrationUnusable from exc
