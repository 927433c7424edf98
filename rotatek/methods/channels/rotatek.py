"""RotateK: rotate each head's visual Keys onto their query-weighted principal axes, keep k of them.

Prefill stores K~ = (K - mu) F and decoding asks q B with bias q . mu, where (R_k: the top basis)
  weighting="paper":      F = B = R_k of the covariance weighted by sigma sigma^T;
  weighting="none":       F = B = R_k of the plain covariance;
  weighting="consistent": F = S R_k and B = S^-1 R_k, S = diag sigma: the same weighted basis in the
      metric it was found in;
  weighting="general":    as "paper", by the queries of a few general questions, too: an engine
      reads them behind the prompt and forgets them.
Subtracting mu first is the paper's K R_k with bias q . (I - P) mu, with less rounding error.

Beyond the paper: bits=b gives every rotated channel of Keys and Values bits by its energy, b a
number on average. smaller=t
does the same until the visual tokens of a prompt take t times fewer bytes, with everything counted.
Source: arXiv 2605.19218, algorithms 1 and 2.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

import torch
from torch import Tensor

from kernels.dispatch import has_window_kernel
from kernels.planes import GRANULE, TILE
from rotatek.bridge.attention import pause
from rotatek.errors import ModeUnsupported, SettingError
from rotatek.methods import rotation
from rotatek.methods.channels.ablation_tables import studies
from rotatek.methods.channels.base import (
    Axes,
    ChannelMethod,
    HeadStates,
    LayerStates,
    Rest,
    Study,
    full_visual,
    running_share,
)
from rotatek.methods.channels.batched_rotation import (
    PENDING_BYTES,
    RotateKStore,
    held,
    pending_bytes,
    ready,
    rotate,
)
from rotatek.methods.channels.bit_allocation import COLUMN_EXTRA, BitDemand, allot_bits
from rotatek.methods.channels.layer_batch import AXIS_BYTES, BitStore
from rotatek.methods.channels.mixed_precision import (
    DEEPEST,
    LEAST_BITS,
    LEAST_TIMES,
    MOST_TIMES,
    PLAIN,
    allotted,
    calibrated,
    measure,
    residual,
)
from rotatek.methods.channels.rotation_options import RotationOptions
from rotatek.methods.channels.store import Store
from rotatek.methods.channels.token_importance import BYTES_POWER, STREAM_POWER
from rotatek.methods.options import choice, option, options_of
from rotatek.methods.rotation.stored_bases import LayerAxes, load_axes, load_bases
from rotatek.methods.shares import channels_kept

WAITING_BYTES: Final = 128 << 20  # of a sample's full Keys, which wait to share a budget
REPLACED: Final = ("keep", "solver")  # by bits
FORMS: Final = ("bits", "smaller")  # in which bits are given


@dataclass(frozen=True)
class RotateK(RotationOptions):
    """Rotation-aligned channel pruning."""

    name: ClassVar[str] = "rotatek"
    label: ClassVar[str] = "RotateK"
    summary: ClassVar[str] = (
        "Rotates each head's Keys so that few channels carry them all, and keeps those."
    )
    title: ClassVar[str] = "RotateK: one straight cut"
    reading: ClassVar[str] = (
        "RotateK rotates first, so the same few channels serve every token and the cut is one "
        "straight line."
    )
    colour: ClassVar[str] = "#0ca38a"
    marker: ClassVar[str] = "circle"
    dash: ClassVar[str] = "solid"
    rotates: ClassVar[bool] = True

    bits: float | None = option(
        None,
        "Bits a number",
        "mean bits of a number of the visual Keys and Values, .25 to 16, or 0: off; replaces "
        "dropped channels (beyond the paper)",
        kind="number",
        low=LEAST_BITS,
        high=PLAIN,
        place="beyond",
    )
    smaller: float | None = option(
        None,
        "Times smaller",
        "how many times fewer bytes the visual tokens of each prompt are to take, with all that "
        "is stored for them, 2 to 64, or 0: off; in place of bits, which it finds (beyond the "
        "paper)",
        kind="number",
        low=LEAST_TIMES,
        high=MOST_TIMES,
        place="beyond",
    )
    allot: str = choice(
        "model",
        "Who shares the bits",
        "all layers, once the last one is read; or, of prompts of many thousand tokens, a few "
        "layers at a time, whose full Keys and Values then go (beyond the paper)",
        [("model", "all layers"), ("layers", "a few layers at a time where prompts are long")],
        place="hidden",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits is not None and self.smaller is not None:
            raise SettingError("smaller", "left out where bits is given", self.smaller)
        if self.bits_a_number is not None:
            for one in options_of(self):  # so that settings which store the same are equal
                if one.name in REPLACED:
                    object.__setattr__(self, one.name, one.default)
            return
        object.__setattr__(self, "allot", "model")  # there is nothing to be shared

    def compress(self, states: LayerStates) -> Store:
        """Measure, allot and pack one layer by itself."""
        store = self.measure(states)
        self.pack([store], last=True)
        return store

    def measure(self, states: LayerStates) -> Store:
        """Hold one layer's states until `pack` rotates them with other layers'."""
        if self.bits_a_number is None:
            return RotateKStore(full_visual(states), states)
        if self.bits_a_number >= PLAIN:
            return Store(full_visual(states))
        width = states.keys.shape[-1]
        if width % GRANULE:
            raise ModeUnsupported(
                f"Bits are given to {GRANULE} channels at a time, and this model's heads have "
                f"{width}. Choose `keep_channels` in place of bits."
            )
        residual(states)
        calibrated(states)
        return BitStore(full_visual(states), states)

    def pack(self, stores: Sequence[Store], last: bool) -> None:
        """`launch`, and the rest at once."""
        rest = self.launch(stores, last)
        if rest is not None:
            rest()

    def launch(self, stores: Sequence[Store], last: bool) -> Rest | None:
        """Rotate the pending layers once they have `PENDING_BYTES`, and the others at the end.

        The solver takes as long for one layer's eight heads as for sixteen layers'. Pending layers
        are kept in full, and copied once while they are joined. With bits all heads share one
        budget, which is divided when all layers have been measured. Where a
        sample's pending layers take `WAITING_BYTES`, `allot="layers"` gives them their part of it,
        and their full Keys and Values are freed.
        """
        with_bits = [store for store in stores if isinstance(store, BitStore)]
        rotated = [store for store in stores if isinstance(store, RotateKStore)]
        for alike in ready(rotated, PENDING_BYTES, last):
            rotate(alike, self)
            pause()
        waiting = [store for store in with_bits if store.pending is not None]
        unmeasured = [store for store in waiting if store.group is None]
        # the kernel writes no scores and nothing in float32, plain PyTorch several of both
        in_kernel = all(has_window_kernel(held(store.pending).keys) for store in unmeasured)
        most = PENDING_BYTES if in_kernel else PENDING_BYTES // 8
        if not in_kernel and held(unmeasured[0].pending).keys.device.type == "cpu":
            most = PENDING_BYTES // 256  # what a processor's cache holds, and is not copied again
        shared = last or (self.allot == "layers" and _a_sample(waiting) >= WAITING_BYTES)
        power = STREAM_POWER if self.smaller is None else BYTES_POWER
        for group in ready(unmeasured, most, shared):
            measure(group, self.weighting, power)
            pause()
        if not (shared and waiting):
            return None
        groups = {id(store.group): held(store.group) for store in waiting}
        return allotted(list(groups.values()), min(held(self.bits_a_number), DEEPEST), self.smaller)

    def bases(self, layers: int) -> Sequence[Tensor | LayerAxes] | None:
        """Those of the calibration file; with bits, its axes."""
        if self.calibration is None:
            return None
        load = load_bases if self.bits_a_number is None else load_axes
        return load(self.calibration, layers)

    @property
    def weighs_values(self) -> bool:
        """Values that get bits are rotated in the output projection's metric."""
        return self.bits_a_number is not None

    @property
    def key_share(self) -> float:
        """Share of the Key channels, or of their bits or bytes, that stays."""
        return self._share(self.keep)

    @property
    def value_share(self) -> float:
        """All of the Value channels, or the share of their bits or bytes that stays."""
        return self._share(1.0)

    def _share(self, keep: float) -> float:
        """What stays: of channels, or where these have bits, of 16 a number."""
        if self.smaller is not None:
            return 1 / self.smaller
        return keep if self.bits is None else _bit_share(self.bits)

    @property
    def bits_a_number(self) -> float | None:
        """`bits`, or what `smaller` comes to where nothing but the numbers is counted."""
        return self.bits if self.smaller is None else PLAIN / self.smaller

    @property
    def times_smaller(self) -> float | None:
        """`smaller`, where it is given."""
        return self.smaller

    def with_keep(self, keep: float) -> Self:
        """The same method keeping another share of the channels; of bits or bytes where these are
        given."""
        if self.smaller is not None:
            times = 1 / keep if keep > 0 else MOST_TIMES
            return replace(self, smaller=max(LEAST_TIMES, min(MOST_TIMES, times)))
        if self.bits is None:
            return replace(self, keep=keep)
        return replace(self, bits=max(LEAST_BITS, min(PLAIN, keep * PLAIN)))

    def with_share(self, share: float) -> Self:
        """The same method at a nominal share; bits count for Keys and Values alike."""
        return super().with_share(share) if self.bits_a_number is None else self.with_keep(share)

    @property
    def adapts(self) -> bool:
        """Bits give each head what its spectrum earns."""
        return self.bits_a_number is not None

    @property
    def extensions(self) -> str:
        """`8 times smaller`, or `.75 bits`: the extensions of the paper."""
        parts = [] if self.bits is None else [f"{self.bits:g} bits"]
        parts += [] if self.smaller is None else [f"{self.smaller:g} times smaller"]
        return ", ".join(parts)

    @classmethod
    def variants(cls) -> Mapping[str, ChannelMethod]:
        """The paper's metric, and the consistent one."""
        return {"RotateK": cls(), "RotateK (consistent)": cls(weighting="consistent")}

    @classmethod
    def presets(cls) -> Mapping[str, ChannelMethod]:
        """Channels alone, as in the paper; and bits."""
        return {
            "62 %: channels only": cls(keep=0.25),
            "5 %: twenty-fold": cls(bits=0.75),
        }

    @classmethod
    def studies(cls) -> Sequence[Study]:
        """Its design choices, and its extensions."""
        return studies(cls)

    def of_paper(self) -> Self:
        """A share of the Key channels, as numbers of the model."""
        return replace(self, bits=None, smaller=None, allot="model")

    def yielding_to(self, chosen: Collection[str]) -> Self:
        """Without bits where an option is chosen that they replace, or another form of them."""
        replaced = {one.key for one in options_of(self) if one.name in (*REPLACED, *FORMS)}
        return self if replaced.isdisjoint(chosen) else replace(self, bits=None, smaller=None)

    def for_figures(self) -> Self:
        """From these very states, by eigenvectors."""
        return replace(self.of_paper(), calibration=None, solver="eigh")

    def weights(self, queries: Tensor) -> Tensor:
        """sigma [d] of mean one, or ones where nothing is weighted."""
        if self.weighting == "none":
            return torch.ones(queries.shape[-1])
        return rotation.query_weights(queries[None], 1, mean_one=True)[0, 0]

    def axes(self, head: HeadStates) -> Axes:
        """The head's full basis, in the metric of the options; its spectrum is that of logits."""
        sigma = None if self.weighting == "none" else self.weights(head.queries)
        basis, spectrum = rotation.full_basis(head.covariance, sigma)
        raw = rotation.logit_weights(head.queries[None], 1)[0, 0]
        spectrum = (
            spectrum * (raw.mean() if sigma is not None else raw.norm() / len(raw) ** 0.5) ** 2
        )
        if sigma is None or self.metric != "consistent":
            return Axes(basis, basis, spectrum)
        return Axes(sigma[:, None] * basis, basis / sigma[:, None], spectrum)

    def energy(self, head: HeadStates, weights: Tensor, k: int) -> Tensor:
        """Exact at every width: the spectrum's running share."""
        return running_share(self.axes(head).spectrum)

    def key_widths(self, spectra: Tensor) -> Tensor:
        """The same for all heads; with bits, channels that get any."""
        return self._widths(spectra, self.keep)

    def value_widths(self, spectra: Tensor) -> Tensor:
        """As `key_widths`, of the Values."""
        return self._widths(spectra, 1.0)

    def key_bits(self, spectra: Tensor) -> Tensor | None:
        """Bits of every rotated channel, by its spectrum alone."""
        bits = self.bits_a_number
        if bits is None or bits >= PLAIN:
            return None
        some = torch.full((1, 1), TILE)
        claims = [BitDemand(own[None, None], some, 0, own.shape[-1]) for own in heads_of(spectra)]
        depths = allot_bits(claims, min(bits, DEEPEST))
        return beside([own[0, 0] for own in depths], spectra)

    def water_level(self, spectra: Tensor) -> float | None:
        """Between the weakest granule of any head that gets bits and the strongest that gets none.

        Their geometric mean, in energy a channel; None where all get bits, or none does.
        """
        depths = self.key_bits(spectra)
        if depths is None:
            return None
        energy = spectra.unflatten(-1, (-1, GRANULE)).mean(-1)
        there = energy >= 0
        filled, energy = depths[..., ::GRANULE][there] > 0, energy[there]
        if bool(filled.all()) or not bool(filled.any()):
            return None
        return float((energy[filled].min() * energy[~filled].max()).sqrt())

    def _widths(self, spectra: Tensor, keep: float) -> Tensor:
        if self.bits_a_number is not None:
            depths = self.key_bits(spectra)
            return (spectra >= 0 if depths is None else depths > 0).sum(-1, dtype=torch.int32)
        rows = heads_of(spectra)
        kept = [torch.full(row.shape[:1], channels_kept(row.shape[-1], keep)) for row in rows]
        return beside([each.int() for each in kept], spectra)

    def head_bytes(
        self, keys: Tensor, values: Tensor, tokens: Tensor, d: int, itemsize: int
    ) -> Tensor:
        """Keys, Values, bases and means."""
        if self.bits_a_number is not None:
            return self._bit_bytes(keys + values, tokens, d, itemsize)
        total = super().head_bytes(keys, values, tokens, d, itemsize)
        return total + itemsize * d * keys.amax(1, keepdim=True).long() + 4 * d

    def _bit_bytes(self, columns: Tensor, tokens: Tensor, d: int, itemsize: int) -> Tensor:
        """Bytes of heads with the mean bits, and so many columns of their bases."""
        if self.smaller is not None:
            return (2 * itemsize * d * tokens / self.smaller).long().expand_as(columns)
        if held(self.bits) >= PLAIN:
            return (2 * itemsize * d * tokens.long()).expand_as(columns)
        rows = -(-tokens.long() // TILE) * TILE  # planes end with complete tiles
        numbers = (2 * d * rows * min(held(self.bits), DEEPEST) / 8).long()
        column = COLUMN_EXTRA + (d if self.calibration is None else AXIS_BYTES)
        return numbers + columns.long() * column + 2 * itemsize * d


def heads_of(spectra: Tensor) -> list[Tensor]:
    """Each layer's spectra [heads, d] from [layers, heads, d], which is negative where a layer has
    fewer heads or its heads fewer channels than another's."""
    there = spectra >= 0
    heads, widths = there[:, :, 0].sum(1).tolist(), there[:, 0].sum(1).tolist()
    return [own[:n, :d] for own, n, d in zip(spectra, heads, widths, strict=True)]


def beside(parts: Sequence[Tensor], like: Tensor) -> Tensor:
    """Each layer's numbers, [heads] or [heads, d], as one tensor, 0 where it has none; like: the
    spectra [layers, heads, d] of `heads_of`."""
    found = parts[0].new_zeros(like.shape[: parts[0].dim() + 1])
    for whole, part in zip(found, parts, strict=True):
        whole[tuple(slice(size) for size in part.shape)] = part
    return found


def _a_sample(waiting: Sequence[BitStore]) -> float:
    """Bytes of one sample's full Keys, and their covariances, in layers that wait."""
    return sum(pending_bytes(held(s.pending)) / len(held(s.pending).keys) for s in waiting)


def _bit_share(bits: float) -> float:
    """Share of 16-bit numbers; nothing between 8 bits and all 16 is stored."""
    return 1.0 if bits >= PLAIN else min(bits, DEEPEST) / PLAIN
