"""Configurations of the split kernel side by side, for the table in `kernels.launch`.

The candidates differ in warps (one: no barrier, and a maximum never leaves the warp), in bytes in
flight (block_n, stages, per_sm) and in how tiles arrive (bulk copies or cp.async).
"""

import itertools
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any, Final

import torch

from kernels.bench import arms
from kernels.bench.arms import Layer, Shape
from kernels.bench.timing import Captured, capture, interleaved, layers_for, read_only
from kernels.cases import FP8
from kernels.launch import Config, configuration, device_facts, plan_splits

Row = dict[str, Any]
SHAPES: Final = {
    "32/8 B=8": Shape(32, 8, 8, 16384),
    "28/4 B=8": Shape(28, 4, 8, 16384),
    "32/8 B=32": Shape(32, 8, 32, 16384),
}
PACKS: Final[dict[str, dict[str, Any]]] = {
    "bf16 k=32": {},
    "k=32, r=32": {"r": 32},
    "k=16, r=16": {"k": 16, "r": 16},
    "fp8 K, fp8 V": {"keys": FP8, "values": FP8},
    "int8 K, int8 V": {"keys": torch.int8, "values": torch.int8},
    "bf16 K, fp8 V": {"values": FP8},
    "dense fp8": {"k": 128, "keys": FP8, "values": FP8},
    "dense bf16": {"k": 128},
}
BATCHES: Final = (1, 2, 4, 8, 12, 16, 27, 44, 64)
NARROW: Final = ((128, 1, 3, 6), (64, 1, 4, 8), (128, 2, 3, 6), (256, 2, 3, 4), (128, 1, 4, 8))
WIDE: Final = ((128, 4, 2, 3), (64, 1, 3, 5), (64, 2, 3, 5), (64, 4, 2, 3), (32, 1, 4, 7))
EIGHT: Final = ((64, 1, 3, 8), (32, 1, 4, 8), (64, 2, 3, 8), (128, 2, 3, 4), (64, 2, 3, 4))


def candidates(pack: str) -> list[Config]:
    """The configurations worth timing for one way to store the cache."""
    known = NARROW if "r=" in pack else EIGHT if "8" in pack else WIDE
    return [
        Config(block_n=n, warps=w, stages=s, per_sm=p, tma=tma)
        for n, w, s, p in known
        for tma in (False, True)
    ]


def tune(rounds: int = 5) -> Row:
    """us a layer of every candidate: the planned splits, and whole waves beside them."""
    jobs = [(pack, config) for pack in PACKS for config in candidates(pack)]
    workers = max(1, (os.cpu_count() or 2) - 2)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        refused = dict(zip(jobs, pool.map(_refusal, *zip(*jobs, strict=True)), strict=True))
    rows = []
    for where, base in SHAPES.items():
        for pack, change in PACKS.items():
            good = [config for config in candidates(pack) if not refused[pack, config]]
            us = _times(replace(base, **change), good, rounds)
            rows.append({"shape": where, "pack": pack, "us": us})
            torch.cuda.empty_cache()
    named = {f"{pack}: {_name(config)}": why for (pack, config), why in refused.items() if why}
    return {"rows": rows, "refused": named}


def splits(rounds: int = 3) -> Row:
    """us a layer over the number of visual splits, with the configurations in use: all batches."""
    rows = []
    for pack in ("bf16 k=32", "dense bf16", "k=32, r=32", "k=16, r=16", "fp8 K, fp8 V"):
        for B, N in itertools.product(BATCHES, (2880, 16384)):
            shape = replace(Shape(32, 8, B, N), **PACKS[pack])
            us, planned = _split_times(shape, rounds)
            rows.append({"pack": pack, "B": B, "N": N, "planned": planned, "us": us})
            torch.cuda.empty_cache()
    return {"rows": rows}


def _split_times(shape: Shape, rounds: int) -> tuple[dict[int, float], int]:
    """us by the count of visual splits, and the count that the plan takes."""
    arch, sms = device_facts(torch.device("cuda"))
    config = configuration(arch, shape.d, shape.k, shape.row_bytes)
    groups, planned = shape.B * shape.Hkv, _planned(shape, config, sms)
    tiles = -(-shape.N // config.block_n)
    wanted = {-(-tiles // -(-tiles // n)) for n in (*range(1, 13), 14, 16, 20, 24, 32, 43, 64)}
    wanted = {n for n in wanted if n * groups <= 5 * sms * config.per_sm} | {1, planned}
    count = layers_for(shape.cache_bytes)
    layers = [arms.make_layer(shape, seed, dense=False) for seed in range(count)]
    graphs = {str(n): _graph(layers, shape, config, n) for n in sorted(wanted)}
    times = interleaved(graphs, count, rounds, 300)
    return {int(n): round(t.us, 2) for n, t in times.items()}, planned


def _name(config: Config) -> str:
    loads = "T" if config.tma else "c"
    return f"{config.block_n},{config.warps},{config.stages},{config.per_sm},{loads}"


def _refusal(pack: str, config: Config) -> str:
    """Compile and check one candidate on a small cache; why it is out, or nothing."""
    shape = replace(Shape(N=4096), **PACKS[pack])
    layer = arms.make_layer(shape, 0, dense=False)
    try:
        right = arms.right(layer, shape, arms.ours(layer, shape, config=config, splits=6), False)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:80]}"
    return "" if right else "disagrees with the reference"


def _times(shape: Shape, configs: list[Config], rounds: int) -> dict[str, float]:
    """us by candidate and visual splits, fastest first, with a read-only launch as the floor."""
    count = layers_for(shape.cache_bytes)
    layers = [arms.make_layer(shape, seed, dense=False) for seed in range(count)]
    buffers = [torch.ones(shape.cache_bytes // 4, dtype=torch.int32, device="cuda") for _ in layers]
    graphs = {"floor": capture([read_only(buffer) for buffer in buffers])}
    for config in configs:
        for splits in _splits(shape, config):
            graphs[f"{_name(config)},S{splits}"] = _graph(layers, shape, config, splits)
    times = interleaved(graphs, count, rounds, 800)
    return {name: t.us for name, t in sorted(times.items(), key=lambda item: item[1].us)}


def _graph(layers: list[Layer], shape: Shape, config: Config, splits: int) -> Captured:
    return capture([arms.ours(layer, shape, config=config, splits=splits) for layer in layers])


def _splits(shape: Shape, config: Config) -> list[int]:
    """Visual splits: the plan's, and those that fill one or two waves with a text split each."""
    _, sms = device_facts(torch.device("cuda"))
    waves = [wave * sms * config.per_sm // (shape.B * shape.Hkv) - 1 for wave in (1, 2)]
    return sorted({_planned(shape, config, sms), *(n for n in waves if n >= 1)})


def _planned(shape: Shape, config: Config, sms: int) -> int:
    """The visual splits that a launch takes."""
    groups, text_bytes = shape.B * shape.Hkv, 4 * shape.d
    plan = plan_splits(groups, shape.N, shape.M, sms, config, shape.row_bytes, text_bytes)
    return plan.visual_splits
