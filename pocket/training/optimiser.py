"""The optimiser: orthogonalised momentum for matrices (Muon), AdamW for everything else."""

import torch


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
    if not muon:
        return [adam]
    # An update as large as one of AdamW, so that both take one learning rate.
    orthogonal = torch.optim.Muon(
        matrices, lr=lr, weight_decay=decay, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    return [orthogonal, adam]
