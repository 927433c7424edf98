"""The interface of a channel method: how it stores one layer's visual tokens, and its figures.

A method is one file with a frozen dataclass: its fields are its options
(`rotatek.methods.options`). Only `compress` must be written; figures are derived from its stores.
"""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, NamedTuple, Self

import torch
from torch import Tensor

from kernels.planes import Planes, samples
from kernels.reference import Narrow, Text, Visual, expanded
from rotatek.bridge.row_layout import Rows
from rotatek.methods.options import Method, option

SMALLEST_KEEP = 1 / 128  # of the channels: one of a head in the paper's models
KINDS: Final = {"key": "visual_keys", "value": "visual_values"}


@dataclass
class Store:
    """One layer's visual tokens, in the form of a channel method."""

    visual: Visual  # what the attention reads, or what `read` of a subclass makes that of
    # further tensors [B, ...] by name, which begins with "key" or "value", or it is a mask
    beside: dict[str, Tensor] = field(default_factory=dict)

    @property
    def per_token(self) -> tuple[str, ...]:
        """Names of the tensors [B, Hkv, N, ...] of stores that are decoded together as they are;
        none of a store that is rebuilt when a row joins a batch."""
        return ("keys", "values") if type(self) is Store else ()

    def read(self) -> Visual:
        """The visual tokens as the attention's input."""
        return self.visual

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """(kind, tensor) of all tensors."""
        parts = {"keys": "visual_keys", "values": "visual_values", "lengths": "lengths"}
        parts["index"] = "masks"
        for name, value in self.visual._asdict().items():
            if isinstance(value, Tensor):
                yield parts.get(name, "bases"), value
            elif isinstance(value, Planes):
                own = value.own
                yield parts[name], own.pop("data")
                yield from (("bases", tensor) for tensor in own.values())
        for name, tensor in self.beside.items():
            yield KINDS.get(name.partition("_")[0], "masks"), tensor

    def select(self, change: Callable[[Tensor], Tensor]) -> None:
        """Apply a batch selection to every tensor (beam search, batch repetition). The digits of
        samples that go stay, since others may share them."""

        def changed(part: Any) -> Any:
            if not isinstance(part, Planes):
                return change(part) if isinstance(part, Tensor) else part
            return samples(part, change(torch.arange(len(part.counts), device=part.counts.device)))

        self.visual = type(self.visual)(*map(changed, self.visual))
        self.beside = {name: change(tensor) for name, tensor in self.beside.items()}


@dataclass(frozen=True)
class LayerStates:
    """One layer's visual tokens and recent queries, after its prefill attention. What is not known
    is None; `stream` and `gain` are known to methods of `times_smaller` alone."""

    keys: Tensor  # [B, Hkv, N, d] post-RoPE, zero beyond lengths
    values: Tensor  # [B, Hkv, N, d], zero there, too
    lengths: Tensor  # [B] visual tokens of each sample
    queries: Tensor  # [B, Hq, W, d], the most recent prompt rows; scores are q . k / sqrt(d)
    window_alive: Tensor  # [B, W] bool, the rows that are no padding
    layer: int  # from 0
    value_metric: tuple[Tensor, Tensor] | None = None  # S, S^-1 [Hkv, d, d] of the projection
    basis: Tensor | None = None  # eigenvectors [Hkv, d, d] from a calibration file
    stream: Tensor | None = None  # the window's input rows [B, 1, W, hidden], zero where padding
    gain: Tensor | None = None  # [B] of the output's squared size by the norm behind it, if any
    text: Text | None = None  # the prompt's other tokens at full width
    # results that depend on the states alone, shared by several caches
    made: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    def taken(self, rows: Rows) -> "LayerStates":
        """The same of some of the visual tokens, in that order."""
        keys, values = rows.gather(self.keys), rows.gather(self.values)
        return replace(self, keys=keys, values=values, lengths=rows.lengths, made={})

    def cached(self, what: Hashable, make: Callable[[], Any]) -> Any:
        """`make()`, computed once for each `what` of these states."""
        if what not in self.made:
            self.made[what] = make()
        return self.made[what]


@dataclass(frozen=True)
class HeadStates:
    """One kv head of one sample as figures need it, on the CPU in float32."""

    keys: Tensor  # [n, d] of some of its visual tokens
    queries: Tensor  # [G, W, d], the window's, of the heads that read it
    mean: Tensor  # [d] of every visual token's Key
    covariance: Tensor  # [d, d] centred, over every visual token

    def as_layer(self) -> LayerStates:
        """These tokens as a layer of one head; their Values are zero."""
        alive = torch.ones(1, self.queries.shape[1], dtype=torch.bool)
        keys = self.keys[None, None]
        count = torch.tensor([len(self.keys)], dtype=torch.int32)
        return LayerStates(keys, torch.zeros_like(keys), count, self.queries[None], alive, 0)


class Axes(NamedTuple):
    """How a method that rotates stores a head, its channels by importance."""

    basis: Tensor  # [d, d], onto whose columns centred Keys and queries are projected
    spectrum: Tensor  # [d], falling eigenvalues, the (weighted) energy of each channel


@dataclass(frozen=True)
class ChannelMethod(Method):
    """A way to store fewer numbers per visual Key. One file, and one line in the registry."""

    reading: ClassVar[str] = ""  # how to read its mask
    title: ClassVar[str] = ""  # of its mask's figure
    rotates: ClassVar[bool] = False  # whether it stores rotated channels
    drops_channels: ClassVar[bool] = True  # if not, it stores all channels, in fewer bits
    stores_everything: ClassVar[bool] = False  # as the plain cache does

    # What it stores

    def check(self, states: LayerStates) -> None:
        """Refuse a layer that cannot be stored by `ModeUnsupported`, before the prompt's first
        token is out."""

    @abstractmethod
    def compress(self, states: LayerStates) -> Store:
        """Store one layer's visual tokens, by themselves."""

    @property
    def together(self) -> int | None:
        """Bytes of Keys that wait to be compressed in one call: here 0, so each layer by itself;
        None: all layers of a prompt, behind its pass."""
        return 0

    def compress_together(self, layers: Sequence[LayerStates]) -> Sequence[Store]:
        """Store several layers, in order; a method whose layers share a budget or a solver's call
        writes this."""
        return [self.compress(states) for states in layers]

    def bases(self, layers: int) -> Sequence[Tensor] | None:
        """Precomputed eigenvectors [Hkv, d, d] of each layer, from a file of an option."""
        return None

    # Its nominal share

    @property
    def key_share(self) -> float:
        """Share of the Key channels that stay."""
        return self.kept_share

    @property
    def times_smaller(self) -> float | None:
        """The option `smaller`, how many times fewer bytes visual tokens are to take; or None."""
        return getattr(self, "smaller", None)

    @property
    def asks_generally(self) -> bool:
        """Whether a few general questions, read behind the prompt and forgotten, weigh, too."""
        return False

    @property
    def nominal_share(self) -> float:
        """Share of Keys and Values together, as the paper counts it: all Values stay."""
        return (self.key_share + 1) / 2

    @property
    def whole_tokens(self) -> int:
        """Visual tokens of a prompt that stay as they were beside the compressed ones."""
        return 0

    @property
    def form(self) -> str:
        """The difference of this form of the method from its plain one, for titles; or nothing."""
        return ""

    def with_share(self, share: float) -> Self:
        """The same method at the nominal share `share`, or as near to it as it can be: here by
        `with_keep`, in a line; a method with steps takes the largest that does not pass it."""
        least, most = (self.with_keep(keep).nominal_share for keep in (SMALLEST_KEEP, 1.0))
        if most <= least:
            return self
        place = min(max((share - least) / (most - least), 0.0), 1.0)
        return self.with_keep(SMALLEST_KEEP + place * (1 - SMALLEST_KEEP))

    def of_paper(self) -> Self:
        """The same method without extensions of its paper."""
        return self

    # What figures ask

    def for_figures(self) -> Self:
        """The same method without what concerns other heads, Values, or the type of numbers."""
        return self.of_paper()

    def reconstruction(self, head: HeadStates, k: int) -> Tensor:
        """[n, d]: the Keys that decoding at k channels amounts to: scores are q . this."""
        d = head.keys.shape[-1]
        alone = self.for_figures().with_keep(k / d)  # compressed without other heads
        return expanded(alone.compress(head.as_layer()).read(), d)[0][0, 0]

    def mask(self, head: HeadStates, k: int) -> Tensor:
        """[n, d] bool: which numbers of each token are stored, in the method's own channels."""
        n, d = head.keys.shape
        if self.rotates:
            return (torch.arange(d) < k).expand(n, d)
        return self.reconstruction(head, k) != 0

    def axes(self, head: HeadStates) -> Axes | None:
        """The rotated channels, where the method rotates."""
        return None

    def key_widths(self, spectra: Tensor) -> Tensor:
        """Key channels of every head, int32 [layers, heads], from the spectra [layers, heads, d] of
        all heads, negative where a layer lacks a head or a channel."""
        there = (spectra >= 0).sum(-1)
        kept = (there.double() * self.key_share).round().clamp(min=1)
        return torch.minimum(kept, there).int()

    def water_level(self, spectra: Tensor) -> float | None:
        """Energy that a channel must have to get any bits, where bits are handed out by energy;
        spectra: as in `key_widths`."""
        return None


@dataclass(frozen=True)
class Full(ChannelMethod):
    """No channel pruning: with a token pruner, the row of dropped tokens alone."""

    name, label = "full", "Full Keys"
    summary = "Every channel of every kept token."
    drops_channels, stores_everything = False, True

    def compress(self, states: LayerStates) -> Store:
        """Keep Keys and Values as they are."""
        return Store(full_visual(states))


def keep_option(help: str) -> Any:
    """The option `keep` of a method that leaves Key channels out: a quarter stays by default."""
    return option(
        0.25, "Channel sparsity", help, kind="fraction", key="keep_channels", place="main"
    )


def full_visual(states: LayerStates) -> Narrow:
    """The visual tokens as they are."""
    return Narrow(states.keys, states.values, states.lengths)
