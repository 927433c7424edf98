"""The interface of a token pruner, one file with a frozen dataclass: its fields are its options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Literal

import torch
from torch import Tensor

from rotatek.bridge.row_layout import Layout
from rotatek.errors import SettingError
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.options import Method, option, options_of

BY_QUESTION: Final = (  # a `caution`
    "{} chose which tokens stay by the first question; a later one may need others, which are gone."
)
Stage = Literal["nowhere", "decoder", "encoder", "cache"]


@dataclass(frozen=True)
class View:
    """One image or tile, for a pruner of the encoder stage."""

    scores: Tensor  # [n] attention that each token received in the vision tower
    keys: Tensor  # [n, c] their Keys there
    states: Tensor  # [n, h] the tower's outputs, which `reduce` returns in part
    number: int  # of the view among those of its prompt
    width: int  # hidden, of the language model's first layer; states may have more for later ones
    project: Callable[[Tensor], Tensor] | None = None  # to its input, where the tower does not

    @cached_property
    def tokens(self) -> Tensor:
        """[n, hidden]: what the language model's first layer would read of them."""
        read = self.states if self.project is None else self.project(self.states)
        return read[:, : self.width]

    def mask(self, chosen: Tensor) -> Tensor:
        """[n] bool: true at the indices `chosen`."""
        kept = torch.zeros_like(self.scores, dtype=torch.bool)
        return kept.index_fill_(0, chosen, True)


@dataclass(frozen=True)
class Attended:
    """One layer's prefill attention, for a pruner of the decoder stage."""

    query: Tensor  # [B, Hq, L, d]
    keys: Tensor  # [B, Hkv, L, d]
    layout: Layout  # which of its rows are visual, and which are padding
    scale: float  # factor of the scores
    keep: Tensor  # [B] number of visual tokens to keep


@dataclass(frozen=True)
class TokenPruner(Method):
    """A way to drop visual tokens. One file, and one line in the registry.

    By its stage: "decoder" drops inside the language model, by `rank`, before its layer `layer`;
    "encoder" before it, by `reduce` on the vision tower's output; and "cache" drops no computed
    token, but each layer stores fewer, by `stored`.
    """

    stage: ClassVar[Stage]
    of_paper: ClassVar[bool] = False  # whether the RotateK paper's tables have it
    caution: ClassVar[str] = ""  # a warning for later questions

    def stages(self, layers: int) -> Mapping[int, float]:
        """At a decoder stage, of a model of so many layers: the first layers with fewer tokens,
        each with the share of all visual tokens that stays from there on. The attention of the
        layer before each chooses. `SettingError` for a layer that the model does not have."""
        first = int(getattr(self, "layer", 1))
        own = next((one for one in options_of(self) if one.name == "layer"), None)
        if own is not None and first not in (own.default, *range(1, layers)):
            allowed = f"below {layers}, the layers with Keys of this model"
            raise SettingError(own.key, allowed, first)
        return {min(first, layers - 1): self.kept_share}

    def rank(self, seen: Attended) -> Tensor:
        """At a decoder stage: how much each row is worth, [B, L]; only visual ones count."""
        raise NotImplementedError

    def choose(self, seen: Attended) -> Tensor:
        """At a decoder stage: the rows that stay, [B, L] bool; `keep` visual ones by their rank."""
        visual, scores = seen.layout.visual & seen.layout.valid, self.rank(seen)
        rank = scores.masked_fill(~visual, -torch.inf).argsort(dim=-1, descending=True, stable=True)
        best = torch.arange(visual.shape[1], device=visual.device) < seen.keep[:, None]
        kept = torch.zeros_like(visual).scatter_(1, rank, best)
        return (kept & visual) | (seen.layout.valid & ~visual)

    def reduce(self, view: View) -> tuple[Tensor, Tensor]:
        """At an encoder stage: the tokens of one image or tile that stay, [n] bool, and states
        [n, h], some of which may be merged from several. The host never waits."""
        raise NotImplementedError

    def stored(self, states: LayerStates) -> LayerStates:
        """At a cache stage: the tokens of one layer that stay, as many of every head, in order."""
        raise NotImplementedError


@dataclass(frozen=True)
class KeepAll(TokenPruner):
    """Every visual token stays."""

    name, label = "none", "All tokens"
    summary = "Every visual token stays."
    stage = "nowhere"


def keep_option() -> Any:
    """The option `keep` of a pruner that drops tokens: all stay by default."""
    words = "share of the visual tokens that stays, in (0, 1]"
    return option(1.0, "Token sparsity", words, kind="fraction", key="keep_tokens", place="main")
