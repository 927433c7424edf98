"""The training of the third pocket: adapters of a frozen language model, a tower that can read."""

import argparse
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file
from torch import Tensor

from pocket.models.smol import (
    RANK,
    TINY,
    Language,
    Smol,
    parts,
    random_state,
    save_smol,
    smol_config,
)
from pocket.models.smol_forward import SmolForward
from pocket.models.subwords import Subwords
from pocket.training.growth import OUTPUTS, places
from pocket.training.optimiser import optimisers
from pocket.training.smol_data import PLAIN_EVERY, SmolOptions, make_smol
from pocket.training.trainer import Trainer
from rotatek.models import smollm2
from rotatek.models.assembly import VISUAL, is_apart, stored
from rotatek.models.smollm2 import Shape

BLOCK: Final = "blocks."
SEES: Final = re.compile(r"(?:model\.)?visual\.(.*)")  # as transformers has stored a tower
LAST: Final = "merger.mlp.2."  # the connector's second matrix: it leads to another language model
READ: Final = 0.5  # about, what comes out of a trained connector's first half


class SmolTrainer(Trainer):
    """One rank's tower, connector and adapters; `cost` counts decoder tokens here."""

    write: Any = staticmethod(save_smol)
    cost = 56_000
    parts = (*Trainer.parts, "plain_loss")

    def passes(self, model: Smol, compile_blocks: bool) -> SmolForward:
        """The forward pass."""
        return SmolForward(model, compile_blocks, self.codec)

    def network(self, args: argparse.Namespace) -> Smol:
        """The weights to begin with, float32 on the CPU.

        `--start` is an export of such a training, which is gone on with, or a folder of the first
        pocket, whose tower is taken over.
        """
        torch.manual_seed(args.seed)
        if args.tiny:
            self.codec = Subwords.of_bytes()
            model = Smol(smol_config(TINY, 2, 128), Language(random_state(TINY, args.seed)), 4)
        elif args.stand_in:
            self.codec, state = Subwords.of_bytes(), random_state(Shape(), args.seed)
            model = Smol(smol_config(), Language(state), args.rank or RANK)
        else:
            path = smollm2.located()
            self.codec = Subwords.of(path)
            model = Smol(smol_config(), Language(dict(smollm2.weights(path))), args.rank or RANK)
        model.adapters.requires_grad_(not args.frozen)
        if args.start:
            start = continued if is_apart(args.start) else seeing
            start(model, args.start)
        return model

    def take(self, folder: Path) -> None:
        """Take over the parts of an export."""
        continued(self.model, folder)

    def updates(self, args: argparse.Namespace) -> list[torch.optim.Optimizer]:
        """Its optimisers: the tower's matrices have a rate of their own."""
        decay, muon = args.weight_decay, not args.adamw
        own = f"visual.{BLOCK}"
        return optimisers(self.model, self.head, args.lr, decay, muon, own, stacked=True)

    def rate_of(self, group: dict[str, Any]) -> float:
        """The tower waits until the connector leads somewhere, then learns more slowly."""
        if not group.get("apart"):
            return 1.0
        begun = self.clock.progress >= self.args.tower_from  # the same on all ranks
        return float(self.args.tower_rate) if begun else 0.0

    def total(self, losses: tuple[Tensor, ...]) -> Tensor:
        """What an update lowers: the first pocket's losses and the distance from SmolLM2."""
        plain = PLAIN_EVERY * self.args.plain_weight * losses[2]
        return super().total(losses[:2]) + plain

    def maker(self) -> Callable[..., Any]:
        """What makes a batch of (index, progress, world)."""
        return partial(make_smol, SmolOptions(self.batch_options(), self.codec))


def seeing(model: Smol, folder: Path) -> None:
    """Take over the first pocket's tower, with more blocks, and half of its connector.

    Added blocks are copies of the one below whose outputs are zero. What the connector's last
    matrix says at first is as large as SmolLM2's embeddings.
    """
    found = {
        at[1]: value.float()
        for file in sorted(folder.glob("*.safetensors"))
        for name, value in load_file(file).items()
        if (at := SEES.fullmatch(name))
    }
    state = model.visual.state_dict()
    depth = 1 + max(int(name.split(".")[1]) for name in found if name.startswith(BLOCK))
    copies = places(depth, model.config.vision_config.depth)
    for name, value in state.items():
        if name.startswith(LAST):
            continue
        source, added = name, False
        if name.startswith(BLOCK):
            _, layer, rest = name.split(".", 2)
            below, added = copies[int(layer)]
            source = f"{BLOCK}{below}.{rest}"
        value.copy_(found[source])
        if added and name.endswith(OUTPUTS):
            value.zero_()
    last = state[f"{LAST}weight"]
    size = float(model.language.embed.pow(2).mean().sqrt())
    last.normal_(0, size / (READ * last.shape[1] ** 0.5))
    state[f"{LAST}bias"].zero_()


def continued(model: Smol, folder: Path) -> None:
    """Take over all that an earlier training exported.

    Raises:
        ValueError: where its parts are not those of `model`.
    """
    found = stored(folder)
    own = dict(parts(model))
    if {k: v.shape for k, v in own.items()} != {k: v.shape for k, v in found.items()}:
        raise ValueError(f"the parts in {folder} have other shapes than this model")
    tower = {name: value.float() for name, value in found.items() if name.startswith(VISUAL)}
    model.visual.load_state_dict({k.removeprefix(VISUAL): v for k, v in tower.items()})
    with torch.no_grad():
        for name, factor in model.factors():
            factor.copy_(found[name])


TRAINERS: Final[dict[str, type[Trainer]]] = {"qwen2_5_vl": Trainer, "smol": SmolTrainer}
