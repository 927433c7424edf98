"""Candidates for the rows of `kernels.plan.CONFIGS`, side by side, and of a step's products.

The candidates differ in warps (one: no barrier, and a maximum never leaves the warp), in bytes in
flight (block_n, stages, per_sm) and in how tiles arrive (bulk copies or cp.async). Those of
`joined` are for batches that fill the GPU: their splits read the text too, one or a few a head.
"""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.harness import chosen
from benchmarks.timing import capture, interleaved, layers_for
from kernels.plan import Config, Joined, Work, configuration, device_facts, plan_of, plan_splits

from . import arms
from .arms import PACKS, Row, Shape
from .linear import TILES, streamed
from .model import LLAMA, QWEN

SHAPES: Final = (Shape(32, 8, 8, 16384), Shape(28, 4, 8, 16384), Shape(32, 8, 32, 16384))
BATCHES: Final = (1, 2, 4, 8, 12, 16, 27, 44, 64)
SMALL: Final = tuple(
    Shape(32, 8, B, N) for B, N in ((1, 576), (1, 2880), (2, 2880), (4, 2880), (1, 16384))
)
FULL: Final = tuple(
    Shape(Hq, Hkv, B, N)
    for N in (2880, 16384)
    for Hq, Hkv, B in ((32, 8, 8), (32, 8, 16), (28, 4, 32), (32, 8, 32), (32, 8, 64))
)
# By pack: tokens a tile, warps, stages, loads by T(MA) or c(p.async), programs a multiprocessor,
# most registers
NARROW, WIDE, EIGHT = "narrow", "wide", "eight"
APART: Final[dict[str, tuple[tuple[int, int, int, str, int, int | None], ...]]] = {
    NARROW: (
        (128, 1, 3, "c", 6, None), (128, 1, 4, "T", 4, None), (128, 1, 2, "T", 8, None),
        (128, 1, 4, "c", 9, None), (128, 2, 3, "c", 6, None), (128, 2, 2, "c", 8, 128),
        (64, 1, 4, "T", 8, None), (256, 2, 3, "c", 4, None), (256, 4, 2, "c", 4, 128),
    ),
    WIDE: (
        (128, 4, 2, "T", 3, 168), (64, 1, 3, "T", 5, None), (64, 2, 3, "c", 5, None),
        (64, 4, 2, "c", 4, 128), (64, 4, 2, "c", 3, None), (64, 4, 3, "c", 3, 168),
    ),
    EIGHT: (
        (64, 1, 3, "c", 8, None), (128, 2, 3, "c", 4, None), (128, 2, 3, "c", 5, 168),
        (128, 2, 2, "c", 6, 168), (64, 2, 3, "c", 8, None), (128, 4, 3, "c", 4, 128),
        (128, 2, 3, "T", 4, None),
    ),
}  # fmt: skip
# The first four of these, and tokens of a text tile
JOINED: Final[dict[str, tuple[tuple[int, int, int, str, int], ...]]] = {
    WIDE: (
        (64, 2, 3, "T", 32), (64, 2, 3, "T", 64), (64, 2, 4, "T", 32), (64, 2, 3, "c", 32),
        (64, 2, 4, "c", 32), (64, 4, 3, "T", 32), (64, 4, 4, "T", 32), (128, 4, 2, "T", 32),
        (128, 4, 3, "T", 32), (64, 1, 3, "T", 32),
    ),
    NARROW: (
        (128, 1, 4, "T", 32), (128, 2, 3, "T", 32), (128, 2, 4, "T", 32), (256, 4, 3, "T", 32),
        (256, 2, 3, "T", 32), (128, 4, 4, "T", 32), (64, 1, 4, "T", 32), (128, 2, 4, "c", 32),
        (256, 4, 3, "c", 32),
    ),
    EIGHT: (
        (64, 1, 3, "c", 32), (64, 2, 3, "c", 32), (128, 2, 3, "c", 32), (128, 4, 3, "c", 32),
        (128, 4, 3, "T", 32), (128, 2, 3, "T", 32), (128, 4, 4, "c", 32), (64, 2, 4, "c", 32),
    ),
}  # fmt: skip
SPLIT_PACKS: Final = ("bf16 k=32", "dense bf16", "k=32, r=32", "k=16, r=16", "fp8 K, fp8 V")
ONE_TILES: Final = tuple(
    Config(n, warps, 2) for n, warps in ((128, 2), (128, 4), (64, 1), (64, 2), (64, 4), (256, 4))
)
PROGRAMS: Final = 6  # most programs a multiprocessor that are tried for joined splits
Job = tuple[str, Config]


def candidates(shape: Shape, joined: bool = False) -> list[Config]:
    """The configurations worth timing for a shape's way to store the cache."""
    kind = NARROW if shape.r else EIGHT if shape.values.itemsize == 1 else WIDE
    if joined:
        return [
            Config(n, warps, stages, block_m=m, tma=loads == "T", joined=Joined())
            for n, warps, stages, loads, m in JOINED[kind]
        ]
    return [
        Config(n, warps, stages, per_sm, tma=loads == "T", regs=regs)
        for n, warps, stages, loads, per_sm, regs in APART[kind]
    ]


def tune(packs: Sequence[str] | None = None, rounds: int = 5) -> Row:
    """us a layer of every candidate: the planned splits, and whole waves beside them."""
    return _sweep(packs, SHAPES, candidates, _waves, rounds)


def joined(packs: Sequence[str] | None = None, rounds: int = 7) -> Row:
    """us a layer of every candidate that reads the text too."""
    return _sweep(packs, FULL, partial(candidates, joined=True), counts, rounds)


def small(packs: Sequence[str] | None = None, rounds: int = 5) -> Row:
    """us a layer at small batches: splits of a single tile."""
    return _sweep(packs, SMALL, lambda shape: ONE_TILES, _single, rounds, 300)


def splits(packs: Sequence[str] | None = None, rounds: int = 3) -> Row:
    """us a layer over the number of visual splits, with the configurations in use: all batches."""
    shapes = [Shape(32, 8, B, N) for B in BATCHES for N in (2880, 16384)]
    return _sweep(packs or SPLIT_PACKS, shapes, _in_use, _many, rounds, 300)


def _sweep(
    packs: Sequence[str] | None,
    shapes: Sequence[Shape],
    configs: Callable[[Shape], Sequence[Config]],
    counts: Callable[[Shape, Config], Sequence[int]],
    rounds: int,
    round_us: float = 800,
) -> Row:
    """us a layer of every way to store the cache, shape, configuration and count of splits.

    A configuration that does not compile or disagrees with the reference on a small cache, in 1
    or 3 splits or any count that it would have there, is refused.
    """
    names = chosen(packs, PACKS)
    tests = {pack: replace(Shape(N=4096), **PACKS[pack]) for pack in names}
    jobs = {
        (pack, config): sorted({1, 3, *counts(test, config)})
        for pack, test in tests.items()
        for config in configs(test)
    }
    refused = refusals(jobs)
    rows = []
    for pack, base in itertools.product(names, shapes):
        shape = replace(base, **PACKS[pack])
        tried = [
            (config, count)
            for config in configs(shape)
            if not refused.get((pack, config))
            for count in counts(shape, config)
        ]
        rows.append(
            {"pack": pack, "shape": str(shape), "us": us_of(shape, tried, rounds, round_us)}
        )
    why = {f"{pack}: {name_of(config)}": why for (pack, config), why in refused.items() if why}
    return {"rows": rows, "refused": why}


def us_of(
    shape: Shape, tried: Sequence[tuple[Config, int]], rounds: int, round_us: float = 800
) -> dict[str, float]:
    """us a layer by configuration and visual splits, fastest first.

    Beside a read-only launch, the floor, and what a launch takes of itself.
    """
    count = layers_for(shape.cache_bytes)  # layers enough that a replay finds nothing in the L2
    layers = arms.make_layers(shape, count, dense=False)
    graphs = {
        "floor": arms.floor_graph(shape, count),
        "in use": capture([arms.ours(layer, shape) for layer in layers]),
    }
    for config, n in tried:
        calls = [arms.ours(layer, shape, config=config, splits=n) for layer in layers]
        graphs[f"{name_of(config)},S{n}"] = capture(calls)
    times = interleaved(graphs, count, rounds, round_us)
    del graphs, layers
    torch.cuda.empty_cache()
    return {name: round(t.us, 2) for name, t in sorted(times.items(), key=lambda x: x[1].us)}


def refusals(jobs: Mapping[Job, Sequence[int]]) -> dict[Job, str]:
    """Compile and check every job beside the others; why it is out, or nothing."""
    workers = max(1, min(len(jobs), (os.cpu_count() or 2) - 2))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return dict(zip(jobs, pool.map(_refusal, jobs, jobs.values()), strict=True))


def _refusal(job: Job, splits: Sequence[int]) -> str:
    """Compile and check one candidate on a small cache; why it is out, or nothing."""
    torch.set_num_threads(1)
    pack, config = job
    shape = replace(Shape(N=4096), **PACKS[pack])
    layer = arms.make_layer(shape, 0, dense=False)
    try:
        calls = [arms.ours(layer, shape, config=config, splits=count) for count in splits]
        right = all(arms.right(layer, shape, call, False) for call in calls)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:80]}"
    return "" if right else "disagrees with the reference"


def name_of(config: Config) -> str:
    """Tokens a tile, warps, stages, programs a multiprocessor, loads by T(MA) or c(p.async)."""
    loads = ("T" if config.tma else "c") + ("" if config.regs is None else str(config.regs))
    if config.joined:
        return f"{config.block_n},{config.warps},{config.stages},{loads},m{config.block_m}"
    return f"{config.block_n},{config.warps},{config.stages},{config.per_sm},{loads}"


def counts(shape: Shape, config: Config) -> list[int]:
    """Joined splits that fit next to one another and leave few multiprocessors idle."""
    sms, groups = _sms(), shape.B * shape.Hkv
    fitting = range(-(-int(0.9 * sms) // groups), PROGRAMS * sms // groups + 1)
    return [count for count in (1, 2, 3, 4, 6, 8) if count in fitting] or [1]


def _waves(shape: Shape, config: Config) -> list[int]:
    """Visual splits: the plan's, and those that fill one or two waves with a text split each."""
    waves = [wave * _sms() * config.per_sm // (shape.B * shape.Hkv) - 1 for wave in (1, 2)]
    return sorted({_planned(shape, config), *(n for n in waves if n >= 1)})


def _single(shape: Shape, config: Config) -> list[int]:
    """Splits of a single tile, where they and a text split fit next to one another."""
    count = -(-shape.N // config.block_n)
    return [count] if shape.B * shape.Hkv * (count + 1) * config.warps <= 32 * _sms() else []


def _many(shape: Shape, config: Config) -> list[int]:
    """Visual splits from one to five waves."""
    tiles, sms = -(-shape.N // config.block_n), _sms()
    wanted = {-(-tiles // -(-tiles // n)) for n in (*range(1, 13), 14, 16, 20, 24, 32, 43, 64)}
    most = 5 * sms * config.per_sm
    return sorted({n for n in wanted if n * shape.B * shape.Hkv <= most} | {1})


def _in_use(shape: Shape) -> list[Config]:
    arch, _ = device_facts(torch.device("cuda"))
    return [configuration(arch, shape.d, shape.k, shape.row_bytes)]


def _sms() -> int:
    return device_facts(torch.device("cuda"))[1]


def _planned(shape: Shape, config: Config) -> int:
    """The visual splits that a launch takes."""
    work = Work(shape.B * shape.Hkv, shape.N, shape.M, shape.row_bytes, 4 * shape.d)
    return plan_of(work, plan_splits(work, _sms(), config), config).visual_splits


def products(rounds: int = 5) -> Row:
    """us of a decode step's matrix products at 1 and 8 rows: cuBLAS, and streamed by each tile.

    Each also without overlap with the product before ("alone").
    """

    def row(job: tuple[Any, int, tuple[int, int]]) -> Row:
        _, count, (outputs, inputs) = job
        layers = layers_for(2 * outputs * inputs, 2)
        weights = [torch.randn(outputs, inputs, device="cuda").bfloat16() for _ in range(layers)]
        x = torch.randn(count, inputs, device="cuda").bfloat16()
        want, graphs = F.linear(x, weights[0]).float(), {}
        for name, call in _product_calls().items():
            off = (call(x, weights[0]).float() - want).norm() / want.norm()
            if bool(off <= 1e-2):
                graphs[name] = capture([partial(call, x, weight) for weight in weights])
        us = {n: round(t.us, 2) for n, t in interleaved(graphs, layers, rounds, 500).items()}
        return {"rows": count, "outputs": outputs, "inputs": inputs, "us": us}

    jobs = [(s, c, p) for s, c in itertools.product((LLAMA, QWEN), (1, 8)) for p in s.products]
    return arms.rows_of(jobs, row)


def _product_calls() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The products that `products` times, by name."""
    calls: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"cuBLAS": F.linear}
    for tile in TILES:
        calls[str(tuple(tile))] = partial(streamed, tile=tile)
        calls[f"{tuple(tile)} alone"] = partial(streamed, tile=tile, pdl=False)
    return calls
