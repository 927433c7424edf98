"""Pruners against plain references of their formulas, and in both families."""

import math
from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from torch import Tensor

from rotatek.bridge.row_layout import Layout
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import prefill
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.methods.shares import tokens_kept
from rotatek.methods.tokens import (
    DART,
    TOKENS,
    CDPruner,
    DivPrune,
    PyramidDrop,
    Random,
    SparseVLM,
    TokenPruner,
    View,
)
from rotatek.methods.tokens.base import Attended
from rotatek.methods.tokens.cdpruner import largest_determinant, relevance
from rotatek.methods.tokens.dart import least_alike
from rotatek.methods.tokens.divprune import most_diverse
from rotatek.methods.tokens.sparsevlm import clusters_of, density_peaks
from tests.fixtures import Picture
from tests.tiny import TINY

ENCODERS = [name for name, one in TOKENS.items() if one.stage == "encoder"]


def _view(tokens: int = 40, number: int = 0, seed: int = 0) -> View:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    states = draw(tokens, 12)
    eye = torch.eye(12)
    return View(draw(tokens).abs(), draw(tokens, 8), states, draw(5, 12), number, lambda x: x @ eye)


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


def _plain_determinant(kernel: Tensor, count: int) -> list[int]:
    """Greedy: the token whose joining gives the largest determinant, worked out each time."""
    chosen: list[int] = []
    while len(chosen) < count:
        free = [i for i in range(len(kernel)) if i not in chosen]
        dets = [torch.linalg.det(kernel[[*chosen, i]][:, [*chosen, i]]) for i in free]
        chosen.append(free[int(torch.stack(dets).argmax())])
    return chosen


@pytest.mark.parametrize("count", [1, 2, 9, 40])
def test_divprune_is_the_greedy_max_min_set(count: int) -> None:
    tokens = _view().tokens
    assert most_diverse(tokens, count).tolist() == _plain_max_min(tokens, count)


def test_divprune_leaves_copies_out() -> None:
    tokens = torch.eye(6).repeat(3, 1)
    assert set((most_diverse(tokens, 6) % 6).tolist()) == set(range(6))


@pytest.mark.parametrize("count", [1, 3, 8])
def test_cdpruner_is_the_greedy_determinant(count: int) -> None:
    generator = torch.Generator().manual_seed(1)
    root = torch.randn(20, 12, dtype=torch.float64, generator=generator)
    kernel = root @ root.T
    assert largest_determinant(kernel, count).tolist() == _plain_determinant(kernel, count)


def test_cdpruners_greedy_set_is_near_the_best_one() -> None:
    generator = torch.Generator().manual_seed(2)
    root = torch.randn(8, 8, dtype=torch.float64, generator=generator)
    kernel = root @ root.T

    def det(chosen: list[int]) -> float:
        return float(torch.linalg.det(kernel[chosen][:, chosen]))

    best = max(det(list(some)) for some in combinations(range(8), 3))
    assert det(largest_determinant(kernel, 3).tolist()) > 0.5 * best


def test_cdpruner_goes_on_beyond_the_kernels_rank() -> None:
    root = torch.randn(30, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    chosen = largest_determinant(root @ root.T, 30)
    assert sorted(chosen.tolist()) == list(range(30))


def test_relevance_is_scaled_cosine() -> None:
    tokens = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]])
    found = relevance(tokens, torch.tensor([[2.0, 0.0], [0.0, 0.0]]))
    torch.testing.assert_close(found, torch.tensor([1.0, 0.5, 0.0]), atol=1e-5, rtol=0)
    assert torch.equal(relevance(tokens, torch.empty(0, 2)), torch.ones(3))


def test_cdpruner_follows_the_question() -> None:
    view = _view()
    other = View(view.scores, view.keys, view.states, -view.question, 0, view.project)
    pruner = CDPruner(keep=0.3)
    assert not torch.equal(pruner.reduce(view)[0], pruner.reduce(other)[0])


def test_the_lot_is_seeded_and_its_own_for_every_view() -> None:
    kept = [Random(keep=0.5, seed=s).reduce(_view(number=n))[0] for s, n in
            [(0, 0), (0, 0), (0, 1), (1, 0)]]  # fmt: skip
    assert torch.equal(kept[0], kept[1])
    assert not torch.equal(kept[0], kept[2]) and not torch.equal(kept[0], kept[3])
    before = torch.get_rng_state()
    Random(keep=0.5).reduce(_view())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("keep", [0.02, 0.3, 1.0])
@pytest.mark.parametrize("made", [DivPrune, CDPruner, Random])
def test_as_many_stay_as_asked(made: Callable[..., TokenPruner], keep: float) -> None:
    view = _view()
    kept, states = made(keep=keep).reduce(view)
    assert int(kept.sum()) == tokens_kept(40, keep)
    assert states is view.states


@pytest.mark.parametrize("family", TINY)
@pytest.mark.parametrize("name", ENCODERS)
def test_every_encoder_pruner_in_both_families(name: str, family: str, picture: Picture) -> None:
    """With every channel method behind it; what stays is what the cache holds."""
    vlm = TINY[family]()
    prompt = vlm.prompt(make_request(picture(90, 70), "Which colour is it?", 4))
    settings = Settings.of(tokens=name, keep_tokens=0.3, keep_channels=0.25)
    embedded = vlm.embed(prompt, settings.tokens)
    assert embedded.kept is not None
    assert int(embedded.kept.sum()) == int(embedded.visual.sum()) < prompt.visual_tokens
    again = vlm.embed(prompt, settings.tokens)
    assert torch.equal(again.embeds, embedded.embeds)
    for method in ("rotatek", "think", "spark"):
        chosen = settings.with_channels(method)
        cache = RotateKCache(vlm.model, embedded.inputs(), chosen)
        logits, _ = prefill(vlm, embedded, cache)
        assert bool(logits.isfinite().all())
        assert cache.layers[0].store.visual.keys.shape[2] == int(embedded.visual.sum())


def _plain_peaks(states: Tensor, count: int) -> tuple[list[int], list[int]]:
    """Density peaks, a state at a time."""
    n = range(len(states))
    apart = [[float((states[i] - states[j]).norm()) / states.shape[1] ** 0.5 for j in n] for i in n]
    density = [math.exp(-sum(x * x for x in sorted(apart[i])[:count]) / count) for i in n]
    most = max(max(row) for row in apart)
    peak = [min([apart[i][j] for j in n if density[j] > density[i]], default=most) for i in n]
    centres = sorted(n, key=lambda i: -peak[i] * density[i])[:count]
    cluster = [min(range(count), key=lambda c: apart[i][centres[c]]) for i in n]
    return centres, cluster


def test_sparsevlm_clusters_by_density_peaks() -> None:
    states = _view(tokens=30).states
    centres, cluster = density_peaks(states, 4)
    wanted, members = _plain_peaks(states, 4)
    assert centres.tolist() == wanted and cluster.tolist() == members


def _layout(text_before: int, visual: int, text: int) -> Layout:
    length = text_before + visual + text
    seen = torch.zeros(1, length, dtype=torch.bool)
    seen[:, text_before : text_before + visual] = True
    return Layout(seen, torch.ones(1, length, dtype=torch.bool), 32)


def test_sparsevlm_ranks_by_its_raters() -> None:
    """Against whole attention matrices, head by head."""
    generator = torch.Generator().manual_seed(4)
    layout = _layout(3, 20, 6)
    embeds = torch.randn(1, 29, 10, generator=generator)
    turned = (embeds[0, 3:23] @ embeds[0, 23:].T).softmax(-1).mean(0)
    wanted = [23 + i for i in range(6) if turned[i] > turned.mean()]
    memory = SparseVLM(keep=0.5).look(embeds, layout)
    assert memory.nonzero()[:, 1].tolist() == wanted
    query = torch.randn(1, 4, 29, 8, generator=generator)
    keys = torch.randn(1, 2, 29, 8, generator=generator)
    seen = Attended(query, keys, layout, 0.3, torch.tensor([10]), memory)
    full = (
        (query @ keys.repeat_interleave(2, 1).transpose(-1, -2) * 0.3)
        .masked_fill(~torch.ones(29, 29, dtype=torch.bool).tril(), -torch.inf)
        .softmax(-1)
    )
    expected = full.mean(1)[0, wanted].mean(0)
    torch.testing.assert_close(SparseVLM(keep=0.5).rank(seen)[0], expected)


@pytest.mark.parametrize("layers", [1, 2, 4, 5, 6, 28, 32, 80])
@pytest.mark.parametrize("keep", [0.05, 1 / 3, 0.6, 0.95])
def test_sparsevlm_keeps_the_mean_it_is_asked_for(layers: int, keep: float) -> None:
    stages = SparseVLM(keep=keep).stages(layers)
    places, shares = list(stages), list(stages.values())
    assert places == sorted(set(places)) and places[-1] < layers
    assert shares == sorted(shares, reverse=True)
    if layers == 32:
        assert places == [2, 6, 15]
    held = SparseVLM(keep=keep).tokens_by_layer(layers, 10_000)[places[0] :]
    assert sum(held) / len(held) == pytest.approx(keep * 10_000, abs=1.5)


def test_sparsevlm_merges_what_it_recycles() -> None:
    """As many rows as asked; a merged one is a mean of rows that went, and the rest are as were."""
    generator = torch.Generator().manual_seed(5)
    layout = _layout(2, 60, 5)
    hidden = torch.randn(1, 67, 6, generator=generator)
    scores = torch.rand(1, 67, generator=generator)
    made = SparseVLM(keep=0.5)
    seen = Attended(hidden[:, None], hidden[:, None], layout, 1.0, torch.tensor([20]))
    first = made.choose(seen, scores)
    kept, after = made.recycle(hidden, seen, scores, first)
    assert int((kept & layout.visual).sum()) == 20
    clusters = kept & ~first
    assert int(clusters.sum()) == clusters_of(40)[1] == 2
    assert torch.equal(after[~clusters], hidden[~clusters])
    going = (layout.visual & ~first)[0].nonzero()[:, 0]
    pool = going[scores[0, going].argsort(descending=True)[: clusters_of(40)[0]]].sort().values
    centres, cluster = density_peaks(hidden[0, pool], 2)
    for number, centre in enumerate(pool[centres].tolist()):
        mean = hidden[0, pool[cluster == number]].mean(0)
        torch.testing.assert_close(after[0, centre], mean)


@pytest.mark.parametrize("layers", [1, 2, 4, 5, 28, 32])
@pytest.mark.parametrize("keep", [0.05, 1 / 3, 0.9])
def test_pyramiddrop_keeps_the_same_share_at_each_quarter(layers: int, keep: float) -> None:
    stages = PyramidDrop(keep=keep).stages(layers)
    places, shares = list(stages), list(stages.values())
    assert places == sorted(set(places)) and places[-1] < max(layers, 1)
    if layers == 32:
        assert places == [8, 16, 24]
        assert shares == pytest.approx([shares[0], shares[0] ** 2, shares[0] ** 3])
    held = PyramidDrop(keep=keep).tokens_by_layer(layers, 10_000)[places[0] :]
    assert sum(held) / len(held) == pytest.approx(keep * 10_000, abs=2)


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


def test_dart_chooses_in_a_batch_and_keeps_all_text() -> None:
    layout = _layout(2, 40, 6)
    keys = torch.randn(1, 2, 48, 8, generator=torch.Generator().manual_seed(4))
    pruner = DART(keep=0.5)
    seen = Attended(keys, keys, layout, 1.0, torch.tensor([20]))
    kept = pruner.choose(seen, pruner.rank(seen))
    assert int((kept & layout.visual).sum()) == 20
    assert bool(kept[layout.valid & ~layout.visual].all())
    assert pruner.stages(28) == {2: 0.5}
