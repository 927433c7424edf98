"""The planes' layout and its plain PyTorch truth."""

import pytest
import torch
from torch import Tensor

from kernels.planes import (
    Planes,
    depths_of,
    granules,
    pack,
    rows_of,
    unpack,
)
from kernels.reference import Text, Visual, attend_reference

MIXES = torch.tensor(  # channels with a digit of each level, of two requests and two heads
    [[[32, 16, 0, 0], [48, 32, 16, 16]], [[0, 0, 0, 0], [16, 16, 16, 0]]], dtype=torch.int32
)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def planes_of(
    coordinates: Tensor, counts: Tensor, steps: Tensor, basis: Tensor, values: bool
) -> Planes:
    """Planes of coordinates [B, Hkv, N, w] in rows [B, Hkv, w, d]."""
    data, offsets = pack(coordinates, counts, steps, values)
    own = counts[..., 0]
    live = torch.arange(steps.shape[-1]) < own[..., None]
    starts = (own.flatten().cumsum(0) - own.flatten()).view(own.shape).int()
    widest = int(granules(counts).max())
    return Planes(data, counts, offsets, basis[live], steps[live], starts, widest)


def quantised(coordinates: Tensor, counts: Tensor, steps: Tensor) -> Tensor:
    """The coordinates as the nearest levels, from the definition."""
    depths = depths_of(counts, steps.shape[-1])[:, :, None]
    half = (2.0**depths - 1) / 2
    codes = (coordinates / steps[:, :, None] + half).round().clamp(min=0).minimum(2 * half)
    return torch.where(depths > 0, codes - half, 0.0)


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("N", [1, 127, 128, 300])
def test_codes_come_back(N: int, values: bool) -> None:
    coordinates, steps = draw(2, 2, N, 48), 0.3 + draw(2, 2, 48, seed=1).abs()
    planes = planes_of(coordinates, MIXES, steps, draw(2, 2, 48, 64), values)
    assert torch.equal(unpack(planes, N, 48, values), quantised(coordinates, MIXES, steps))
    assert planes.data.nbytes == MIXES.sum() // 16 * -(-N // 128) * 512  # complete tiles
    assert planes.nbytes == sum(part.nbytes for part in planes if isinstance(part, Tensor))


@pytest.mark.parametrize("counts", [[8, 0, 0, 0], [16, 32, 0, 0], [64, 0, 0, 0]])
def test_counts_that_no_kernel_reads_are_refused(counts: list[int]) -> None:
    with pytest.raises(ValueError, match="multiples of 16"):
        pack(draw(1, 1, 4, 48), torch.tensor([[counts]]), torch.ones(1, 1, 48))


@pytest.mark.parametrize("stored", [torch.float32, torch.int8])
@pytest.mark.parametrize("G", [1, 7])
def test_attention_over_planes_is_that_over_the_levels_they_mean(
    G: int, stored: torch.dtype
) -> None:
    """The same call with plain Keys and Values, ragged, with text beside; a head has no channel."""
    N, w, d = 150, 48, 64
    sides = []
    for side in (0, 1):
        coordinates, steps = draw(2, 2, N, w, seed=side), 0.3 + draw(2, 2, w, seed=8).abs()
        basis = draw(2, 2, w, d, seed=2 + side) / 4
        if stored == torch.int8:
            basis = (basis * 100).round().clamp(-127, 127).to(torch.int8)
        sides.append((planes_of(coordinates, MIXES, steps, basis, bool(side)), coordinates, steps))
    (keys, x, key_steps), (values, y, value_steps) = sides
    q, mean, shift = draw(2, 2 * G, 1, d), draw(2, 2, d) / 4, draw(2, 2, d)
    lengths = torch.tensor([N, 70], dtype=torch.int32)
    text = Text(draw(2, 2, 5, d), draw(2, 2, 5, d, seed=3))
    none = torch.zeros(2, 2, 0, 0)
    packed = Visual(none, none, lengths, mean=mean, value_mean=shift, tokens=N)
    packed = packed._replace(key_planes=keys, value_planes=values)
    plain = Visual(
        quantised(x, MIXES, key_steps), quantised(y, MIXES, value_steps), lengths, mean=mean,
        basis=rows_of(keys, w).mT, value_basis=rows_of(values, w), value_mean=shift,
    )  # fmt: skip
    got, want = (attend_reference(q, each, text, 0.125) for each in (packed, plain))
    assert (got - want).abs().max() <= 3e-5 * want.abs().max()  # scores of thousands, rounded


def test_requests_may_share_rows() -> None:
    counts = MIXES[:1, :1].expand(3, 1, 4)
    data, offsets = pack(draw(3, 1, 40, 32), counts, torch.ones(3, 1, 32))
    starts = torch.zeros(3, 1, dtype=torch.int32)
    planes = Planes(data, counts, offsets, draw(32, 64), torch.ones(32), starts, 3)
    rows = rows_of(planes)
    assert torch.equal(rows[0], rows[2])
    assert torch.equal(rows[0, 0], planes.basis)
