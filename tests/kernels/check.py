"""The judge of attention kernels: float64, and plain PyTorch's own error beside it.

A case's error may be at most twice that of plain PyTorch in the same type, plus 1e-5, and at most
an absolute bar a type; NaN never passes. Scratch memory is poisoned.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from kernels.reference import misaligned
from tests.kernels.cases import DEVICE_BAR, Case, attend_plain, make

Attend = Callable[..., Tensor]


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Every floating torch.empty holds NaN while this lasts."""
    plain = torch.empty

    def poisoned(*args: Any, **kwargs: Any) -> Tensor:
        tensor = plain(*args, **kwargs)
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

    torch.empty = poisoned  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.empty = plain


def errors(case: Case, attend: Attend, device: str, seed: int = 0) -> tuple[float, float]:
    """(largest error of `attend`, largest error of plain PyTorch in the case's type)."""
    q, visual, text = make(case, device, seed)
    if visual is not None and misaligned(visual):
        raise ValueError(f"{case} breaks what kernels rely on: {misaligned(visual)}")
    scale = case.d**-0.5
    truth = attend_plain(q, visual, text, scale, torch.float64)
    plain = attend_plain(q, visual, text, scale, case.dtype)
    with poisoned_memory():
        got = attend(q, visual, text, scale)
    if got.shape != q.shape or got.dtype != q.dtype or not bool(got.isfinite().all()):
        return float("inf"), 0.0
    gap = float((got.double() - truth).abs().max())
    return gap, float((plain.double() - truth).abs().max())


def passes(case: Case, gap: float, plain: float) -> bool:
    """The bar: 2x plain PyTorch + 1e-5, and the type's absolute one (8-bit packs: the former)."""
    return gap <= 2 * plain + 1e-5 and gap <= DEVICE_BAR[case.dtype]
