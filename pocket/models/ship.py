"""Make the shipped form of the third pocket: `python -m pocket.models.ship EXPORT FOLDER`.

A training's export has its low-rank factors in bfloat16, because a training goes on from it. The
shipped form has them in int8 with a step for each row. The tower's matrices are float8 in both.
"""

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from pocket.models.smol import write_parts
from rotatek.models.assembly import DOWN, STEP, UP, stored

MOST: Final = 127  # of int8, on both sides of zero


def in_steps(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix [rows, columns] as int8 of the same shape and float16 steps [rows].

    A row's step is a 127th of its largest number: in 8 bits no smaller step errs less.
    """
    matrix = matrix.float()
    steps = (matrix.abs().amax(1) / MOST).half()
    divisor = steps.float().where(steps > 0, 1.0)[:, None]
    return (matrix / divisor).round().clamp(-MOST, MOST).to(torch.int8), steps


def in_eight_bits(tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Named tensors with every low-rank factor in int8, its steps behind it."""
    for name, value in tensors.items():
        if name.endswith((f".{UP}", f".{DOWN}")):
            value, steps = in_steps(value)
            yield name + STEP, steps
        yield name, value


def ship(export: Path, folder: Path) -> int:
    """Write an export's shipped form into another folder; the bytes of its shards.

    Raises:
        ValueError: where both are the same folder, which a training still needs.
    """
    if folder.resolve() == export.resolve():
        raise ValueError("The shipped form needs a folder of its own.")
    write_parts(in_eight_bits(stored(export)), folder)
    for file in (*export.glob("*.json"), *export.glob("*.jinja")):
        shutil.copyfile(file, folder / file.name)
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def main(argv: list[str] | None = None) -> None:
    """Write the shipped form as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("export", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args(argv)
    print(f"{ship(args.export, args.folder):,} bytes")


if __name__ == "__main__":
    main()
