"""Chooses who does a layer's element-wise work: one Triton pass where it can, the caller elsewhere.

transformers writes an RMSNorm as six passes over the states, a gate as two, and the positions of a
vision block as twelve. On an H100 they were some 40 of the 78 ms of Qwen2.5-VL-7B's vision tower
for 2,880 visual tokens, and some 14 of the 81 ms of its language model.
"""

import importlib
import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F

log = logging.getLogger(__name__)
placed = torch.cuda.device  # Triton launches on the current device, wherever its tensors are
CLOSE: Final = 2.0**-6  # two steps of bfloat16, of the largest number: a sum in another order


def norm_plain(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """transformers' RMSNorm: x [..., d] over its root mean square, in float32, times weight [d]."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


def gate_plain(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, both of one shape."""
    return F.silu(gate) * up


def rotate_plain(qkv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries and Keys at their places: qkv [N, 3, H, d], cos and sin [N, d] -> [2, N, H, d]."""
    x = qkv[:, :2].transpose(0, 1).float()
    first, second = x.chunk(2, -1)
    turned = torch.cat([-second, first], -1)
    return (x * cos.float()[:, None] + turned * sin.float()[:, None]).to(qkv.dtype)


WORKS: Final[dict[str, Callable[..., Tensor]]] = {
    "norm": norm_plain,
    "gate": gate_plain,
    "rotate": rotate_plain,
}


def sample(work: str, device: torch.device, dtype: torch.dtype) -> tuple[Any, ...]:
    """Small arguments of one of `WORKS`, from a private generator."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    if work == "norm":
        return draw(5, 130), draw(130), 1e-6
    if work == "gate":
        return draw(3, 1100), draw(3, 1100)
    return draw(7, 3, 3, 40), draw(7, 40).float(), draw(7, 40).float()


class Passes:
    """Does element-wise work on a GPU, and remembers what failed there.

    check_first: compare each with plain PyTorch before its first real call.
    """

    def __init__(self, check_first: bool = True) -> None:
        self._faults: dict[str, str] = {}
        self._unproven = set(WORKS) if check_first else set()

    @property
    def fault(self) -> str:
        """What failed, in a sentence that may be shown; empty where nothing did."""
        return next(iter(self._faults.values()), "")

    def run(self, work: str, first: Tensor, *rest: Any) -> Tensor | None:
        """One of `WORKS` in one pass; None where the caller's own code must do it: without a GPU,
        in float32, where gradients are wanted, or once it has failed."""
        if first.device.type != "cuda" or first.dtype == torch.float32 or torch.is_grad_enabled():
            return None
        try:
            if work in self._unproven and not torch.cuda.is_current_stream_capturing():
                self._prove(work, first.device)
            if work in self._faults:
                return None
            return self._launch(work, first, *rest)
        except Exception as error:
            pass_on_memory(error)
            self._faults[work] = (
                f"A GPU kernel failed ({type(error).__name__}): {work}s come from plain PyTorch."
            )
            log.exception("the kernel of a layer's %s failed; plain PyTorch takes over", work)
            return None

    def _launch(self, work: str, first: Tensor, *rest: Any) -> Tensor:
        launch = getattr(importlib.import_module(".fused_elementwise", __package__), work)
        with placed(first.device):
            made: Tensor = launch(first, *rest)
        return made

    def _prove(self, work: str, device: torch.device) -> None:
        """Compare a small case with plain PyTorch; on a disagreement that does it from now on."""
        self._unproven.discard(work)
        for dtype in (torch.bfloat16, torch.float16):
            given = sample(work, device, dtype)
            got, want = self._launch(work, *given).float(), WORKS[work](*given).float()
            error = (got - want).abs().max() / want.abs().max()
            if not bool(error <= CLOSE):
                self._faults[work] = (
                    f"A GPU kernel disagreed with plain PyTorch: {work}s come from there."
                )
                log.error("self-test: error %g for a layer's %s in %s", float(error), work, dtype)


def pass_on_memory(error: Exception) -> None:
    """Raise what says that memory was missing, by its one name also where it is in a driver's
    words: no kernel is at fault, and callers know what to do."""
    if isinstance(error, torch.OutOfMemoryError):
        raise error
    if "out of memory" in str(error):
        raise torch.OutOfMemoryError(str(error)) from error


@lru_cache(maxsize=1)
def shared() -> Passes:
    """The process's own: a GPU whose kernel has failed fails for every caller."""
    return Passes()


def run(work: str, first: Tensor, *rest: Any) -> Tensor | None:
    """`Passes.run` of the shared one."""
    return shared().run(work, first, *rest)
