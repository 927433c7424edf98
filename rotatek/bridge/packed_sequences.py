"""Separate sequences of one vision attention call: windows, pictures, frames of a clip.

A vision tower packs its pictures into one row of tokens and marks the end of each sequence. Calling
attention for one sequence after another takes thousands of launches for a large picture. Here
sequences of one length are samples of one call. The numbers are the same, since a sequence attends
only to itself either way.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise

import torch
from torch import Tensor

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


class Segments:
    """The sequences among the tokens of one call, computed once for all layers.

    Args:
        bounds: [S + 1] where each sequence begins, and where the last one ends.
    """

    def __init__(self, bounds: Tensor) -> None:
        self.lengths = [end - start for start, end in pairwise(bounds.tolist())]
        self.whole = torch.tensor([0, sum(self.lengths)], dtype=bounds.dtype)
        starts = list(accumulate(self.lengths, initial=0))[:-1]
        kinds = sorted({length for length in self.lengths if length})
        self._groups = [(length, self.lengths.count(length)) for length in kinds]
        self._order = self._back = None
        if len(kinds) > 1:
            pairs = list(zip(starts, self.lengths, strict=True))
            alike = [start for kind in kinds for start, length in pairs if length == kind]
            long = [length for length, count in self._groups for _ in range(count)]
            offset = torch.tensor(alike) - torch.tensor([0, *accumulate(long)][:-1])
            order = torch.arange(sum(long)) + offset.repeat_interleave(torch.tensor(long))
            self._order = order.to(bounds.device)
            self._back = order.argsort().to(bounds.device)

    def each(self, query: Tensor, key: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The sequences' own queries and Keys of [1, H, n, d], one after another."""
        yield from zip(query.split(self.lengths, 2), key.split(self.lengths, 2), strict=True)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, full: Attention) -> Tensor:
        """Attention in which every sequence attends only to itself.

        Args:
            query: [1, H, n, d].
            key: the same.
            value: the same.
            full: plain attention of [S, H, L, d] over themselves: [S, L, H, d].

        Returns:
            [1, n, H, d].
        """
        states = [query, key, value]
        if self._order is not None:
            states = [part.index_select(2, self._order) for part in states]
        made, start = [], 0
        for length, count in self._groups:
            group = [part[0, :, start : start + count * length] for part in states]
            start += count * length
            rows = (part.unflatten(1, (count, length)).transpose(0, 1) for part in group)
            made.append(full(*rows).flatten(0, 1))
        if self._back is None:
            return made[0][None]
        return torch.cat(made).index_select(0, self._back)[None]


def segments_of(bounds: Tensor) -> Segments:
    """The sequences of a tower's pass; every layer brings the same tensor, and the first layer's
    work travels on it."""
    found: Segments | None = getattr(bounds, "rotatek_segments", None)
    if found is None:
        found = bounds.rotatek_segments = Segments(bounds)  # type: ignore[attr-defined]
    return found
