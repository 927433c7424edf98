"""States of the running batch's rows, in layers that have one in place of Keys.

A state is as large whatever the prompt's length, and a row of one tensor. Rows of all storage forms
lie together, at their indices in the batch.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from rotatek.bridge.state_layers import change, restore, slots, state_of, tensors_of
from rotatek.engine.sequences import Sequence as Owner

SPARSE: Final = 4  # tensors a quarter full are allocated again


class StateRows:
    """The states of a batch's rows.

    Args:
        layers: of the batch; empty, of the model's kinds. A step reads and writes them.
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
        """Allocate capacity for so many rows; like: the state layers of a cache that joins.

        Returns:
            Whether anything moved. Where memory runs out, nothing has.
        """
        if not self.layers or rows <= self.size:
            return False
        old = self._whole or [[tensor[:0] for tensor in tensors_of(layer)] for layer in like]
        self._whole = [[_longer(tensor, rows) for tensor in own] for own in old]
        for mine, layer in zip(self.layers, like, strict=True):
            if not tensors_of(mine):
                change(restore(mine, state_of(layer)), lambda t: t[:0])
        return True

    def place(self, order: Sequence[Owner | None], joined: Mapping[Owner, Sequence[Any]]) -> None:
        """Bring rows to their indices.

        Args:
            order: whose each row is, as a step computes them; `fit` has allocated capacity.
            joined: the state layers of the cache that each new row comes from.
        """
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
            for (held, number), view in zip(slots(layer), views, strict=True):
                held[number] = view
        self._order = list(order)

    def shrink(self) -> None:
        """Give back what no row needs, if that is most of it."""
        rows = len(self._order)
        if SPARSE * rows > self.size:
            return
        self._whole = [[tensor[:rows].clone() for tensor in own] for own in self._whole]
        self.place(self._order, {})

    def give(self, owner: Owner, layers: Sequence[Any]) -> None:
        """Give copies of one row to the empty state layers of a cache."""
        place = self._order.index(owner) if self.layers else 0
        for own, layer in zip(self.layers, layers, strict=True):
            held = state_of(own).items()
            row = {k: [t if t is None else t[place : place + 1] for t in v] for k, v in held}
            restore(layer, row)


def _longer(old: Tensor, rows: int) -> Tensor:
    """[rows, ...] with the rows there were, and zeros behind them."""
    return torch.cat([old, old.new_zeros(rows - len(old), *old.shape[1:])])
