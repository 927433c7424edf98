"""One layer's visual tokens, as a channel method keeps them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from kernels.planes import Planes, samples
from kernels.reference import Visual

KINDS: Final = {"key": "visual_keys", "value": "visual_values"}


@dataclass
class Store:
    """One layer's visual tokens, in the form of a channel method.

    Args:
        visual: what the attention reads, or what `read` of a subclass makes that of.
        beside: further tensors [B, ...] by name, which begins with "key" or "value", or it is a
            mask.
    """

    visual: Visual
    beside: dict[str, Tensor] = field(default_factory=dict)

    @property
    def per_token(self) -> tuple[str, ...]:
        """Names of the tensors [B, Hkv, N, ...] with an entry for each token, where rows of such
        stores are decoded together; none of a store that is rebuilt when a row joins a batch."""
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
