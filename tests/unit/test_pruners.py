"""Encoder-stage pruners against plain references of their formulas, and in both families."""

from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from torch import Tensor

from rotatek.budget import tokens_kept
from rotatek.cache.compressed import RotateKCache
from rotatek.decode import prefill
from rotatek.inputs import make_request
from rotatek.settings import Settings
from rotatek.tokens import TOKENS, CDPruner, DivPrune, Random, TokenPruner, View
from rotatek.tokens.cdpruner import largest_determinant, relevance
from rotatek.tokens.divprune import most_diverse
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
