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
from itertools import islice
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from pocket.training.data import USUAL, loader, spare_cores
from pocket.training.options import FAMILIES, arguments
from pocket.training.smol_trainer import TRAINERS
from pocket.training.trainer import Trainer

SEED: Final = 1_000_003  # no training's


class Judge:
    """Tells the answer loss of weights on batches that no training has seen."""

    def __init__(self, trainer: Trainer, batches: list[Any]) -> None:
        self.trainer, self.batches = trainer, batches

    @torch.no_grad()
    def loss(self, weights: list[Tensor]) -> float:
        """The mean answer loss of the model with `weights`, which it has from then on."""
        put(self.trainer, weights)
        total = 0.0
        for batch in self.batches:
            with self.trainer.precision():
                batch = batch.to(self.trainer.device)
                total += self.trainer.forward.losses(batch, self.trainer.head)[0].item()
        return total / len(self.batches)


def put(trainer: Trainer, weights: list[Tensor]) -> None:
    """Give the trainer's model these weights."""
    with torch.no_grad():
        for own, given in zip(trainer.model.parameters(), weights, strict=True):
            own.copy_(given)


def read(trainer: Trainer, folder: Path) -> list[Tensor]:
    """The weights of an export, float32 on the trainer's device, in the parameters' order."""
    trainer.take(folder)
    return [p.detach().clone() for p in trainer.model.parameters()]


def mean(models: list[list[Tensor]]) -> list[Tensor]:
    """The mean of several models' weights."""
    return [torch.stack(same).mean(0) for same in zip(*models, strict=True)]


def beside(weights: list[Tensor], other: list[Tensor], share: float) -> list[Tensor]:
    """`weights` with a share in [0, 1] of another model's: what that knew fades less.

    Source: Wortsman et al., "Robust fine-tuning of zero-shot models", CVPR 2022.
    """
    return [torch.lerp(own, p, share) for own, p in zip(weights, other, strict=True)]


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


def fresh(trainer: Trainer, n: int) -> list[Any]:
    """`n` batches as the end of a training draws them."""
    data, progress = loader(trainer.maker(), 0, 0, 1, min(n, spare_cores()))
    progress.value = 1.0
    return list(islice(data, n))


def main(argv: list[str] | None = None) -> None:
    """Average as the command line says; the losses to stderr, one line of JSON."""
    p = argparse.ArgumentParser(prog="python -m pocket.training.averaging", description=__doc__)
    p.add_argument("out", type=Path, help="the averaged model goes here")
    p.add_argument("models", type=Path, nargs="+", help="folders of one shape of model")
    p.add_argument("--family", choices=FAMILIES, default=FAMILIES[0])
    p.add_argument("--all", action="store_true", help="average them all, without trying any")
    p.add_argument("--beside", nargs=2, metavar=("FOLDER", "SHARE"), help="then mix this in")
    p.add_argument("--batches", type=int, default=24, help="fresh batches that decide")
    p.add_argument("--cost", type=int, default=20_000, help="size of a batch")
    p.add_argument("--pages", type=Path, help="shards of stored documents to mix in")
    p.add_argument("--largest", type=int, default=USUAL, help="visual tokens of a picture, at most")
    p.add_argument("--seed", type=int, default=SEED, help="of the batches")
    p.add_argument("--tiny", action="store_true", help="very small models, to try it")
    args = p.parse_args(argv)
    words = ["--family", args.family, "--out", str(args.out)]
    words += ["--no-compile", "--echo", "1", "--alone", "0.5", "--cost", str(args.cost)]
    words += ["--largest", str(args.largest), "--seed", str(args.seed)]
    words += ["--pages", str(args.pages)] if args.pages else []
    words += ["--tiny"] if args.tiny else []
    trainer = TRAINERS[args.family](arguments(words), 0, 1)
    models = {str(folder): read(trainer, folder) for folder in args.models}
    chosen, losses = list(models), dict[str, float]()
    if not args.all:
        chosen, losses = greedy(models, Judge(trainer, fresh(trainer, args.batches)))
    weights = mean([models[m] for m in chosen])
    if args.beside:
        weights = beside(weights, read(trainer, Path(args.beside[0])), float(args.beside[1]))
    put(trainer, weights)
    trainer.write(trainer.model, args.out)
    rounded = {name: round(loss, 5) for name, loss in losses.items()}
    print(json.dumps({"averaged": chosen, "answer_loss": rounded}), file=sys.stderr)


if __name__ == "__main__":
    main()
