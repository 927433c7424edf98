"""The options of a training run."""

import argparse
from pathlib import Path
from typing import Final

from pocket.training.data import USUAL, spare_cores

FAMILIES: Final = ("qwen2_5_vl", "smol")


def arguments(argv: list[str] | None = None, about: str | None = None) -> argparse.Namespace:
    """The command line's options; `about` is what --help says of the whole."""
    p = argparse.ArgumentParser(prog="python -m pocket.training", description=about)
    p.add_argument("--family", choices=FAMILIES, default=FAMILIES[0], help="of the two pockets")
    p.add_argument("--out", type=Path, required=True, help="checkpoint and export go here")
    p.add_argument("--start", type=Path, help="begin from these weights, grown if smaller")
    p.add_argument("--steps", type=int, default=0, help="length of the schedule in steps")
    p.add_argument("--minutes", type=float, default=9.0, help="... or in minutes, all links")
    p.add_argument("--link-minutes", type=float, default=1e9, help="stop this link after that")
    p.add_argument("--save-minutes", type=float, default=4.0, help="between two checkpoints")
    p.add_argument("--skip", type=float, default=0.0, help="enter the curriculum at this point")
    p.add_argument("--cost", type=int, default=0, help="size of a batch, one GPU")
    p.add_argument("--echo", type=int, default=2, help="uses of a picture; the log counts uses")
    p.add_argument("--alone", type=float, default=0.0, help="steps whose turns are hidden apart")
    p.add_argument("--largest", type=int, default=USUAL, help="visual tokens of a picture, at most")
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--weight-decay", type=float, default=0.05)
    p.add_argument("--warm-up", type=int, default=150)
    p.add_argument("--decay-from", type=float, default=0.55, help="the rate falls from here on")
    p.add_argument("--mean", type=float, default=0, help="also export the mean of the last share")
    p.add_argument("--glyph-weight", type=float, default=0.3)
    p.add_argument("--rank", type=int, default=0, help="of the low-rank changes (smol)")
    p.add_argument("--frozen", action="store_true", help="... none: the tower alone learns (smol)")
    p.add_argument("--tower-rate", type=float, default=0.4, help="times --lr, the tower's (smol)")
    p.add_argument("--tower-from", type=float, default=0.0, help="it waits until then (smol)")
    p.add_argument("--plain-weight", type=float, default=0.5, help="of staying SmolLM2 (smol)")
    p.add_argument("--adamw", action="store_true", help="AdamW for the matrices, too")
    p.add_argument("--workers", type=int, default=spare_cores(), help="loaders of all ranks")
    p.add_argument("--pages", type=Path, help="shards of stored documents to mix in")
    p.add_argument("--head", type=Path, help="begin with this glyph head (written beside the log)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--tiny", action="store_true", help="a very small model, to try the chain")
    what = "random numbers in place of SmolLM2, to time a training without its file (smol)"
    p.add_argument("--stand-in", action="store_true", help=what)
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--log-every", type=int, default=50)
    return p.parse_args(argv)
