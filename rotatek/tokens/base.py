"""What a token pruner is: where it acts, and how it chooses.

A pruner is one file with a frozen dataclass: its fields are its options (`rotatek.options`), its
class attributes its name, words and colour.
"""

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self

from torch import Tensor

from rotatek.layout import Layout
from rotatek.options import check_options, option

Stage = Literal["nowhere", "decoder", "encoder"]


@dataclass(frozen=True)
class TokenPruner(ABC):
    """A way to drop visual tokens. One file, and one line in the registry.

    Class attributes:
        name: the registry's key. label: as the literature writes it. summary: a sentence.
        stage: "nowhere"; "decoder" (drops inside the language model, by `choose`, before its layer
            `layer`); or "encoder" (drops before it, by `reduce` on the vision tower's output).
        colour, marker, dash: how figures draw it.
        caution: what to bear in mind when a later question is asked; or nothing.
    """

    kind: ClassVar[str] = "tokens"
    name: ClassVar[str]
    label: ClassVar[str]
    summary: ClassVar[str]
    stage: ClassVar[Stage]
    colour: ClassVar[str] = "#667080"
    marker: ClassVar[str] = "x"
    dash: ClassVar[str] = "dash"
    caution: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def kept_share(self) -> float:
        """Share of the visual tokens that stay, as the paper counts it."""
        return float(getattr(self, "keep", 1.0))

    @property
    def first_layer(self) -> int:
        """The first decoder layer with fewer tokens, at a decoder stage; the one before chooses."""
        return int(getattr(self, "layer", 1))

    def at(self, keep: float) -> Self:
        """The same pruner keeping another share of the tokens, where it has one."""
        has_keep = any(one.name == "keep" for one in fields(self))
        changes: Mapping[str, Any] = {"keep": keep} if has_keep else {}
        return replace(self, **changes)

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

    def reduce(self, scores: Tensor, keys: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """At an encoder stage: what stays of one image or tile. The host never waits.

        Args:
            scores: [n] attention that each token received in the vision tower.
            keys: [n, c] their Keys there.
            states: [n, h] their outputs.

        Returns:
            kept [n] bool, and states [n, h], of which some may stand for others too.
        """
        raise NotImplementedError


def keep_option() -> Any:
    """The option `keep` of a pruner that drops tokens: all stay by default."""
    words = "share of the visual tokens that stays, in (0, 1]"
    return option(1.0, "Token sparsity", words, kind="fraction", key="keep_tokens", place="main")
