"""Which calls of a model are ours: those that carry one of our caches, and what we run ourselves.

A model serves both kinds of calls, in several threads at once. What differs in calls of ours asks
here first, so that every other call runs on the model's own code. A cache's argument is `cache`
from transformers 5.24 on, `past_key_values` before.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch
from torch import nn
from transformers import PreTrainedModel


@dataclass(eq=False)
class Call:
    """One forward pass that carries one of our caches.

    Attributes:
        attended: layers of the cache that have attended so far.
        narrowed: whether rows were left out before the layer that runs now.
    """

    attended: int = 0
    narrowed: bool = False


CALL: Final[ContextVar[Call | None]] = ContextVar("rotatek_call", default=None)  # that runs here
_OWN: Final[ContextVar[bool]] = ContextVar("rotatek_own", default=False)


def is_own() -> bool:
    """Whether this context's calls are ours. Never in a compiled graph: `torch.compile` cannot
    follow context variables, and calls of ours run outside it."""
    return not torch.compiler.is_compiling() and _OWN.get()


@contextmanager
def own_calls(*held: tuple[ContextVar[Any], Any]) -> Iterator[None]:
    """Let the models that run in this context use RotateK's attention, with any cache or none.
    held: variables and the values that they have meanwhile, in no other thread."""
    tokens = [(name, name.set(value)) for name, value in ((_OWN, True), *held)]
    try:
        yield
    finally:
        for name, token in reversed(tokens):
            name.reset(token)


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
