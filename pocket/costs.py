"""Costs of the mixture: `python -m pocket.costs`.

Prints each renderer's share of training's pictures and the time that a core takes to draw one. With
--type it prints how small the type is in training's large pictures and in the printed splits.
"""

import argparse
import random
import sys
import time
from typing import Final

import numpy as np

from pocket.document import Document
from pocket.evaluation.questions import FIRST_SEED, SIZES
from pocket.generate import ForTraining, make_document, pick_size
from pocket.glyphs import CLASS_OF
from pocket.mixture import ON_PAPER, SHARES
from pocket.models.config import MOST_TOKENS, UNIT

LARGE: Final = 500  # visual tokens of training's large pictures, at least
READ: Final = [number for ch, number in CLASS_OF.items() if ch.isalnum()]  # no leaders' dots
QUANTILES: Final = (0.05, 0.25, 0.5, 0.75)


def letter_width(document: Document) -> float:
    """The median distance between two letters of a line, in pixels; 0 without any."""
    g = document.glyphs[np.isin(document.glyphs[:, 0], READ)]
    along = np.diff(g[:, 1])[np.abs(np.diff(g[:, 2])) < 3] if len(g) > 1 else np.zeros(0)
    along = along[(along > 1) & (along < 60)]
    return float(np.median(along)) if len(along) else 0.0


def letters_a_token(document: Document) -> float:
    """Letters that lie in one visual token, in the densest tenth of those that have any."""
    g = document.glyphs[np.isin(document.glyphs[:, 0], READ)]
    if not len(g):
        return 0.0
    cells = (g[:, 2] // UNIT).astype(int) * 10_000 + (g[:, 1] // UNIT).astype(int)
    return float(np.quantile(np.unique(cells, return_counts=True)[1], 0.9))


def type_table(documents: int) -> list[str]:
    """Widths of letters and letters in a token, of training's large pictures and of two splits."""
    rng = random.Random(0)
    drawn = {
        "training": [
            make_document(i, *pick_size(rng, LARGE, MOST_TOKENS), "train", None, 1, ForTraining())
            for i in range(documents)
        ]
    }
    for split in ("small", "scanned"):
        drawn[split] = [
            make_document(FIRST_SEED + i, *SIZES[split][i % len(SIZES[split])], split)
            for i in range(documents)
        ]
    lines = ["| pixels from letter to letter | 5 % | 25 % | 50 % | 75 % | below 6 | in a token |"]
    lines.append("|" + "---|" * 7)
    for name, made in drawn.items():
        widths = np.array([letter_width(d) for d in made])
        shares = " | ".join(f"{v:.1f}" for v in np.quantile(widths, QUANTILES))
        full = np.median([letters_a_token(d) for d in made])
        lines.append(f"| {name} | {shares} | {np.mean(widths < 6):.2f} | {full:.0f} |")
    return lines


def costs(size: tuple[int, int], pictures: int) -> dict[str, float]:
    """Milliseconds of one core that a picture of each renderer takes, at `size` pixels."""
    out = {}
    for name in SHARES:
        make_document(0, *size, "train", [name], 1.0, ForTraining())  # fonts are kept from here on
        began = time.process_time()
        for seed in range(1, pictures + 1):
            make_document(seed, *size, "train", [name], 1.0, ForTraining())
        out[name] = 1000 * (time.process_time() - began) / pictures
    return out


def main(argv: list[str] | None = None) -> None:
    """Print the mixture and its cost."""
    p = argparse.ArgumentParser(prog="python -m pocket.costs", description=__doc__)
    p.add_argument("--size", default="616x560", help="of the pictures, in pixels")
    p.add_argument("--pictures", type=int, default=20, help="drawn by each renderer")
    p.add_argument("--type", type=int, metavar="N", help="only how small the type of N is")
    args = p.parse_args(argv)
    if args.type:
        sys.stdout.write("\n".join(type_table(args.type)) + "\n")
        return
    width, height = (int(v) for v in args.size.split("x"))
    found, whole = costs((width, height), args.pictures), sum(SHARES.values())
    mean = sum(found[name] * share for name, share in SHARES.items()) / whole
    lines = ["| renderer | share, % | on paper | ms |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {100 * share / whole:.1f} | {ON_PAPER.get(name, 0):.2f} | {found[name]:.1f} |"
        for name, share in SHARES.items()
    ]
    lines.append(f"| all | 100 | | {mean:.1f} |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
