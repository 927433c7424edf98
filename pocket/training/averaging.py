"""One model of several: `python -m pocket.training.averaging OUT MODEL MODEL...`.

The ends of trainings that went on from the same weights err in different ways, and the mean of
their weights errs less than any of them. The models are tried from the best to the worst: one stays
if the mean with it answers fresh training batches better. With `--all` every one stays, untried:
where the next trainings begin. OUT is as a training exports it.
Source: Wortsman et al., "Model soups: averaging weights of multiple fine-tuned models improves
accuracy without increasing inference time", ICML 2022 (their greedy soup).
"""

import argparse
import json
import sys
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import Qwen2_5_VLForConditionalGeneration

from pocket.glyphs import N_CLASSES
from pocket.training.data import USUAL, BatchOptions, loader, make_batch, spare_cores
from pocket.training.trainer import Trainer

SEED: Final = 1_000_003  # no training's


class Judge:
    """Tells the answer loss of weights on batches that no training has seen."""

    def __init__(self, model: Any, batches: list[Any]) -> None:
        self.model, self.batches = model, batches
        self.forward = Trainer.passes(model, compile_blocks=False)
        self.head = nn.Linear(model.config.vision_config.hidden_size, N_CLASSES).to(model.device)

    @torch.no_grad()
    def loss(self, weights: list[Tensor]) -> float:
        """The mean answer loss of the model with `weights`, which it has from then on."""
        device = self.model.device
        for own, given in zip(self.model.parameters(), weights, strict=True):
            own.copy_(given)
        total = 0.0
        for batch in self.batches:
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                total += self.forward.losses(batch.to(device), self.head)[0].item()
        return total / len(self.batches)


def mean(models: list[list[Tensor]]) -> list[Tensor]:
    """The mean of several models' weights."""
    return [torch.stack(same).mean(0) for same in zip(*models, strict=True)]


def beside(weights: list[Tensor], folder: Path, share: float) -> list[Tensor]:
    """`weights` with a share in [0, 1] of another model's: what that knew fades less.

    Source: Wortsman et al., "Robust fine-tuning of zero-shot models", CVPR 2022.
    """
    other = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    return [
        torch.lerp(own, p.detach().to(own.device), share)
        for own, p in zip(weights, other.parameters(), strict=True)
    ]


def greedy(models: dict[str, list[Tensor]], judge: Any) -> tuple[list[str], dict[str, float]]:
    """The names of the models to average, best first, and every loss on the way."""
    losses = {name: judge.loss(weights) for name, weights in models.items()}
    best, *rest = sorted(models, key=losses.__getitem__)
    chosen, least = [best], losses[best]
    for name in rest:
        tried = [*chosen, name]
        label = " + ".join(tried)
        losses[label] = judge.loss(mean([models[each] for each in tried]))
        if losses[label] < least:
            chosen, least = tried, losses[label]
    return chosen, losses


def fresh(n: int, options: BatchOptions) -> list[Any]:
    """`n` batches as the end of a training draws them."""
    data, progress = loader(partial(make_batch, options), 0, 0, 1, min(n, spare_cores()))
    progress.value = 1.0
    return list(islice(data, n))


def main(argv: list[str] | None = None) -> None:
    """Average as the command line says; the losses to stderr, one line of JSON."""
    p = argparse.ArgumentParser(prog="python -m pocket.training.averaging", description=__doc__)
    p.add_argument("out", type=Path, help="the averaged model goes here")
    p.add_argument("models", type=Path, nargs="+", help="folders of one shape of model")
    p.add_argument("--all", action="store_true", help="average them all, without trying any")
    p.add_argument("--beside", nargs=2, metavar=("FOLDER", "SHARE"), help="then mix this in")
    p.add_argument("--batches", type=int, default=24, help="fresh batches that decide")
    p.add_argument("--cost", type=int, default=20_000, help="size of a batch")
    p.add_argument("--pages", type=Path, help="shards of stored documents to mix in")
    p.add_argument("--largest", type=int, default=USUAL, help="visual tokens of a picture, at most")
    p.add_argument("--seed", type=int, default=SEED, help="of the batches")
    args = p.parse_args(argv)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    models: dict[str, list[Tensor]] = {}
    for folder in args.models:
        model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        models[str(folder)] = [p.detach().to(device, copy=True) for p in model.parameters()]
    chosen, losses = list(models), dict[str, float]()
    if not args.all:
        options = BatchOptions(args.seed, args.cost, args.pages, alone=0.5, largest=args.largest)
        batches = fresh(args.batches, options)
        chosen, losses = greedy(models, Judge(model.to(device), batches))
    weights = mean([models[m] for m in chosen])
    if args.beside:
        weights = beside(weights, Path(args.beside[0]), float(args.beside[1]))
    for own, given in zip(model.parameters(), weights, strict=True):
        own.data.copy_(given)
    Trainer.write(model, args.out)
    rounded = {name: round(loss, 5) for name, loss in losses.items()}
    print(json.dumps({"averaged": chosen, "answer_loss": rounded}), file=sys.stderr)


if __name__ == "__main__":
    main()
