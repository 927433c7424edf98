"""The paper's own solver, step by step as printed: the subject of an ablation.

Source: RotateK (arXiv 2605.19218), algorithm 1, step 2. Ours (`subspace_basis`) departs from it
because its columns are not orthonormal, and a factorisation may fail.
"""

from typing import Final

import torch
from torch import Tensor

from rotatek.methods.rotation.solvers import ITERATIONS, private_start

RIDGE: Final = 1e-4  # epsilon, which the paper does not give: at 1e-6 trained Keys make it fail


def printed_basis(
    covariance: Tensor, k: int, iterations: int = ITERATIONS, ridge: float = RIDGE
) -> Tensor:
    """R_k by T steps of V <- C V, G = V^T V, L = Cholesky(G + ridge tr(G) / k), V <- V L^-T.

    In float32. A step whose factorisation fails is skipped; the paper does not cover this case. A
    matrix of zeros keeps its random start.

    Args:
        covariance: C_q [..., d, d].
        k: columns.
        iterations: T.
        ridge: epsilon.

    Returns:
        [..., d, k] float32, in general not orthonormal.
    """
    covariance = covariance.float()
    d = covariance.shape[-1]
    start = private_start(d, k, covariance.device, torch.float32)
    basis = start.expand(*covariance.shape[:-2], d, k)
    eye = torch.eye(k, device=covariance.device)
    for _ in range(iterations):
        moved = covariance @ basis
        gram = moved.mT @ moved
        shift = ridge * gram.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None] / k
        factor, _ = torch.linalg.cholesky_ex(gram + shift * eye, check_errors=False)
        step = torch.linalg.solve_triangular(factor.mT, moved, upper=True, left=False)
        good = step.isfinite().all(-1, keepdim=True).all(-2, keepdim=True)
        basis = torch.where(good, step, basis)
    return basis.contiguous()
