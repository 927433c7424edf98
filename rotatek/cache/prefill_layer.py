"""Cache layers that fill themselves: full attention at prefill, compressed attention after."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from kernels.dispatch import attend
from kernels.reference import Text, Visual
from rotatek.bridge.attention import over_root, tag
from rotatek.bridge.layers import lends, window_of
from rotatek.bridge.row_layout import NOWHERE, TEXT_STEP, Rows
from rotatek.bridge.scope import SCOPE
from rotatek.cache.layer import CompressedLayer
from rotatek.cache.measures import Stopwatch
from rotatek.cache.output_metric import output_metric
from rotatek.cache.sliding_window import WindowPositions
from rotatek.cache.text_buffer import TextBuffer, take_tokens
from rotatek.cache.token_plan import TokenPlan
from rotatek.methods.channels.base import ChannelMethod, LayerStates, Store
from rotatek.methods.tokens.base import TokenPruner


class Recorder(Protocol):
    """Records each layer's visual tokens before they are compressed."""

    def record(self, states: LayerStates) -> None:
        """Called once a layer, in order."""


@dataclass
class PrefillCompressor:
    """The compression of one cache's layers, and those that wait for it.

    The logits of a prompt need no compressed layer, so what waits behind its pass is compressed by
    `finish`. unfinished: some layers are taken, and more may come.
    """

    method: ChannelMethod
    recorder: Recorder | None
    bases: Sequence[Tensor] | None = None
    pruner: TokenPruner | None = None
    waiting: list[tuple["PrefillLayer", LayerStates]] = field(default_factory=list)
    unfinished: bool = False
    real: Tensor | None = None  # [B, T] bool: a further call's tokens that are no padding
    modes: tuple[bool, bool] = False, False  # of the prompt's pass: inference, gradients
    guard: Any = field(default_factory=threading.RLock)  # forks may be made in several threads

    def take(self, layer: "PrefillLayer", states: LayerStates, seen: LayerStates) -> None:
        """Compress a layer's visual tokens, now or with later ones; seen: those of `states` inside
        its window, or `states`."""
        if self.recorder is not None:
            self.recorder.record(states)
        if self.pruner is not None and self.pruner.stage == "cache" and seen is states:
            seen = self.pruner.stored(seen)
        self.method.check(seen)
        self.waiting.append((layer, seen))
        self.unfinished = True
        most = self.method.together
        if most is not None and sum(own.keys.nbytes for _, own in self.waiting) >= most:
            self._compress()

    def end(self) -> None:
        """A prompt's own work is queued."""
        self.modes = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
        self.unfinished = False

    @property
    def waits(self) -> bool:
        """Whether a prompt has been read, and some of its layers are still to be compressed."""
        return bool(self.waiting) and not self.unfinished

    def finish(self) -> None:
        """Compress what waits behind a prompt, as its own pass would."""
        if self.waits:
            inference, gradients = self.modes
            with self.guard, torch.inference_mode(inference), torch.set_grad_enabled(gradients):
                self._compress()

    def forget(self) -> None:
        """Nothing of a prefill that broke off is completed."""
        self.waiting.clear()
        self.unfinished = False

    def _compress(self) -> None:
        if not self.waiting:
            return
        layers = [states for _, states in self.waiting]
        with torch.autocast(layers[0].keys.device.type, enabled=False):  # as where they are filled
            stores = self.method.compress_together(layers)
        for (layer, _), store in zip(self.waiting, stores, strict=True):
            layer.store = store
        self.waiting.clear()


class PrefillLayer(CompressedLayer):
    """A cache layer that runs its own attention: full at prefill, which fills it, and compressed
    afterwards. store: its visual tokens, when `filling`, its cache's, has compressed them.
    """

    def __init__(self, index: int, plan: TokenPlan, filling: PrefillCompressor) -> None:
        super().__init__(index)
        self.plan, self.filling = plan, filling
        self.store: Store | None = None
        self.text: TextBuffer | None = None
        self.span: WindowPositions | None = None  # of its tokens, if its attention has a window
        self.first = True  # whether the present rows are a prompt's
        # What each of some further rows sees, where a window moves and later layers borrow it.
        self.each: list[tuple[Visual | None, Text]] = []

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Count the tokens, of a prompt those that stay, and send this layer along."""
        self.logical += self.plan.logical if self.text is None else key_states.shape[2]
        return tag(key_states, self), value_states

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        """Full attention at prefill, which fills the layer; compressed attention afterwards."""
        scale = getattr(module, "scaling", query.shape[-1] ** -0.5)
        self.first, self.each = self.text is None, []
        if self.text is None:
            out: Tensor = full()
            self.store_prefill(module, query, key, value, out)
            self.plan.observe(self.index, query, key, scale)
            return out
        self.follow(0)
        if self.filling.real is not None:
            self.append(key, value, self.filling.real.to(key.device))
            return self._read(query, scale)
        if self.text.tables is None or query.shape[2] == 1:
            self.text.append(key, value)
            return self._read(query, scale)
        rows, lending = [], lends(module)
        for one in zip(*(part.split(1, 2) for part in (query, key, value)), strict=True):
            self.text.append(*one[1:])  # which may overwrite what the row before has seen
            seen = self.visual(), self.text.read()
            rows.append(attend(one[0], *seen, scale))
            if lending:
                held = seen[1]._replace(keys=seen[1].keys.clone(), values=seen[1].values.clone())
                self.each.append((seen[0], held))
        return torch.cat(rows, 2).transpose(1, 2)

    def lend(self, module: nn.Module, query: Tensor, full: Callable) -> Tensor:
        """As `CompressedLayer.lend`: nothing is stored."""
        if self.first:
            return full()
        scale = getattr(module, "scaling", query.shape[-1] ** -0.5)
        if self.each:
            seen = self.each[-query.shape[2] :]
            rows = zip(query.split(1, 2), seen, strict=True)
            return torch.cat([attend(q, *one, scale) for q, one in rows], 2).transpose(1, 2)
        return self._read(query, scale)

    def _read(self, query: Tensor, scale: float) -> Tensor:
        """Attention of a call's last rows [B, Hq, T, d], which are stored, if they are no padding:
        [B, T, Hq, d]."""
        assert self.text is not None
        if self.filling.real is None:
            return attend(query, self.visual(), self.text.read(), scale).transpose(1, 2)
        real = self.filling.real[:, -query.shape[2] :].to(query.device)
        order = real.long().argsort(dim=1, stable=True)  # padding comes first
        turned = take_tokens(query, order)
        out = attend(turned, self.visual(), self.text.read(), scale).transpose(1, 2)
        back = order.argsort(1)[..., None, None].expand_as(out)
        return out.gather(1, back).masked_fill(~real[..., None, None], 0.0)

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
        out: Tensor,
        states: LayerStates | None = None,
    ) -> LayerStates | None:
        """Store the states of an attention call over a prompt; out: [B, L', Hq, d], its result;
        states: the visual ones, where another cache has gathered them.

        Returns:
            The visual states; None where the layer reads no visual token.
        """
        device = key.device
        visual, text, window = (rows.to(device) for rows in self.plan.rows())
        width, order = window_of(module), None
        if width is not None:
            text, order, span = self.plan.window_view(width)
            text, order, self.span = text.to(device), order.to(device), span.to(device)
        rows = text.padded(TEXT_STEP)
        said = Text(rows.gather(key), rows.gather(value), rows.lengths)
        self.text = TextBuffer(said.keys, said.values, rows.lengths, rows.ragged, rows.longest)
        if visual.index.shape[1] == 0:
            return None
        read = self.plan.read_text()
        if read is not None:
            read = read.to(device)
            said = Text(read.gather(key), read.gather(value), read.lengths)
        if states is None:
            states = LayerStates(
                visual.gather(key),
                visual.gather(value),
                visual.lengths,
                over_root(module, window.gather(query)),
                window.alive,
                self.index,
                text=said,
            )
        seen = states
        if order is not None:  # the tokens that a window leaves, the newest first
            if order.longest == 0:
                return states
            seen = states.cached("seen", lambda: states.taken(order))
        filling, more = self.filling, dict[str, Any]()
        if filling.method.times_smaller is not None:
            more = _measured(module, window, out)
            more["value_metric"] = output_metric(module, key)
        if filling.bases is not None:
            more["basis"] = filling.bases[self.index]
        whole = replace(states, **more)
        filling.take(self, whole, whole if seen is states else replace(seen, **more))
        return states

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """(kind, tensor) of all tensors of this layer."""
        if self.store is not None:
            yield from self.store.tensors()
        if self.text is not None:
            yield "text", self.text.keys
            yield "text", self.text.values
            yield "lengths", self.text.lengths
            yield from (("lengths", tensor) for tensor in self.text.tables or ())
        if self.span is not None:  # its tables are the text's, if it follows them
            span = self.span.text, self.span.visual, self.span.count
            yield from (("lengths", tensor) for tensor in span)

    def follow(self, tokens: int) -> None:
        """Let the window move with the text from here on, if `tokens` more would outgrow it."""
        if self.span is None or self.text is None or self.text.tables is not None:
            return
        if self.logical + tokens > self.span.width:
            self.text.tables = self.span.tables

    @property
    def outgrown(self) -> bool:
        """Whether there have been more tokens than its window takes."""
        return self.span is not None and self.logical > self.span.width

    @property
    def follows(self) -> bool:
        """Whether a further token needs no change of the window on the host."""
        if self.span is None or self.logical < self.span.width:
            return True
        return self.text is not None and self.text.tables is not None

    def select(self, how: Callable[[Tensor], Tensor]) -> None:
        """Apply a batch selection to every tensor."""
        for part in (self.store, self.text):
            if part is not None:
                part.select(how)
        self.span = None if self.span is None else self.span.changed(how)

    def forget(self, lost: Tensor, slots: Tensor) -> None:
        """Give up text inside any window: the columns `lost` [B, n] bool, in the text's `slots`
        [B, n]."""
        assert self.text is not None
        M, device = self.text.keys.shape[2], self.text.keys.device
        places = torch.where(lost, slots, M).to(device)
        gone = lost.new_zeros(len(lost), M + 1, device=device).scatter(1, places, True)[:, :M]
        span = None if self.span is None else self.span.now(self.text.lengths, M)
        order = self.text.forget(gone)
        if span is not None:
            dead = torch.arange(M, device=device) >= self.text.lengths[:, None]
            self.span = replace(span, text=span.text.gather(1, order).masked_fill(dead, NOWHERE))

    def append(self, keys: Tensor, values: Tensor, real: Tensor) -> None:
        """Add those of T tokens [B, Hkv, T, d] that are no padding, real [B, T], inside any
        window."""
        assert self.text is not None
        order = real.long().argsort(dim=1, descending=True, stable=True)
        count, before = real.sum(1, dtype=torch.int32), self.text.lengths.clone()
        self.text.append(take_tokens(keys, order), take_tokens(values, order), count)
        if self.span is not None:  # padding has an index, too
            M, span = self.text.keys.shape[2], self.span.now(before, self.text.keys.shape[2])
            step = torch.arange(real.shape[1], device=real.device)
            slots = torch.where(step < count[:, None], before[:, None] + step, M)
            places = (span.count[:, None] + order).int()
            places = pad(span.text, (0, 1)).scatter(1, slots, places)[:, :M]
            self.span = replace(span, text=places, count=span.count + real.shape[1])


def _measured(module: Any, window: Rows, out: Tensor) -> dict[str, Any]:
    """A layer's `stream` and `gain` as of `LayerStates`; arguments as of `store_prefill`. Errors of
    several layers' outputs are comparable in the stream that they are added to."""
    call = SCOPE.get().call
    assert call is not None and call.entering is not None
    stream = window.to(call.entering.device).gather(call.entering[:, None]).to(out.device)
    if call.norm is None:
        return {"stream": stream}
    before = module.o_proj(window.gather(out.transpose(1, 2)).transpose(1, 2).flatten(2))
    size, changed = (x.float().square().sum((1, 2)) for x in (before, call.norm(before)))
    return {"stream": stream, "gain": (changed / size.clamp(min=1e-30)).to(out.device)}


class SharedLayer(CompressedLayer):
    """A layer of a prefill that fills those of several caches: `PrefillLayer`s, and transformers'
    own. What two of them would compute alike is computed once, unless their times are measured.

    watches: lists that get each member's time, where it is measured.
    """

    def __init__(
        self,
        index: int,
        plan: TokenPlan,
        members: Sequence[Any],
        watches: Sequence[list[Stopwatch]] | None,
    ) -> None:
        super().__init__(index)
        self.plan, self.members, self.watches = plan, members, watches

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Count the prompt's tokens in all members, and send this layer along."""
        for layer in (self, *self.members):
            if isinstance(layer, CompressedLayer):
                layer.logical += self.plan.logical
        return tag(key_states, self), value_states

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        """Full attention, which fills every member."""
        out: Tensor = full()
        states = None
        for number, layer in enumerate(self.members):
            watch = Stopwatch(key.device)
            if self.watches is not None:
                self.watches[number].append(watch)
            with nullcontext() if self.watches is None else watch:
                if isinstance(layer, PrefillLayer):
                    made = layer.store_prefill(module, query, key, value, out, states)
                    states = made if self.watches is None else None
                else:
                    layer.update(key, value)
        self.plan.observe(
            self.index, query, key, getattr(module, "scaling", query.shape[-1] ** -0.5)
        )
        return out

    def lend(self, module: nn.Module, query: Tensor, full: Callable) -> Tensor:
        """The layer that borrows attends to the prompt as it is."""
        out: Tensor = full()
        return out
