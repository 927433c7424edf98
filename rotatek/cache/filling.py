"""How a cache's layers fill themselves: full attention at prefill, compressed attention after."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from torch import Tensor, nn

from kernels.dispatch import attend
from kernels.reference import Text
from rotatek.attention import tag
from rotatek.cache.layer import CompressedLayer
from rotatek.cache.metrics import OutputMetrics
from rotatek.cache.plan import TokenPlan
from rotatek.cache.text import TextBuffer
from rotatek.channels.base import ChannelMethod, LayerStates
from rotatek.channels.store import Store
from rotatek.errors import ModeUnsupported


class Recorder(Protocol):
    """Looks at each layer's visual tokens before they are compressed."""

    def record(self, states: LayerStates) -> None:
        """Called once a layer, in order."""
        ...

    def step(self, layer: int, query: Tensor) -> None:
        """Called once a layer for each decoded token: query [B, Hq, 1, d]."""
        ...


@dataclass
class Filling:
    """How one cache's layers are compressed, and the stores they have filled so far."""

    method: ChannelMethod
    recorder: Recorder | None
    metrics: OutputMetrics
    bases: Sequence[Tensor] | None = None
    stores: list[Store] = field(default_factory=list)

    def compress(self, states: LayerStates) -> Store:
        """Store one layer's visual tokens."""
        if self.recorder is not None:
            self.recorder.record(states)
        self.stores.append(self.method.compress(states))
        return self.stores[-1]

    def settle(self, last: bool) -> None:
        """After each layer: what those filled so far are to share."""
        self.method.settle(self.stores, last)
        if last:
            self.stores.clear()


class PlannedLayer(CompressedLayer):
    """A cache layer that runs its own attention: full at prefill, compressed afterwards."""

    def __init__(self, index: int, plan: TokenPlan, filling: Filling) -> None:
        super().__init__(index, plan.length)
        self.plan, self.filling = plan, filling

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Count the tokens and send this layer along to the attention function."""
        if not self.is_filled and self.index == 0 and key_states.shape[2] != self.plan.length:
            raise ModeUnsupported(
                "The prompt must be processed in one piece, and be the one the cache was made for."
            )
        keys, values = super().update(key_states, value_states)
        return tag(keys, self), values

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        """Full attention that fills the layer at prefill, compressed attention afterwards.

        Args and result are those of `rotatek.attention.Layer.attend`.
        """
        scale = getattr(module, "scaling", query.shape[-1] ** -0.5)
        if self.text is None:
            self.window = getattr(module, "sliding_window", None)
            out = full()
            self.absorb(module, query, key, value)
            self.plan.observe(self.index, query, key, scale)
            return out
        check_window(module, self.logical)
        recorder = self.filling.recorder
        if recorder is not None and query.shape[2] == 1 and not self.text.static:
            recorder.step(self.index, query)
        self.text.append(key, value)
        visual = None if self.store is None else self.store.read()
        return attend(query, visual, self.text.read(), scale).transpose(1, 2)

    def absorb(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        states: LayerStates | None = None,
    ) -> LayerStates | None:
        """Keep one prefill's states, and settle what this layer shares with others.

        Args:
            module: the attention module, whose output projection some methods weigh Values by.
            query: [B, Hq, L, d].
            key: [B, Hkv, L, d].
            value: [B, Hkv, L, d].
            states: the visual ones, where another cache has gathered them.

        Returns:
            The visual states; None where the layer sees no visual token.
        """
        states = self._keep(module, query, key, value, states)
        self.filling.settle(last=self.index == self.plan.layers - 1)
        return states

    def _keep(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        states: LayerStates | None,
    ) -> LayerStates | None:
        """Visual tokens compressed, the others at full width."""
        visual, text, window = (rows.to(key.device) for rows in self.plan.rows())
        gathered = text.gather(key), text.gather(value)
        self.text = TextBuffer(*gathered, text.lengths, text.ragged, text.longest)
        if visual.index.shape[1] == 0:
            return None
        if states is None:
            kept = visual.gather(key), visual.gather(value), visual.lengths
            states = LayerStates(
                *kept,
                window.gather(query),
                window.alive,
                self.index,
                residual=self.plan.residual,
                text=Text(*gathered, text.lengths),
            )
        filling, metric = self.filling, None
        if filling.method.weighs_values:
            metric = filling.metrics.of(self.index, module, key)
        basis = None if filling.bases is None else filling.bases[self.index]
        self.store = filling.compress(replace(states, value_metric=metric, basis=basis))
        return states


def check_window(module: nn.Module, tokens: int) -> None:
    """Refuse a conversation that outgrew its attention's window.

    Raises:
        ModeUnsupported: with the window's length.
    """
    sliding = getattr(module, "sliding_window", None)
    if sliding is not None and tokens > sliding:
        raise ModeUnsupported(
            f"The conversation is longer than this model's sliding window of {sliding} tokens, "
            "which a compressed cache does not follow. Use a shorter prompt or answer."
        )
