"""A glyph head for weights that are shipped without one: `python -m pocket.training.glyph_head`.

    python -m pocket.training.glyph_head assets/pocket-smol HEAD.safetensors --family smol

A training that goes on from an export with a new head begins with a glyph loss of 68, which takes
the whole of each clipped step. This fits the head alone, a logistic regression on the features of
the tower as it is: on two cores two to three minutes, to a loss of .1 to .25. Give it as `--head`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from pocket.models.forward import UP
from pocket.training.options import FAMILIES, arguments
from pocket.training.smol_trainer import TRAINERS
from pocket.training.trainer import Trainer

STEPS: Final = 600
PATCHES: Final = 4096  # of a step
RATE: Final = 2e-2  # at first; it falls to nothing
AT_ONCE: Final = 4  # pictures through the tower
PROGRESS: Final = 0.6  # of the curriculum: pictures of all kinds and sizes


def fit(trainer: Trainer, batches: int, steps: int = STEPS) -> float:
    """Fit the head of `trainer` to its tower's features of so many batches; returns the loss."""
    make, head = trainer.maker(), trainer.head
    drawn = [seen(trainer, make(index=i, progress=PROGRESS)) for i in range(batches)]
    features, target = (torch.cat(parts) for parts in zip(*drawn, strict=True))
    adam = torch.optim.AdamW(head.parameters(), lr=RATE)
    chance = torch.Generator().manual_seed(trainer.args.seed)
    loss = torch.zeros(())
    for step in range(steps):
        adam.param_groups[0]["lr"] = RATE * (1 - step / steps)
        at = torch.randint(len(features), (PATCHES,), generator=chance)
        said, wanted = features[at].to(head.weight), target[at].to(head.weight)
        loss = trainer.forward.glyph_loss(said, head.weight, head.bias, wanted, UP)
        adam.zero_grad()
        loss.backward()
        adam.step()
    return loss.item()


@torch.no_grad()
def seen(trainer: Trainer, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Features float16 [P, Dv] of a batch's patches and the glyphs float32 [P, classes] in them."""
    parts = batch.images.split(AT_ONCE)
    features = torch.cat([trainer.forward.see(x.to(trainer.device))[0].half() for x in parts])
    features = features.flatten(0, 1).cpu()
    return features, batch.glyph_target(len(features), trainer.head.out_features)


def main(argv: Sequence[str] | None = None) -> None:
    """Fit a head as the command line says."""
    p = argparse.ArgumentParser(prog="python -m pocket.training.glyph_head", description=__doc__)
    p.add_argument("start", type=Path, help="an export, or shipped weights")
    p.add_argument("file", type=Path, help="the head goes here")
    p.add_argument("--family", choices=FAMILIES, default=FAMILIES[0])
    p.add_argument("--batches", type=int, default=10)
    p.add_argument("--cost", type=int, default=6000, help="size of a batch")
    given = p.parse_args(argv)
    words = ["--family", given.family, "--start", str(given.start), "--cost", str(given.cost)]
    trainer = TRAINERS[given.family](arguments([*words, "--out", str(given.file.parent)]), 0, 1)
    loss = fit(trainer, given.batches)
    trainer.save_head(given.file)
    print(f"{given.file}: glyph loss {loss:.3f}")


if __name__ == "__main__":
    main()
