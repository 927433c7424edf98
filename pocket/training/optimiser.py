"""The optimiser: orthogonalised momentum for matrices (Muon), AdamW for everything else."""

from typing import Any

import torch

from pocket.training.stacked_muon import StackedMuon


def optimisers(
    model: torch.nn.Module,
    head: torch.nn.Module,
    lr: float,
    decay: float,
    muon: bool,
    apart: str | None = None,
    stacked: bool = False,
) -> list[torch.optim.Optimizer]:
    """Muon (or AdamW) for the blocks' matrices, AdamW for embeddings, norms, biases, the head.

    Args:
        model: Whose parameters are trained.
        head: The glyph head.
        lr: Learning rate.
        decay: Weight decay of all that is no vector.
        muon: Whether matrices are updated by Muon.
        apart: Parameters whose names begin so are groups of their own, marked `apart`.
        stacked: Whether matrices of one shape are updated together, which hundreds of them need.
    """
    found: dict[tuple[str, bool], list[torch.nn.Parameter]] = {}
    for name, p in [*model.named_parameters(), *head.named_parameters()]:
        kind = "rest"
        if p.ndim == 2 and (".blocks." in name or ".layers." in name or "merger" in name):
            kind = "matrices" if muon else "plain"
        elif p.ndim >= 2:
            kind = "plain"
        found.setdefault((kind, bool(apart and name.startswith(apart))), []).append(p)

    def groups(kind: str, decay: float) -> list[dict[str, Any]]:
        return [
            {"params": found[kind, own], "weight_decay": decay, "apart": own}
            for own in (False, True)
            if (kind, own) in found
        ]

    fused = next(model.parameters()).is_cuda
    adam = torch.optim.AdamW(
        [*groups("plain", decay), *groups("rest", 0.0)], lr=lr, betas=(0.9, 0.97), fused=fused
    )
    if not muon:
        return [adam]
    if stacked:
        return [StackedMuon(groups("matrices", decay), lr), adam]
    # An update as large as one of AdamW, so that both take one learning rate.
    orthogonal = torch.optim.Muon(
        groups("matrices", decay), lr=lr, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    return [orthogonal, adam]
