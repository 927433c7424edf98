"""Counts what would be launched on a GPU, without one: operations that compute or copy."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kernels.planes import best_steps, pack
from kernels.window_attention_reference import window_attention_plain
from rotatek.methods import rotation
from rotatek.methods.channels import bits
from rotatek.methods.rotation import covariance, solvers

LAUNCHED: Final = {  # launches of a kernel's function, by the name it is asked for
    "subspace": 1, "covariance": 2, "weigh": 1, "steps_of": 1, "pack_states": 1,
    "window_attention": 5,
}  # fmt: skip


class Launches(TorchDispatchMode):
    """Counts operations in its context, without views.

    Attributes:
        count: operations so far.
    """

    FREE = (
        "aten::empty",
        "aten::new_empty",
        "aten::lift_fresh",
        "aten::_local_scalar_dense",
        "aten::detach",
    )

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        returned = [one.alias_info for one in func._schema.returns]
        views = any(alias is not None and not alias.is_write for alias in returned)
        if func.name().startswith("aten::_foreach"):  # one each, where they are not dense
            self.count += len(args[0])
        else:
            self.count += not views and not func.name().startswith(self.FREE)
        return func(*args, **(kwargs or {}))


@contextmanager
def kernels_replaced(counted: Launches) -> Iterator[None]:
    """Within it bits take the way that they take on a GPU: plain PyTorch does a kernel's work, and
    counts as the kernel's launches, with a copy of each tensor that the kernel would copy."""

    def counted_as(work: str, run: Callable[..., Any], *given: Any) -> Any:
        before = counted.count
        found = run(*given)
        copied = [part for part in given if isinstance(part, Tensor) and not _whole(part)]
        counted.count = before + LAUNCHED[work] + len(copied)
        return found

    def solve(work: str, *given: Any) -> Any:
        return counted_as(work, PLAIN[work], *given)

    with ExitStack() as stack:
        for module in (bits, covariance, solvers):
            stack.enter_context(mock.patch.object(module, "solve", solve))
        stack.enter_context(
            mock.patch.object(
                bits,
                "window_attention",
                lambda seen: counted_as("window_attention", window_attention_plain, seen),
            )
        )
        yield


def _whole(part: Tensor) -> bool:
    """Whether a kernel reads it as it is; of states only the last stride must be 1."""
    return part.is_contiguous() or (part.dim() == 4 and part.stride(-1) == 1)


def _covariance(states: Tensor, lengths: Any, shares: Tensor, dtype: torch.dtype) -> Any:
    with mock.patch.object(covariance, "solve", lambda *given: None):
        return rotation.weighted_moments(states, shares[:, None])


def _weigh(queries: Tensor, heads: int, valid: Tensor, floor: float, *_: Any) -> Tensor:
    with mock.patch.object(covariance, "solve", lambda *given: None):
        return rotation.query_weights(queries, heads, valid, floor=floor)


def _packed(states: Tensor, mean: Tensor, basis: Tensor, *rest: Any) -> Any:
    return pack((states.float() - mean.float()[:, :, None]) @ basis, *rest[:3])


PLAIN: Final[dict[str, Callable[..., Any]]] = {
    "subspace": lambda matrix, k, *_: rotation.full_basis(matrix)[0][..., :k].contiguous(),
    "covariance": _covariance,
    "weigh": _weigh,
    "steps_of": best_steps,
    "pack_states": _packed,
}
