"""How a cache's layers fill themselves: full attention at prefill, compressed attention after."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from kernels.dispatch import attend
from kernels.reference import Text, Visual, expanded, opened_text
from rotatek.attention import tag
from rotatek.cache.layer import CompressedLayer
from rotatek.cache.metrics import OutputMetrics
from rotatek.cache.plan import TokenPlan
from rotatek.cache.text import TextBuffer
from rotatek.channels.base import ChannelMethod, LayerStates
from rotatek.channels.store import Store
from rotatek.errors import ModeUnsupported
from rotatek.layout import Rows
from rotatek.rotation.bases import LayerAxes


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
    bases: Sequence[Tensor | LayerAxes] | None = None
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
        self.turning = False  # whether `plan` is that of a later turn, which comes next

    @property
    def pending(self) -> bool:
        """Whether the next rows are a prompt's or a turn's, of which visual ones are compressed."""
        return self.turning or not self.is_filled

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become a filled layer again, with the axes of its calibration where it shares them."""
        super().restore(state)
        bases = self.filling.bases
        if self.store is not None:
            self.store = self.store.with_shared(None if bases is None else bases[self.index])

    def begin_turn(self, plan: TokenPlan) -> None:
        """Be ready for the rows of a later turn, which brings visual tokens."""
        self.plan, self.rows, self.turning = plan, plan.length, True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Count the tokens and send this layer along to the attention function."""
        keys, values = super().update(key_states, value_states)
        return tag(keys, self), values

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        """Full attention that fills the layer at prefill, compressed attention afterwards.

        Args and result are those of `rotatek.attention.Layer.attend`.
        """
        scale = getattr(module, "scaling", query.shape[-1] ** -0.5)
        if self.text is not None:
            check_window(module, self.logical)
        if self.pending:
            self.window = getattr(module, "sliding_window", None)
            first = self.text is None
            out = full() if first else self._attend_behind(module, query, key, value, scale)
            self.absorb(module, query, key, value)
            self.plan.observe(self.index, query, key, scale)
            return out
        assert self.text is not None
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
        """Visual tokens compressed, the others as the method says."""
        self.turning = False
        visual, text, window = (rows.to(key.device) for rows in self.plan.rows())
        gathered = text.gather(key), text.gather(value)
        if self.text is None:
            self.text = TextBuffer(*gathered, text.lengths, text.ragged, text.longest)
            recent = self.filling.method.recent_text
            if recent is not None:
                self.text = TextBuffer.behind_window(self.text, recent)
        else:
            self.text.extend(*gathered, text)
        if visual.index.shape[1] == 0:
            return None
        if states is None:
            kept = visual.gather(key), visual.gather(value), visual.lengths
            states = LayerStates(
                *(kept if self.store is None else joined(self.store.read(), *kept)),
                window.gather(query),
                window.alive,
                self.index,
                entering=self.plan.entering,
                text=Text(*gathered, text.lengths),
            )
        filling, metric = self.filling, None
        if filling.method.weighs_values:
            metric = filling.metrics.of(self.index, module, key)
        basis = None if filling.bases is None else filling.bases[self.index]
        self.store = filling.compress(replace(states, value_metric=metric, basis=basis))
        return states

    def _attend_behind(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> Tensor:
        """Attention of a later turn: over what is stored, and causally over its own rows.

        Args and result are those of `attend`.
        """
        assert self.text is not None
        *text, place = opened_text(self.text.read())
        keys, values = [text[0].to(key), key], [text[1].to(value), value]
        seen = [place >= 0]
        if self.store is not None:
            visual = self.store.read()
            held = expanded(visual, key.shape[-1])
            keys, values = [held[0].to(key), *keys], [held[1].to(value), *values]
            seen = [alive_rows(visual, held[0].shape[2], len(key)), *seen]
        T = key.shape[2]
        own = self.plan.mask
        if own is None:
            own = torch.ones(1, 1, T, T, dtype=torch.bool, device=key.device).tril()
        stored = torch.cat(seen, 1)[:, None, None].expand(-1, 1, T, -1)
        mask = torch.cat([stored, own.to(key.device).expand(len(key), -1, -1, -1)], -1)
        return sdpa_attention_forward(
            module, query, torch.cat(keys, 2), torch.cat(values, 2), mask, scaling=scale
        )[0]


def alive_rows(visual: Visual, tokens: int, batch: int) -> Tensor:
    """[B, N] bool: the entries of stored tokens that are real."""
    if visual.lengths is None:
        return torch.ones(batch, tokens, dtype=torch.bool, device=visual.keys.device)
    return torch.arange(tokens, device=visual.lengths.device) < visual.lengths[:, None]


def joined(
    visual: Visual, keys: Tensor, values: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What is stored and further visual tokens [B, Hkv, n, d], as the states of one layer.

    A later turn's store is made anew of both: one basis, and one store to attend to. What was left
    out earlier stays away; what was kept is kept as far as the new basis holds it.

    Returns:
        Keys and Values [B, Hkv, N, d], zero beyond each length, and lengths [B].
    """
    old = expanded(visual, keys.shape[-1])
    here = torch.arange(keys.shape[2], device=keys.device) < lengths[:, None]
    alive = torch.cat([alive_rows(visual, old[0].shape[2], len(keys)), here], 1)
    both = [torch.cat([a.to(b), b], 2) for a, b in zip(old, (keys, values), strict=True)]
    if bool(alive.all()):
        return both[0], both[1], alive.sum(-1, dtype=torch.int32)
    rows = Rows.where(alive)
    return rows.gather(both[0]), rows.gather(both[1]), rows.lengths


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
