"""One prefill that fills several caches."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer

from rotatek.bridge.attention import tag
from rotatek.bridge.state_layers import emptied, key_layers, restore, state_layers, state_of
from rotatek.cache.device_timing import Stopwatch
from rotatek.cache.layer import AttendingCache, CompressedLayer
from rotatek.cache.prefill_layer import PlannedLayer
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cache.token_plan import TokenPlan


class _SharedLayer(CompressedLayer):
    """One layer of a `SharedPrefill`: runs full attention once and fills every member's layer."""

    def __init__(
        self,
        index: int,
        plan: TokenPlan,
        members: Sequence[Any],
        watches: Sequence[list[Stopwatch]] | None,
    ) -> None:
        super().__init__(index, plan.length)
        self.plan, self.members, self.watches = plan, members, watches

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Count the tokens for every member."""
        for layer in (self, *self.members):
            if isinstance(layer, CompressedLayer):
                layer.logical = self.plan.logical
        return tag(key_states, self), value_states

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        """Attention output [B, T, Hq, d]."""
        out, states = full(), None
        self.plan.leave(module, out)
        for number, layer in enumerate(self.members):
            with _watch(None if self.watches is None else self.watches[number], key.device):
                if isinstance(layer, PlannedLayer):
                    made = layer.store_prefill(module, query, key, value, states)
                    states = made if self.watches is None else None
                else:
                    layer.update(key, value)
        scale = getattr(module, "scaling", query.shape[-1] ** -0.5)
        self.plan.observe(self.index, query, key, scale)
        return out

    def lend(self, module: nn.Module, query: Tensor, full: Callable) -> Tensor:
        """Attention output [B, T, Hq, d]."""
        out: Tensor = full()
        return out


def _watch(watches: list[Stopwatch] | None, device: torch.device) -> AbstractContextManager:
    """A context around a member's work, which is timed where members are."""
    if watches is None:
        return nullcontext()
    watches.append(Stopwatch(device))
    return watches[-1]


class SharedPrefill(AttendingCache):
    """One prefill that fills several caches of the same token plan; decode with the members.

    members: `RotateKCache`s made with `plan`, or plain transformers caches where nothing is pruned.
    timed: whether to measure what each member adds; if not, what two of them would compute alike is
    computed once.
    """

    def __init__(self, plan: TokenPlan, members: Sequence[Cache], *, timed: bool = True) -> None:
        self.plan = plan
        self._watches: list[list[Stopwatch]] = [[] for _ in members]
        for cache in members:
            if not isinstance(cache, RotateKCache):
                cache.layers.extend(DynamicLayer() for _ in range(plan.layers - len(cache.layers)))
        self._members = members
        watches = self._watches if timed else None
        shared = (
            _SharedLayer(number, plan, layers, watches)
            for number, layers in enumerate(zip(*map(key_layers, members), strict=True))
        )
        super().__init__(
            layers=[
                next(shared) if isinstance(layer, CacheLayerMixin) else emptied(layer)
                for layer in members[0].layers
            ]
        )

    def end(self) -> None:
        """The prefill is over for every member, which gets a copy of the states."""
        self.plan.end()
        for cache in self._members:
            if isinstance(cache, RotateKCache):
                cache.end()
        for own, *theirs in zip(state_layers(self), *map(state_layers, self._members), strict=True):
            for layer in theirs:
                restore(layer, state_of(own))

    @property
    def compress_ms(self) -> list[float]:
        """Milliseconds each member has added to the prefill they share, where they are timed."""
        return [1000 * sum(watch.seconds for watch in own) for own in self._watches]
