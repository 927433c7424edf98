"""What the mixture costs: `python -m rotatek.pocket.costs`.

Prints each renderer's share of training's pictures and the time that a core takes to draw one.
"""

import argparse
import sys
import time

from rotatek.pocket.generate import ForTraining, make_document
from rotatek.pocket.mixture import ON_PAPER, SHARES


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
    p = argparse.ArgumentParser(prog="python -m rotatek.pocket.costs", description=__doc__)
    p.add_argument("--size", default="616x560", help="of the pictures, in pixels")
    p.add_argument("--pictures", type=int, default=20, help="drawn by each renderer")
    args = p.parse_args(argv)
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
