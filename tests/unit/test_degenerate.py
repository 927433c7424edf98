"""Pictures with hardly anything in them: few tokens, one, constant Keys, Keys of low rank."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.reference import expanded
from rotatek.methods.channels import CHANNELS
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.settings import Settings

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


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(CHANNELS)), st.integers(1, 14), st.integers(0, 14), st.integers(0, 9))
def test_any_few_tokens_of_any_rank(name: str, tokens: int, rank: int, seed: int) -> None:
    """As alone, whatever the method; exact where its basis can be."""
    rows = [low_rank(tokens, rank, seed), low_rank(20, 20, seed + 1)]
    found = stored(states(rows), Settings.of(channels=name))[0]
    (alone,) = stored(states(rows[:1]), Settings.of(channels=name))
    assert found.isfinite().all() and lost(found, alone) < 1e-4
    if name == "full" or (name == "rotatek" and min(tokens - 1, rank) <= KEEP * WIDTH):
        assert lost(found, rows[0]) < 2e-3
