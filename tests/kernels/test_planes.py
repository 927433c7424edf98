"""The planes' layout, attention over digits as they are packed, and how they are packed."""

import pytest
import torch
from torch import Tensor

from kernels.packing import pack_states, steps_of
from kernels.packing_plain import pack_on_processor
from kernels.planes import (
    STEPS,
    TRIED,
    Channels,
    Planes,
    coordinates_of,
    depths_of,
    pack,
    rows_of,
    samples,
    steps_along,
    unpack,
)
from kernels.planes_plain import plane_scores, plane_sums
from kernels.samples import planes_of

MIXES = torch.tensor(  # channels with a digit of each level, of three requests and two heads
    [
        [[64, 32, 16, 0], [16, 0, 0, 0]],
        [[0, 0, 0, 0], [48, 48, 48, 48]],
        [[32, 16, 0, 0], [16, 16, 16, 0]],
    ],
    dtype=torch.int32,
)
B, HEADS, GROUP, D = 3, 2, 2, 64
LENGTHS = [300, 128, 7]
ROUNDING = 6e-6  # of the largest: powers of four add to float32's own, 2 to 4e-6 by processor


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def some(values: bool, seed: int = 0) -> Planes:
    """Random digits of heads of many depths."""
    steps = 0.5 + draw(B, HEADS, D, seed=seed + 50).abs() / 2
    states, rows = draw(B, HEADS, max(LENGTHS), D, seed=seed), draw(B, HEADS, D, D, seed=7)
    return planes_of(3 * states, MIXES, steps, rows, values)


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("N", [1, 127, 128, 300])
def test_codes_come_back(N: int, values: bool) -> None:
    """As the nearest levels, from the definition, but for those that rounding alone decides."""
    coordinates, steps = draw(B, HEADS, N, D), 0.3 + draw(B, HEADS, D, seed=1).abs()
    planes = planes_of(coordinates, MIXES, steps, draw(B, HEADS, D, D), values)
    depths = depths_of(MIXES, D)[:, :, None]
    half = (2.0**depths - 1) / 2
    codes = (coordinates / steps[:, :, None] + half).round().clamp(min=0).minimum(2 * half)
    want = torch.where(depths > 0, codes - half, 0.0)
    assert float((unpack(planes, N, D, values) != want).float().mean()) < 1e-4
    assert planes.data.nbytes == MIXES.sum() // 16 * -(-N // 128) * 512  # complete tiles


@pytest.mark.parametrize("T", [1, 5])
def test_scores_and_sums_are_those_of_unpacked_numbers(T: int) -> None:
    keys, values = some(False), some(True, 1)
    dense = [
        unpack(one, max(LENGTHS), D, side).double() @ rows_of(one, D).double()
        for one, side in ((keys, False), (values, True))
    ]
    query = draw(B, HEADS, GROUP, T, D, seed=2)
    live = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    live = live[:, None, None, None]
    wanted = query.double() @ dense[0][:, :, None].mT
    found = plane_scores(query, keys, LENGTHS)
    worst = (found - wanted).masked_fill(~live, 0).abs().max() / wanted.abs().max()
    assert worst < ROUNDING
    weights = draw(*found.shape, seed=3).abs().masked_fill(~live, 0)
    wanted = weights.double() @ dense[1][:, :, None]
    found = plane_sums(weights, values, LENGTHS)
    assert (found - wanted).abs().max() / wanted.abs().max() < ROUNDING


def test_a_row_says_the_same_beside_longer_ones() -> None:
    """Bit for bit: a visitor's tokens do not depend on who else asks."""
    keys, values = some(False), some(True)
    query = draw(B, HEADS, GROUP, 1, D, seed=3)
    weights = plane_scores(query, keys, LENGTHS).softmax(-1)
    for b, length in enumerate(LENGTHS):
        own = [samples(one, torch.tensor([b])) for one in (keys, values)]
        alone = plane_scores(query[b : b + 1], own[0], [length])
        assert torch.equal(alone[0], plane_scores(query, keys, LENGTHS)[b, ..., :length])
        mine = weights[b : b + 1, ..., :length]
        padded = torch.nn.functional.pad(mine, (0, max(LENGTHS) - length))
        both = torch.cat([padded, weights[1:2], weights[2:3]])
        beside = samples(values, torch.tensor([b, 1, 2]))
        joined = plane_sums(both, beside, [length, *LENGTHS[1:]])[0]
        assert torch.equal(joined, plane_sums(mine, own[1], [length])[0])


# -- states to digits, by kernels and on a processor, against plain PyTorch -----------------------

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DEEP = [[[48, 32, 16, 16], [16, 0, 0, 0]], [[0, 0, 0, 0], [32, 32, 16, 0]]]


@pytest.mark.parametrize("device", [DEVICE, "processor"])
@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("N, d", [(1, 64), (130, 80), (256, 64), (700, 80)])
def test_digits_are_those_of_plain_pytorch(N: int, d: int, values: bool, device: str) -> None:
    """Ragged tokens of a larger buffer, fewer and more than those that steps are chosen on; heads
    of 2 to 8 bits a channel and one of none."""
    by_kernels, w = device != "processor", 48
    made = draw(2, N + 3, 2, d, seed=1), draw(2, 2, d, seed=2), draw(2, 2, d, d, seed=3)
    own = device if by_kernels else "cpu"
    states, mean, square = (each.to(own) for each in made)
    states = states.bfloat16()[:, :N].transpose(1, 2)
    forward = torch.linalg.qr(square)[0][..., :w]
    shares, lengths = draw(2, N, seed=4).abs().to(own), torch.tensor([N, (N + 1) // 2], device=own)
    variance = ((states.float() - mean[:, :, None]) @ forward).square().mean(2)
    counts = torch.tensor(DEEP, dtype=torch.int32, device=own)
    channels = Channels(mean, forward, variance, counts)
    given, coordinates = (channels, shares, lengths), coordinates_of(states, channels)
    if by_kernels:
        steps = steps_of(states, *given)
    else:
        data, steps = pack_on_processor(states, *given, values)
    usual, depths = steps_along(coordinates, *given), depths_of(counts, w)
    assert bool((steps > 0).all())
    near = torch.isclose(steps, usual, rtol=1e-4)[depths > 0]
    assert float(near.float().mean()) >= 0.9  # where two multiples err alike, either will do
    two = (steps / variance.sqrt() / STEPS[2])[depths == 2]
    assert float((two[:, None] - torch.tensor(TRIED, device=own)).abs().amin(1).max()) <= 1e-4
    want, offsets = pack(coordinates, counts, steps, values)
    if by_kernels:
        data = pack_states(states, mean, forward, counts, steps, values, offsets, len(want))
    assert data.shape == want.shape
    # A word holds up to eight digits; products of a GPU put some numbers across a digit's border.
    assert float((data != want).float().mean()) < (0.06 if own == "cuda" else 1e-3)
