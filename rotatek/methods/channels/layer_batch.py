"""Stores of planes, and the layers that wait to share a budget of bits: what they demand."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Final, Self

import torch
from torch import Tensor

from kernels.planes import TILE, Planes
from rotatek.errors import CalibrationUnusable
from rotatek.methods.channels.batched_rotation import LayerGroup, PendingStore, held
from rotatek.methods.channels.bit_allocation import COLUMN_EXTRA, BitDemand, joined
from rotatek.methods.channels.bit_bases import MomentStats
from rotatek.methods.channels.store import Store
from rotatek.methods.rotation.stored_bases import LayerAxes, unit_rows

AXIS_BYTES: Final = 1  # of the number of an axis that is not stored
HEAD_BYTES: Final = 28  # of a head's Keys or Values beside the mean: `Planes` counts


@dataclass
class LayersOfOneForm:
    """Layers of one form that wait for the others, and their measurements."""

    stores: Sequence["BitStore"]
    layers: LayerGroup
    shares: Tensor  # [n, 1, N] of `token_shares`
    sides: tuple[MomentStats, MomentStats]  # of Keys, of Values

    @cached_property
    def lengths(self) -> Tensor:
        """[layers, B] visual tokens."""
        return self.layers.of("lengths").view(len(self.stores), -1)


@dataclass
class BitStore(PendingStore):
    """A store of planes that, until all layers are there, holds the states and their group.

    calibration: the digest of the file whose axes it shares, or nothing.
    borrowed: whose axes those are: "k" the Keys', "v" the Values', "kv" both.
    unturned: of what channels are stored as they are: "k" of Keys, "v" of Values, "kv" of both.
    """

    per_token: ClassVar[tuple[str, ...]] = Store.per_token

    group: LayersOfOneForm | None = None
    calibration: str = ""
    borrowed: str = "kv"
    unturned: str = ""

    def without_shared(self) -> Self:
        """The same without the rows of a calibration, and those that leave channels as they are."""
        return self._with_rows(
            lambda which, planes: planes.basis if planes.axes is None else planes.basis[:0]
        )

    def with_shared(self, axes: Tensor | LayerAxes | None) -> Self:
        """The same with both again.

        Raises:
            CalibrationUnusable: for the axes of another file, or none.
        """
        if self.unturned:
            heads, d = held(self.visual.mean).shape[1:]
            unit = unit_rows(heads, d, self.visual.keys.device).flatten(0, 1)
            return self._with_rows(
                lambda which, planes: unit if "kv"[which] in self.unturned else planes.basis
            )
        if not self.calibration:
            return self
        if not isinstance(axes, LayerAxes) or axes.digest != self.calibration:
            raise CalibrationUnusable(
                "The stored cache shares the axes of a calibration file. Give that very file, "
                "with --calibration or `calibration=`, or beside the model's weights."
            )
        sides = axes.on(self.visual.keys.device)
        return self._with_rows(
            lambda which, planes: (
                sides[which].rows.flatten(0, 1) if "kv"[which] in self.borrowed else planes.basis
            )
        )

    def _with_rows(self, rows: Callable[[int, Planes], Tensor]) -> Self:
        planes = held(self.visual.key_planes), held(self.visual.value_planes)
        keys, values = (one._replace(basis=rows(i, one)) for i, one in enumerate(planes))
        return replace(self, visual=self.visual._replace(key_planes=keys, value_planes=values))


@dataclass(frozen=True)
class Batch:
    """Groups whose layers are taken together, n samples of all of them; tokens may differ, and the
    number and width of heads may not."""

    groups: Sequence[LayersOfOneForm]

    @property
    def width(self) -> int:
        """d of a head."""
        return self.sides[0].mean.shape[-1]

    @cached_property
    def layers(self) -> LayerGroup:
        """All layers, of which only what has no tokens may be joined."""
        return LayerGroup([part for group in self.groups for part in group.layers.parts])

    @cached_property
    def sides(self) -> list[MomentStats]:
        """Keys' and Values'."""
        return [
            MomentStats.joined(each) for each in zip(*(g.sides for g in self.groups), strict=True)
        ]

    @cached_property
    def lengths(self) -> Tensor:
        """[layers, B] visual tokens."""
        return joined([group.lengths for group in self.groups], 0)

    def demand(
        self, energy: Tensor, tokens: Tensor, numbered: bool, place: torch.device
    ) -> BitDemand:
        """What the layers may gain.

        Args:
            energy: [2, n, Hkv, c] of their channels, falling.
            tokens: [layers, B].
            numbered: whether a channel stores the number of an axis in place of a row.
            place: where the budget is divided.
        """
        rate = torch.stack([side.rate for side in self.sides])
        loss = (energy * rate[..., None]).unflatten(1, tokens.shape)  # [2, layers, B, ...]
        column, loss = COLUMN_EXTRA + (AXIS_BYTES if numbered else self.width), loss.to(place)
        return BitDemand(loss.permute(1, 2, 0, 3, 4), tokens.to(place), column, self.width)

    def tiles(self) -> Tensor:
        """Tiles of tokens of every layer, on the CPU."""
        return torch.tensor([-(-part.keys.shape[2] // TILE) for part in self.layers.parts])

    def budget(self, smaller: float, axes: bool) -> Tensor:
        """[B] bytes for digits and columns that make the visual tokens `smaller` times smaller.

        Every prompt has those that it would have alone: it is not charged for tokens that fill it
        up, nor for a layer in which a window leaves it none.

        axes: whether they come from a calibration; a head then also stores their numbers.
        """
        _, heads, _, d = self.layers.parts[0].keys.shape
        itemsize = self.layers.parts[0].keys.element_size()
        whole = 2 * heads * d * itemsize * self.lengths.sum(0, dtype=torch.float64)
        head = d * itemsize + HEAD_BYTES + (4 if axes else 0)
        return whole / smaller - (self.lengths > 0).sum(0) * (2 * heads * head + 4)

    def slices(self) -> Iterator[tuple[LayersOfOneForm, slice]]:
        """Every group with its samples."""
        first = 0
        for group in self.groups:
            yield group, slice(first, first := first + len(group.shares))

    def rows(self) -> Iterator[slice]:
        """Every group's layers among the batch's."""
        first = 0
        for group in self.groups:
            yield slice(first, first := first + len(group.stores))
