"""The rotation's bars: orthonormal on every spectrum, nearly all of eigh's energy, lossless."""

import pytest
import torch

from rotatek.methods import rotation
from rotatek.methods.rotation import solvers

WIDTH = 128


def _spectra() -> dict[str, torch.Tensor]:
    """Forty spectra: flat, steep, geometric, rank-deficient, clustered, with outliers, zero."""
    place = torch.arange(1, WIDTH + 1, dtype=torch.float64)
    spectra = {f"power {p}": place**-p for p in (0, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8)}
    for span in (1e1, 1e2, 1e3, 1e4, 1e6, 1e8, 1e10, 1e12):
        spectra[f"geometric {span:g}"] = span ** (-(place - 1) / (WIDTH - 1))
    for rank in (0, 1, 2, 4, 8, 16, 31, 32, 33, 64, 100):
        spectra[f"rank {rank}"] = (place <= rank).double()
    for jump in (1e2, 1e4, 1e6, 1e8):
        spectra[f"outliers {jump:g}"] = torch.where(place <= 2, jump, 1.0)
        spectra[f"shelf {jump:g}"] = torch.where(place <= 32, jump, 1.0)
    spectra["pairs"] = (place // 2 + 1) ** -1.0
    spectra["tiny"] = 1e-12 * place**-1.0
    assert len(spectra) == 40
    return spectra


def _covariance(spectrum: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    turn, _ = torch.linalg.qr(torch.randn(WIDTH, WIDTH, dtype=torch.float64, generator=generator))
    return ((turn * spectrum) @ turn.T).float()


@pytest.mark.parametrize("k", [8, 32, 48, 64])
def test_subspace_basis_on_forty_spectra(k: int) -> None:
    covariance = torch.stack([_covariance(s) for s in _spectra().values()])
    basis = rotation.subspace_basis(covariance, k).double()
    slip = (basis.transpose(-1, -2) @ basis - torch.eye(k)).abs().amax((-1, -2))
    assert slip.max() <= 5e-6
    best = rotation.full_basis(covariance)[0][..., :k].double()
    got = rotation.captured_energy(covariance.double(), basis)
    wanted = rotation.captured_energy(covariance.double(), best)
    for name, a, b in zip(_spectra(), got, wanted, strict=True):
        assert a >= 0.99 * b, name


def test_a_large_covariance_has_its_axes_in_float32() -> None:
    """Also where all of its numbers add up to more than float32 holds."""
    covariance = torch.full((2, WIDTH, WIDTH), 1e36)
    basis, energy = rotation.full_basis(covariance, dtype=torch.float32)
    assert torch.allclose(energy[:, 0], torch.tensor(1.28e38), rtol=1e-3)
    assert torch.allclose(basis[..., 0].abs(), torch.tensor(WIDTH**-0.5), atol=1e-3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_one_bad_key_leaves_a_finite_basis(bad: float) -> None:
    keys = torch.randn(1, 2, 40, 16)
    keys[0, 0, 3, 5] = bad
    _, covariance = rotation.centred_covariance(keys, torch.tensor([40]))
    basis = rotation.subspace_basis(covariance, 4)
    assert basis.isfinite().all()


@pytest.mark.parametrize("tokens", [0, 1, 2, 7, 8])
def test_few_or_constant_tokens_leave_a_finite_basis(tokens: int) -> None:
    keys = torch.full((1, 1, max(tokens, 1), 16), 3.0)
    mean, covariance = rotation.centred_covariance(keys, torch.tensor([tokens]))
    basis = rotation.top_basis(covariance, 8, "subspace")
    assert basis.isfinite().all()
    assert mean.isfinite().all()
    assert torch.allclose(basis.mT @ basis, torch.eye(8), atol=5e-6)


def test_covariance_is_centred_before_the_product() -> None:
    keys = torch.randn(1, 1, 500, 8, generator=torch.Generator().manual_seed(0)) + 1000
    mean, covariance = rotation.centred_covariance(keys, torch.tensor([500]))
    exact = keys[0, 0].double()
    exact = exact - exact.mean(0)
    assert torch.allclose(covariance[0, 0].double(), exact.T @ exact, rtol=1e-4, atol=1e-2)
    assert mean[0, 0].sub(1000).abs().max() < 0.2


def test_padding_does_not_count() -> None:
    keys = torch.randn(2, 2, 9, 8)
    short = rotation.centred_covariance(keys[:1, :, :5], torch.tensor([5]))
    long = rotation.centred_covariance(keys, torch.tensor([5, 9]))
    for a, b in zip(short, long, strict=True):
        assert torch.allclose(a[0], b[0], atol=1e-5)


def test_query_weights_are_norms_over_window_and_group() -> None:
    queries = torch.randn(1, 6, 5, 4)
    sigma = rotation.query_weights(queries, 2)
    by_hand = queries[0].view(2, 3 * 5, 4).norm(dim=1)
    assert torch.allclose(sigma[0], by_hand)
    queries[..., 0] = 0
    assert (rotation.query_weights(queries, 2) > 0).all()


def test_the_printed_loop_is_what_is_printed() -> None:
    """In float64 and plain steps; it spans the same subspace, but is not orthonormal."""
    covariance = _covariance(_spectra()["power 1"])
    found = rotation.printed_basis(covariance, 16)
    generator = torch.Generator().manual_seed(0)
    plain = torch.randn(WIDTH, 16, dtype=torch.float64, generator=generator)
    for _ in range(5):
        plain = covariance.double() @ plain
        gram = plain.T @ plain
        shifted = gram + 1e-4 * gram.trace() / 16 * torch.eye(16)
        plain = plain @ torch.linalg.inv(torch.linalg.cholesky(shifted)).T
    torch.testing.assert_close(found.double(), plain, rtol=1e-2, atol=1e-3)
    slip = (found.mT @ found - torch.eye(16)).abs().max()
    ours = rotation.subspace_basis(covariance, 16)
    assert slip > 1e-4 > 5e-6 >= (ours.mT @ ours - torch.eye(16)).abs().max()


def test_axes_for_bits_hold_every_energy_that_eight_bits_would_show() -> None:
    """They are found in float32 off a GPU: a millionth of the largest energy is what that misses,
    and a channel of 8 bits is wrong by a hundred times as much."""
    for name, spectrum in _spectra().items():
        covariance = _covariance(spectrum)
        basis, energy = rotation.ordered_basis(covariance, WIDTH)
        slip = basis.mT.double() @ basis.double() - torch.eye(WIDTH)
        assert float(slip.abs().max()) < 5e-6, name
        wanted = spectrum.sort(descending=True).values
        own = ((covariance.double() @ basis.double()) * basis.double()).sum(-2)
        for found in (energy.double(), own):
            assert float((found - wanted).abs().max()) <= 3e-6 * float(wanted[0]), name


def test_blocks_of_plain_iteration_serve_heads_that_are_too_wide_for_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a GPU: axes are orthonormal, and hold what eigh's hold but for a few thousandths."""
    plain = rotation.subspace_basis
    monkeypatch.setattr(
        solvers, "solve", lambda _, covariance, width, *__: plain(covariance, width)
    )
    for name, spectrum in _spectra().items():
        covariance, columns = _covariance(spectrum), WIDTH // 2
        basis, energy = rotation.ordered_basis(covariance, columns)
        slip = basis.mT.double() @ basis.double() - torch.eye(columns)
        assert float(slip.abs().max()) < 5e-6, name
        most = spectrum.sort(descending=True).values[:columns].sum()
        assert float(energy.sum()) >= 0.995 * float(most), name
