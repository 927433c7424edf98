"""The cache by either name that transformers gives it."""

import pytest
from torch import nn

from rotatek.bridge.cache_argument import cache_among, with_cache


class _New(nn.Module):
    def forward(self, ids: object, cache: object = None) -> None: ...


class _Old(nn.Module):
    def forward(self, ids: object, past_key_values: object = None) -> None: ...


@pytest.mark.parametrize("model, name", [(_New(), "cache"), (_Old(), "past_key_values")])
def test_a_cache_is_given_by_the_name_that_the_model_takes(model: nn.Module, name: str) -> None:
    cache = object()
    assert with_cache(model, cache) == {name: cache}
    assert cache_among({"ids": 1, name: cache}) is cache
    assert cache_among({"ids": 1, name: None}) is None
    assert cache_among({}) is None
