"""The running batch: the cache of a step's forward pass, over all rows that are being answered.

The model's layers run once a step over all rows. Rows of one storage form also share an attention
call (`rotatek.engine.row_group_layer`). A store that cannot be stacked is rebuilt when a row joins,
and comes back as it was when the row leaves.
"""

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from rotatek.bridge.attention import over_root
from rotatek.bridge.layers import (
    change,
    emptied,
    forget_states,
    key_layers,
    restore,
    state_layers,
    state_of,
    tensors_of,
)
from rotatek.bridge.layers import (
    slots as state_slots,
)
from rotatek.cache.layer import AttendingCache, CompressedLayer
from rotatek.cache.measures import storage_bytes
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cache.step_graph import CaptureFailed, StepGraph, kind_of
from rotatek.engine.pools import Copy, LayerRow, Shift, key_of, layer_row_of
from rotatek.engine.row_group import RowGroup
from rotatek.engine.row_group_layer import RowGroupLayer
from rotatek.engine.sequences import Sequence as Owner
from rotatek.engine.sequences import Watcher
from rotatek.models.memory import is_out_of_memory

log = logging.getLogger("rotatek")


class BatchLayer(CompressedLayer):
    """One layer of a `RunningBatch`: its rows, group by group."""

    def __init__(
        self, index: int, watchers: Mapping[int, Watcher], groups: Mapping[Hashable, RowGroup]
    ) -> None:
        super().__init__(index)
        self._watchers, self._groups = watchers, groups

    @property
    def groups(self) -> list[RowGroupLayer]:
        """This layer's part of each group."""
        return [group.slots[self.index] for group in self._groups.values()]

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        """Attention output [rows, 1, Hq, d] of one new token a row."""
        found = self._group_by_group(module, query, key, value)
        for place, see in self._watchers.items():
            see(self.index, over_root(module, query[place : place + 1]))
        return found

    def lend(self, module: nn.Module, query: Tensor, full: Callable) -> Tensor:
        """Attention output [rows, 1, Hq, d] of later layers, over this one's tokens."""
        return self._group_by_group(module, query)

    def _group_by_group(self, module: nn.Module, query: Tensor, *new: Tensor) -> Tensor:
        scale = getattr(module, "scaling", query.shape[-1] ** -0.5)
        parts, start = [], 0
        for slots in self.groups:
            rows = slice(start, start + slots.width)
            parts.append(slots.attend(query[rows], scale, *(part[rows] for part in new)))
            start = rows.stop
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).transpose(1, 2)


class StateRows:
    """The states of a batch's rows, in its layers that have one in place of Keys.

    A state is as large whatever the prompt's length, and a row of one tensor. Rows of all storage
    forms lie together, at their indices in the batch.
    """

    def __init__(self, layers: Sequence[Any]) -> None:
        self.layers, self._order = layers, list[Owner | None]()
        self._whole: list[list[Tensor]] = []  # by layer, with spare capacity [size, ...]

    @property
    def size(self) -> int:
        """Capacity of rows."""
        return next((len(tensor) for own in self._whole for tensor in own), 0)

    def tensors(self) -> list[Tensor]:
        """All tensors."""
        return [tensor for own in self._whole for tensor in own]

    def fit(self, like: Sequence[Any], rows: int) -> bool:
        """Allocate capacity for so many rows; like: the state layers of a cache that joins. Whether
        anything moved. Where memory runs out, nothing has."""
        if not self.layers or rows <= self.size:
            return False
        old = self._whole or [[tensor[:0] for tensor in tensors_of(layer)] for layer in like]
        self._whole = [
            [torch.cat([t, t.new_zeros(rows - len(t), *t.shape[1:])]) for t in own] for own in old
        ]
        for mine, layer in zip(self.layers, like, strict=True):
            if not tensors_of(mine):
                change(restore(mine, state_of(layer)), lambda t: t[:0])
        return True

    def place(self, order: Sequence[Owner | None], joined: Mapping[Owner, Sequence[Any]]) -> None:
        """Bring rows to their indices, for which `fit` has allocated capacity; joined: the state
        layers of the cache that each new row comes from."""
        there = {owner: place for place, owner in enumerate(self._order)}
        moves = [
            (to, there[one])
            for to, one in enumerate(order)
            if one is not None and there.get(one, to) != to
        ]
        for depth, (layer, whole) in enumerate(zip(self.layers, self._whole, strict=False)):
            for part, tensor in enumerate(whole):
                if moves:
                    to, source = (list(places) for places in zip(*moves, strict=True))
                    tensor[to] = tensor[source]
                for place, owner in enumerate(order):
                    if owner is not None and owner in joined:
                        tensor[place] = tensors_of(joined[owner][depth])[part][0]
            views = (tensor[: len(order)] for tensor in whole)
            for (held, number), view in zip(state_slots(layer), views, strict=True):
                held[number] = view
        self._order = list(order)

    def give(self, owner: Owner, layers: Sequence[Any]) -> None:
        """Give copies of one row to the empty state layers of a cache."""
        place = self._order.index(owner) if self.layers else 0
        for own, layer in zip(self.layers, layers, strict=True):
            held = state_of(own).items()
            row = {k: [t if t is None else t[place : place + 1] for t in v] for k, v in held}
            restore(layer, row)


class RunningBatch(AttendingCache):
    """Rows of many caches, which join and leave between steps.

    like: any cache of the model, for its kinds of layers; steps: replays steps as a CUDA graph,
    where `static` is set. order: whose each row is, or None for a row that is not in use, as a step
    computes them; moved: how often tensors changed their addresses, which a graph would not
    survive.
    """

    def __init__(self, like: Cache, *, steps: StepGraph | None = None) -> None:
        self._watchers: dict[int, Watcher] = {}  # by index in the batch
        self._groups: dict[Hashable, RowGroup] = {}
        numbers = count()
        super().__init__(
            layers=[
                BatchLayer(next(numbers), self._watchers, self._groups)
                if isinstance(layer, CacheLayerMixin)
                else emptied(layer)
                for layer in like.layers
            ]
        )
        self._states = StateRows(state_layers(self))
        self._graph = steps
        self.static = False
        self.moved, self._uncaptured = 0, -1  # where a step could not be captured
        self.order: list[Owner | None] = []
        self._steps = 0

    @property
    def owners(self) -> list[Owner]:
        """Those of the rows in use."""
        return [owner for owner in self.order if owner is not None]

    @torch.inference_mode()
    def join(self, owners: Sequence[Owner], *, reserve: bool = True, growth: float = 1.0) -> None:
        """Take over filled caches of one sample each, which are empty afterwards. Where memory runs
        out meanwhile, the batch and the caches are unchanged.

        Args:
            owners: the sequences, whose limits are the tokens that rows may add.
            reserve: whether to reserve capacity for these at once.
            growth: how many times as many rows are expected soon. Under a graph the batch is made
                large enough for these too where memory allows, so that it moves seldom.
        """
        caches, tokens = [one.cache for one in owners], max(one.limit for one in owners)
        pieces = [[layer_row_of(layer, tokens) for layer in key_layers(cache)] for cache in caches]
        keys = [key_of(own) for own in pieces]
        if not self._groups.keys() >= set(keys):
            self._drop_empty()  # a graph has to be captured again anyway
        try:
            for key in dict.fromkeys(keys):
                alike = [own for own, one in zip(pieces, keys, strict=True) if one == key]
                self._fit(key, alike, tokens if reserve else 0, growth if self.static else 1.0)
            rows = sum(group.size for group in self._groups.values())
            self.moved += self._states.fit(state_layers(caches[0]), rows)
        except BaseException:
            self.moved += 1
            self._drop_empty()
            self._order()
            raise
        copies, shifts = list[Copy](), list[Shift]()
        for owner, key, own in zip(owners, keys, _unpadded(pieces), strict=True):
            to_copy, to_shift = self._groups[key].add(own, owner, self._steps)
            copies += to_copy
            shifts += to_shift
        if copies:
            torch._foreach_copy_([to for to, _ in copies], [source for _, source in copies])
        if shifts:
            torch._foreach_add_([to for to, _ in shifts], [by for _, by in shifts])
        self._order(dict(zip(owners, map(state_layers, caches), strict=True)))
        for cache in caches:
            _strip(cache)

    def _fit(
        self, key: Hashable, alike: Sequence[Sequence[LayerRow]], room: int, growth: float
    ) -> None:
        """Capacity in every layer for caches of one form."""
        for factor in dict.fromkeys((growth, 1.0)):
            group = self._groups.get(key) or RowGroup(alike[0])
            try:
                self.moved += group.fit(alike, room, self.static, factor)
                break
            except RuntimeError as error:
                if factor == 1.0 or not is_out_of_memory(error):
                    raise
            self.moved += 1  # outside the handler: the error refers to the tensors that did not fit
            group.shrink()
        self._groups[key] = group

    def _drop_empty(self) -> None:
        for key in [key for key, group in self._groups.items() if not any(group.rows)]:
            del self._groups[key]
            self.moved += 1

    @torch.inference_mode()
    def leave(self, gone: Collection[Owner], restored: Iterable[Owner] = ()) -> None:
        """Remove rows; restored: those of them whose caches get their tensors back. Under a graph
        their slots stay free for others."""
        for owner in restored:
            self._restore(owner)
        for group in list(self._groups.values()):
            if any(owner in gone for owner in group.owners):
                group.leave(gone, self.static)
        if not (self.static and any(any(group.rows) for group in self._groups.values())):
            self._drop_empty()
        self._order()

    def _restore(self, owner: Owner) -> None:
        """Give one row back to the cache it came from."""
        cache = owner.cache
        self._states.give(owner, state_layers(cache))
        group = next(group for group in self._groups.values() if owner in group.owners)
        place = group.owners.index(owner)
        row = group.rows[place]
        assert row is not None
        logical = row.logical + self._steps
        for held, slots in zip(key_layers(cache), group.slots, strict=True):
            store, text = slots.restored(row, place)
            if isinstance(cache, RotateKCache):
                held.store, held.text, held.logical = store, text, logical
            else:
                keys, values, number = text.opened()
                order = number[0].argsort()[-int((number[0] >= 0).sum()) :]  # those stored
                held.update(keys[:, :, order], values[:, :, order])
                if held.is_sliding:
                    held.cumulative_length = logical

    def _order(self, joined: Mapping[Owner, Sequence[Any]] | None = None) -> None:
        """Set each row's index, its state, its visible length, and the largest length; joined: the
        states of new rows."""
        groups = self._groups.values()
        self.order = [owner for group in groups for owner in group.mark(self.static)]
        self._states.place(self.order, joined or {})
        self._watchers.clear()
        for place, owner in enumerate(self.order):
            if owner is not None and owner.watcher is not None:
                self._watchers[place] = owner.watcher
        rows = [row.logical for group in groups for row in group.rows if row is not None]
        longest = self._steps + max(rows, default=0)
        for layer in key_layers(self):
            layer.logical = longest

    def run(
        self,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        may_replay: bool = True,
    ) -> Any:
        """The model's own `forward` on these rows, given this cache among `kwargs`: replayed where
        nothing has moved since, unless something of the model has to see every call."""
        wanted = may_replay and self.static and self._uncaptured != self.moved
        kind = kind_of(kwargs) if wanted else None
        if self._graph is None or kind is None:
            return forward(*args, **kwargs)
        try:
            return self._graph.step((self.moved, *kind), forward, self, kwargs)
        except CaptureFailed:
            log.warning("steps without a CUDA graph", exc_info=True)
            self._uncaptured = self.moved
            return forward(*args, **kwargs)

    @property
    def replays(self) -> bool:
        """Whether the next step is one that was captured before."""
        kind = None if self._graph is None else self._graph.captured
        return kind is not None and kind[0] == self.moved

    def advance(self) -> None:
        """Count the step that a graph's replay has taken."""
        for layer in key_layers(self):
            layer.logical += 1
            for slots in layer.groups:
                slots.grown += 1

    def stepped(self) -> None:
        """Count a step that every row has taken."""
        self._steps += 1

    def counters(self) -> Any:
        """Per layer: what `rewind` needs. It costs nothing but copies of the states, and these are
        not made for a step that is replayed: where that fails, so does the device."""
        grown = [(la.logical, [slots.grown for slots in la.groups]) for la in key_layers(self)]
        return grown, None if self.replays else self.held_states()

    @torch.inference_mode()
    def rewind(self, counters: Any) -> None:
        """Forget the tokens added since `counters` were taken. The states of a replayed step cannot
        be rewound."""
        texts, states = counters
        for layer, (logical, grown) in zip(key_layers(self), texts, strict=True):
            layer.logical = logical
            for slots, tokens in zip(layer.groups, grown, strict=True):
                slots.grown = tokens  # `_order` tells the device
        if states is None and self._states.layers:
            raise RuntimeError("a replayed step's states are gone")
        self.rewind_states(states or [])
        self._order()

    def tensors(self) -> list[Tensor]:
        """All tensors, spare capacity included."""
        groups = [tensor for group in self._groups.values() for tensor in group.tensors()]
        return groups + self._states.tensors()

    @property
    def bytes(self) -> int:
        """Live bytes of all of it."""
        return storage_bytes(self.tensors())


def _unpadded(pieces: Sequence[Sequence[LayerRow]]) -> list[list[LayerRow]]:
    """The same with the visual tokens that are no padding counted, in one transfer."""
    held = [one.lengths for own in pieces for one in own if one.lengths is not None]
    told = iter(torch.cat(held).tolist() if held else ())
    return [
        [one if one.lengths is None else one._replace(seen=next(told)) for one in own]
        for own in pieces
    ]


def _strip(cache: Cache) -> None:
    """Drop a cache's tensors, and keep its settings."""
    forget_states(cache)
    if not isinstance(cache, RotateKCache):
        cache.layers[:] = [
            layer if not isinstance(layer, CacheLayerMixin)
            else DynamicSlidingWindowLayer(sliding_window=layer.sliding_window)
            if layer.is_sliding
            else DynamicLayer()
            for layer in cache.layers
        ]  # fmt: skip
        return
    for layer in key_layers(cache):
        layer.store = layer.text = None
