"""Attention over planes of 2-bit digits beside dense caches of 16 and 8 bits, and candidates."""

from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from benchmarks.timing import Captured, capture, event_ms, interleaved, layers_for, plain
from kernels.packed_attention_launch import PlanesConfig, attend_planes
from kernels.packing import pack_states
from kernels.planes import GRANULE, TILE, Planes, depths_of, granules, pack
from kernels.reference import Text, Visual, attend_reference

from . import arms
from .arms import PACKS, Row, Shape
from .model import LLAMA, QWEN, Sizes

Layer = tuple[Tensor, Visual, Text]
Counts = tuple[tuple[int, ...], ...]  # channels with a digit of each level; heads take turns
MIXES: Final[dict[str, tuple[Counts, Counts]]] = {  # bytes a token and head: Keys and Values
    "16": (((32, 0, 0, 0),), ((32, 0, 0, 0),)),
    "24": (((32, 16, 0, 0),), ((32, 16, 0, 0),)),
    "24 mixed": (
        ((16, 0, 0, 0), (32, 16, 0, 0), (48, 16, 16, 0), (32, 16, 0, 0)),
        ((48, 16, 0, 0), (16, 0, 0, 0), (16, 16, 0, 0), (32, 16, 16, 16)),
    ),
    "32": (((48, 16, 0, 0),), ((48, 16, 0, 0),)),
    "64": (((64, 32, 16, 16),), ((64, 32, 16, 16),)),
}
RIVALS: Final = {  # by name in the report, the way to store the cache
    "dense fp8": PACKS["dense fp8"],
    "dense int8": {**PACKS["int8 K, int8 V"], "k": 128},
    "k=32": {},
}
SHAPES: Final = tuple(
    Shape(Hq, Hkv, B, N)
    for Hq, Hkv in ((32, 8), (28, 4))
    for B, N in ((1, 2880), (1, 16384), (8, 16384), (32, 2880), (32, 16384))
)
PROBES: Final = tuple(s for s in SHAPES if s.Hkv == 8) + SHAPES[-1:]
CANDIDATES: Final = (
    PlanesConfig(1), PlanesConfig(2), PlanesConfig(1, warps=2), PlanesConfig(2, warps=2),
)  # fmt: skip


def random_planes(counts: Counts, shape: Shape, generator: torch.Generator) -> Planes:
    """Planes of random digits in int8 bases."""
    heads, device = shape.B * shape.Hkv, generator.device
    levels = torch.tensor([counts[head % len(counts)] for head in range(heads)], dtype=torch.int32)
    words = granules(levels).long() * (-(-shape.N // TILE) * GRANULE**2)
    own = levels[:, 0]
    size, rows = int(words.sum()), int(own.sum())
    data = torch.randint(
        -(1 << 15), 1 << 15, (size,), dtype=torch.int16, device=device, generator=generator
    )
    basis = torch.randint(
        -127, 128, (rows, shape.d), dtype=torch.int8, device=device, generator=generator
    )
    grid = (shape.B, shape.Hkv)
    level = torch.cat([depths_of(level, int(level[0])) for level in levels]) // 2
    steps = 8e-3 / 4.0**level  # every channel as large as those of 2 bits
    return Planes(
        data, levels.view(*grid, 4).to(device), (words.cumsum(0) - words).view(grid).to(device),
        basis, steps.to(device),
        (own.cumsum(0) - own).view(grid).int().to(device), int(granules(levels).max()),
    )  # fmt: skip


def make(shape: Shape, mix: tuple[Counts, Counts], seed: int, device: str = "cuda") -> Layer:
    """One layer's call over random planes."""
    generator = torch.Generator(device=device).manual_seed(seed)
    B, Hkv, d = shape.B, shape.Hkv, shape.d

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, device=device, dtype=torch.bfloat16)

    none = draw(B, Hkv, 0, 0)
    visual = Visual(none, none, mean=draw(B, Hkv, d) / 8, value_mean=draw(B, Hkv, d) / 8)
    keys, values = (random_planes(counts, shape, generator) for counts in mix)
    visual = visual._replace(tokens=shape.N, key_planes=keys, value_planes=values)
    text = Text(draw(B, Hkv, shape.M, d), draw(B, Hkv, shape.M, d))
    return draw(B, shape.Hq, 1, d), visual, text


def right(
    shape: Shape,
    mix: tuple[Counts, Counts],
    config: PlanesConfig | None = None,
    splits: int | None = None,
    device: str = "cuda",
) -> bool:
    """Whether a small call of the shape's heads agrees with the reference (bf16 bar 5e-2)."""
    small = replace(shape, B=2, N=min(shape.N, 1500))
    q, visual, text = make(small, mix, 0, device)
    got = attend_planes(q, visual, text, shape.scale, config, splits)
    gap = (got.float() - attend_reference(q, visual, text, shape.scale).float()).abs().max()
    return bool(gap <= 5e-2)


def graph_of(
    layers: list[Layer], shape: Shape, config: PlanesConfig | None = None, splits: int | None = None
) -> Captured:
    """One graph of a call over every layer's planes."""
    scale = shape.scale
    return capture([partial(attend_planes, q, v, t, scale, config, splits) for q, v, t in layers])


def _layers(shape: Shape) -> int:
    """Layers whose planes do not fit the L2."""
    return layers_for(shape.B * shape.Hkv * (shape.N * 24 + shape.M * 512), largest=128)


def planes(
    rounds: int = 11,
    shapes: tuple[Shape, ...] = SHAPES,
    names: tuple[str, ...] = tuple(MIXES),
    rivals: tuple[str, ...] = tuple(RIVALS),
) -> Row:
    """us a layer over planes of several budgets, and how much faster than dense caches."""

    def row(shape: Shape) -> Row:
        keep: list[Any] = []  # the graphs read these buffers
        count, graphs = _layers(shape), {}
        for name in names:
            if not right(shape, MIXES[name]):
                raise ValueError(f"{name} bytes: disagrees with the reference")
            keep.append([make(shape, MIXES[name], seed) for seed in range(count)])
            graphs[name] = graph_of(keep[-1], shape)
        keep.append(arms.make_layers(shape, count))
        graphs |= arms.rivals(keep[-1], shape)
        for name in rivals:
            wide = replace(shape, **RIVALS[name])
            keep.append(arms.make_layers(wide, count, dense=False))
            graphs[name] = capture([arms.ours(layer, wide) for layer in keep[-1]])
        times = interleaved(graphs, count, rounds)
        us = {name: timing.us for name, timing in times.items()}
        fields = {k: v for k, v in asdict(shape).items() if isinstance(v, int)}
        return {"shape": fields, "times": plain(times)} | arms.gains(us, names)

    return arms.rows_of(shapes, row)


def candidates(rounds: int = 5, shapes: tuple[Shape, ...] = PROBES, name: str = "24 mixed") -> Row:
    """us a layer of every configuration and count of splits, at one budget."""
    mix = MIXES[name]
    tried = [*CANDIDATES, *(replace(config, apart=True) for config in CANDIDATES)]
    good = [config for config in tried if right(SHAPES[0], mix, config, 3)]

    def row(shape: Shape) -> Row:
        count = _layers(shape)
        layers = [make(shape, mix, seed) for seed in range(count)]
        graphs = {
            f"{_named(config)} x{splits}": graph_of(layers, shape, config, splits)
            for config in good
            if config.apart == (shape.B == 1)
            for splits in _counts(shape, config)
        }
        times = interleaved(graphs, count, rounds, 800)
        us = {name: round(t.us, 2) for name, t in sorted(times.items(), key=lambda x: x[1].us)}
        return {"shape": str(shape), "us": us}

    refused = [_named(config) for config in tried if config not in good]
    return {**arms.rows_of(shapes, row), "refused": refused}


def _named(config: PlanesConfig) -> str:
    apart = ",apart" if config.apart else ""
    return f"R{config.tiles},w{config.warps},s{config.stages}{apart}"


def _counts(shape: Shape, config: PlanesConfig) -> list[int]:
    """Splits that make 2 to 16 programs a multiprocessor, or what there is."""
    groups, rows = -(-shape.N // (TILE * config.tiles)), shape.B * shape.Hkv
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    wanted = {max(1, min(groups, round(sms * per_sm / rows))) for per_sm in (1, 2, 3, 4, 8)}
    return sorted(-(-groups // -(-groups // count)) for count in wanted)


def packing(rounds: int = 11, N: int = 2880) -> Row:
    """us that Keys and Values of all layers take to be projected, quantised and packed."""

    def row(sizes: Sizes) -> Row:
        layers, Hkv = sizes.layers, sizes.Hkv
        states = torch.randn(layers, Hkv, N, 128, device="cuda", dtype=torch.bfloat16)
        basis = torch.linalg.qr(torch.randn(layers, Hkv, 128, 128, device="cuda"))[0][..., :32]
        mean = states.float().mean(2)
        counts = torch.tensor(MIXES["24"][0][0], dtype=torch.int32, device="cuda")
        counts = counts.expand(layers, Hkv, 4).contiguous()
        steps = torch.full((layers, Hkv, 32), 0.6, device="cuda")
        want, _ = pack((states.float() - mean[:, :, None]) @ basis, counts, steps)
        wrong = float((pack_states(states, mean, basis, counts, steps)[0] != want).float().mean())

        def call() -> None:
            for values in (False, True):
                pack_states(states, mean, basis, counts, steps, values)

        us = 1e3 * event_ms(call, rounds, warm=0)
        return {"model": sizes.name, "us": us, "words_that_differ": wrong}

    return arms.rows_of((LLAMA, QWEN), row)
