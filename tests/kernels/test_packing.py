"""States to digits in one launch, against plain PyTorch."""

import pytest
import torch
from torch import Tensor

from kernels.packing import pack_states, steps_of
from kernels.packing_plain import pack_on_processor
from kernels.planes import STEPS, TRIED, Channels, coordinates_of, depths_of, pack, steps_along

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MIXES = [[[48, 32, 16, 16], [16, 0, 0, 0]], [[0, 0, 0, 0], [32, 32, 16, 0]]]


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DEVICE)


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("N, d", [(1, 64), (300, 80)])
def test_packed_states_are_those_of_plain_pytorch(N: int, d: int, values: bool) -> None:
    """Tokens of a larger buffer, heads of 2 to 8 bits a channel and one of none."""
    states, mean = draw(2, N + 3, 2, d)[:, :N].transpose(1, 2), draw(2, 2, d, seed=1)
    basis = torch.linalg.qr(draw(2, 2, d, d, seed=2))[0][..., :48]
    steps = 0.1 + draw(2, 2, 48, seed=3).abs() / 2
    counts = torch.tensor(MIXES, dtype=torch.int32, device=DEVICE)
    got, places = pack_states(states, mean, basis, counts, steps, values)
    want, offsets = pack((states - mean[:, :, None]) @ basis, counts, steps, values)
    assert torch.equal(places, offsets)
    assert got.shape == want.shape
    assert float((got != want).float().mean()) < (0.02 if DEVICE == "cuda" else 1e-3)


@pytest.mark.parametrize("d", [64, 80])
def test_steps_are_those_of_plain_pytorch(d: int) -> None:
    """Ragged, of every depth; where two multiples err alike, either will do."""
    N, w, counts = 150, 48, torch.tensor(MIXES, dtype=torch.int32, device=DEVICE)
    states, mean = draw(2, 2, N, d, seed=1).bfloat16(), draw(2, 2, d, seed=2) / 4
    forward, shares = draw(2, 2, d, w, seed=3) / 8, draw(2, N, seed=4).abs()
    variance = ((states.float() - mean[:, :, None]) @ forward).var(2)
    given = Channels(mean, forward, variance, counts), shares
    lengths = torch.tensor([N, 70], dtype=torch.int32, device=DEVICE)
    got = steps_of(states, *given, lengths)
    want = steps_along(coordinates_of(states, given[0]), *given, lengths)
    live = depths_of(counts, w) > 0
    assert float(torch.isclose(got, want, rtol=1e-4)[live].float().mean()) >= 0.9
    tried = torch.tensor(TRIED, device=DEVICE)
    two = (got / variance.sqrt() / STEPS[2])[depths_of(counts, w) == 2]
    assert float((two[:, None] - tried).abs().amin(1).max()) <= 1e-4
    assert bool((got > 0).all())


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("N", [1, 130, 256, 700])
def test_a_processor_packs_the_same_digits(N: int, values: bool) -> None:
    """Channels row by row, tokens fewer and more than those that steps are chosen on, ragged."""
    d, w, counts = 64, 48, torch.tensor(MIXES, dtype=torch.int32)
    states, mean = (draw(2, N, 2, d, seed=1).cpu().transpose(1, 2), draw(2, 2, d, seed=2).cpu())
    forward = torch.linalg.qr(draw(2, 2, d, d, seed=3).cpu())[0][..., :w]
    shares, lengths = draw(2, N, seed=4).cpu().abs(), torch.tensor([N, (N + 1) // 2])
    variance = ((states - mean[:, :, None]) @ forward).square().mean(2)
    channels = Channels(mean, forward, variance, counts)
    data, steps = pack_on_processor(states, channels, shares, lengths, values)
    usual = steps_along(coordinates_of(states, channels), channels, shares, lengths)
    live = depths_of(counts, w) > 0
    assert float(torch.isclose(steps, usual, rtol=1e-5)[live].float().mean()) >= 0.98
    want, _ = pack((states - mean[:, :, None]) @ forward, counts, steps, values)
    assert data.shape == want.shape
    assert float((data != want).float().mean()) < 1e-3
