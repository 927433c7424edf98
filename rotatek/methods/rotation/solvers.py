"""Orthonormal bases of a covariance's top subspace: subspace iteration, and eigenvectors.

Symbols as in `rotatek.methods.rotation.covariance`. Everything here is float32 or wider.
Source: RotateK (arXiv 2605.19218), algorithm 1, with the deviations stated below.
"""

from functools import lru_cache

import torch
from torch import Tensor

from kernels.dispatch import solve
from rotatek.methods.rotation.covariance import captured_energy, weighted

ITERATIONS = 5  # T of the paper
BLOCK = 32  # columns of `ordered_basis` that are found at once
BLOCK_ITERATIONS = 4  # of each of its blocks
BLOCK_RIDGE = 1e-3  # of the mean eigenvalue, so that the remainder stays above rounding
RIDGE = 1e-6  # of the mean eigenvalue; shifts eigenvalues, never eigenvectors
SEED = 0
NARROW = 256  # columns of a matrix that one thread solves


def _normalised(covariance: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """C over its trace, symmetric; zero where C is not finite."""
    covariance = covariance.to(dtype)
    whole = covariance.sum((-2, -1), keepdim=True, dtype=torch.float64)  # where none overflows
    finite = whole.isfinite()  # of one that is not, neither is it
    covariance = torch.where(finite, covariance, 0.0)
    trace = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    covariance = covariance / torch.where(trace > 0, trace, 1.0)
    return (covariance + covariance.transpose(-1, -2)).div_(2)


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # a tensor for every later call
def private_start(
    d: int, k: int, device: torch.device, dtype: torch.dtype = torch.float64
) -> Tensor:
    """The private, seeded start [d, k] of every iteration; a constant, copied to a device once."""
    generator = torch.Generator().manual_seed(SEED)
    return torch.randn(d, k, dtype=torch.float64, generator=generator).to(device, dtype)


def _cholesky_qr(basis: Tensor, shift: float) -> Tensor:
    """One Cholesky-QR pass in float64; `shift` is relative to the Gram matrix's trace."""
    gram = basis.transpose(-1, -2) @ basis
    ridge = shift * gram.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    factor, _ = torch.linalg.cholesky_ex(gram + ridge * eye, check_errors=False)
    return torch.linalg.solve_triangular(factor.transpose(-1, -2), basis, upper=True, left=False)


def subspace_basis(covariance: Tensor, k: int, iterations: int = ITERATIONS) -> Tensor:
    """Orthonormal top-k basis by subspace iteration, fixed shapes, no host sync.

    The paper's shifted Cholesky-QR alone does not return orthonormal columns, and fails outright
    once lambda_1 / lambda_k passes about 1e3. Here C is shifted by a ridge (its eigenvectors stay),
    Gram matrices are float64, and two plain passes follow the shifted ones (shifted Cholesky-QR-3:
    Fukaya et al., SIAM J. Sci. Comput. 2020). T = 5 leaves a flat spectrum up to 6 % short of
    eigh's energy, so two steps of C^8 follow where they gain: safe there, refused on steep spectra.

    Args:
        covariance: C [..., d, d].
        k: columns.
        iterations: T of the paper.

    Returns:
        [..., d, k] float32, columns only roughly ordered: no slice of them is a basis of fewer.
    """
    d = covariance.shape[-1]
    ridge = RIDGE / d * torch.eye(d, dtype=torch.float64, device=covariance.device)
    operator = _normalised(covariance) + ridge
    start = private_start(d, k, covariance.device)
    basis = start.expand(*covariance.shape[:-2], d, k)
    for _ in range(iterations):
        basis = _cholesky_qr(operator @ basis, shift=1e-15)
    basis = _cholesky_qr(_cholesky_qr(basis, shift=0.0), shift=0.0)
    power = torch.linalg.matrix_power(operator, 8)
    for _ in range(2):
        trial = _cholesky_qr(_cholesky_qr(power @ basis, shift=0.0), shift=0.0)
        basis = torch.where(_better(operator, trial, basis), trial, basis)
    return basis.float()


def _better(operator: Tensor, trial: Tensor, basis: Tensor) -> Tensor:
    """Whether an orthonormal trial basis has more energy: [..., 1, 1] bool; NaN never wins."""
    eye = torch.eye(trial.shape[-1], dtype=trial.dtype, device=trial.device)
    slip = (trial.transpose(-1, -2) @ trial - eye).abs().amax((-1, -2))
    gain = captured_energy(operator, trial) > captured_energy(operator, basis)
    return ((slip < 1e-9) & gain)[..., None, None]


def full_basis(
    covariance: Tensor, sigma: Tensor | None = None, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """All eigenvectors [..., d, d] by falling eigenvalue, and the eigenvalues [..., d].

    Of (sigma sigma^T) * C where sigma is given; dtype: to compute in.
    On the CPU, whatever the device: torch gives a GPU matrix after matrix, each slower than here.
    """
    covariance = weighted(covariance, sigma)
    values, vectors = _eigh(_normalised(covariance, dtype).cpu())
    values, vectors = values.to(covariance.device), vectors.to(covariance.device)
    trace = covariance.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True)
    return vectors.flip(-1).float().contiguous(), values.flip(-1).clamp(min=0).float() * trace


def _eigh(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of matrices on the CPU, narrow ones by one thread.

    Matrix by matrix, a second thread has nothing to gain there, and waits for a core that other
    processes keep busy: 40 of 128 by two threads took 209 ms beside three processes, by one 16.
    """
    threads = torch.get_num_threads()
    if threads == 1 or matrices.shape[-1] > NARROW:
        return torch.linalg.eigh(matrices)
    torch.set_num_threads(1)  # of this Python thread
    try:
        return torch.linalg.eigh(matrices)
    finally:
        torch.set_num_threads(threads)


def ordered_basis(covariance: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Axes by falling energy, for quantisation along them, and those energies.

    On a GPU, `BLOCK` columns after the other, each block from the remainder of earlier ones: the
    solver takes a fifth of the time for 32 columns that it takes for 64. Columns of a block are not
    exact eigenvectors, so quantisation errors are a few thousandths larger; they are orthonormal to
    rounding. Nothing waits for the device. Elsewhere all eigenvectors in float32: a third faster,
    and what that misses, a millionth of the largest energy, is below the error of 8 bits.

    Args:
        covariance: C [..., d, d].
        k: columns.

    Returns:
        The basis [..., d, k] and its energies [..., k], falling.
    """
    finite = covariance.abs().amax((-2, -1), keepdim=True) < float("inf")
    covariance = torch.where(finite, covariance, 0.0)
    ridge = BLOCK_RIDGE * covariance.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)
    left = covariance.clone()
    left.diagonal(dim1=-2, dim2=-1).add_(ridge.clamp(min=torch.finfo(torch.float32).tiny))
    basis = covariance[..., :0]
    while basis.shape[-1] < k:
        width = min(BLOCK, k - basis.shape[-1])
        found = _block(left, width)
        if found is None:
            basis, energy = full_basis(covariance, dtype=torch.float32)
            return basis[..., :k], energy[..., :k]
        if basis.shape[-1]:
            found = _plus(found, basis, basis.mT @ found, -1)
        basis = torch.cat([basis, found], -1) if basis.shape[-1] else found
        if basis.shape[-1] < k:
            left = _without(left, found)
    for _ in range(2):  # Newton: a slip e becomes 3/4 e^2
        basis = _plus(basis, basis, basis.mT @ basis, -0.5, 1.5)
    energy = ((covariance @ basis) * basis).sum(-2).clamp(min=0)
    energy, order = energy.sort(dim=-1, descending=True)
    return basis.gather(-1, order[..., None, :].expand_as(basis)), energy


def _block(covariance: Tensor, width: int) -> Tensor | None:
    """The first columns [..., d, width] of a remainder, where a GPU finds them: heads that are too
    wide for the kernel by plain iteration, as eigh on the host takes 17 ms a matrix of 512."""
    d, device = covariance.shape[-1], covariance.device
    start = private_start(d, width, device, torch.float32)
    found: Tensor | None = solve("subspace", covariance, width, BLOCK_ITERATIONS, None, start)
    return subspace_basis(covariance, width) if found is None and covariance.is_cuda else found


def _without(covariance: Tensor, basis: Tensor) -> Tensor:
    """(I - B B^T) C (I - B B^T), symmetric."""
    product = covariance @ basis
    half = _plus(product, basis, basis.mT @ product, -0.5)
    return _plus(_plus(covariance, half, basis.mT, -1), basis, half.mT, -1)


def _plus(first: Tensor, left: Tensor, right: Tensor, share: float, own: float = 1.0) -> Tensor:
    """own first + share left right, in one launch: [..., n, m]."""
    flat = (each.reshape(-1, *each.shape[-2:]) for each in (first, left, right))
    return torch.baddbmm(*flat, beta=own, alpha=share).view(first.shape)


def top_basis(covariance: Tensor, k: int, solver: str, sigma: Tensor | None = None) -> Tensor:
    """R_k, the k directions of most energy.

    Args:
        covariance: C [..., d, d].
        k: columns; all d of them come from eigh, whatever the solver.
        solver: "subspace" (T = 5) or "eigh".
        sigma: [..., d]; with it the basis is that of (sigma sigma^T) * C.

    Returns:
        [..., d, k].
    """
    if solver != "eigh" and k < covariance.shape[-1]:
        start = private_start(covariance.shape[-1], k, covariance.device, torch.float32)
        done = solve("subspace", covariance, k, ITERATIONS, sigma, start)
        if done is not None:
            return done
    if solver == "eigh" or k >= covariance.shape[-1]:
        return full_basis(covariance, sigma)[0][..., :k].contiguous()
    return subspace_basis(weighted(covariance, sigma), k)
