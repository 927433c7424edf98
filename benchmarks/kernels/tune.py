"""Configurations of the split kernel side by side, for the table in `kernels.attention_launch`.

The candidates differ in warps (one: no barrier, and a maximum never leaves the warp), in bytes in
flight (block_n, stages, per_sm) and in how tiles arrive (bulk copies or cp.async).
"""

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.plan import Config, Work, configuration, device_facts, plan_of, plan_splits

from . import arms
from .arms import Layer, Shape
from .cases import FP8
from .linear import TILES, streamed
from .model import LLAMA, QWEN
from .timing import Captured, capture, interleaved, layers_for, read_only

Row = dict[str, Any]
SHAPES: Final = {
    "32/8 B=8": Shape(32, 8, 8, 16384),
    "28/4 B=8": Shape(28, 4, 8, 16384),
    "32/8 B=32": Shape(32, 8, 32, 16384),
}
PACKS: Final[dict[str, dict[str, Any]]] = {
    "k=48": {"k": 48},
    "k=32, r=32": {"r": 32},
    "k=16, r=16": {"k": 16, "r": 16},
    "fp8 K, fp8 V": {"keys": FP8, "values": FP8},
    "bf16 K, fp8 V": {"values": FP8},
    "dense fp8": {"k": 128, "keys": FP8, "values": FP8},
    "int8 K, int8 V": {"keys": torch.int8, "values": torch.int8},
    "bf16 k=32": {},
    "dense bf16": {"k": 128},
}
BATCHES: Final = (1, 2, 4, 8, 12, 16, 27, 44, 64)
SMALL: Final = ((1, 576), (1, 2880), (2, 2880), (4, 2880), (1, 16384))
# (tokens a tile, warps, stages, programs a multiprocessor, loads by T or c, most registers)
Candidate = tuple[int, int, int, int, str, int | None]
NARROW: Final[tuple[Candidate, ...]] = (
    (128, 1, 3, 6, "c", None), (128, 1, 4, 4, "T", None), (128, 1, 2, 8, "T", None),
    (128, 1, 4, 9, "c", None), (128, 2, 3, 6, "c", None), (128, 2, 2, 8, "c", 128),
    (64, 1, 4, 8, "T", None), (256, 2, 3, 4, "c", None), (256, 4, 2, 4, "c", 128),
)  # fmt: skip
WIDE: Final[tuple[Candidate, ...]] = (
    (128, 4, 2, 3, "T", 168), (64, 1, 3, 5, "T", None), (64, 2, 3, 5, "c", None),
    (64, 4, 2, 4, "c", 128), (64, 4, 2, 3, "c", None), (64, 4, 3, 3, "c", 168),
)  # fmt: skip
EIGHT: Final[tuple[Candidate, ...]] = (
    (64, 1, 3, 8, "c", None), (128, 2, 3, 4, "c", None), (128, 2, 3, 5, "c", 168),
    (128, 2, 2, 6, "c", 168), (64, 2, 3, 8, "c", None), (128, 4, 3, 4, "c", 128),
    (128, 2, 3, 4, "T", None),
)  # fmt: skip
SPLIT_PACKS: Final = ("k=32, r=32", "k=16, r=16", "fp8 K, fp8 V")
ONE_TILES: Final = ((128, 2), (128, 4), (64, 1), (64, 2), (64, 4), (256, 4))


def candidates(pack: str) -> list[Config]:
    """The configurations worth timing for one way to store the cache."""
    known = NARROW if "r=" in pack else EIGHT if "p8" in pack or "int8" in pack else WIDE
    return [
        Config(n, warps, stages, per_sm, tma=loads == "T", regs=regs)
        for n, warps, stages, per_sm, loads, regs in known
    ]


def tune(packs: str | None = None, rounds: int = 5) -> Row:
    """us a layer of every candidate: the planned splits, and whole waves beside them.

    packs: names divided by semicolons; all by default.
    """
    chosen = packs.split(";") if packs else list(PACKS)
    jobs = [(pack, config, 6) for pack in chosen for config in candidates(pack)]
    refused = refusals(jobs)
    rows = []
    for where, base in SHAPES.items():
        for pack in chosen:
            good = [config for config in candidates(pack) if not refused[pack, config, 6]]
            us = _times(replace(base, **PACKS[pack]), good, rounds)
            rows.append({"shape": where, "pack": pack, "us": us})
            torch.cuda.empty_cache()
    return {"rows": rows, "refused": named(refused)}


def small(packs: str | None = None, rounds: int = 5) -> Row:
    """us a layer at small batches: as planned, and splits of a single tile (tokens, warps)."""
    chosen = packs.split(";") if packs else list(PACKS)
    one = [Config(n, warps, 2) for n, warps in ONE_TILES]
    _, sms = device_facts(torch.device("cuda"))
    refused = refusals(
        [(pack, config, -(-4096 // config.block_n)) for pack in chosen for config in one]
    )
    rows = []
    for pack, (B, N) in itertools.product(chosen, SMALL):
        shape = replace(Shape(32, 8, B, N), **PACKS[pack])
        layers = layers_of(shape)
        graphs = {"planned": capture([arms.ours(layer, shape) for layer in layers])}
        for config in one:
            splits = -(-N // config.block_n)
            fits = B * shape.Hkv * (splits + 1) * config.warps <= 32 * sms
            if fits and not refused[pack, config, -(-4096 // config.block_n)]:
                name = f"{config.block_n},{config.warps}"
                graphs[name] = graph_of(layers, shape, config, splits)
        us = interleaved(graphs, len(layers), rounds, 300)
        rows.append(
            {"pack": pack, "B": B, "N": N, "us": {n: round(t.us, 2) for n, t in us.items()}}
        )
        del graphs, layers
        torch.cuda.empty_cache()
    return {"rows": rows, "refused": named(refused)}


def products(rounds: int = 5) -> Row:
    """us of a decode step's matrix products at 1 and 8 rows: cuBLAS, and streamed by each tile.

    Each also without overlap with the product before ("alone").
    """
    rows = []
    for sizes, count in itertools.product((LLAMA, QWEN), (1, 8)):
        for outputs, inputs in sizes.products:
            layers = layers_for(2 * outputs * inputs, 2)
            weights = [
                torch.randn(outputs, inputs, device="cuda").bfloat16() for _ in range(layers)
            ]
            x = torch.randn(count, inputs, device="cuda").bfloat16()
            want, graphs = F.linear(x, weights[0]).float(), {}
            for name, call in _product_calls().items():
                off = (call(x, weights[0]).float() - want).norm() / want.norm()
                if bool(off <= 1e-2):
                    graphs[name] = capture([partial(call, x, weight) for weight in weights])
            us = {n: round(t.us, 2) for n, t in interleaved(graphs, layers, rounds, 500).items()}
            rows.append({"rows": count, "outputs": outputs, "inputs": inputs, "us": us})
            del weights, graphs
            torch.cuda.empty_cache()
    return {"rows": rows}


def _product_calls() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """What `products` times, by name."""
    calls: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"cuBLAS": F.linear}
    for tile in TILES:
        calls[str(tuple(tile))] = partial(streamed, tile=tile)
        calls[f"{tuple(tile)} alone"] = partial(streamed, tile=tile, pdl=False)
    return calls


Job = tuple[str, Config, int]


def refusals(jobs: list[Job]) -> dict[Job, str]:
    """Compile and check every job beside the others; why it is out, or nothing."""
    workers = max(1, min(len(jobs), (os.cpu_count() or 2) - 2))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return dict(zip(jobs, pool.map(_refusal, *zip(*jobs, strict=True)), strict=True))


def named(refused: dict[Job, str]) -> dict[str, str]:
    """The refusals with a reason, for the JSON."""
    return {f"{pack}: {name_of(config)}": why for (pack, config, _), why in refused.items() if why}


def splits(packs: str | None = None, rounds: int = 3) -> Row:
    """us a layer over the number of visual splits, with the configurations in use: all batches."""
    rows = []
    for pack in packs.split(";") if packs else ("bf16 k=32", "dense bf16", *SPLIT_PACKS):
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
    layers = layers_of(shape)
    graphs = {str(n): graph_of(layers, shape, config, n) for n in sorted(wanted)}
    times = interleaved(graphs, len(layers), rounds, 300)
    return {int(n): round(t.us, 2) for n, t in times.items()}, planned


def name_of(config: Config) -> str:
    """Tokens a tile, warps, stages, programs a multiprocessor, loads by T(MA) or c(p.async)."""
    loads = ("T" if config.tma else "c") + ("" if config.regs is None else str(config.regs))
    if config.joined:
        return f"{config.block_n},{config.warps},{config.stages},{loads},m{config.block_m}"
    return f"{config.block_n},{config.warps},{config.stages},{config.per_sm},{loads}"


def layers_of(shape: Shape) -> list[Layer]:
    """Layers enough that a replay finds nothing in the L2."""
    count = layers_for(shape.cache_bytes)
    return [arms.make_layer(shape, seed, dense=False) for seed in range(count)]


def _refusal(pack: str, config: Config, splits: int) -> str:
    """Compile and check one candidate on a small cache; why it is out, or nothing."""
    torch.set_num_threads(1)
    shape = replace(Shape(N=4096), **PACKS[pack])
    layer = arms.make_layer(shape, 0, dense=False)
    try:
        right = arms.right(
            layer, shape, arms.ours(layer, shape, config=config, splits=splits), False
        )
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:80]}"
    return "" if right else "disagrees with the reference"


def _times(shape: Shape, configs: list[Config], rounds: int) -> dict[str, float]:
    """us by candidate and visual splits, fastest first, with a read-only launch as the floor."""
    layers = layers_of(shape)
    buffers = [torch.ones(shape.cache_bytes // 4, dtype=torch.int32, device="cuda") for _ in layers]
    graphs = {"floor": capture([read_only(buffer) for buffer in buffers])}
    for config in configs:
        for splits in _splits(shape, config):
            graphs[f"{name_of(config)},S{splits}"] = graph_of(layers, shape, config, splits)
    times = interleaved(graphs, len(layers), rounds, 800)
    return {name: t.us for name, t in sorted(times.items(), key=lambda item: item[1].us)}


def graph_of(layers: list[Layer], shape: Shape, config: Config, splits: int) -> Captured:
    """One replay of all layers with this configuration."""
    return capture([arms.ours(layer, shape, config=config, splits=splits) for layer in layers])


def _splits(shape: Shape, config: Config) -> list[int]:
    """Visual splits: the plan's, and those that fill one or two waves with a text split each."""
    _, sms = device_facts(torch.device("cuda"))
    waves = [wave * sms * config.per_sm // (shape.B * shape.Hkv) - 1 for wave in (1, 2)]
    return sorted({_planned(shape, config, sms), *(n for n in waves if n >= 1)})


def _planned(shape: Shape, config: Config, sms: int) -> int:
    """The visual splits that a launch takes."""
    work = Work(shape.B * shape.Hkv, shape.N, shape.M, shape.row_bytes, 4 * shape.d)
    return plan_of(work, plan_splits(work, sms, config), config).visual_splits
