"""Planes as whole codes: what is read back is what was there."""

import pytest
import torch
from torch import Tensor

from kernels.plane_codes import codes_of, data_of
from kernels.planes import Planes, depths_of, pack, unpack

MIXES = [[[48, 32, 16, 16], [16, 0, 0, 0]], [[0, 0, 0, 0], [32, 32, 16, 0]]]


def planes(N: int, values: bool = False) -> Planes:
    """Of two samples of two heads: 2 to 8 bits a channel, and a head of none."""
    counts = torch.tensor(MIXES, dtype=torch.int32)
    x = torch.randn(2, 2, N, 48, generator=torch.Generator().manual_seed(N))
    data, offsets = pack(x, counts, torch.full((2, 2, 48), 0.2), values)
    nothing = torch.empty(0)
    return Planes(data, counts, offsets, nothing[None], nothing, nothing.int(), 9)


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("N", [1, 128, 300])
def test_digits_come_back(N: int, values: bool) -> None:
    """Every bit, those behind the last token among them."""
    own = planes(N, values)
    noise = torch.randint(-(1 << 15), 1 << 15, own.data.shape, dtype=torch.int16)
    for data in (own.data, noise):
        codes = codes_of(own._replace(data=data), values)
        assert codes is not None
        assert sum(map(len, codes)) <= 1.4 * data.nbytes  # 6 bits take a byte
        assert torch.equal(data_of(codes, own.counts, values), data)


@pytest.mark.parametrize("values", [False, True])
def test_neighbouring_tokens_of_a_channel_stand_side_by_side(values: bool) -> None:
    own = planes(300, values)
    codes, levels = codes_of(own, values), unpack(own, 300, values=values)
    assert codes is not None
    depths = depths_of(own.counts, levels.shape[-1])
    (four,) = ((levels[b, h, :, 16] + 7.5).byte() for b, h in [(0, 0)] if depths[b, h, 16] == 4)
    low, high = codes[1] & 15, codes[1] >> 4
    first: Tensor = torch.stack([low, high], 1).flatten()[:300]
    assert torch.equal(first, four)


def test_what_does_not_lie_in_order_stays_as_it_is() -> None:
    own = planes(200)
    assert codes_of(own._replace(offsets=own.offsets.flip(0)), False) is None
    assert codes_of(own._replace(data=own.data[:-1]), False) is None
    assert codes_of(own._replace(data=own.data[:0]), False) is None


def test_codes_of_other_channels_are_refused() -> None:
    own = planes(200)
    codes = codes_of(own, False)
    assert codes is not None
    for wrong in ([codes[0][:-32], *codes[1:]], [one[: len(one) // 3] for one in codes]):
        with pytest.raises(ValueError, match="as many codes"):
            data_of(wrong, own.counts, False)
