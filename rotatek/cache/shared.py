"""One prefill that fills several caches."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicLayer

from rotatek.attention import tag
from rotatek.cache.compressed import RotateKCache
from rotatek.cache.filling import PlannedLayer
from rotatek.cache.layer import CompressedLayer
from rotatek.cache.plan import TokenPlan


def synchronise(device: torch.device) -> None:
    """Wait for queued work, so that a clock reads what it should."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class _SharedLayer(CompressedLayer):
    """One layer of a `SharedPrefill`: runs full attention once and fills every member's layer."""

    def __init__(
        self, index: int, plan: TokenPlan, members: Sequence[Any], compress_ms: list[float] | None
    ) -> None:
        super().__init__(index, plan.length)
        self.plan, self.members, self.compress_ms = plan, members, compress_ms

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Count the tokens for every member."""
        for layer in (self, *self.members):
            if isinstance(layer, CompressedLayer):
                layer.logical = self.plan.length
        return tag(key_states, self), value_states

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        """Attention output [B, T, Hq, d]."""
        out, states = full(), None
        for number, layer in enumerate(self.members):
            started = self._clock(key)
            if isinstance(layer, PlannedLayer):
                made = layer.absorb(module, query, key, value, states)
                states = made if self.compress_ms is None else None
            else:
                layer.update(key, value)
            if self.compress_ms is not None:
                self.compress_ms[number] += 1000 * (self._clock(key) - started)
        scale = getattr(module, "scaling", query.shape[-1] ** -0.5)
        self.plan.observe(self.index, query, key, scale)
        return out

    def _clock(self, key: Tensor) -> float:
        """Seconds, with all work done where members are timed."""
        if self.compress_ms is not None:
            synchronise(key.device)
        return time.perf_counter()


class SharedPrefill(Cache):
    """One prefill that fills several caches of the same token plan; decode with the members.

    members: `RotateKCache`s made with `plan`, or plain transformers caches where nothing is pruned.
    compress_ms: milliseconds each member added to the prefill they share, where they are timed; if
    not, nothing waits, and what two of them would compute alike is computed once.
    """

    def __init__(self, plan: TokenPlan, members: Sequence[Cache], *, timed: bool = True) -> None:
        self.plan = plan
        self.compress_ms = [0.0] * len(members)
        clocks = self.compress_ms if timed else None
        for cache in members:
            if not isinstance(cache, RotateKCache):
                cache.layers.extend(DynamicLayer() for _ in range(plan.layers - len(cache.layers)))
        super().__init__(
            layers=[
                _SharedLayer(i, plan, [cache.layers[i] for cache in members], clocks)
                for i in range(plan.layers)
            ]
        )
