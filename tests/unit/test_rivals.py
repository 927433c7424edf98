"""Formulas of rivals and pruners against plain loops, their codes and bytes as they should be."""

import cmath
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kernels.reference import Text
from rotatek.methods.channels import Kivi, LayerStates, TurboQuant, VidKV
from rotatek.methods.channels.omniscale import OmniScaled
from rotatek.methods.channels.oscar import Oscar
from rotatek.methods.channels.turboquant import codebook, random_rotation
from rotatek.methods.tokens import PyramidDrop, Random, SnapKV, View
from rotatek.methods.tokens.dart import least_alike
from rotatek.methods.tokens.divprune import most_diverse

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


def plain_group(numbers: list[float], bits: int, clip: float = 1.0) -> list[float]:
    """KIVI's formula for one group, number by number, over a share of its least and largest one;
    scale and zero point in float16."""
    low, high = min(numbers) * clip, max(numbers) * clip
    zero = float(torch.tensor(low).half())
    scale = float(torch.tensor((high - low) / (2**bits - 1)).half())
    codes = [min(max(round((x - zero) / scale), 0), 2**bits - 1) for x in numbers]
    return [code * scale + zero for code in codes]


@pytest.mark.parametrize(
    ("bits", "value_bits", "group", "residual"), [(2, 4, 64, 0), (4, 2, 128, 0), (3, 2, 32, 32)]
)
def test_groups_are_those_of_the_formula(
    bits: int, value_bits: int, group: int, residual: int
) -> None:
    layer = states()
    method = Kivi(str(bits), str(value_bits), str(group), str(residual))
    found = method.compress(layer).read()
    for sample, length in enumerate(LENGTHS):
        old = length - residual
        for channel in (0, 5, D - 1):
            for first in range(0, old, group):
                rows = slice(first, min(first + group, old))
                own = layer.keys[sample, 1, rows, channel].tolist()
                got = found.keys[sample, 1, rows, channel].tolist()
                assert got == pytest.approx(plain_group(own, bits), rel=1e-5, abs=1e-5)
        wide = min(group, D)
        for token in (0, old // 2, old - 1):
            for first in range(0, D, wide):
                own = layer.values[sample, 0, token, first : first + wide].tolist()
                got = found.values[sample, 0, token, first : first + wide].tolist()
                assert got == pytest.approx(plain_group(own, value_bits), rel=1e-5, abs=1e-5)
        for whole, read in ((layer.keys, found.keys), (layer.values, found.values)):
            assert torch.equal(whole[sample, :, old:length], read[sample, :, old:length])


# Max (1960), table I: the outermost level, and the mean squared error of a unit Gaussian.
MAX = {1: (0.7980, 0.3634), 2: (1.510, 0.1175), 3: (2.152, 0.03454), 4: (2.733, 0.009497)}


@pytest.mark.parametrize("bits", MAX)
def test_the_codebook_is_the_one_of_lloyd_and_max(bits: int) -> None:
    levels = codebook(bits, torch.device("cpu")).double()
    assert float(levels[-1]) == pytest.approx(MAX[bits][0], abs=1e-3)
    grid = torch.linspace(-9, 9, 360_001, dtype=torch.float64)
    density = torch.exp(-(grid**2) / 2) / math.sqrt(2 * math.pi)
    nearest = levels[torch.bucketize(grid, (levels[1:] + levels[:-1]) / 2)]
    error = float(((grid - nearest) ** 2 * density).sum() * (grid[1] - grid[0]))
    assert error == pytest.approx(MAX[bits][1], rel=2e-3)


def plain_turbo(x: list[float], bits: int) -> list[float]:
    """TurboQuant's formula for one vector, in float64; its norm in float16."""
    back = random_rotation(len(x), torch.device("cpu")).double()
    vector = torch.tensor(x, dtype=torch.float64)
    norm = float(vector.norm())
    turned = [float(vector @ back[:, j]) / norm * math.sqrt(len(x)) for j in range(len(x))]
    levels = codebook(bits, torch.device("cpu")).tolist()
    nearest = [min(levels, key=lambda level: abs(level - y)) for y in turned]
    scale = float(torch.tensor(norm).half()) / math.sqrt(len(x))
    return (back @ torch.tensor(nearest, dtype=torch.float64) * scale).tolist()


@pytest.mark.parametrize(("bits", "value_bits"), [(1, 4), (3, 2)])
def test_random_rotation_is_the_formula(bits: int, value_bits: int) -> None:
    layer = states()
    found = TurboQuant(str(bits), str(value_bits)).compress(layer).read()
    for sample, head, token in ((0, 0, 0), (0, 1, 74), (1, 0, 39)):
        for own, got, each in (
            (layer.keys, found.keys, bits), (layer.values, found.values, value_bits)
        ):  # fmt: skip
            wanted = plain_turbo(own[sample, head, token].tolist(), each)
            assert got[sample, head, token].tolist() == pytest.approx(wanted, rel=1e-4, abs=1e-4)
    assert (found.values[1, :, 40:] == 0).all()


def test_half_a_bit_is_one_more_for_the_loud_half_of_the_channels() -> None:
    """Each half is a vector of its own, with its rotation and its norm."""
    layer, low = states(), 2
    found = TurboQuant(bits="2.5").compress(layer).read()
    for sample, head, token in ((0, 1, 74), (1, 0, 39)):
        for own, got in ((layer.keys, found.keys), (layer.values, found.values)):
            energy = own[sample, head].double().square().sum(0).tolist()
            order = sorted(range(D), key=lambda c: -energy[c])
            for channels, each in (
                (sorted(order[: D // 2]), low + 1),
                (sorted(order[D // 2 :]), low),
            ):
                wanted = plain_turbo(own[sample, head, token, channels].tolist(), each)
                read = got[sample, head, token, channels].tolist()
                assert read == pytest.approx(wanted, rel=1e-4, abs=1e-4)


def plain_signs(numbers: list[float]) -> list[float]:
    """VidKV's one bit for a whole group of a channel: a plain discrete Fourier transform of what is
    left of its mean, one sign for each real and imaginary part, and one scale."""
    count = len(numbers)
    mean = float(torch.tensor(sum(numbers) / count).half())
    turn = [
        sum((x - mean) * cmath.exp(-2j * math.pi * f * n / count) for n, x in enumerate(numbers))
        / math.sqrt(count)
        for f in range(count // 2 + 1)
    ]
    parts = [z.real for z in turn[1:]] + [z.imag for z in turn[1:-1]]
    scale = float(torch.tensor(sum(map(abs, parts)) / len(parts)).half())

    def sign(x: float) -> float:
        return scale if x > 0 else -scale

    read = [0j, *(complex(sign(z.real), sign(z.imag)) for z in turn[1:-1]), sign(turn[-1].real)]
    found = []
    for n in range(count):
        total = read[0].real + read[-1].real * (-1) ** n
        for f in range(1, count // 2):
            total += 2 * (read[f] * cmath.exp(2j * math.pi * f * n / count)).real
        found.append(total / math.sqrt(count) + mean)
    return found


def plain_ternary(numbers: list[float]) -> list[float]:
    """VidKV's Values: -s, 0 or s."""
    size = float(torch.tensor(sum(map(abs, numbers)) / len(numbers)).half())
    codes = [max(-1, min(1, round(x / size))) for x in numbers]
    large = [abs(x) for x, code in zip(numbers, codes, strict=True) if code]
    scale = float(torch.tensor(sum(large) / len(large)).half())
    return [code * scale for code in codes]


def test_vidkv_is_the_formula() -> None:
    layer = states()
    found = VidKV().compress(layer).read()
    for sample, length in enumerate(LENGTHS):
        own = layer.keys[sample, 1, :length]
        reach = (own.amax(0) - own.amin(0)).tolist()
        order = sorted(range(D), key=lambda c: -reach[c])
        for channel in (order[0], order[D // 2 - 1], order[D // 2], order[-1]):
            plain = plain_signs if channel in order[D // 2 :] else lambda x: plain_group(x, 2)
            for first in range(0, length - 31, 32):
                wanted = plain(own[first : first + 32, channel].tolist())
                got = found.keys[sample, 1, first : first + 32, channel].tolist()
                assert got == pytest.approx(wanted, rel=1e-3, abs=2e-3)
        for channel in (0, 7, D - 1):
            for first in range(0, length, 32):
                rows = slice(first, min(first + 32, length))
                wanted = plain_ternary(layer.values[sample, 0, rows, channel].tolist())
                got = found.values[sample, 0, rows, channel].tolist()
                assert got == pytest.approx(wanted, rel=1e-3, abs=1e-5)


def sylvester(width: int) -> list[list[float]]:
    """The Hadamard matrix by its rule: -1 to the number of common bits of row and column."""
    return [[(-1) ** (i & j).bit_count() / width**0.5 for j in range(width)] for i in range(width)]


@pytest.mark.parametrize("whole", ["0", "64+256"])
def test_oscar_is_its_formula(whole: str) -> None:
    """R = U H P of both moments, then a token's codes; the first and last tokens as they were."""
    layer, method = states(torch.float64), Oscar("2", whole=whole)
    found = method.compress(replace(layer, keys=layer.keys.float(), values=layer.values.float()))
    seen = found.read()
    spread = torch.tensor(sylvester(D), dtype=torch.float64)
    order = [int(format(i, "06b")[::-1], 2) for i in range(D)]
    for sample, token in ((0, 3), (0, 74), (1, 20)):
        moment = sum(q.T @ q for q in layer.queries[sample])
        weigh = [(k @ moment * k).sum(-1) for k in layer.keys[sample]]  # of a head's tokens
        pairs = zip(layer.values[sample], weigh, strict=True)
        values = sum(v.T @ (w[:, None] * v) for v, w in pairs)
        for name, total, clip in (("keys", moment, 0.96), ("values", values, 0.92)):
            turn = (torch.linalg.eigh(total).eigenvectors.flip(-1) @ spread)[:, order]
            own = getattr(layer, name)[sample, 1, token]
            got = getattr(seen, name)[sample, 1, token].double()
            if whole != "0":
                assert torch.equal(got, own.float().double())
                continue
            wanted = torch.tensor(plain_group((own @ turn).tolist(), 2, clip)).double() @ turn.T
            # an eigenvector's sign is free, so errors are compared, not codes
            assert torch.isclose((got - own).norm(), (wanted - own).norm(), rtol=0.35)


def test_oscars_rotations_of_a_file_are_used() -> None:
    """With a given R the codes are the formula's, number by number."""
    layer = states()
    turns = torch.stack([random_rotation(D, torch.device("cpu"))] * 2)
    seen = Oscar("2").compress(replace(layer, basis=turns)).read()
    for name, clip in (("keys", 0.96), ("values", 0.92)):
        own = getattr(layer, name)[1, 0, 20]
        wanted = torch.tensor(plain_group((own @ turns[0]).tolist(), 2, clip)) @ turns[0].T
        assert torch.allclose(getattr(seen, name)[1, 0, 20], wanted, atol=1e-5 * float(own.norm()))


@pytest.mark.parametrize("residual", [0, 32])
def test_omni_scaling_is_its_formula(residual: int) -> None:
    layer, spread = states(), torch.tensor(sylvester(D))
    seen = OmniScaled("2", residual=str(residual)).compress(layer).read()
    for sample, length in enumerate(LENGTHS):
        turned = layer.keys[sample, 1, :length] @ spread
        norms = turned.norm(dim=-1, keepdim=True).half().float()
        scaled, old = turned / norms, length - residual
        for first in range(0, old, 32):
            rows = slice(first, min(first + 32, old))
            channels = [plain_group(scaled[rows, c].tolist(), 2) for c in range(D)]
            scaled[rows] = torch.tensor(channels).T
        wanted = scaled * norms @ spread
        got = seen.keys[sample, 1, :length]
        assert torch.allclose(got, wanted, atol=1e-5 * float(wanted.abs().max()))
        value = layer.values[sample, 1, 5] @ spread
        if old > 5:
            halves = [plain_group(half.tolist(), 2) for half in value.split(32)]
            wanted = torch.tensor(halves).flatten() @ spread
            assert torch.allclose(seen.values[sample, 1, 5], wanted, atol=1e-5)


# -- pruners against plain references of their formulas ----------------------------------------

KV, GROUP, W, WIDTH, TOKENS, M = 2, 3, 4, 16, 40, 20
VISUAL, SPOKEN = (40, 25), (20, 12)


def _view(tokens: int = 40, number: int = 0, seed: int = 0) -> View:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    beside_text = draw(tokens, 12)
    eye = torch.eye(12)
    return View(draw(tokens).abs(), draw(tokens, 8), beside_text, number, 12, lambda x: x @ eye)


def _plain_max_min(tokens: Tensor, count: int) -> list[int]:
    """The authors' greedy search, with the whole distance matrix."""
    unit = tokens.double() / tokens.double().norm(dim=-1, keepdim=True)
    distance = (1 - unit @ unit.T).tolist()
    everyone = range(len(distance))
    chosen: list[int] = []
    while len(chosen) < count:
        if not chosen:
            score = [min(distance[i][j] for j in everyone if j != i) for i in everyone]
        else:
            score = [min(distance[i][j] for j in chosen) for i in everyone]
        free = [i for i in everyone if i not in chosen]
        chosen.append(max(free, key=lambda i: score[i]))
    return chosen


@pytest.mark.parametrize("count", [1, 2, 9, 40])
def test_divprune_is_the_greedy_max_min_set(count: int) -> None:
    tokens = _view().tokens
    assert most_diverse(tokens, count).tolist() == _plain_max_min(tokens, count)


def test_the_lot_is_seeded_and_its_own_for_every_view() -> None:
    kept = [Random(keep=0.5, seed=s).reduce(_view(number=n))[0] for s, n in
            [(0, 0), (0, 0), (0, 1), (1, 0)]]  # fmt: skip
    assert torch.equal(kept[0], kept[1])
    assert not torch.equal(kept[0], kept[2]) and not torch.equal(kept[0], kept[3])
    before = torch.get_rng_state()
    Random(keep=0.5).reduce(_view())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("layers", [1, 2, 4, 5, 28, 32])
@pytest.mark.parametrize("keep", [0.05, 1 / 3, 0.9])
def test_pyramiddrop_keeps_the_same_share_at_each_quarter(layers: int, keep: float) -> None:
    stages = PyramidDrop(keep=keep).stages(layers)
    places, shares = list(stages), list(stages.values())
    assert places == sorted(set(places)) and places[-1] < max(layers, 1)
    if layers == 32:
        assert places == [8, 16, 24]
        assert shares == pytest.approx([shares[0], shares[0] ** 2, shares[0] ** 3])


def _plain_dart(
    keys: list[list[float]], visual: list[int], text: list[int], count: int
) -> set[int]:
    """Pivots in turn, each the tokens least like it, one by one."""

    def size(row: int) -> float:
        return sum(map(abs, keys[row]))

    def alike(a: int, b: int) -> float:
        both = sum(x * y for x, y in zip(keys[a], keys[b], strict=True))
        return both / math.hypot(*keys[a]) / math.hypot(*keys[b])

    own = sorted(visual, key=size, reverse=True)[: min(4, count)]
    pivots = [*own, *sorted(text, key=size, reverse=True)[:4]]
    kept, left = set(own), count - len(own)
    for number, pivot in enumerate(pivots):
        share = math.ceil(left / (len(pivots) - number))
        rest = sorted((row for row in visual if row not in kept), key=lambda r: alike(pivot, r))
        kept |= set(rest[:share])
        left -= share
    return kept


@pytest.mark.parametrize("count", [1, 3, 5, 17, 40])
def test_dart_keeps_what_is_least_like_its_pivots(count: int) -> None:
    generator = torch.Generator().manual_seed(9)
    keys = torch.randn(55, 6, generator=generator)
    visual, text = torch.arange(3, 43), torch.cat([torch.arange(3), torch.arange(43, 55)])
    found = least_alike(keys, visual, text, count).tolist()
    wanted = _plain_dart(keys.tolist(), visual.tolist(), text.tolist(), count)
    assert len(found) == count and set(found) == wanted


def beside_text() -> LayerStates:
    """One layer of two samples, padded, whose window is the end of its text."""
    generator = torch.Generator().manual_seed(5)

    def draw(*shape: int) -> Tensor:
        return 2 * torch.randn(*shape, generator=generator)

    alive = torch.tensor([[True] * W, [False, *[True] * (W - 1)]])
    keys, values = draw(2, KV, TOKENS, WIDTH), draw(2, KV, TOKENS, WIDTH)
    keys[1, :, VISUAL[1] :] = values[1, :, VISUAL[1] :] = 0
    text = Text(draw(2, KV, M, WIDTH), draw(2, KV, M, WIDTH), torch.tensor(SPOKEN))
    queries = draw(2, KV * GROUP, W, WIDTH)
    return LayerStates(keys, values, torch.tensor(VISUAL), queries, alive, 0, text=text)


def plain_attention(layer: LayerStates, sample: int, head: int) -> list[float]:
    """SnapKV's votes of one head, query by query in float64."""
    n, m, total = VISUAL[sample], SPOKEN[sample], [0.0] * VISUAL[sample]
    assert layer.text is not None
    real = [w for w in range(W) if bool(layer.window_alive[sample, w])]
    for g in range(GROUP):
        for w in real:
            query = layer.queries[sample, head * GROUP + g, w].double()
            sees = m - (W - 1 - w)  # of the text: itself and what is before
            rows = torch.cat([layer.keys[sample, head, :n], layer.text.keys[sample, head, :sees]])
            scores = (rows.double() @ query / math.sqrt(WIDTH)).tolist()
            top = sum(math.exp(s - max(scores)) for s in scores)
            for token in range(n):
                total[token] += math.exp(scores[token] - max(scores)) / top
    return [one / (GROUP * len(real)) for one in total]


def plain_pool(votes: list[float]) -> list[float]:
    return [max(votes[max(0, n - 3) : n + 4]) for n in range(len(votes))]


@pytest.mark.parametrize("keep", [0.05, 0.3, 1.0])
def test_snapkv_keeps_the_best_of_each_head(keep: float) -> None:
    layer = beside_text()
    counts = torch.tensor([max(1, round(keep * length)) for length in VISUAL])
    found = SnapKV(keep).stored(layer)
    assert found.lengths.tolist() == counts.tolist()
    for sample, length in enumerate(VISUAL):
        for head in range(KV):
            votes = plain_pool(plain_attention(layer, sample, head))
            count = max(1, round(keep * length))
            same = layer.keys[sample, head, :, None] == found.keys[sample, head, None, :count]
            chosen = same.all(-1).any(1).nonzero()[:, 0].tolist()
            assert len(chosen) == count and max(chosen) < length
            least = min(votes[token] for token in chosen)
            rest = [votes[token] for token in range(length) if token not in chosen]
            assert not rest or least >= max(rest) - 1e-6
