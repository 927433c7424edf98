"""The optimiser: orthogonalised momentum for matrices (Muon), AdamW for everything else."""

from collections.abc import Sequence

import torch
from torch import Tensor


def orthogonalise(matrices: Tensor, steps: int = 5) -> Tensor:
    """Nearest orthogonal matrices of [G, m, n], roughly, by quintic Newton-Schulz iterations.

    Source: K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        s = x @ x.mT
        x = a * x + (b * s + c * s @ s) @ x
    return (x.mT if tall else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised, scaled to the size of an AdamW step.

    Matrices of one shape are stacked, so a step takes a few batched products.
    """

    def __init__(
        self, params: Sequence[Tensor], lr: float, weight_decay: float, momentum: float = 0.95
    ):
        super().__init__(
            list(params), {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of all matrices."""
        for group in self.param_groups:
            shapes: dict[tuple[int, ...], list[Tensor]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    shapes.setdefault(tuple(p.shape), []).append(p)
            for shape, params in shapes.items():
                grads = [p.grad for p in params if p.grad is not None]
                speeds = [self.state[p].setdefault("speed", torch.zeros_like(p)) for p in params]
                torch._foreach_mul_(speeds, group["momentum"])
                torch._foreach_add_(speeds, grads)
                ahead = torch._foreach_add(grads, speeds, alpha=group["momentum"])
                updates = orthogonalise(torch.stack(list(ahead)))
                scale = 0.2 * max(shape) ** 0.5 * group["lr"]
                torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(params, list(updates.unbind(0)), alpha=-scale)


def optimisers(
    model: torch.nn.Module, head: torch.nn.Module, lr: float, decay: float, muon: bool
) -> list[torch.optim.Optimizer]:
    """Muon (or AdamW) for the blocks' matrices, AdamW for embeddings, norms, biases, the head."""
    matrices, plain, rest = [], [], []
    for name, p in [*model.named_parameters(), *head.named_parameters()]:
        if p.ndim == 2 and (".blocks." in name or ".layers." in name or "merger" in name):
            matrices.append(p)
        elif p.ndim >= 2:
            plain.append(p)
        else:
            rest.append(p)
    fused = next(model.parameters()).is_cuda
    groups = [{"params": plain, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]
    if not muon:
        groups[0]["params"] = plain + matrices
    adam = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.97), fused=fused)
    return [Muon(matrices, lr, decay), adam] if muon else [adam]
