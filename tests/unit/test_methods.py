"""Every channel method with every token pruner on both families, built from the registries."""

import itertools
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache

from kernels.reference import expanded
from rotatek import Engine, RotateKCache, Settings, make_request
from rotatek.cache.token_plan import TokenPlan, layout_of
from rotatek.engine.passes import SharedPrefill, prefill
from rotatek.methods.channels import CHANNELS
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.tokens import TOKENS
from rotatek.models import Embedded, VisionLanguageModel
from tests import golden
from tests.fixtures import Picture, collate, decode, half
from tests.kernels.cases import misaligned
from tests.tiny import TINY

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "rotatek": [
        {},
        {"weighting": "none"},
        {"solver": "eigh"},
        {"solver": "paper"},
        {"smaller": 4},
        {"smaller": 4, "weighting": "none"},
    ],
    "spark": [{"recovery": "sign"}, {"recovery": "mean"}],
    "kivi": [{"number_bits": bits} for bits in ("2", "4")],
    "turboquant": [{"number_bits": bits} for bits in ("2", "4")],
}
FORMS = [(name, extra) for name in CHANNELS for extra in VARIANTS.get(name, [{}])]
PAIRS = [("none", *form) for form in FORMS]  # every form alone, and every pruner before ours
PAIRS += [(name, "rotatek", extra) for name in TOKENS if name != "none"
          for extra in ({}, {"smaller": 4})]  # fmt: skip
MATRIX = [
    pytest.param(family, *pair, id=f"{family}-{'-'.join(map(str, pair))}")
    for family, pair in itertools.product(TINY, PAIRS)
]
NEW = 6
TIE = (
    0.002  # between the two best logits: padding moves sums, and a code of two bits may round over
)


@cache
def _model(family: str) -> VisionLanguageModel:
    return TINY[family]()


def _embed(vlm: VisionLanguageModel, picture: Picture, settings: Settings, number: int) -> Embedded:
    sizes = ((150, 120), (90, 260), (120, 60))
    questions = ("what is the total?", "a longer question, with more words in it", "x")
    width, height = sizes[number]
    request = make_request(picture(width, height, seed=number), questions[number], NEW)
    return vlm.embed(vlm.prompt(request), settings.tokens)


def _sure(vlm: VisionLanguageModel, embedded: Embedded, cache: Cache) -> tuple[list[int], int]:
    """One answer, and how many of its tokens come before one that rounding alone could change."""
    logits, _ = prefill(vlm, embedded, cache)
    steps = list(decode(vlm, embedded, cache, logits, NEW))
    best = torch.stack([step.logits[0].topk(2).values for step in steps])
    ties = (best[:, 0] - best[:, 1] < TIE).nonzero().flatten().tolist()
    return [step.tokens[0] for step in steps], next(iter(ties), len(steps))


def _answer(vlm: VisionLanguageModel, embedded: Embedded, cache: Cache) -> list[list[int]]:
    logits, _ = prefill(vlm, embedded, cache)
    steps = [step.tokens for step in decode(vlm, embedded, cache, logits, NEW)]
    return [list(tokens) for tokens in zip(*steps, strict=True)]


@pytest.mark.parametrize(("family", "tokens", "channels", "extra"), MATRIX)
def test_batch_equals_single_runs(
    family: str, tokens: str, channels: str, extra: dict, picture: Picture
) -> None:
    vlm = _model(family)
    settings = Settings.of(**half(tokens), channels=channels, keep_channels=0.25, **extra)
    prompts = [_embed(vlm, picture, settings, i) for i in range(3)]
    alone = []
    for prompt in prompts:
        cache = RotateKCache(vlm.model, prompt.inputs(), settings)
        alone.append(_sure(vlm, prompt, cache))
        stored = [layer.store for layer in cache.layers if layer.store is not None]
        assert not any(misaligned(store.read()) for store in stored)
        count = cache.bytes()
        tensors = [*(t for _, t in cache.tensors()), *cache.marks()]
        held = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}
        assert count.total == sum(s.nbytes() for s in held.values()) == sum(count.parts.values())
    batch = collate(prompts)
    together = _answer(vlm, batch, RotateKCache(vlm.model, batch.inputs(), settings))
    for (one, sure), many in zip(alone, together, strict=True):
        assert many[:sure] == one[:sure]
        assert sure < len(one) or all(token == -1 for token in many[len(one) :])


WHOLE: list[dict[str, Any]] = [
    *({"channels": kind.name} for kind in CHANNELS.values() if kind.drops_channels),
    *({"tokens": name, "keep_tokens": 1.0, "channels": "full"} for name in TOKENS),
]


@pytest.mark.parametrize("family", TINY)
def test_every_channel_or_token_kept_is_the_uncompressed_model(
    family: str, picture: Picture
) -> None:
    vlm = _model(family)
    for options in WHOLE:
        settings = Settings.of(**options, keep_channels=1.0)
        prompt = _embed(vlm, picture, settings, 1)
        cache = RotateKCache(vlm.model, prompt.inputs(), settings)
        assert _answer(vlm, prompt, cache) == _answer(vlm, prompt, DynamicCache()), options


@pytest.mark.parametrize("family", TINY)
@pytest.mark.parametrize("timed", [True, False])
def test_shared_prefill_equals_separate_ones(family: str, timed: bool, picture: Picture) -> None:
    """Also where covariances and bases are found once for all."""
    vlm = _model(family)
    chosen = [Settings.of(channels=name, keep_channels=0.25) for name in CHANNELS]
    chosen += [
        Settings.of(keep_channels=keep, weighting=weighting, solver=solver)
        for keep in (0.25, 0.1)
        for weighting, solver in (("paper", "eigh"), ("none", "eigh"))
    ]
    prompt = _embed(vlm, picture, Settings(), 0)
    apart = [
        _answer(vlm, prompt, c)
        for c in [DynamicCache()] + [RotateKCache(vlm.model, prompt.inputs(), s) for s in chosen]
    ]
    plan = TokenPlan(layout_of(vlm.model, prompt.inputs()), chosen[0].pruning, 4)
    members: list[Cache] = [DynamicCache()]
    members += [RotateKCache(vlm.model, prompt.inputs(), s, plan=plan) for s in chosen]
    shared = SharedPrefill(plan, members, timed=timed)
    logits, ms = prefill(vlm, prompt, shared)
    assert (0 < sum(1000 * watch.seconds for own in shared.watches for watch in own) < ms) is timed
    for member, wanted in zip(members, apart, strict=True):
        steps = [step.tokens[0] for step in decode(vlm, prompt, member, logits, NEW)]
        assert steps == wanted[0]


# -- the file of settings that must not change --------------------------------------------------


@pytest.mark.slow
def test_answers_and_bytes_are_those_of_the_file() -> None:
    assert golden.differences(Engine("pocket", "cpu"), "sign.png", turns=1) == []


# -- pictures with hardly anything in them: few tokens, one, constant Keys, Keys of low rank -----

WIDTH, HEADS, GROUP, WINDOW = 32, 2, 2, 4
KEEP = 0.25  # 8 channels


def states(rows: list[Tensor], padded: int = 0) -> LayerStates:
    """A layer's states of Keys [Hkv, N, d] each, padded on the right with zeros."""
    longest = max(row.shape[1] for row in rows) + padded
    generator = torch.Generator().manual_seed(7)
    keys = torch.zeros(len(rows), HEADS, longest, WIDTH)
    for place, row in enumerate(rows):
        keys[place, :, : row.shape[1]] = row
    queries = torch.randn(1, HEADS * GROUP, WINDOW, WIDTH, generator=generator) ** 3
    return LayerStates(
        keys=keys,
        values=keys.flip(-1).contiguous(),
        queries=queries.expand(len(rows), -1, -1, -1).contiguous(),
        lengths=torch.tensor([row.shape[1] for row in rows]),
        window_alive=torch.ones(len(rows), WINDOW, dtype=torch.bool),
        layer=0,
    )


def low_rank(tokens: int, rank: int, seed: int = 0) -> Tensor:
    """Keys [Hkv, N, d] around a mean, whose differences span `rank` directions."""
    generator = torch.Generator().manual_seed(seed)
    turn = torch.randn(HEADS, tokens, rank, generator=generator) @ torch.randn(
        HEADS, rank, WIDTH, generator=generator
    )
    return turn + 3 * torch.randn(HEADS, 1, WIDTH, generator=generator)


def stored(given: LayerStates, settings: Settings) -> list[Tensor]:
    """Each row's Keys [Hkv, N, d] as attention sees them."""
    store = settings.channels.compress(given)
    keys, _ = expanded(store.read(), WIDTH)
    return [keys[row, :, :count].float() for row, count in enumerate(given.lengths.tolist())]


def lost(keys: Tensor, wanted: Tensor) -> float:
    return float((keys - wanted).norm() / wanted.norm().clamp(min=1e-30))


@examples(max_examples=60)
@given(st.sampled_from(sorted(CHANNELS)), st.integers(1, 14), st.integers(0, 14), st.integers(0, 9))
def test_any_few_tokens_of_any_rank(name: str, tokens: int, rank: int, seed: int) -> None:
    """As alone, whatever the method; exact where its basis can be."""
    rows = [low_rank(tokens, rank, seed), low_rank(20, 20, seed + 1)]
    found = stored(states(rows), Settings.of(channels=name))[0]
    (alone,) = stored(states(rows[:1]), Settings.of(channels=name))
    assert found.isfinite().all() and lost(found, alone) < 1e-4
    if name == "full" or (name == "rotatek" and min(tokens - 1, rank) <= KEEP * WIDTH):
        assert lost(found, rows[0]) < 2e-3
