"""A third-party package: a channel method and a token pruner, each with an option.

`test_registered.py` copies this file out of the repository and registers it there by entry points.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rotatek.methods.channels import ChannelMethod, LayerStates, Store, full_visual
from rotatek.methods.channels.base import keep_option
from rotatek.methods.options import option
from rotatek.methods.tokens import base
from rotatek.methods.tokens.base import Attended, Stage, TokenPruner


@dataclass(frozen=True)
class Loudest(ChannelMethod):
    """Keeps each head's channels of the largest norm."""

    name: ClassVar[str] = "loudest"
    label: ClassVar[str] = "Loudest channels"
    summary: ClassVar[str] = "Keeps each head's loudest channels."
    colour: ClassVar[str] = "#7a4fb5"

    keep: float = keep_option("share of each head's loudest Key channels that stays, in (0, 1]")
    norm: str = option(
        "two", "Norm of a channel", "the sum of a channel's numbers, or of their squares",
        choices=[("one", "sum"), ("two", "sum of squares")], key="loudness_norm",
    )  # fmt: skip

    def compress(self, states: LayerStates) -> Store:
        """Store k channels of the Keys, and which ones they are."""
        tokens, width = states.keys.shape[2:]
        loudness = states.keys.float().norm(p=1 if self.norm == "one" else 2, dim=2)  # [B, Hkv, d]
        index = loudness.topk(max(1, round(self.keep * width))).indices.sort().values
        keys = states.keys.gather(-1, index[:, :, None].expand(-1, -1, tokens, -1))
        return Store(full_visual(states)._replace(keys=keys, index=index))


@dataclass(frozen=True)
class Stride(TokenPruner):
    """Keeps visual tokens at even distances, whatever they show."""

    name: ClassVar[str] = "stride"
    label: ClassVar[str] = "Stride"
    summary: ClassVar[str] = "Keeps visual tokens at even distances."
    stage: ClassVar[Stage] = "decoder"
    colour: ClassVar[str] = "#a0552d"

    keep: float = base.keep_option()
    phase: float = option(
        0.5, "Where to begin", "where in the first stretch the first token is taken",
        kind="number", low=0.0, high=1.0, key="stride_phase",
    )  # fmt: skip

    def choose(self, seen: Attended) -> Tensor:
        """A token stays wherever the running share passes a whole number."""
        layout = seen.layout
        visual = layout.visual & layout.valid
        passed = visual.cumsum(-1) * self.keep + self.phase * (1 - self.keep)
        return torch.where(visual, passed.floor() > (passed - self.keep).floor(), layout.valid)
