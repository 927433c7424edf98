"""Muon for many small matrices: those of one shape are orthogonalised together.

It does what `torch.optim.Muon` does with `match_rms_adamw` (a test holds the two together), which
takes some twenty kernels for each matrix: for the 520 of the third pocket longer than a step.
Source: Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

POLYNOMIAL: Final = (3.4445, -4.7750, 2.0315)
STEPS: Final = 5
LEAST: Final = 1e-7  # norm of an update, so that nothing is divided by zero
AS_ADAMW: Final = 0.2  # mean size of an update's numbers


def orthogonal(updates: Tensor) -> Tensor:
    """[n, rows, columns] with singular values near 1, bfloat16."""
    a, b, c = POLYNOMIAL
    x = updates.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=LEAST)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class StackedMuon(torch.optim.Optimizer):
    """Orthogonalised momentum with decoupled weight decay.

    Args:
        params: Groups of matrices.
        lr: Learning rate, of updates as large as AdamW's.
        momentum: Of Nesterov's kind.
    """

    def __init__(self, params: Any, lr: float, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": 0.0, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of all parameters that have a gradient."""
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    alike[p.shape].append(p)
            for shape, params in alike.items():
                self._update(group, shape, params)

    def _update(self, group: dict[str, Any], shape: torch.Size, params: list[Tensor]) -> None:
        grads = [p.grad for p in params if p.grad is not None]
        for p in params:
            if "momentum_buffer" not in self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        buffers = [self.state[p]["momentum_buffer"] for p in params]
        torch._foreach_lerp_(buffers, grads, 1 - group["momentum"])
        ahead = torch._foreach_lerp(grads, buffers, group["momentum"])
        updates = orthogonal(torch.stack(ahead)).to(params[0].dtype).unbind()
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        rate = group["lr"] * AS_ADAMW * max(shape) ** 0.5
        torch._foreach_add_(params, updates, alpha=-rate)
