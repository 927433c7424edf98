"""Flags for how an answer's tokens are chosen."""

import argparse
from typing import Final

from rotatek.inputs.sampling import HOTTEST, Sampling

FLAGS: Final = ("temperature", "top_p", "top_k", "min_p", "seed")


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """A group of flags; without them answers are greedy."""
    group = parser.add_argument_group(
        "sampling", "answers are greedy unless a temperature is given"
    )
    group.add_argument(
        "--temperature",
        type=float,
        default=0.0,
        metavar="T",
        help=f"0: the likeliest token; 1: draws as the model says; up to {HOTTEST:g}. Default: 0",
    )
    group.add_argument(
        "--top-p", type=float, default=1.0, metavar="P", help="draw from the likeliest tokens "
        "that have this much probability together. Default: 1",
    )  # fmt: skip
    group.add_argument(
        "--top-k", type=int, default=0, metavar="K", help="draw from the K likeliest. Default: all"
    )
    group.add_argument(
        "--min-p", type=float, default=0.0, metavar="P", help="draw from tokens with this share of "
        "the likeliest one's probability, at least. Default: 0",
    )  # fmt: skip
    group.add_argument(
        "--seed", type=int, metavar="N", help="the same draws every time. Default: a new one, "
        "which --json has",
    )  # fmt: skip


def sampling_of(args: argparse.Namespace) -> Sampling:
    """How tokens are chosen, by the flags.

    Raises:
        SettingError: for a value out of range.
    """
    return Sampling(**{name: getattr(args, name) for name in FLAGS})
