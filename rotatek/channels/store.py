"""One layer's visual tokens, as a channel method keeps them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from kernels.planes import Planes
from kernels.reference import Visual
from rotatek.errors import ModeUnsupported


@dataclass
class Store:
    """One layer's visual tokens as a channel method keeps them."""

    visual: Visual

    def read(self) -> Visual:
        """What the attention reads."""
        return self.visual

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """(part, tensor) of everything that is held."""
        parts = {
            "keys": "visual_keys", "key_scale": "visual_keys", "values": "visual_values",
            "value_scale": "visual_values", "value_top": "visual_values", "lengths": "lengths",
        }  # fmt: skip
        for name, value in self.visual._asdict().items():
            if isinstance(value, Tensor):
                part = "masks" if name == "index" else parts.get(name, "bases")
                yield part, value
            elif isinstance(value, Planes):
                yield f"visual_{name.split('_')[0]}s", value.data
                yield from (("bases", t) for t in value[1:] if isinstance(t, Tensor))

    def select(self, change: Callable[[Tensor], Tensor]) -> None:
        """Apply a batch selection to every tensor (beam search, batch repetition)."""
        visual = self.visual
        if visual.key_planes is not None or 1 in (visual.keys.dim(), visual.values.dim()):
            raise ModeUnsupported("Beam search does not work with adaptive widths. Use greedy.")
        parts: Any = [change(p) if isinstance(p, Tensor) else p for p in self.visual]
        self.visual = Visual(*parts)
