"""Cache layers that fill themselves: full attention at prefill, compressed attention after."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from kernels.dispatch import attend
from kernels.reference import Text, Visual, expanded
from rotatek.bridge.attention import over_root
from rotatek.bridge.fitness import window_of
from rotatek.bridge.kv_sharing import lends
from rotatek.bridge.row_layout import TEXT_STEP, Rows
from rotatek.cache.layer import CompressedLayer
from rotatek.cache.output_metric import output_metric
from rotatek.cache.sliding_window import NOWHERE, window_view_of
from rotatek.cache.text_buffer import TextBuffer
from rotatek.cache.token_plan import TokenPlan
from rotatek.methods.channels.base import ChannelMethod, LayerStates, Rest
from rotatek.methods.channels.store import Store
from rotatek.methods.rotation.stored_bases import LayerAxes
from rotatek.methods.tokens.base import TokenPruner
from rotatek.methods.tokens.by_head import HeadPruner, as_one, measured

Held = tuple[Tensor, Tensor, Tensor]  # Keys and Values [B, Hkv, N, d], and lengths [B]


class Recorder(Protocol):
    """Records each layer's visual tokens before they are compressed."""

    def record(self, states: LayerStates) -> None:
        """Called once a layer, in order."""
        ...

    def step(self, layer: int, query: Tensor) -> None:
        """Called once a layer for each decoded token: query [B, Hq, 1, d], as `over_root`."""
        ...


@dataclass
class PrefillCompressor:
    """The compression of one cache's layers, and the stores they have filled so far."""

    method: ChannelMethod
    recorder: Recorder | None
    bases: Sequence[Tensor | LayerAxes] | None = None
    pruner: TokenPruner | None = None
    stores: list[Store] = field(default_factory=list)
    rest: Rest | None = None  # of `pack`, for when the model's own work is queued

    @property
    def complete(self) -> bool:
        """Whether no store waits for anything."""
        return self.rest is None and not self.stores

    def measure(self, states: LayerStates, seen: LayerStates, held: Tensor | None = None) -> Store:
        """Measure one layer's visual tokens.

        Args:
            states: all of them.
            seen: those inside the layer's window, or `states`.
            held: [B] how many of them, the first ones, were stored before; None if none were.
        """
        if self.recorder is not None:
            self.recorder.record(states)
        if isinstance(self.pruner, HeadPruner) and seen is states:
            made = measured(self.pruner, self.method, seen, held)
        else:
            made = [self.method.measure(seen)]
        self.stores += made
        return as_one(made, seen)

    def pack(self, last: bool) -> None:
        """After each layer: queue the work that needs no further one."""
        self.rest = self.method.launch(self.stores, last)
        if not last:
            self._run_rest()

    def finish(self) -> None:
        """The model's own work is queued: complete the stores."""
        self._run_rest()
        self.stores.clear()

    def forget(self) -> None:
        """Nothing of a prefill that broke off is completed."""
        self.stores.clear()
        self.rest = None

    def _run_rest(self) -> None:
        if self.rest is not None:
            self.rest()
            self.rest = None


class PlannedLayer(CompressedLayer):
    """A cache layer that runs its own attention: full at prefill, compressed afterwards."""

    def __init__(self, index: int, plan: TokenPlan, filling: PrefillCompressor) -> None:
        super().__init__(index, plan.logical)
        self.plan, self.filling = plan, filling
        self.turning = False  # whether `plan` is that of a later turn, which comes next
        self.first = True  # whether the present rows are a prompt's
        self.turn: Held | None = None  # what a turn's rows see, where later layers borrow it

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

    def begin(self, plan: TokenPlan) -> None:
        """Be ready for the rows of a prompt."""
        self.plan, self.rows, self.turning = plan, plan.length, False
        self.filling.forget()

    def begin_turn(self, plan: TokenPlan) -> None:
        """Be ready for the rows of a later turn, which brings visual tokens."""
        self.plan, self.rows, self.turning = plan, plan.length, True

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        """Full attention that fills the layer at prefill, compressed attention afterwards.

        Args and result are those of `rotatek.bridge.attention.Layer.attend`.
        """
        scale = getattr(module, "scaling", query.shape[-1] ** -0.5)
        self.first, self.turn = self.text is None, None
        if self.pending:
            out = full() if self.first else self._attend_behind(module, query, key, value, scale)
            self.plan.leave(module, out)
            self.store_prefill(module, query, key, value)
            self.plan.observe(self.index, query, key, scale)
            return out
        assert self.text is not None
        recorder = self.filling.recorder
        if recorder is not None and query.shape[2] == 1 and not self.text.static:
            recorder.step(self.index, over_root(module, query))
        self.follow(0)
        self.text.append(key, value)
        return attend(query, self.visual(), self.text.read(), scale).transpose(1, 2)

    def lend(self, module: nn.Module, query: Tensor, full: Callable) -> Tensor:
        """As `rotatek.bridge.attention.Layer.lend`: nothing is stored."""
        if self.first:
            return full()
        scale = getattr(module, "scaling", query.shape[-1] ** -0.5)
        if self.turn is not None:
            keys, values, mask = self.turn
            mask = mask[:, :, -query.shape[2] :]
            return sdpa_attention_forward(module, query, keys, values, mask, scaling=scale)[0]
        assert self.text is not None
        return attend(query, self.visual(), self.text.read(), scale).transpose(1, 2)

    def visual(self) -> Visual | None:
        """The visual tokens that the newest token sees."""
        visual = None if self.store is None else self.store.read()
        if visual is None or self.text is None or self.text.tables is None:
            return visual
        return visual._replace(lengths=self.text.tables.seen(self.text.lengths), fresh=True)

    def store_prefill(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        states: LayerStates | None = None,
    ) -> LayerStates | None:
        """Store one prefill's states, and pack the stores that share a budget with others.

        Args:
            module: the attention module; some methods weigh Values by its output projection.
            query: [B, Hq, L, d].
            key: [B, Hkv, L, d].
            value: [B, Hkv, L, d].
            states: the visual ones, where another cache has gathered them.

        Returns:
            The visual states; None where the layer reads no visual token.
        """
        states = self._keep(module, query, key, value, states)
        self.filling.pack(last=self.index == self.plan.layers - 1)
        return states

    def _keep(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        states: LayerStates | None,
    ) -> LayerStates | None:
        """Store visual tokens compressed, and the others in the text buffer."""
        self.turning = False
        visual, text, window = (rows.to(key.device) for rows in self.plan.rows())
        width, order, held = window_of(module), None, None
        if self.text is not None and self.span is not None:
            said, pool, order = self._turn_within(key, value, visual, text)
        elif self.text is not None:
            said, pool = Text(text.gather(key), text.gather(value), text.lengths), None
            self.text.extend(said.keys, said.values, text)
        else:
            rows, pool = text, None
            if width is not None:
                rows, order, self.span = self.plan.window_view(width).to(key.device)
            said = self._begin_text(key, value, rows.padded(TEXT_STEP))
        if order is not None and order.longest == 0:
            self.store = None
        if visual.index.shape[1] == 0:
            return None
        read = self.plan.read_text()
        if read is not None:
            read = read.to(key.device)
            said = Text(read.gather(key), read.gather(value), read.lengths)
        if states is None:
            kept = visual.gather(key), visual.gather(value), visual.lengths
            if pool is None and self.store is not None:
                old = self.store.read()
                pool, held = joined(old, *kept), old.lengths
            states = LayerStates(
                *(pool or kept),
                over_root(module, window.gather(query)),
                window.alive,
                self.index,
                entering=self.plan.entering,
                gain=self.plan.gain,
                text=said,
            )
        self._store(module, key, states, order, held)
        return states

    def _begin_text(self, keys: Tensor, values: Tensor, rows: Rows) -> Text:
        """Store the text in order: `rows` of tokens [B, Hkv, n, d]."""
        gathered = rows.gather(keys), rows.gather(values)
        self.text = TextBuffer(*gathered, rows.lengths, rows.ragged, rows.longest)
        return Text(*gathered, rows.lengths)

    def _store(
        self,
        module: nn.Module,
        key: Tensor,
        states: LayerStates,
        order: Rows | None,
        held: Tensor | None,
    ) -> None:
        """Compress visual tokens; order: those that a window leaves, the newest first; held: [B] of
        those that were stored before."""
        seen = states
        if order is not None:
            if order.longest == 0:
                return
            seen = states.cached("seen", lambda: states.taken(order))
        filling, metric = self.filling, None
        if filling.method.weighs_values:
            metric = output_metric(module, key)
        basis = None if filling.bases is None else filling.bases[self.index]
        whole = seen is states
        states = replace(states, value_metric=metric, basis=basis)
        seen = states if whole else replace(seen, value_metric=metric, basis=basis)
        self.store = filling.measure(states, seen, held)

    def _turn_within(
        self, key: Tensor, value: Tensor, visual: Rows, text: Rows
    ) -> tuple[Text, Held | None, Rows]:
        """Rebuild the text for a later turn's rows, without tokens that left the window.

        Returns:
            the text; the stored visual tokens with the turn's own (None where it has none); and
            which of these are inside the window.
        """
        assert self.text is not None and self.span is not None
        span, places, count = self.span, *self._turn_positions()
        *held, number = self.text.opened()
        spoken = torch.cat([span.places(number), _placed(places, text)], 1)
        keys = torch.cat([held[0], text.gather(key)], 2)
        values = torch.cat([held[1], text.gather(value)], 2)
        shown = span.visual.masked_fill(span.visual < 0, NOWHERE)
        shown = shown if self.store is not None else shown[:, :0]
        if visual.longest:
            shown = torch.cat([shown, _placed(places, visual)], 1)
        rows, order, after = window_view_of(span.width, spoken, shown, count)
        said = self._begin_text(keys, values, rows.padded(TEXT_STEP))
        if not visual.longest:
            self.span = replace(after, visual=span.visual if self.store is not None else shown)
            return said, None, order
        self.span = after
        pool = visual.gather(key), visual.gather(value)
        if self.store is not None:
            old = expanded(self.store.read(), key.shape[-1])
            pool = (
                torch.cat([old[0].to(key), pool[0]], 2),
                torch.cat([old[1].to(value), pool[1]], 2),
            )
        return said, (*pool, (shown < NOWHERE).sum(1, dtype=torch.int32)), order

    def _turn_positions(self) -> tuple[Tensor, Tensor]:
        """Indices [B, T] of a later turn's rows, and the number of tokens including them, [B]."""
        assert self.text is not None and self.span is not None
        lengths = self.text.lengths
        places, count = (part.to(lengths.device) for part in self.plan.token_positions())
        before = self.span.counted(lengths)
        return torch.where(places < NOWHERE, places + before[:, None], NOWHERE), count + before

    def _attend_behind(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> Tensor:
        """Attention of a later turn: over the stored tokens, and causally over its own rows.

        Args and result are those of `attend`.
        """
        assert self.text is not None
        *text, number = self.text.opened()
        keys, values = [text[0].to(key), key], [text[1].to(value), value]
        seen = [number >= 0]
        if self.store is not None:
            visual = self.store.read()
            held = expanded(visual, key.shape[-1])
            keys, values = [held[0].to(key), *keys], [held[1].to(value), *values]
            alive = alive_rows(visual, held[0].shape[2], len(key))
            if alive.dim() == 3:  # heads differ in what they keep
                alive = alive.repeat_interleave(query.shape[1] // key.shape[1], 1)
                seen = [part[:, None].expand(-1, query.shape[1], -1) for part in seen]
            seen = [alive, *seen]
        T = key.shape[2]
        own = self.plan.mask
        if own is None:
            own = torch.ones(1, 1, T, T, dtype=torch.bool, device=key.device).tril()
        stored = torch.cat(seen, -1)
        stored = stored.view(len(key), -1, 1, stored.shape[-1]).expand(-1, -1, T, -1)
        own = own.to(key.device).expand(len(key), stored.shape[1], -1, -1)
        mask = torch.cat([stored, own], -1)
        if self.span is not None:
            mask = mask & self._within(number)
        whole = torch.cat(keys, 2), torch.cat(values, 2), mask
        self.turn = whole if lends(module) else None
        return sdpa_attention_forward(module, query, *whole, scaling=scale)[0]

    def _within(self, number: Tensor) -> Tensor:
        """Bool [B, 1, T, N + M + T]: which visual tokens, text tokens (`number` [B, M]) and rows of
        a later turn are inside the window of each of its rows."""
        assert self.span is not None
        own = self._turn_positions()[0]
        visual = self.span.visual if self.store is not None else self.span.visual[:, :0]
        places = torch.cat([visual, self.span.places(number), own], 1)
        near = own[:, :, None] - places[:, None] < self.span.width
        return near[:, None]


def _placed(places: Tensor, rows: Rows) -> Tensor:
    """The indices [B, n] of some rows, `NOWHERE` beyond each length; places: [B, T] of all."""
    return places.gather(1, rows.index).masked_fill(~rows.alive, NOWHERE)


def alive_rows(visual: Visual, tokens: int, batch: int) -> Tensor:
    """The entries of stored tokens that are real: bool [B, N], or [B, Hkv, N] by head."""
    if visual.lengths is None:
        return torch.ones(batch, tokens, dtype=torch.bool, device=visual.keys.device)
    return torch.arange(tokens, device=visual.lengths.device) < visual.lengths[..., None]


def joined(
    visual: Visual, keys: Tensor, values: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Stored and further visual tokens [B, Hkv, n, d], as the states of one layer.

    A later turn's store is made anew from both: one basis, and one store to attend to. Tokens that
    were dropped earlier stay dropped; the others keep their energy inside the new basis.

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
