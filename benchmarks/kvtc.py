"""KVTC's form of a stored cache (Staniszewski and Lancucki, arXiv 2511.01815): a transform code.

A model is calibrated once: principal axes of the Keys (before their rotary embedding) and of the
Values, over all heads of a layer together, and the bits of each group of 16 axes. Dynamic
programming allots the bits by the squared error on the calibration's texts, with one budget for the
Keys of all layers and one for the Values. A prompt is stored as codes of its coefficients, axis by
axis, deflated. The method is compared by stored bytes only: attention reads the decoded numbers, at
full width.

The axes, the budgets and the entropy code are the paper's. Two things differ: steps are uniform
around zero and fitted to each prompt's own spread (one float16 for each axis), and axes belong to
one layer where the paper joins layers, since so few calibration tokens span no more directions.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Final, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rotatek.methods.channels import ChannelMethod, LayerStates, Store, full_visual

BITS: Final = (0, 2, 3, 4, 6, 8)
GROUP: Final = 16  # axes that get the same bits
SIDES: Final = ("keys", "values")


@lru_cache(maxsize=16)
def step_of(bits: int) -> float:
    """The step of 2^bits - 1 levels around zero with the least squared error of a unit Gaussian."""
    grid = torch.linspace(-6, 6, 6001, dtype=torch.float64)
    density = torch.exp(-grid.square() / 2)
    most = 2 ** (bits - 1) - 1
    steps = torch.linspace(0.01, 2, 400, dtype=torch.float64)
    codes = (grid / steps[:, None]).round().clamp(-most, most)
    wrong = ((codes * steps[:, None] - grid).square() * density).sum(-1)
    return float(steps[wrong.argmin()])


def quantised(numbers: Tensor, bits: Tensor) -> tuple[Tensor, Tensor]:
    """Codes int8 [n, c] and steps float16 [c] of coefficients [n, c]; no bits: no code but zero."""
    spread = numbers.square().mean(0).sqrt()
    each = torch.tensor([step_of(int(b)) if b else 1.0 for b in bits], device=numbers.device)
    steps = (each * spread).clamp(min=2.0**-24).half()
    most = (2.0 ** (bits - 1) - 1).clamp(min=0)
    codes = (numbers / steps.float()).round().clamp(-most, most)
    return codes.to(torch.int8), steps


def allotted(error: Tensor, mean_bits: float) -> Tensor:
    """Bits of each group with the least error in a budget, by dynamic programming.

    Args:
        error: [groups, choices] of `BITS`.
        mean_bits: of a number.

    Returns:
        [groups] of `BITS`.
    """
    groups = len(error)
    budget = int(mean_bits * groups)
    best = torch.full((budget + 1,), float("inf"), dtype=torch.float64)
    best[0] = 0.0
    taken = torch.zeros(groups, budget + 1, dtype=torch.long)
    for number, costs in enumerate(error.double()):
        new = torch.full_like(best, float("inf"))
        for choice, bits in enumerate(BITS):
            if bits > budget:
                continue
            reached = best[: budget + 1 - bits] + costs[choice]
            better = reached < new[bits:]
            new[bits:] = torch.where(better, reached, new[bits:])
            taken[number, bits:] = torch.where(better, choice, taken[number, bits:])
        best = new
    left, chosen = int(best.argmin()), []
    for number in reversed(range(groups)):
        bits = BITS[int(taken[number, left])]
        chosen.append(bits)
        left -= bits
    return torch.tensor(chosen[::-1])


class Rope:
    """A model's rotary embedding at given positions, layer by layer."""

    def __init__(self, model: PreTrainedModel) -> None:
        decoder = model.get_decoder()
        self.embedding, self.kinds = (
            decoder.rotary_emb,
            getattr(decoder.config, "layer_types", None),
        )

    def turned(self, keys: Tensor, places: Tensor, layer: int, back: bool = False) -> Tensor:
        """Keys [1, H, n, d] float32, rotated to positions [n], or back."""
        more: list[Any] = []
        if (
            hasattr(self.embedding, "layer_types") and self.kinds
        ):  # which have embeddings of their own
            more = [self.kinds[layer]]
        cos, sin = self.embedding(keys, places[None], *more)
        low, high = keys.chunk(2, -1)
        half = torch.cat([-high, low], -1) * sin[:, None]
        return keys * cos[:, None] + (-half if back else half)


class LayerAxes(NamedTuple):
    """One layer's Keys or Values: mean [c], axes [c, c] in columns, error [c / 16, choices]."""

    mean: Tensor
    axes: Tensor
    error: Tensor


@dataclass
class Calibration:
    """Recorded rows of Keys and Values, and the axes computed from them."""

    rope: Rope
    places: Tensor
    rows: dict[tuple[int, str], list[Tensor]] = field(default_factory=dict)

    def record(self, states: LayerStates) -> None:
        """Keep one layer's rows [n, H d]."""
        for side, rows in zip(SIDES, flat_rows(states, self.rope, self.places), strict=True):
            self.rows.setdefault((states.layer, side), []).append(rows)

    def step(self, layer: int, query: Tensor) -> None:
        """Decoding is not recorded."""

    @cached_property
    def sides(self) -> dict[tuple[int, str], LayerAxes]:
        """Axes and errors of every layer, of all that was recorded before they are asked for."""
        return {key: _side(torch.cat(rows)) for key, rows in self.rows.items()}


def flat_rows(states: LayerStates, rope: Rope, places: Tensor) -> tuple[Tensor, Tensor]:
    """Keys before their rotary embedding and Values, each [n, H d] float32, of one sample.

    places: positions of the tokens, in order; a window leaves the last ones, the newest first.
    """
    n = int(states.lengths[0])
    keys = rope.turned(states.keys[:, :, :n].float(), _own(places, n), states.layer, back=True)
    both = keys, states.values[:, :, :n].float()
    return both[0][0].transpose(0, 1).flatten(1), both[1][0].transpose(0, 1).flatten(1)


def _own(places: Tensor, n: int) -> Tensor:
    return places if n == len(places) else places.flip(0)[:n]


def _side(rows: Tensor) -> LayerAxes:
    mean = rows.mean(0)
    axes = torch.linalg.eigh((rows - mean).T @ (rows - mean)).eigenvectors.flip(-1)
    numbers = (rows - mean) @ axes
    errors = []
    for bits in BITS:
        codes, steps = quantised(numbers, torch.full((numbers.shape[1],), bits))
        errors.append((codes * steps.float() - numbers).square().mean(0))
    each = torch.stack(errors, -1)
    return LayerAxes(mean, axes, each.unflatten(0, (-1, GROUP)).sum(1).cpu())


class Code(NamedTuple):
    """One layer's Keys or Values as they are stored: bytes beside what the calibration has."""

    deflated: bytes
    steps: Tensor

    @property
    def nbytes(self) -> int:
        return len(self.deflated) + self.steps.nbytes


@dataclass
class KvtcStore(Store):
    """Decoded Keys and Values, and the codes that a file would hold."""

    codes: tuple[Code, ...]


@dataclass(frozen=True)
class Kvtc(ChannelMethod):
    """The arm; `made` gives it a calibration."""

    name: ClassVar[str] = "kvtc"
    label: ClassVar[str] = "KVTC"
    summary: ClassVar[str] = "Calibrated axes, allotted bits, deflated codes."
    drops_channels: ClassVar[bool] = False

    bits: Mapping[tuple[int, str], Tensor] = field(default_factory=dict, compare=False)
    sides: Mapping[tuple[int, str], LayerAxes] = field(default_factory=dict, compare=False)
    rope: Rope | None = field(default=None, compare=False)
    places: Tensor | None = field(default=None, compare=False)

    @classmethod
    def made(cls, found: Calibration, mean_bits: float) -> "Kvtc":
        """With so many bits a number before the entropy code."""
        sides = found.sides
        bits: dict[tuple[int, str], Tensor] = {}
        for side in SIDES:
            layers = [key for key in sides if key[1] == side]
            chosen = allotted(torch.cat([sides[key].error for key in layers]), mean_bits)
            sizes = [len(sides[key].error) for key in layers]
            own = zip(layers, chosen.split(sizes), strict=True)
            bits |= {key: part.repeat_interleave(GROUP) for key, part in own}
        return cls(bits, sides, found.rope, found.places)

    def compress(self, states: LayerStates) -> Store:
        """Code one sample's layer, and decode it."""
        assert self.rope is not None and self.places is not None and len(states.keys) == 1
        n, (heads, d) = int(states.lengths[0]), states.keys.shape[1::2]
        codes, read = [], []
        for side, rows in zip(SIDES, flat_rows(states, self.rope, self.places), strict=True):
            mean, axes, _ = self.sides[states.layer, side]
            bits = self.bits[states.layer, side].to(rows.device)
            made, steps = quantised((rows - mean) @ axes, bits)
            held = bits > 0
            raw = made[:, held].T.contiguous().cpu().numpy().tobytes()
            codes.append(Code(zlib.compress(raw, 9), steps[held]))
            back = (made * steps.float()) @ axes.T + mean
            read.append(back.unflatten(1, (heads, d)).transpose(0, 1)[None])
        keys = self.rope.turned(read[0], _own(self.places, n), states.layer)
        visual = full_visual(states)._replace(
            keys=keys.to(states.keys.dtype), values=read[1].to(states.values.dtype)
        )
        return KvtcStore(visual, tuple(codes))


def stored(stores: Sequence[Store]) -> int:
    """Bytes that a file holds of stores of `Kvtc`."""
    return sum(code.nbytes for one in stores if isinstance(one, KvtcStore) for code in one.codes)
