"""The name of a model's cache argument: `cache` from transformers 5.24 on, `past_key_values`
before."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from torch import nn
from transformers import PreTrainedModel

NAMES: Final = ("cache", "past_key_values")


@cache
def _name(forward: Callable[..., Any]) -> str:
    takes = inspect.signature(forward).parameters
    return next((name for name in NAMES if name in takes), NAMES[0])


def with_cache(model: nn.Module, cache: Any) -> dict[str, Any]:
    """The argument that gives a cache to the model: `model.generate(**with_cache(model, cache))`.

    Args:
        model: its forward pass, or `generate`, is called; a wrapper takes what its model takes.
        cache: any cache.
    """
    inner = next((one for one in model.modules() if isinstance(one, PreTrainedModel)), model)
    return {_name(type(inner).forward): cache}


def cache_among(given: Mapping[str, Any]) -> Any:
    """The cache among a call's arguments, by whichever name; None without one."""
    return next((given[name] for name in NAMES if given.get(name) is not None), None)
