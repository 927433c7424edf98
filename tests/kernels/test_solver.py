"""The solver: covariance, orthonormal subspaces on hard spectra, projection."""

import pytest
import torch

from kernels.covariance import covariance, weigh
from kernels.solver import subspace
from rotatek.methods.rotation import SIGMA_FLOOR, query_weights, solvers
from tests.kernels.solver_check import (
    ENERGY,
    ORTHONORMAL,
    RESIDUAL,
    RESIDUAL_ELSEWHERE,
    covariance_error,
    judge,
    matrix,
    projection_error,
    spectra,
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HARD = (
    "power 0.1",
    "power 4.0",
    "geometric 0.7",
    "rank 4",
    "step 33, 0.0001",
    "outlier 1000000.0",
    "zero",
)


@pytest.mark.parametrize(
    "name, k", [*((name, 32) for name in HARD), ("geometric 0.8", 48), ("geometric 0.5", 16)]
)
def test_every_spectrum_gets_an_orthonormal_top_subspace(name: str, k: int) -> None:
    matrices = matrix(spectra()[name], seed=3)[None]
    found = judge(matrices, subspace(matrices.to(DEVICE), k))
    assert float(found["slip"].max()) <= ORTHONORMAL
    assert float(found["energy"].min()) >= ENERGY
    assert float(found["residual"].max()) <= (RESIDUAL if k == 32 else RESIDUAL_ELSEWHERE)


@pytest.mark.parametrize("d", [64, 80, 96, 256])
def test_other_head_widths(d: int) -> None:
    matrices = matrix(spectra(d)["geometric 0.8"], seed=6)[None]
    found = judge(matrices, subspace(matrices.to(DEVICE), d // 4))
    assert float(found["slip"].max()) <= ORTHONORMAL
    assert float(found["residual"].max()) <= RESIDUAL_ELSEWHERE
    assert covariance_error(DEVICE, d=d) <= 1e-4
    assert projection_error(DEVICE, d) <= 5e-3


def test_the_subspace_is_eighs_where_a_gap_defines_it() -> None:
    matrices = matrix(spectra()["step 8, 0.01"], seed=5)[None]
    basis = subspace(matrices.to(DEVICE), 8).cpu().double()
    exact = torch.linalg.eigh(matrices.double())[1][..., -8:]
    assert float((basis @ basis.mT - exact @ exact.mT).abs().max()) <= 1e-5


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_matrix_that_is_not_finite_still_gets_a_basis(bad: float) -> None:
    broken = torch.eye(64)
    broken[3, 5] = bad
    basis = subspace(torch.stack([broken, torch.eye(64)]).to(DEVICE), 8).cpu()
    slip = (basis.mT @ basis - torch.eye(8)).abs().amax((-1, -2))
    assert float(slip.max()) <= ORTHONORMAL


def test_covariance_survives_a_mean_a_hundred_times_the_spread() -> None:
    assert covariance_error(DEVICE) <= 1e-5


@pytest.mark.parametrize("N", [0, 1, 2, 65])
def test_covariance_of_few_tokens(N: int) -> None:
    keys = torch.randn(1, 1, N, 32, generator=torch.Generator().manual_seed(N))
    mean, cov = covariance(keys.to(DEVICE))
    assert bool(cov.isfinite().all())
    if N:
        centred = keys - keys.mean(2, keepdim=True)
        want = centred.mT @ centred
        assert torch.allclose(cov.cpu(), want, atol=2**-16 * float(want.max()))
        assert torch.allclose(mean.cpu(), keys.mean(2), atol=1e-6)
    else:
        assert float(cov.abs().max()) == 0.0


@pytest.mark.parametrize("N", [1, 65, 300])
def test_covariance_of_tokens_that_count_differently(N: int) -> None:
    """Against float64; some tokens count for nothing, and the mean dwarfs the spread."""
    generator = torch.Generator().manual_seed(N)
    keys = torch.randn(2, 2, N, 48, generator=generator) + 30
    shares = torch.rand(2, N, generator=generator) ** 4
    shares[:, 1::7] = 0
    shares /= shares.sum(-1, keepdim=True)
    mean, found = (part.cpu() for part in covariance(keys.to(DEVICE), None, shares.to(DEVICE)))
    weight = shares.double()[:, None, :, None]
    exact = (weight * keys).sum(2)
    centred = (keys - exact[:, :, None]) * weight.sqrt()
    want = centred.mT @ centred
    assert float((mean - exact).abs().max()) <= 1e-5
    assert float((found - want).norm()) <= 2e-4 * float(want.norm()) + 1e-9


def test_covariance_is_around_the_mean_as_it_is_rounded() -> None:
    """A mean of 30 is off by .06 in bfloat16: the states are subtracted the rounded one."""
    generator = torch.Generator().manual_seed(0)
    keys = (torch.randn(1, 2, 150, 48, generator=generator) / 20 + 30.1).to(DEVICE)
    shares = torch.full((1, 150), 1 / 150, device=DEVICE)
    mean, found = covariance(keys, None, shares, torch.bfloat16)
    assert mean.dtype == torch.bfloat16
    centred = keys.double() - mean.double()[:, :, None]
    want = centred.mT @ centred / 150
    assert float((found - want).norm()) <= 1e-3 * float(want.norm())


@pytest.mark.parametrize("d", [64, 80])
def test_axes_found_a_block_after_the_other_serve_as_well_as_eigenvectors(
    d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every group of 16 holds what eigenvectors would, and its columns are all but uncorrelated."""
    monkeypatch.setattr(solvers, "solve", lambda _, matrices, *rest: subspace(matrices, *rest))
    generator = torch.Generator().manual_seed(0)
    spectrum = 10.0 ** -torch.linspace(0, 4, d)
    states = torch.randn(3, 200, d, generator=generator) * spectrum.sqrt()
    turned = states @ torch.linalg.qr(torch.randn(d, d, generator=generator))[0]
    matrices = turned.mT @ turned
    matrices[2] = 0
    matrices[1, :, 0] = float("nan")
    basis, energy = (part.cpu() for part in solvers.ordered_basis(matrices.to(DEVICE), d))
    assert float((basis.mT @ basis - torch.eye(d)).abs().max()) <= ORTHONORMAL
    exact = torch.linalg.eigvalsh(matrices[0].double()).flip(-1).float()
    most = 1.05 if DEVICE == "cpu" else 1.06  # 1.053 on an H200
    for first in range(16, d, 16):
        assert float(energy[0, first:].sum()) <= most * float(exact[first:].sum())
    gain = (energy[0].log() - exact.log()).mean()  # of a coder: zero for eigenvectors
    assert float(gain) <= 0.05


def test_projection_matches_float64() -> None:
    assert projection_error(DEVICE) <= 5e-3


@pytest.mark.parametrize("G, W, d", [(4, 32, 128), (7, 5, 80), (1, 1, 16)])
@pytest.mark.parametrize("mean_one", [False, True])
def test_weights_are_the_librarys(G: int, W: int, d: int, mean_one: bool) -> None:
    generator = torch.Generator().manual_seed(G)
    queries = torch.randn(2, 2 * G, W, d, generator=generator).bfloat16()
    queries[..., 3], queries[..., 5] = 0.0, queries[..., 6]
    valid = torch.rand(2, W, generator=generator) > 0.3
    valid[:, 0] = True
    for alive in (None, valid):
        want = query_weights(queries, 2, alive, mean_one)
        there = None if alive is None else alive.to(DEVICE)
        got = weigh(queries.to(DEVICE), 2, there, SIGMA_FLOOR, 2.0**-63, mean_one).cpu()
        assert torch.allclose(got, want, rtol=1e-5)
