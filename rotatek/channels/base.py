"""What every channel method gets at the end of a layer's prefill, and what it must give back."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from kernels.reference import Visual
from rotatek.cache import Store
from rotatek.config import Settings


@dataclass(frozen=True)
class Prefill:
    """One layer's visual tokens and recent queries, when its prefill attention has run.

    keys, values: [B, Hkv, N, d] post-RoPE, zero beyond lengths [B]. queries: [B, Hq, W, d], the
    most recent prompt rows, of which window_alive [B, W] are real. layer: index from 0.
    value_metric: S and S^-1 [Hkv, d, d] of the output projection, or None where it is not known.
    basis: precomputed eigenvectors [Hkv, d, d] from a calibration file, or None.
    made: what follows from the states alone, where several caches are filled from them.
    """

    keys: Tensor
    values: Tensor
    lengths: Tensor
    queries: Tensor
    window_alive: Tensor
    layer: int
    value_metric: tuple[Tensor, Tensor] | None = None
    basis: Tensor | None = None
    made: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    def once(self, what: Hashable, make: Callable[[], Any]) -> Any:
        """`make()`, called by the first who asks for `what` of these states."""
        if what not in self.made:
            self.made[what] = make()
        return self.made[what]


class ChannelMethod(Protocol):
    """A way to store fewer numbers per visual Key. One file and one registry line each."""

    @property
    def name(self) -> str:
        """The registry's key."""

    @property
    def label(self) -> str:
        """What the page calls it."""

    @property
    def summary(self) -> str:
        """One sentence for the page."""

    def compress(self, prefill: Prefill, settings: Settings) -> Store:
        """Store one layer's visual tokens."""
        ...

    def settle(self, stores: Sequence[Store], settings: Settings, last: bool) -> None:
        """Called after every layer with the stores so far, `last` when it was the last one."""
        ...


def full_visual(prefill: Prefill) -> Visual:
    """The visual tokens as they are."""
    return Visual(prefill.keys, prefill.values, prefill.lengths)
