"""Make the shipped form of the third pocket: `python -m pocket.models.ship EXPORT FOLDER`.

A training's export has its low-rank factors in bfloat16 and its tower's matrices in float8. The
shipped form is smaller by 40 %:

- The factors are int8 with a step for each row, which moves a matrix's change by 1 % of its norm.
- A shard is a safetensors file in gzip, which loses nothing: frequent numbers have short codes. The
  tower's numbers take 6.2 of their 8 bits so, the factors' 7.5.
"""

import argparse
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from pocket.models.smol import write_parts
from rotatek.models.assembly import DOWN, STEP, UP, stored

MOST: Final = 127  # of int8, on both sides of zero


def in_steps(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix [rows, columns] as int8 of the same shape and float16 steps [rows, 1].

    A row's step is a 127th of its largest number: in 8 bits no smaller step errs less.
    """
    matrix = matrix.float()
    steps = (matrix.abs().amax(1, keepdim=True) / MOST).half()
    divisor = steps.float().where(steps > 0, 1.0)
    return (matrix / divisor).round().clamp(-MOST, MOST).to(torch.int8), steps


def in_eight_bits(tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Named tensors with every low-rank factor in int8, its steps behind it."""
    for name, value in tensors.items():
        if name.endswith((f".{UP}", f".{DOWN}")):
            value, steps = in_steps(value)
            yield name + STEP, steps
        yield name, value


def pack(file: Path) -> None:
    """Put a file's gzip in its place, with Huffman codes alone: weights do not repeat."""
    coder = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16, 9, zlib.Z_HUFFMAN_ONLY)
    packed = coder.compress(file.read_bytes()) + coder.flush()
    file.with_name(file.name + ".gz").write_bytes(packed)
    file.unlink()


def ship(export: Path, folder: Path) -> int:
    """Write an export's shipped form into another folder; the bytes of its shards.

    Raises:
        ValueError: where both are the same folder, which a training still needs.
    """
    if folder.resolve() == export.resolve():
        raise ValueError("The shipped form needs a folder of its own.")
    for old in folder.glob("*.safetensors.gz"):
        old.unlink()
    write_parts(in_eight_bits(stored(export)), folder)
    for file in folder.glob("*.safetensors"):
        pack(file)
    for file in (*export.glob("*.json"), *export.glob("*.jinja")):
        shutil.copyfile(file, folder / file.name)
    return sum(file.stat().st_size for file in folder.glob("*.safetensors.gz"))


def main(argv: list[str] | None = None) -> None:
    """Write the shipped form as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("export", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args(argv)
    print(f"{ship(args.export, args.folder):,} bytes")


if __name__ == "__main__":
    main()
