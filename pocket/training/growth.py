"""A larger model that begins by computing exactly what a smaller, trained one does.

Added layers are copies of the one below whose outputs are zero, so they are learned from a state
that is no worse. Added rows of an MLP are drawn, and nothing is read from them yet.
Source: Chen et al., "Net2Net: accelerating learning via knowledge transfer", ICLR 2016.
"""

import re
from typing import Any, Final

import torch
from torch import Tensor

from pocket.models.config import fresh

OUTPUTS: Final = (
    "o_proj.weight", "attn.proj.weight", "attn.proj.bias", "down_proj.weight",
    "down_proj.bias",
)  # fmt: skip
READER: Final = "down_proj.weight"  # a matrix whose added part is columns
LAYER: Final = re.compile(r"(.*\.(?:layers|blocks)\.)(\d+)\.(.*)")


def grown(model: Any, config: Any, seed: int = 0) -> Any:
    """A larger model like a smaller, trained one, in float32 on the CPU.

    Args:
        model: The smaller one, given back as it is where it has that shape.
        config: As wide, as deep or deeper, MLPs as wide or wider.
        seed: Of what is drawn for added rows.

    Raises:
        ValueError: for a shape that is smaller or of another width.
    """
    new = fresh(type(model), config, seed)
    before, after = model.state_dict(), new.state_dict()
    if {k: v.shape for k, v in before.items()} == {k: v.shape for k, v in after.items()}:
        return model
    copies = {name: places(_depth(before, name), _depth(after, name)) for name in _stacks(after)}
    for name, value in after.items():
        source, added = name, False
        if found := LAYER.fullmatch(name):
            stack, layer, rest = found.groups()
            below, added = copies[stack][int(layer)]
            source = f"{stack}{below}.{rest}"
        value.copy_(_widened(name, before[source], value))
        if added and name.endswith(OUTPUTS):
            value.zero_()
    new.tie_weights()
    return new


def places(before: int, after: int) -> list[tuple[int, bool]]:
    """For each of `after` layers the old one it is like, and whether it is added; spread out."""
    if after < before:
        raise ValueError(f"a model of {before} layers cannot be made one of {after}")
    like = [layer * before // after for layer in range(after)]
    return [(old, i > 0 and old == like[i - 1]) for i, old in enumerate(like)]


def _stacks(state: dict[str, Tensor]) -> set[str]:
    return {found.group(1) for name in state if (found := LAYER.fullmatch(name))}


def _depth(state: dict[str, Tensor], stack: str) -> int:
    return 1 + max(
        int(name[len(stack) :].split(".")[0]) for name in state if name.startswith(stack)
    )


def _widened(name: str, small: Tensor, large: Tensor) -> Tensor:
    """`small` in the corner of a tensor of `large`'s shape."""
    if small.shape == large.shape:
        return small
    reads = name.endswith(READER)
    kept = (slice(None), slice(small.shape[-1])) if reads else (slice(small.shape[0]),)
    if "mlp" not in name or large[kept].shape != small.shape:
        raise ValueError(f"{name} cannot grow from {tuple(small.shape)} to {tuple(large.shape)}")
    out = torch.zeros_like(large)
    if not reads and large.ndim > 1:
        out.normal_(0, float(small.std()))
    out[kept] = small
    return out
