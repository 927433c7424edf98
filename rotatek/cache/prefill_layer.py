"""Cache layers that fill themselves: full attention at prefill, compressed attention after."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from kernels.dispatch import attend
from kernels.reference import Text, Visual
from rotatek.bridge.attention import over_root
from rotatek.bridge.fitness import lends, window_of
from rotatek.bridge.row_layout import TEXT_STEP, Rows
from rotatek.cache.layer import CompressedLayer
from rotatek.cache.output_metric import output_metric
from rotatek.cache.text_buffer import TextBuffer, take_tokens
from rotatek.cache.token_plan import TokenPlan
from rotatek.methods.channels.base import ChannelMethod, LayerStates
from rotatek.methods.channels.store import Store
from rotatek.methods.tokens.base import TokenPruner


class Recorder(Protocol):
    """Records each layer's visual tokens before they are compressed."""

    def record(self, states: LayerStates) -> None:
        """Called once a layer, in order."""
        ...


@dataclass
class PrefillCompressor:
    """The compression of one cache's layers, and those that wait for it.

    unfinished: some layers are taken, and more may come.

    The logits of a prompt need no compressed layer, so what waits behind its pass is compressed
    when a store is first read, or by `finish`.
    """

    method: ChannelMethod
    recorder: Recorder | None
    bases: Sequence[Tensor] | None = None
    pruner: TokenPruner | None = None
    waiting: list[tuple[CompressedLayer, LayerStates]] = field(default_factory=list)
    unfinished: bool = False
    real: Tensor | None = None  # [B, T] bool: a further call's tokens that are no padding
    modes: tuple[bool, bool] = False, False  # of the prompt's pass: inference, gradients
    guard: Any = field(default_factory=threading.RLock)  # forks may be made in several threads

    def take(self, layer: CompressedLayer, states: LayerStates, seen: LayerStates) -> None:
        """Compress one layer's visual tokens, now or with later ones.

        Args:
            layer: where they are stored.
            states: all of them.
            seen: those inside the layer's window, or `states`.
        """
        if self.recorder is not None:
            self.recorder.record(states)
        if self.pruner is not None and self.pruner.stage == "cache" and seen is states:
            seen = self.pruner.stored(seen)
        self.waiting.append((layer, seen))
        self.unfinished = True
        most = self.method.together
        if most is not None and sum(own.keys.nbytes for _, own in self.waiting) >= most:
            self._compress()

    def end(self) -> None:
        """A prompt's own work is queued."""
        self.modes = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
        self.unfinished, self.recorder = False, None

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


class PlannedLayer(CompressedLayer):
    """A cache layer that runs its own attention: full at prefill, compressed afterwards."""

    def __init__(self, index: int, plan: TokenPlan, filling: PrefillCompressor) -> None:
        super().__init__(index, plan.logical)
        self.plan, self.filling = plan, filling
        self.first = True  # whether the present rows are a prompt's
        # What each of some further rows sees, where a window moves and later layers borrow it.
        self.each: list[tuple[Visual | None, Text]] = []

    @property
    def store(self) -> Store | None:
        """Its visual tokens, which are compressed now if they still wait for that."""
        self.filling.finish()
        return self._made

    @store.setter
    def store(self, store: Store | None) -> None:
        self._made = store

    def begin(self, plan: TokenPlan) -> None:
        """Be ready for the rows of a prompt."""
        self.plan, self.rows = plan, plan.length
        self.filling.forget()

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        """Full attention that fills the layer at prefill, compressed attention afterwards.

        Args and result are those of `CompressedLayer.attend`.
        """
        scale = getattr(module, "scaling", query.shape[-1] ** -0.5)
        self.first, self.each = self.text is None, []
        if self.text is None:
            out: Tensor = full()
            self.plan.leave(module, out)
            self.store_prefill(module, query, key, value)
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
        states: LayerStates | None = None,
    ) -> LayerStates | None:
        """Store one prefill's states.

        Args:
            module: the attention module; some methods weigh Values by its output projection.
            query: [B, Hq, L, d].
            key: [B, Hkv, L, d].
            value: [B, Hkv, L, d].
            states: the visual ones, where another cache has gathered them.

        Returns:
            The visual states; None where the layer reads no visual token.
        """
        visual, text, window = (rows.to(key.device) for rows in self.plan.rows())
        width, order = window_of(module), None
        if width is not None:
            text, order, self.span = self.plan.window_view(width).to(key.device)
        rows = text.padded(TEXT_STEP)
        said = Text(rows.gather(key), rows.gather(value), rows.lengths)
        self.text = TextBuffer(said.keys, said.values, rows.lengths, rows.ragged, rows.longest)
        if visual.index.shape[1] == 0:
            return None
        read = self.plan.read_text()
        if read is not None:
            read = read.to(key.device)
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
        self._store(module, key, states, order)
        return states

    def _store(
        self,
        module: nn.Module,
        key: Tensor,
        states: LayerStates,
        order: Rows | None,
    ) -> None:
        """Compress visual tokens; order: those that a window leaves, the newest first."""
        seen = states
        if order is not None:
            if order.longest == 0:
                return
            seen = states.cached("seen", lambda: states.taken(order))
        filling, more = self.filling, dict[str, Any]()
        if filling.method.times_smaller is not None:
            for name, part in (("stream", self.plan.entering()), ("gain", self.plan.gain())):
                more[name] = None if part is None else part.to(key.device)
            more["value_metric"] = output_metric(module, key)
        if filling.bases is not None:
            more["basis"] = filling.bases[self.index]
        whole, states = seen is states, replace(states, **more)
        filling.take(self, states, states if whole else replace(seen, **more))
