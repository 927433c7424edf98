"""Planes of several caches as those of one batch."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from kernels.planes import Planes, joined
from kernels.reference import Visual


def alike(visuals: Sequence[Visual | None]) -> bool:
    """Whether visual tokens of single samples are planes of one form."""
    found = [visual for visual in visuals if visual is not None and visual.key_planes is not None]
    return len(found) == len(visuals) and len(set(map(_form_of, found))) == 1


def _planes(visual: Visual, side: str) -> Planes:
    """Those of Keys or of Values, which there are."""
    found: Planes = getattr(visual, f"{side}_planes")
    return found


def _form_of(visual: Visual) -> tuple[Any, ...]:
    """Equal for planes that can be those of one batch; unlike all others for what cannot."""
    form: list[Any] = [visual.mean is None, visual.value_mean is None, visual.lengths is None]
    for planes in (_planes(visual, "key"), _planes(visual, "value")):
        lent = planes.axes is not None
        form += planes.basis.dtype, planes.basis.shape[1], planes.basis.data_ptr() if lent else None
        single = lent or len(planes.basis) == len(planes.steps)
        form.append(single or object())
    by_head = visual.lengths is not None and visual.lengths.dim() > 1
    return (*form, object() if by_head else None)


def numbers_of(visuals: Sequence[Visual]) -> list[list[int]]:
    """What comes before each sample of joined ones: words and rows of Keys, then of Values; and how
    many tokens it has."""
    found = [[visual.tokens or 0 for visual in visuals]]
    for side in ("value", "key"):
        planes = [_planes(visual, side) for visual in visuals]
        for name in ("steps", "data"):
            sizes = [len(getattr(one, name)) for one in planes]
            found.insert(0, [0, *accumulate(sizes[:-1])])
    return found


def joined_visual(visuals: Sequence[Visual], before: Tensor) -> Visual:
    """Visual tokens of single samples as those of one batch, copied.

    Args:
        visuals: that are `alike`.
        before: [5, samples], of `numbers_of`.
    """
    first, count = visuals[0], len(visuals)

    def whole(name: str) -> Tensor | None:
        parts = [getattr(visual, name) for visual in visuals]
        return None if parts[0] is None else torch.cat(parts)

    at = before[:4, :, None]
    lengths = whole("lengths")
    return Visual(
        first.keys.expand(count, -1, -1, -1),
        first.values.expand(count, -1, -1, -1),
        before[4].int() if lengths is None else lengths,
        mean=whole("mean"),
        value_mean=whole("value_mean"),
        tokens=max(visual.tokens or 0 for visual in visuals),
        fresh=True,
        key_planes=joined([_planes(each, "key") for each in visuals], at[0], at[1]),
        value_planes=joined([_planes(each, "value") for each in visuals], at[2], at[3]),
    )
