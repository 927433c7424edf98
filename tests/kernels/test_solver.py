"""Covariance, weights, bases and projection, by kernels and in plain PyTorch, against float64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kernels.covariance import covariance, project, weigh
from kernels.solver import subspace
from rotatek.methods import rotation
from rotatek.methods.rotation import SIGMA_FLOOR

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
D = 128
ORTHONORMAL = 5e-6
ENERGY = 0.99
RESIDUAL = 1.03  # of the optimum at k = 32, with 1e-5 of the trace added: C itself is float32
RESIDUAL_ELSEWHERE = 1.1  # T = 5 from a random start leaves geometric spectra a little short


def spectra(d: int = D) -> dict[str, Tensor]:
    """Eigenvalues [d] by name: flat to steep, rank-deficient, stepped, duplicate, zero, extreme."""
    i = torch.arange(d, dtype=torch.float64)
    found = {f"power {a}": (i + 1) ** -a for a in (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)}
    found |= {f"geometric {g}": g**i for g in (0.99, 0.97, 0.95, 0.9, 0.8, 0.7, 0.5, 0.2)}
    found |= {f"rank {r}": (i < r).double() for r in (1, 4, 16, 31, 32, 33, 64)}
    for n in (8, 31, 32, 33):
        for gap in (1e-2, 1e-4):
            found[f"step {n}, {gap}"] = torch.where(i < n, 1.0, gap).double()
    found |= {f"outlier {s}": torch.where(i == 0, s, 1 / (1 + i / 10)) for s in (1e3, 1e6)}
    found["two outliers"] = torch.where(i < 2, 1e5, 1 / (1 + i))
    found |= {"zero": i * 0, "tiny": 1e-30 * 0.9**i, "huge": 1e30 * 0.9**i, "linear": 1 - i / d}
    found["fourfold"] = 0.8 ** (i // 4)
    found["flat tail"] = torch.where(i < 12, 0.6**i, 1e-3)
    found["noise floor"] = 0.85**i + 1e-2
    assert len(found) == 40
    return found


def matrix(values: Tensor, seed: int = 3) -> Tensor:
    """A symmetric float32 matrix of these eigenvalues, from a private generator."""
    generator = torch.Generator().manual_seed(seed)
    d = values.numel()
    turn = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64, generator=generator))[0]
    return ((turn * values) @ turn.T).float()


def slip(basis: Tensor) -> float:
    """By how much columns are not orthonormal."""
    basis = basis.double()
    return float((basis.mT @ basis - torch.eye(basis.shape[-1])).abs().max())


def judged(matrices: Tensor, basis: Tensor) -> tuple[float, float, float]:
    """Of the worst matrix: orthonormality slip, share of eigh's energy, residual over its own."""
    k = basis.shape[-1]
    matrices, basis = matrices.double().cpu(), basis.double().cpu()
    trace = matrices.diagonal(dim1=-2, dim2=-1).sum(-1)
    scaled = matrices / trace.clamp(min=1e-300)[:, None, None]
    best = torch.linalg.eigvalsh(scaled)[:, -k:].sum(-1)
    held = ((scaled @ basis) * basis).sum((-1, -2))
    total = scaled.diagonal(dim1=-2, dim2=-1).sum(-1)
    energy = torch.where(trace > 0, held / best.clamp(min=1e-30), 1.0)
    residual = torch.where(trace > 0, (total - held + 1e-5) / (total - best + 1e-5), 1.0)
    return slip(basis), float(energy.min()), float(residual.max())


# Bases

HARD = ("power 0.1", "power 4.0", "rank 4", "step 33, 0.0001", "outlier 1000000.0", "zero")


@pytest.mark.parametrize(
    "name, d, k",
    [
        *((name, D, 32) for name in HARD), ("geometric 0.8", D, 48), ("geometric 0.5", D, 16),
        *(("geometric 0.8", d, d // 4) for d in (80, 256)),
    ],
)  # fmt: skip
def test_the_kernel_finds_an_orthonormal_top_subspace(name: str, d: int, k: int) -> None:
    matrices = matrix(spectra(d)[name])[None]
    off, energy, residual = judged(matrices, subspace(matrices.to(DEVICE), k))
    assert off <= ORTHONORMAL and energy >= ENERGY
    assert residual <= (RESIDUAL if k == 32 else RESIDUAL_ELSEWHERE)


@pytest.mark.parametrize("k", [8, 32, 64])
def test_plain_iteration_does_on_forty_spectra(k: int) -> None:
    matrices = torch.stack([matrix(values) for values in spectra().values()])
    off, energy, _ = judged(matrices, rotation.subspace_basis(matrices, k))
    assert off <= ORTHONORMAL and energy >= ENERGY


@pytest.mark.parametrize("solve", [subspace, rotation.subspace_basis], ids=["kernel", "plain"])
def test_the_subspace_is_eighs_where_a_gap_defines_it(solve: Callable[..., Tensor]) -> None:
    """Beside a matrix that is not finite, which still gets a basis."""
    broken = torch.eye(D)
    broken[3, 5] = float("nan")
    matrices = torch.stack([matrix(spectra()["step 8, 0.01"]), broken])
    basis = solve(matrices.to(DEVICE), 8).cpu()
    assert slip(basis) <= ORTHONORMAL
    exact = torch.linalg.eigh(matrices[0].double())[1][:, -8:]
    projectors = [one @ one.mT for one in (basis[0].double(), exact)]
    assert float((projectors[0] - projectors[1]).abs().max()) <= 1e-5


def test_axes_for_bits_hold_every_energy_that_eight_bits_would_show() -> None:
    """They are found in float32 off a GPU, which misses some millionths of the largest energy (how
    many threads sum decides); a channel of 8 bits is wrong by a hundred times as much."""
    for name, spectrum in spectra().items():
        given = matrix(spectrum)
        basis, energy = rotation.ordered_basis(given, D)
        assert slip(basis) < ORTHONORMAL, name
        wanted = spectrum.sort(descending=True).values
        own = ((given.double() @ basis.double()) * basis.double()).sum(-2)
        for found in (energy.double(), own):
            assert float((found - wanted).abs().max()) <= 5e-6 * float(wanted[0]), name


def test_axes_found_a_block_after_the_other_serve_as_well_as_eigenvectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every group of 16 holds what eigenvectors would, and its columns are all but uncorrelated."""
    monkeypatch.setattr(rotation, "solve", lambda _, matrices, *rest: subspace(matrices, *rest))
    d, generator = 80, torch.Generator().manual_seed(0)
    states = torch.randn(3, 200, d, generator=generator) * 10.0 ** -torch.linspace(0, 2, d)
    turned = states @ torch.linalg.qr(torch.randn(d, d, generator=generator))[0]
    matrices = turned.mT @ turned
    matrices[2] = 0
    matrices[1, :, 0] = float("nan")
    basis, energy = (part.cpu() for part in rotation.ordered_basis(matrices.to(DEVICE), d))
    assert slip(basis) <= ORTHONORMAL
    exact = torch.linalg.eigvalsh(matrices[0].double()).flip(-1).float()
    most = 1.05 if DEVICE == "cpu" else 1.06  # 1.053 on an H200
    for first in range(16, d, 16):
        assert float(energy[0, first:].sum()) <= most * float(exact[first:].sum())
    gain = (energy[0].log() - exact.log()).mean()  # of a coder: zero for eigenvectors
    assert float(gain) <= 0.05


# Covariances


@pytest.mark.parametrize("work", [covariance, rotation.centred_covariance], ids=["kernel", "plain"])
@pytest.mark.parametrize("d", [80, 256])
def test_covariance_survives_a_mean_a_hundred_times_the_spread(
    d: int, work: Callable[..., tuple[Tensor, Tensor]]
) -> None:
    """Of many tokens and of one, of bfloat16, without those that fill a row up."""
    generator = torch.Generator().manual_seed(1)
    keys = torch.randn(3, 1, 200, d, generator=generator)
    keys = (keys + 100 * torch.randn(3, 1, 1, d, generator=generator)).bfloat16()
    lengths = torch.tensor([200, 77, 1], dtype=torch.int32)
    keys[1, :, 77:] = keys[2, :, 1:] = float("nan")
    mean, found = (part.cpu() for part in work(keys.to(DEVICE), lengths.to(DEVICE)))
    for row, end in enumerate(lengths.tolist()):
        exact = keys[row, 0, :end].double()
        centred = exact - exact.mean(0)
        want = centred.mT @ centred
        assert float((found[row, 0] - want).norm()) <= 1e-4 * max(1.0, float(want.norm()))
        assert torch.allclose(mean[row, 0].double(), exact.mean(0), atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("N", [1, 150])
def test_covariance_of_tokens_that_count_differently(N: int, dtype: torch.dtype) -> None:
    """Some count for nothing; it is around the mean as it is rounded, which is off by .1 of 30 in
    bfloat16."""
    generator = torch.Generator().manual_seed(N)
    keys = torch.randn(2, 2, N, 48, generator=generator) + 30.1
    shares = torch.rand(2, N, generator=generator) ** 4
    shares[:, 1::7] = 0
    shares /= shares.sum(-1, keepdim=True)
    mean, found = (p.cpu() for p in covariance(keys.to(DEVICE), None, shares.to(DEVICE), dtype))
    weight = shares.double()[:, None, :, None]
    exact = (weight * keys).sum(2)
    assert mean.dtype == dtype
    assert float((mean - exact).abs().max()) <= (1e-5 if dtype == torch.float32 else 0.25)
    centred = (keys - mean.double()[:, :, None]) * weight.sqrt()
    want = centred.mT @ centred
    assert float((found - want).norm()) <= 1e-3 * float(want.norm()) + 1e-9


# Projection and weights


@pytest.mark.parametrize("d", [80, 256])
def test_projection_matches_float64(d: int) -> None:
    generator = torch.Generator().manual_seed(2)
    keys = torch.randn(1, 2, 300, d, generator=generator).bfloat16()
    mean = torch.randn(1, 2, d, generator=generator)
    basis = torch.linalg.qr(torch.randn(1, 2, d, 48, generator=generator))[0]
    got = project(keys.to(DEVICE), mean.to(DEVICE), basis.to(DEVICE)).cpu().double()
    want = (keys.double() - mean[:, :, None].double()) @ basis.double()
    assert float((got - want).norm() / want.norm()) <= 5e-3


@pytest.mark.parametrize("G, W, d", [(4, 32, 128), (7, 5, 80), (1, 1, 16)])
@pytest.mark.parametrize("mean_one", [False, True])
def test_weights_are_norms_over_window_and_group(G: int, W: int, d: int, mean_one: bool) -> None:
    generator = torch.Generator().manual_seed(G)
    queries = torch.randn(2, 2 * G, W, d, generator=generator).bfloat16()
    queries[..., 3], queries[..., 5] = 0.0, queries[..., 6]
    valid = torch.rand(2, W, generator=generator) > 0.3
    valid[:, 0] = True
    by_hand = queries.float().masked_fill(~valid[:, None, :, None], 0).unflatten(1, (2, G))
    by_hand = by_hand.flatten(2, 3).norm(dim=2)
    want = rotation.query_weights(queries, 2, valid, mean_one)
    assert (want > 0).all()
    if not mean_one:
        assert torch.allclose(want, by_hand, atol=1e-3 * float(by_hand.max()))
    got = weigh(queries.to(DEVICE), 2, valid.to(DEVICE), SIGMA_FLOOR, 2.0**-63, mean_one)
    assert torch.allclose(got.cpu(), want, rtol=1e-5)
