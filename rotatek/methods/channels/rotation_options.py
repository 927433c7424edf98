"""RotateK's options, by which `rotatek.methods.channels.batched_rotation` computes.

`rotatek.methods.channels.rotatek.RotateK` adds bits, and explains them all.
"""

from dataclasses import dataclass

from rotatek.methods.channels.base import ChannelMethod, keep_option
from rotatek.methods.options import choice, option


@dataclass(frozen=True)
class RotationOptions(ChannelMethod):
    """Which basis, how many channels of it, and how they are stored."""

    keep: float = keep_option("share of each head's rotated Key channels that stays, in (0, 1]")
    weighting: str = choice(
        "paper",
        "How RotateK weighs channels",
        "by the queries as in the paper, not at all, by the queries in one consistent metric, or "
        "by those of a few general questions, too, for questions to come",
        [
            ("paper", "by the queries, as in the paper"),
            ("none", "none"),
            ("consistent", "by the queries, in one consistent metric"),
            ("general", "by the queries and general questions (beyond the paper)"),
        ],
    )
    solver: str = choice(
        "subspace",
        "How RotateK finds the rotation",
        "five steps of subspace iteration, all eigenvectors, or the paper's loop as it is printed",
        [
            ("subspace", "subspace iteration"),
            ("eigh", "all eigenvectors"),
            ("paper", "as printed"),
        ],
        place="hidden",
    )
    calibration: str | None = option(
        None,
        "Calibration file",
        "bases made by `rotatek calibrate`; replaces those of each prompt",
        kind="path",
        place="hidden",
    )

    @property
    def asks_generally(self) -> bool:
        """Whether `weighting` takes general questions."""
        return self.weighting == "general"

    @property
    def metric(self) -> str:
        """The form of the weights: with general questions, that of the default."""
        return "paper" if self.weighting == "general" else self.weighting
