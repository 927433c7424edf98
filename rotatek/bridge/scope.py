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
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel


@dataclass(eq=False)
class Call:
    """One forward pass that carries one of our caches, and its layer that runs now.

    attended: layers of the cache that have attended so far; narrowed: whether rows were left out
    before the present layer; source: [B, n] the rows that are left, where it reads them so;
    entering: [B, n, hidden], what it reads; norm: behind its attention; additions: visual rows
    [B, L] bool, and what the model adds to them behind each of its first layers.
    """

    attended: int = 0
    narrowed: bool = False
    source: Tensor | None = None
    entering: Tensor | None = None
    norm: nn.Module | None = None
    additions: tuple[Tensor, tuple[Tensor, ...]] | None = None


class Scope(NamedTuple):
    """What models find that run in this context, and in no other thread's.

    own: whether their calls are ours; call: that carries our cache; tap: sees its module's
    attention calls; queries: records the language model's queries; stop: ends the work at the next
    pause between two layers; checkpoint: is called there, and lets other work go ahead.
    """

    own: bool = False
    call: Call | None = None
    tap: Any = None
    queries: Any = None
    stop: Any = None
    checkpoint: Callable[[], None] | None = None


SCOPE: Final[ContextVar[Scope]] = ContextVar("rotatek_scope", default=Scope())  # noqa: B039


def is_own() -> bool:
    """Whether this context's calls are ours. Never in a compiled graph: `torch.compile` cannot
    follow context variables, and calls of ours run outside it."""
    return not torch.compiler.is_compiling() and SCOPE.get().own


@contextmanager
def own_calls(**held: Any) -> Iterator[None]:
    """Let the models that run in this context use RotateK's attention, with any cache or none;
    held: what else of its `Scope` is so meanwhile."""
    token = SCOPE.set(SCOPE.get()._replace(own=True, **held))
    try:
        yield
    finally:
        SCOPE.reset(token)


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
