"""The rotation: covariance, query weights, and the solvers that find a basis. Pure tensors."""

from rotatek.methods.rotation.covariance import (
    SIGMA_FLOOR,
    captured_energy,
    centred_covariance,
    logit_weights,
    metric_root,
    project,
    query_weights,
    token_mask,
    weighted,
    weighted_moments,
)
from rotatek.methods.rotation.paper_solver import printed_basis
from rotatek.methods.rotation.solvers import (
    full_basis,
    ordered_basis,
    subspace_basis,
    top_basis,
)

__all__ = [
    "SIGMA_FLOOR",
    "captured_energy",
    "centred_covariance",
    "full_basis",
    "logit_weights",
    "metric_root",
    "ordered_basis",
    "printed_basis",
    "project",
    "query_weights",
    "subspace_basis",
    "token_mask",
    "top_basis",
    "weighted",
    "weighted_moments",
]
