"""Which calls of a model are ours: those that carry one of our caches, and what we run ourselves.

A prepared model serves both kinds of calls, in several threads at once. RotateK's changes ask here
first, so that every other call runs on the unprepared model's code.
"""

import inspect
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from transformers import PreTrainedModel

from rotatek.bridge.cache_argument import cache_among

NAME: Final = "rotatek"  # of our attention function


@dataclass
class Call:
    """One forward pass that carries one of our caches.

    Attributes:
        owner: the outermost module that was called with it.
        cache: the one it carries.
        attended: layers of it that have attended since the language model began.
        narrowed: whether rows were left out before the layer that runs now.
    """

    owner: Any
    cache: Any
    attended: int = 0
    narrowed: bool = False
    _tokens: tuple[Any, ...] = ()

    def begin(self) -> None:
        """From here on this context's calls are ours."""
        self._tokens = _CALL.set(self), _OWN.set(True)

    def end(self) -> None:
        """End this context's compressed calls."""
        call, own = self._tokens
        _CALL.reset(call)
        _OWN.reset(own)


_OWN: Final[ContextVar[bool]] = ContextVar("rotatek_own", default=False)
_CALL: Final[ContextVar["Call | None"]] = ContextVar("rotatek_call", default=None)


def is_own() -> bool:
    """Whether this context's calls are ours. Never in a compiled graph: `torch.compile` cannot
    follow context variables, and calls of ours run outside it."""
    return not torch.compiler.is_compiling() and _OWN.get()


@contextmanager
def own_calls() -> Iterator[None]:
    """Let the models that run in this context use RotateK's attention, with any cache or none."""
    token = _OWN.set(True)
    try:
        yield
    finally:
        _OWN.reset(token)


def current_call() -> Call | None:
    """The forward pass of ours that runs in this context, if any."""
    return _CALL.get()


class OwnConfig:
    """A configuration as attention modules see it: in calls of ours it names our attention.

    All other attributes are read from, and written to, the model's own configuration, `plain`.
    layer: the module's number among the language model's that attend; None for any other.
    """

    def __init__(self, plain: Any, layer: int | None = None) -> None:
        vars(self).update(plain=plain, layer=layer)

    @property
    def _attn_implementation(self) -> Any:
        return NAME if is_own() else self.plain._attn_implementation

    def __getattr__(self, name: str) -> Any:
        if name in ("plain", "layer") or name.startswith(
            "__"
        ):  # while it is copied or read from a file
            raise AttributeError(name)
        return getattr(self.plain, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.plain, name, value)

    def __repr__(self) -> str:
        return repr(self.plain)

    def __reduce__(self) -> tuple[Any, ...]:
        return OwnConfig, (self.plain, self.layer)


class RunByCache:
    """A model's forward pass that a call's own cache may run, as `RotateKCache.run` does.

    It refers to the model weakly, and is copied with the model.

    Args:
        model: the model.
        compiled: the forward that other calls run, where that is not the model's own.
    """

    def __init__(self, model: PreTrainedModel, compiled: Callable[..., Any] | None = None) -> None:
        self._model, self._compiled = weakref.ref(model), compiled
        self.__name__ = "forward"
        own = inspect.signature(type(model).forward)  # `generate` asks what the model takes
        self.__signature__ = own.replace(parameters=list(own.parameters.values())[1:])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        model = self._model()
        assert model is not None
        run = getattr(cache_among(kwargs), "run", None)
        if run is not None:
            forward = partial(type(model).forward, model)
            apart = _uncompiled if torch.compiler.is_compiling() else _as_it_is
            return apart(run, forward, args, kwargs)
        if self._compiled is not None:
            return self._compiled(*args, **kwargs)
        return type(model).forward(model, *args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return RunByCache, (self._model(), self._compiled)


def _as_it_is(run: Callable[..., Any], *given: Any) -> Any:
    return run(*given)


_uncompiled: Final = torch.compiler.disable(_as_it_is)
