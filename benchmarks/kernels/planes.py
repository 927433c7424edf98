"""Attention over planes of 2-bit digits beside dense caches of 16 and 8 bits, and candidates."""

from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from kernels.packed_attention_launch import PlanesConfig, attend_planes
from kernels.packing import pack_states
from kernels.planes import GRANULE, TILE, Planes, depths_of, granules, pack
from kernels.reference import Text, Visual, attend_reference

from . import arms
from .arms import Shape
from .cases import FP8
from .timing import Captured, capture, interleaved, layers_for

Row = dict[str, Any]
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
RIVALS: Final = {
    "dense fp8": {"k": 128, "keys": FP8, "values": FP8},
    "dense int8": {"k": 128, "keys": torch.int8, "values": torch.int8},
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


def _rivals(
    shape: Shape, count: int, keep: list[Any], names: tuple[str, ...]
) -> dict[str, Captured]:
    graphs: dict[str, Captured] = {}
    layers = [arms.make_layer(shape, seed) for seed in range(count)]
    keep.append(layers)
    graphs["dense bf16"] = capture([arms.ours_dense(layer, shape) for layer in layers])
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        calls = [arms.library(layer, shape, backend) for layer in layers]
        graphs[backend.name.lower()] = capture(calls)
    for name in names:
        wide = replace(shape, **RIVALS[name])
        narrow = [arms.make_layer(wide, seed, dense=False) for seed in range(count)]
        keep.append(narrow)
        graphs[name] = capture([arms.ours(layer, wide) for layer in narrow])
    return graphs


def planes(
    rounds: int = 11,
    shapes: tuple[Shape, ...] = SHAPES,
    names: tuple[str, ...] = tuple(MIXES),
    rivals: tuple[str, ...] = tuple(RIVALS),
) -> Row:
    """us a layer over planes of several budgets, and how much faster than dense caches."""
    rows = []
    for shape in shapes:
        keep: list[Any] = []  # the graphs read these buffers
        count = layers_for(shape.B * shape.Hkv * (shape.N * 24 + shape.M * 512), largest=128)
        graphs = {}
        for name in names:
            if not right(shape, MIXES[name]):
                raise ValueError(f"{name} bytes: disagrees with the reference")
            keep.append([make(shape, MIXES[name], seed) for seed in range(count)])
            graphs[name] = graph_of(keep[-1], shape)
        graphs |= _rivals(shape, count, keep, rivals)
        times = interleaved(graphs, count, rounds)
        us = {name: timing.us for name, timing in times.items()}
        best = min(us[name] for name in ("dense bf16", "flash_attention", "cudnn_attention"))
        rows.append(
            {
                "shape": {k: v for k, v in asdict(shape).items() if isinstance(v, int)},
                "times": {name: asdict(timing) for name, timing in times.items()},
                "over_best_dense": {name: best / us[name] for name in names},
                "over_fp8_dense": {name: us["dense fp8"] / us[name] for name in names},
            }
        )
        del graphs, keep
        torch.cuda.empty_cache()
    return {"rows": rows}


def candidates(rounds: int = 5, shapes: tuple[Shape, ...] = PROBES, name: str = "24 mixed") -> Row:
    """us a layer of every configuration and count of splits, at one budget."""
    mix, rows = MIXES[name], []
    tried = [*CANDIDATES, *(replace(config, apart=True) for config in CANDIDATES)]
    good = [config for config in tried if right(SHAPES[0], mix, config, 3)]
    for shape in shapes:
        keep: list[Any] = []
        count = layers_for(shape.B * shape.Hkv * (shape.N * 24 + shape.M * 512), largest=128)
        graphs: dict[str, Captured] = {}
        keep.append([make(shape, mix, seed) for seed in range(count)])
        for config in good:
            if config.apart != (shape.B == 1):
                continue
            for splits in _counts(shape, config):
                graphs[f"{_named(config)} x{splits}"] = graph_of(keep[-1], shape, config, splits)
        times = interleaved(graphs, count, rounds, 800)
        us = {name: round(t.us, 2) for name, t in sorted(times.items(), key=lambda x: x[1].us)}
        rows.append({"shape": str(shape), "us": us})
        del graphs, keep
        torch.cuda.empty_cache()
    return {"rows": rows, "refused": [_named(c) for c in tried if c not in good]}


def _named(config: PlanesConfig) -> str:
    apart = ",apart" if config.apart else ""
    return f"R{config.tiles},w{config.warps},s{config.stages}{apart}"


def _counts(shape: Shape, config: PlanesConfig) -> list[int]:
    """Splits that make 2 to 16 programs a multiprocessor, or what there is."""
    groups, rows = -(-shape.N // (TILE * config.tiles)), shape.B * shape.Hkv
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    wanted = {max(1, min(groups, round(sms * per_sm / rows))) for per_sm in (1, 2, 3, 4, 8)}
    return sorted(-(-groups // -(-groups // count)) for count in wanted)


def packing(rounds: int = 9, N: int = 2880) -> Row:
    """us that Keys and Values of all layers take to be projected, quantised and packed."""
    rows = []
    for name, layers, Hkv in (("Llama3-8B", 32, 8), ("Qwen2.5-VL-7B", 28, 4)):
        states = torch.randn(layers, Hkv, N, 128, device="cuda", dtype=torch.bfloat16)
        basis = torch.linalg.qr(torch.randn(layers, Hkv, 128, 128, device="cuda"))[0][..., :32]
        mean = states.float().mean(2)
        counts = torch.tensor(MIXES["24"][0][0], dtype=torch.int32, device="cuda")
        counts = counts.expand(layers, Hkv, 4).contiguous()
        steps = torch.full((layers, Hkv, 32), 0.6, device="cuda")
        plain, _ = pack((states.float() - mean[:, :, None]) @ basis, counts, steps)
        wrong = float((pack_states(states, mean, basis, counts, steps)[0] != plain).float().mean())
        us = []
        for _ in range(rounds):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for values in (False, True):
                pack_states(states, mean, basis, counts, steps, values)
            end.record()
            end.synchronize()
            us.append(start.elapsed_time(end) * 1e3)
        rows.append({"model": name, "us": sorted(us)[rounds // 2], "words_that_differ": wrong})
    return {"rows": rows}
