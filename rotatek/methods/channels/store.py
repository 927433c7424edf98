"""One layer's visual tokens, as a channel method keeps them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from kernels.planes import Planes, samples
from kernels.reference import Visual


@dataclass
class Store:
    """One layer's visual tokens, in the form of a channel method.

    Attributes:
        per_token: names of the tensors [B, Hkv, N, ...] with an entry for each token, among the
            visual part's and the store's own. A subclass that defines it is decoded together with
            others of its kind; one that does not has attention calls of its own.
    """

    per_token: ClassVar[tuple[str, ...]] = ("keys", "values")

    visual: Visual

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

    def select(self, change: Callable[[Tensor], Tensor]) -> None:
        """Apply a batch selection to every tensor (beam search, batch repetition). The digits of
        samples that go stay, since others may share them."""

        def changed(part: Any) -> Any:
            if not isinstance(part, Planes):
                return change(part) if isinstance(part, Tensor) else part
            return samples(part, change(torch.arange(len(part.counts), device=part.counts.device)))

        self.visual = type(self.visual)(*map(changed, self.visual))
