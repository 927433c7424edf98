"""Pruners against plain references of their formulas."""

import math

import pytest
import torch
from torch import Tensor

from kernels.reference import Text
from rotatek.methods.channels import LayerStates
from rotatek.methods.tokens import PyramidDrop, Random, SnapKV, View
from rotatek.methods.tokens.dart import least_alike
from rotatek.methods.tokens.divprune import most_diverse

HEADS, GROUP, W, D, N, M = 2, 3, 4, 16, 40, 20
LENGTHS, SPOKEN = (40, 25), (20, 12)


def _view(tokens: int = 40, number: int = 0, seed: int = 0) -> View:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    states = draw(tokens, 12)
    eye = torch.eye(12)
    return View(draw(tokens).abs(), draw(tokens, 8), states, number, 12, lambda x: x @ eye)


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


def states() -> LayerStates:
    """One layer of two samples, padded, whose window is the end of its text."""
    generator = torch.Generator().manual_seed(5)

    def draw(*shape: int) -> Tensor:
        return 2 * torch.randn(*shape, generator=generator)

    alive = torch.tensor([[True] * W, [False, *[True] * (W - 1)]])
    keys, values = draw(2, HEADS, N, D), draw(2, HEADS, N, D)
    keys[1, :, LENGTHS[1] :] = values[1, :, LENGTHS[1] :] = 0
    text = Text(draw(2, HEADS, M, D), draw(2, HEADS, M, D), torch.tensor(SPOKEN))
    queries = draw(2, HEADS * GROUP, W, D)
    return LayerStates(keys, values, torch.tensor(LENGTHS), queries, alive, 0, text=text)


def plain_attention(layer: LayerStates, sample: int, head: int) -> list[float]:
    """SnapKV's votes of one head, query by query in float64."""
    n, m, total = LENGTHS[sample], SPOKEN[sample], [0.0] * LENGTHS[sample]
    assert layer.text is not None
    real = [w for w in range(W) if bool(layer.window_alive[sample, w])]
    for g in range(GROUP):
        for w in real:
            query = layer.queries[sample, head * GROUP + g, w].double()
            sees = m - (W - 1 - w)  # of the text: itself and what is before
            rows = torch.cat([layer.keys[sample, head, :n], layer.text.keys[sample, head, :sees]])
            scores = (rows.double() @ query / math.sqrt(D)).tolist()
            top = sum(math.exp(s - max(scores)) for s in scores)
            for token in range(n):
                total[token] += math.exp(scores[token] - max(scores)) / top
    return [one / (GROUP * len(real)) for one in total]


def plain_pool(votes: list[float]) -> list[float]:
    return [max(votes[max(0, n - 3) : n + 4]) for n in range(len(votes))]


@pytest.mark.parametrize("keep", [0.05, 0.3, 1.0])
def test_snapkv_keeps_the_best_of_each_head(keep: float) -> None:
    layer = states()
    counts = torch.tensor([max(1, round(keep * length)) for length in LENGTHS])
    kept = SnapKV(keep).kept_by_head(layer, counts)
    assert SnapKV(keep).stored(layer).lengths.tolist() == counts.tolist()
    for sample, length in enumerate(LENGTHS):
        for head in range(HEADS):
            votes = plain_pool(plain_attention(layer, sample, head))
            count = max(1, round(keep * length))
            chosen = kept[sample, head].nonzero()[:, 0].tolist()
            assert len(chosen) == count and max(chosen) < length
            least = min(votes[token] for token in chosen)
            rest = [votes[token] for token in range(length) if token not in chosen]
            assert not rest or least >= max(rest) - 1e-6
