"""The rivals' formulas against plain loops, their codes and bytes against what they should be."""

import math
from statistics import NormalDist

import pytest
import torch
from torch import Tensor

from rotatek.cache.bytes import storage_bytes
from rotatek.methods.channels import (
    ChannelMethod,
    Full,
    Kivi,
    LayerStates,
    SparK,
    ThinK,
    TurboQuant,
)
from rotatek.methods.channels.bit_packing import pack, packed_width, unpack
from rotatek.methods.channels.turboquant import lloyd_max, random_rotation

HEADS, D, N = 2, 64, 75
LENGTHS = (75, 40)  # of two samples: the second ends inside its second group of 32


def states(dtype: torch.dtype = torch.float32) -> LayerStates:
    """One layer whose Keys have loud channels and a mean, zero beyond each sample's length."""
    generator = torch.Generator().manual_seed(7)
    keys = torch.randn(2, HEADS, N, D, generator=generator) * 0.9 ** torch.arange(D) * 9 + 20
    values = torch.randn(2, HEADS, N, D, generator=generator)
    for sample, length in enumerate(LENGTHS):
        keys[sample, :, length:] = values[sample, :, length:] = 0
    queries = torch.randn(2, 2 * HEADS, 4, D, generator=generator)
    lengths = torch.tensor(LENGTHS, dtype=torch.int32)
    alive = torch.ones(2, 4, dtype=torch.bool)
    return LayerStates(keys.to(dtype), values.to(dtype), lengths, queries.to(dtype), alive, 0)


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("n", [1, 7, 8, 64, 128])
def test_codes_come_back_from_bytes(bits: int, n: int) -> None:
    codes = torch.randint(0, 2**bits, (2, 3, n), generator=torch.Generator().manual_seed(bits))
    packed = pack(codes, bits)
    assert packed.dtype == torch.uint8 and packed.shape == (2, 3, packed_width(n, bits))
    assert unpack(packed, bits, n).tolist() == codes.tolist()
    least = math.ceil(n * bits / 8)
    assert packed.shape[-1] == least or n % 8  # whole blocks of codes, so a little more at an end


def plain_group(numbers: list[float], bits: int) -> list[float]:
    """KIVI's formula for one group, number by number; scale and zero point in float16."""
    low, high = min(numbers), max(numbers)
    zero = float(torch.tensor(low).half())
    scale = float(torch.tensor((high - low) / (2**bits - 1)).half())
    codes = [min(max(round((x - zero) / scale), 0), 2**bits - 1) for x in numbers]
    return [code * scale + zero for code in codes]


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_groups_are_those_of_the_formula(bits: int) -> None:
    layer = states()
    found = Kivi(bits=str(bits)).compress(layer).read()
    for sample, length in enumerate(LENGTHS):
        for channel in (0, 5, D - 1):
            for first in range(0, length, 32):
                rows = slice(first, min(first + 32, length))
                own = layer.keys[sample, 1, rows, channel].tolist()
                got = found.keys[sample, 1, rows, channel].tolist()
                assert got == pytest.approx(plain_group(own, bits), rel=1e-5, abs=1e-5)
        for token in (0, 33, length - 1):
            for first in range(0, D, 32):
                own = layer.values[sample, 0, token, first : first + 32].tolist()
                got = found.values[sample, 0, token, first : first + 32].tolist()
                assert got == pytest.approx(plain_group(own, bits), rel=1e-5, abs=1e-5)


def test_a_group_of_equal_numbers_and_an_empty_one_are_no_trouble() -> None:
    layer = states()
    layer.keys[0] = 3.0
    layer.values[1] = 0.0
    found = Kivi(bits="2").compress(layer).read()
    assert (found.keys[0] == 3.0).all() and (found.values[1] == 0.0).all()
    assert torch.isfinite(found.keys).all() and torch.isfinite(found.values).all()


# Max (1960), table I: the outermost level, and the mean squared error of a unit Gaussian.
MAX = {1: (0.7980, 0.3634), 2: (1.510, 0.1175), 3: (2.152, 0.03454), 4: (2.733, 0.009497)}


@pytest.mark.parametrize("bits", MAX)
def test_the_codebook_is_the_one_of_lloyd_and_max(bits: int) -> None:
    levels, normal = lloyd_max(bits), NormalDist()
    assert levels[-1] == pytest.approx(MAX[bits][0], abs=1e-3)
    assert [-level for level in reversed(levels)] == pytest.approx(list(levels), abs=1e-6)
    edges = [-9.0, *((a + b) / 2 for a, b in zip(levels, levels[1:], strict=False)), 9.0]
    grid = torch.linspace(-9, 9, 360_001, dtype=torch.float64)
    density = torch.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi)
    nearest = torch.tensor(levels, dtype=torch.float64)[
        torch.bucketize(grid, torch.tensor(edges[1:-1], dtype=torch.float64))
    ]
    error = float(((grid - nearest) ** 2 * density).sum() * (grid[1] - grid[0]))
    assert error == pytest.approx(MAX[bits][1], rel=2e-3)
    assert normal.cdf(edges[1]) > 0


def test_the_rotation_is_orthogonal_and_always_the_same() -> None:
    basis = random_rotation(D, torch.device("cpu"))
    assert float((basis.T @ basis - torch.eye(D)).abs().max()) < 1e-6
    random_rotation.cache_clear()
    assert torch.equal(basis, random_rotation(D, torch.device("cpu")))
    assert not torch.equal(basis, torch.eye(D))


def plain_turbo(x: list[float], bits: int) -> list[float]:
    """TurboQuant's formula for one vector, in float64; its norm in float16."""
    back = random_rotation(len(x), torch.device("cpu")).double()
    vector = torch.tensor(x, dtype=torch.float64)
    norm = float(vector.norm())
    turned = [float(vector @ back[:, j]) / norm * math.sqrt(len(x)) for j in range(len(x))]
    levels = lloyd_max(bits)
    nearest = [min(levels, key=lambda level: abs(level - y)) for y in turned]
    scale = float(torch.tensor(norm).half()) / math.sqrt(len(x))
    return (back @ torch.tensor(nearest, dtype=torch.float64) * scale).tolist()


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_random_rotation_is_the_formula(bits: int) -> None:
    layer = states()
    found = TurboQuant(bits=str(bits)).compress(layer).read()
    for sample, head, token in ((0, 0, 0), (0, 1, 74), (1, 0, 39)):
        for own, got in ((layer.keys, found.keys), (layer.values, found.values)):
            wanted = plain_turbo(own[sample, head, token].tolist(), bits)
            assert got[sample, head, token].tolist() == pytest.approx(wanted, rel=1e-4, abs=1e-4)
    assert (found.values[1, :, 40:] == 0).all()


def error(method: ChannelMethod) -> float:
    """Squared error of the Values over their energy."""
    layer = states()
    found = method.compress(layer).read().values
    return float((found - layer.values).square().sum() / layer.values.square().sum())


def test_random_rotation_errs_as_its_codebook_says() -> None:
    for bits in (2, 3, 4):
        assert error(TurboQuant(bits=str(bits))) == pytest.approx(MAX[bits][1], rel=0.1)


def test_more_bits_err_less() -> None:
    for kind in (Kivi, TurboQuant):
        errors = [error(kind(bits=bits)) for bits in ("2", "3", "4")]
        assert errors == sorted(errors, reverse=True) and errors[-1] < errors[0] / 8


def bytes_of(found: list[tuple[str, Tensor]], part: str) -> int:
    """Of one part's storages."""
    return storage_bytes(tensor for name, tensor in found if name == part)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "method",
    [Kivi(bits="2"), Kivi(bits="3"), Kivi(), TurboQuant(bits="2"), TurboQuant(bits="3"),
     TurboQuant(), Full(), Full(cache_dtype="fp8"), Full(cache_dtype="int8"), ThinK(), SparK(),
     SparK(recovery="mean")],
    ids=repr,
)  # fmt: skip
def test_bytes_are_those_that_are_counted_ahead(method: ChannelMethod, dtype: torch.dtype) -> None:
    """`head_bytes`, to the byte, and the type that comes back is the model's."""
    layer = states(dtype)
    store = method.compress(layer)
    found = list(store.tensors())
    widths = method.key_widths(torch.ones(1, HEADS, D))
    ahead = method.head_bytes(
        widths, method.value_widths(torch.ones(1, HEADS, D)), torch.tensor([[N]]), D, dtype.itemsize
    )
    assert 2 * int(ahead.sum()) == storage_bytes(t for _, t in found) - bytes_of(found, "lengths")
    if method.form != "" and method.name != "full":
        assert store.read().keys.dtype == store.read().values.dtype == dtype
        assert all(t.dtype in (torch.uint8, torch.float16, torch.int32) for _, t in found)


def test_two_bits_are_three_with_their_scales() -> None:
    """The figures of the literature, for a long prompt: 96, 160, 100 and 68 bytes of 512."""
    tokens, widths = torch.tensor([[3200]]), torch.full((1, 1), 128)

    def each(method: ChannelMethod) -> float:
        return float(method.head_bytes(widths, widths, tokens, 128, 2).sum()) / 3200

    assert [each(Kivi(bits=bits)) for bits in ("2", "4")] == [96, 160]
    assert [each(TurboQuant(bits=bits)) for bits in ("2", "3")] == [68, 100]


def test_a_share_is_met_by_as_many_bits_as_fit() -> None:
    for kind in (Kivi, TurboQuant):
        shares = (1.0, 0.25, 0.24, 0.125, 0.01)
        assert [kind().with_share(share).bits for share in shares] == ["4", "4", "3", "2", "2"]
    assert ThinK().with_share(0.75).keep == 0.5 and ThinK().with_share(0.1).keep == 1 / 128
