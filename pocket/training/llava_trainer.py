"""The training of the second pocket model: another model, forward and batches, one run like any."""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from transformers import LlavaNextForConditionalGeneration

from pocket.models.llava import build_llava, llava_config, save_llava
from pocket.models.llava_forward import TileForward
from pocket.training.growth import grown
from pocket.training.llava_data import make_tiles
from pocket.training.trainer import Trainer


class TileTrainer(Trainer):
    """One rank's LLaVA-NeXT, optimisers and counters; `cost` counts decoder tokens here."""

    passes = TileForward
    write = staticmethod(save_llava)
    cost = 115_000
    parts = (*Trainer.parts, "told_loss")

    def network(self, args: argparse.Namespace) -> Any:
        """The weights to begin with, float32 on the CPU."""
        config = llava_config(3, 3, 256, 128, 2, side=112) if args.tiny else llava_config()
        if args.start:
            start = LlavaNextForConditionalGeneration.from_pretrained(
                args.start, dtype=torch.float32
            )
            return grown(start, config, args.seed)
        return build_llava(config, args.seed)

    def total(self, losses: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """The loss of an update: the first pocket's losses and that of attention targets."""
        return super().total(losses[:2]) + self.args.told_weight * losses[2]

    def maker(self) -> Callable[..., Any]:
        """A function from (index, progress, world) to a batch."""
        side = self.model.config.vision_config.image_size
        return partial(make_tiles, self.batch_options(), side)
