"""States to digits in one launch, against plain PyTorch."""

import pytest
import torch
from torch import Tensor

from kernels.packing import pack_states
from kernels.planes import pack

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


def test_no_bits_at_all_are_no_data() -> None:
    counts = torch.zeros(2, 2, 4, dtype=torch.int32, device=DEVICE)
    states, steps = draw(2, 2, 5, 16), torch.ones(2, 2, 16, device=DEVICE)
    data, offsets = pack_states(states, draw(2, 2, 16), draw(2, 2, 16, 16), counts, steps)
    assert data.numel() == 0 and offsets.tolist() == [[0, 0], [0, 0]]
