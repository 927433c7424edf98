"""What a token pruner is: where it acts, and how it chooses.

A pruner is one file with a frozen dataclass: its fields are its options (`rotatek.options`), its
class attributes its name, words and colour.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from rotatek.layout import Layout
from rotatek.options import Method, option

Stage = Literal["nowhere", "decoder", "encoder"]


@dataclass(frozen=True)
class View:
    """One image or tile, as a pruner of the encoder stage sees it.

    Args:
        scores: [n] attention that each token received in the vision tower.
        keys: [n, c] their Keys there.
        states: [n, h] the tower's outputs, of which `reduce` returns what goes on.
        question: [t, hidden] embeddings of the question's words in the language model.
        number: of the view among those of its prompt.
        project: from states [n, h] to what the language model reads, [n, hidden].
    """

    scores: Tensor
    keys: Tensor
    states: Tensor
    question: Tensor
    number: int
    project: Callable[[Tensor], Tensor]

    @cached_property
    def tokens(self) -> Tensor:
        """[n, hidden]: what the language model would read of them."""
        return self.project(self.states)

    def mask(self, chosen: Tensor) -> Tensor:
        """[n] bool: true at the indices `chosen`."""
        kept = torch.zeros_like(self.scores, dtype=torch.bool)
        return kept.index_fill_(0, chosen, True)


@dataclass(frozen=True)
class TokenPruner(Method):
    """A way to drop visual tokens. One file, and one line in the registry.

    Class attributes, beside those of `Method`:
        stage: "nowhere"; "decoder" (drops inside the language model, by `choose`, before its layer
            `layer`); or "encoder" (drops before it, by `reduce` on the vision tower's output).
        asks: whether an encoder-stage pruner looks at the question, so that what it leaves of a
            picture serves this question only.
        control: whether it is no method but what methods are measured against.
        of_paper: whether the RotateK paper's tables have it.
        caution: what to bear in mind when a later question is asked; or nothing.
    """

    stage: ClassVar[Stage]
    asks: ClassVar[bool] = False
    control: ClassVar[bool] = False
    of_paper: ClassVar[bool] = False
    caution: ClassVar[str] = ""

    @property
    def kept_share(self) -> float:
        """Share of the visual tokens that stay, as the paper counts it."""
        return self.kept

    @property
    def first_layer(self) -> int:
        """The first decoder layer with fewer tokens, at a decoder stage; the one before chooses."""
        return int(getattr(self, "layer", 1))

    def choose(self, query: Tensor, keys: Tensor, layout: Layout, scale: float) -> Tensor:
        """At a decoder stage: the rows that stay.

        Args:
            query: [B, Hq, L, d] of the layer before `first_layer`.
            keys: [B, Hkv, L, d] of the same layer.
            layout: which rows are visual, and which are padding.
            scale: what scores are multiplied by.

        Returns:
            [B, L] bool.
        """
        return layout.valid

    def reduce(self, view: View) -> tuple[Tensor, Tensor]:
        """At an encoder stage: what stays of one image or tile. The host never waits.

        Returns:
            kept [n] bool, and states [n, h], of which some may stand for others too.
        """
        raise NotImplementedError


def keep_option() -> Any:
    """The option `keep` of a pruner that drops tokens: all stay by default."""
    words = "share of the visual tokens that stays, in (0, 1]"
    return option(1.0, "Token sparsity", words, kind="fraction", key="keep_tokens", place="main")
