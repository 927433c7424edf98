"""Attention over packed digits on a processor: what unpacking and plain products give."""

import pytest
import torch
from torch import Tensor

from kernels.planes import GRANULE, Planes, pack, rows_of, samples, unpack
from kernels.planes_plain import plane_scores, plane_sums
from kernels.reference import Text, Visual, attend_reference, opened

B, HEADS, GROUP, D = 3, 2, 2, 64
LENGTHS = [300, 128, 7]
ROUNDING = 6e-6  # of the largest: powers of four add to float32's own, 2 to 4e-6 by processor
COUNTS = [[[64, 32, 16, 0], [16, 0, 0, 0]], [[0, 0, 0, 0], [48, 48, 48, 48]], [[32, 16, 0, 0]] * 2]


def planes(values: bool, seed: int = 0) -> Planes:
    """Random digits of heads of many depths."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.tensor(COUNTS, dtype=torch.int32)
    coordinates = torch.randn(B, HEADS, max(LENGTHS), D, generator=generator) * 3
    data, offsets = pack(coordinates, counts, torch.ones(B, HEADS, D), values)
    own = counts[..., 0].flatten()
    starts = (own.cumsum(0) - own).view(B, HEADS).int()
    steps = torch.rand(int(own.sum()), generator=generator) + 0.5
    basis = torch.randint(-127, 128, (len(steps), D), generator=generator, dtype=torch.int8)
    widest = int(counts.sum(-1).max()) // GRANULE
    return Planes(data, counts, offsets, basis, steps, starts, widest)


def dense(one: Planes, values: bool) -> Tensor:
    """[B, Hkv, N, d] float64: what the digits mean."""
    levels = unpack(one, max(LENGTHS), D, values).double()
    return levels @ rows_of(one, D).double()


@pytest.mark.parametrize("T", [1, 5])
def test_scores_and_sums_are_those_of_unpacked_numbers(T: int) -> None:
    keys, values = planes(False), planes(True, 1)
    generator = torch.Generator().manual_seed(2)
    query = torch.randn(B, HEADS, GROUP, T, D, generator=generator)
    live = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    live = live[:, None, None, None]
    wanted = query.double() @ dense(keys, False)[:, :, None].mT
    found = plane_scores(query, keys, LENGTHS)
    worst = (found - wanted).masked_fill(~live, 0).abs().max() / wanted.abs().max()
    assert worst < ROUNDING
    weights = torch.rand(*found.shape, generator=generator).masked_fill(~live, 0)
    wanted = weights.double() @ dense(values, True)[:, :, None]
    found = plane_sums(weights, values, LENGTHS)
    assert (found - wanted).abs().max() / wanted.abs().max() < ROUNDING


def test_a_row_says_the_same_beside_longer_ones() -> None:
    """Bit for bit: a visitor's tokens do not depend on who else asks."""
    keys, values = planes(False), planes(True)
    query = torch.randn(B, HEADS, GROUP, 1, D, generator=torch.Generator().manual_seed(3))
    weights = plane_scores(query, keys, LENGTHS).softmax(-1)
    for b, length in enumerate(LENGTHS):
        own = [samples(one, torch.tensor([b])) for one in (keys, values)]
        alone = plane_scores(query[b : b + 1], own[0], [length])
        assert torch.equal(alone[0], plane_scores(query, keys, LENGTHS)[b, ..., :length])
        some = weights[b : b + 1, ..., :length]
        padded = torch.nn.functional.pad(some, (0, max(LENGTHS) - length))
        both = torch.cat([padded, weights[1:2], weights[2:3]])
        beside = samples(values, torch.tensor([b, 1, 2]))
        joined = plane_sums(both, beside, [length, *LENGTHS[1:]])[0]
        assert torch.equal(joined, plane_sums(some, own[1], [length])[0])


def test_attention_over_digits_is_that_over_numbers() -> None:
    generator = torch.Generator().manual_seed(4)
    q = torch.randn(B, HEADS * GROUP, 1, D, generator=generator)
    nothing = torch.zeros(B, HEADS, 0, 0)
    visual = Visual(
        nothing, nothing, torch.tensor(LENGTHS, dtype=torch.int32),
        mean=torch.randn(B, HEADS, D, generator=generator), tokens=max(LENGTHS),
        value_mean=torch.randn(B, HEADS, D, generator=generator),
        key_planes=planes(False), value_planes=planes(True),
    )  # fmt: skip
    beside, other = torch.randn(2, B, HEADS, 9, D, generator=generator)
    text = Text(beside, other, torch.tensor([9, 5, 1]))
    found = attend_reference(q, visual, text, D**-0.5)
    torch.testing.assert_close(
        found, attend_reference(q, opened(visual), text, D**-0.5), rtol=1e-4, atol=1e-4
    )
