"""Candidates for batches that fill the GPU: splits that read the text too, one or a few a head.

They stand beside the layout in use and a read-only launch, for the rows of `kernels.plan.CONFIGS`.
"""

import itertools
from dataclasses import replace
from typing import Final, NamedTuple

import torch

from kernels.plan import Config, Joined, device_facts

from . import arms
from .arms import Shape
from .timing import capture, interleaved, read_only
from .tune import PACKS, Row, graph_of, layers_of, name_of, named, refusals


class Tiles(NamedTuple):
    """Tokens a visual tile, warps, stages, loads by T(MA) or c(p.async), tokens a text tile."""

    block_n: int
    warps: int
    stages: int
    loads: str = "T"
    block_m: int = 32


WIDE: Final = (
    Tiles(64, 2, 3), Tiles(64, 2, 3, block_m=64), Tiles(64, 2, 4),
    Tiles(64, 2, 3, "c"), Tiles(64, 2, 4, "c"), Tiles(64, 4, 3), Tiles(64, 4, 4),
    Tiles(128, 4, 2), Tiles(128, 4, 3), Tiles(64, 1, 3),
)  # fmt: skip
NARROW: Final = (
    Tiles(128, 1, 4), Tiles(128, 2, 3), Tiles(128, 2, 4), Tiles(256, 4, 3), Tiles(256, 2, 3),
    Tiles(128, 4, 4), Tiles(64, 1, 4), Tiles(128, 2, 4, "c"), Tiles(256, 4, 3, "c"),
)  # fmt: skip
EIGHT: Final = (
    Tiles(64, 1, 3, "c"), Tiles(64, 2, 3, "c"), Tiles(128, 2, 3, "c"), Tiles(128, 4, 3, "c"),
    Tiles(128, 4, 3), Tiles(128, 2, 3), Tiles(128, 4, 4, "c"), Tiles(64, 2, 4, "c"),
)  # fmt: skip
SHAPES: Final = tuple(
    Shape(Hq, Hkv, B, N)
    for N in (2880, 16384)
    for Hq, Hkv, B in ((32, 8, 8), (32, 8, 16), (28, 4, 32), (32, 8, 32), (32, 8, 64))
)
PROGRAMS: Final = 6  # most programs a multiprocessor that are tried


def candidates(pack: str) -> list[Config]:
    """The configurations worth timing for one way to store the cache."""
    known = NARROW if "r=" in pack else EIGHT if "p8" in pack or "int8" in pack else WIDE
    return [
        Config(
            tiles.block_n, tiles.warps, tiles.stages, block_m=tiles.block_m,
            tma=tiles.loads == "T", joined=Joined(),
        )
        for tiles in known
    ]  # fmt: skip


def joined(packs: str | None = None, rounds: int = 7) -> Row:
    """us a layer of every candidate and count of splits; packs: names divided by semicolons."""
    chosen = packs.split(";") if packs else list(PACKS)
    refused = refusals(
        [
            (pack, config, count)
            for pack in chosen
            for config in candidates(pack)
            for count in (1, 3)
        ]
    )
    rows = []
    for pack, base in itertools.product(chosen, SHAPES):
        shape = replace(base, **PACKS[pack])
        good = [
            (config, count)
            for config in candidates(pack)
            for count in counts(shape)
            if not refused[pack, config, 1 if count == 1 else 3]
        ]
        rows.append({"pack": pack, "shape": str(shape), "us": _times(shape, good, rounds)})
        torch.cuda.empty_cache()
    return {"rows": rows, "refused": named(refused)}


def counts(shape: Shape) -> list[int]:
    """Splits that fit next to one another and leave few multiprocessors without a program."""
    _, sms = device_facts(torch.device("cuda"))
    groups = shape.B * shape.Hkv
    fitting = range(-(-int(0.9 * sms) // groups), PROGRAMS * sms // groups + 1)
    return [count for count in (1, 2, 3, 4, 6, 8) if count in fitting] or [1]


def _times(shape: Shape, good: list[tuple[Config, int]], rounds: int) -> dict[str, float]:
    layers = layers_of(shape)
    buffers = [torch.ones(shape.cache_bytes // 4, dtype=torch.int32, device="cuda") for _ in layers]
    graphs = {
        "floor": capture([read_only(buffer) for buffer in buffers]),
        "in use": capture([arms.ours(layer, shape) for layer in layers]),
    }
    for config, splits in good:
        graphs[f"{name_of(config)},S{splits}"] = graph_of(layers, shape, config, splits)
    times = interleaved(graphs, len(layers), rounds, 800)
    return {name: round(t.us, 2) for name, t in sorted(times.items(), key=lambda x: x[1].us)}
