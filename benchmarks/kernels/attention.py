"""Benchmarks A to D: attention over shapes, latency at B = 1, ragged batches, 8-bit caches."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from kernels.reference import attend_reference

from . import arms
from .arms import Layer, Shape
from .cases import FP8
from .timing import Captured, Timing, capture, interleaved, layers_for, read_bandwidth, read_only

GIB = 1 << 30
HEADS = ((32, 8), (28, 4))
Row = dict[str, Any]


def shapes(full: bool) -> Iterator[Shape]:
    """The grid of the goals table; `full` is the whole grid that fits the memory."""
    if not full:
        for Hq, Hkv in HEADS:
            for B in (1, 8, 32):
                yield from (Shape(Hq, Hkv, B, N) for N in (576, 2880, 16384) if B == 1 or N > 576)
        yield Shape(B=8, N=16384, k=48)
        yield Shape(B=8, N=16384, k=64)
        return
    for Hq, Hkv in HEADS:
        for B in (1, 4, 8, 16, 32):
            for N in (576, 2880, 8192, 16384, 32768, 65536):
                for M in (64, 1024):
                    shape = Shape(Hq, Hkv, B, N, M)
                    if shape.dense_bytes * 2.7 * 4 < 100 * GIB:
                        yield shape


def _graphs(
    layers: list[Layer],
    shape: Shape,
    makers: dict[str, tuple[Callable[[Layer], arms.Call], bool]],
    refused: list[str],
) -> dict[str, Captured]:
    """One graph an arm over all layers; an arm that is wrong or cannot run is refused."""
    graphs = {}
    for name, (maker, dense) in makers.items():
        try:
            if not arms.right(layers[0], shape, maker(layers[0]), dense):
                raise ValueError("disagrees with the reference")
            graphs[name] = capture([maker(layer) for layer in layers])
        except (RuntimeError, ValueError) as error:
            refused.append(f"{shape}: {name}: {type(error).__name__} {str(error)[:80]}")
    return graphs


def attention(full: bool = False, rounds: int = 15) -> Row:
    """A: ours, ours dense, the paper's kernels, FlashAttention and cuDNN on every shape."""
    bandwidth = read_bandwidth()
    refused: list[str] = []
    rows = [_attention_row(shape, bandwidth, refused, rounds) for shape in shapes(full)]
    return {"read_bytes_per_s": bandwidth, "rows": rows, "refused": refused}


def _attention_row(shape: Shape, bandwidth: float, refused: list[str], rounds: int) -> Row:
    count = layers_for(shape.cache_bytes)
    layers = [arms.make_layer(shape, seed) for seed in range(count)]
    makers: dict[str, tuple[Callable[[Layer], arms.Call], bool]] = {
        "ours": (lambda layer: arms.ours(layer, shape), False),
        "ours dense": (lambda layer: arms.ours_dense(layer, shape), True),
        "flash": (lambda layer: arms.library(layer, shape, SDPBackend.FLASH_ATTENTION), True),
        "cudnn": (lambda layer: arms.library(layer, shape, SDPBackend.CUDNN_ATTENTION), True),
    }
    if shape.k & (shape.k - 1) == 0:  # the paper's kernels take powers of two
        makers["paper"] = (lambda layer: arms.paper(layer, shape), False)
    graphs = _graphs(layers, shape, makers, refused)
    graphs["read only"] = _floor_graph(shape.cache_bytes, count)
    times = interleaved(graphs, count, rounds)
    row = summary(shape, times, bandwidth)
    del graphs, layers
    torch.cuda.empty_cache()
    return row


def _floor_graph(cache_bytes: int, count: int) -> Captured:
    buffers = [
        torch.ones(max(cache_bytes // 4, 1), dtype=torch.int32, device="cuda") for _ in range(count)
    ]
    return capture([read_only(buffer) for buffer in buffers])


def summary(shape: Shape, times: dict[str, Timing], bandwidth: float) -> Row:
    """The row of one shape: times, ratios and the share of the read bandwidth."""
    us = {name: timing.us for name, timing in times.items()}
    row: Row = {"shape": _plain(shape), "times": {n: asdict(t) for n, t in times.items()}}
    if "ours" not in us:
        return row
    dense = {n: us[n] for n in ("ours dense", "flash", "cudnn") if n in us}
    mine = us["ours"]
    row["bandwidth_share"] = shape.cache_bytes / (mine * 1e-6) / bandwidth
    row["mib"] = shape.cache_bytes / (1 << 20)
    if dense:
        row["best_dense"] = min(dense, key=dense.__getitem__)
        row["over_best_dense"] = min(dense.values()) / mine
    if "ours dense" in us:
        row["over_own_dense"] = us["ours dense"] / mine
        others = [us[n] for n in ("flash", "cudnn") if n in us]
        if others:
            row["own_dense_over_other"] = min(others) / us["ours dense"]
    if "paper" in us:
        row["over_paper"] = us["paper"] / mine
    return row


def _plain(shape: Shape) -> Row:
    return {k: str(v) if isinstance(v, torch.dtype) else v for k, v in asdict(shape).items()}


def latency(rounds: int = 21) -> Row:
    """B: one call at B = 1 in a graph, with and without programmatic dependent launch."""
    rows = []
    for Hq, Hkv in HEADS:
        for N in (576, 2880, 16384):
            shape = Shape(Hq, Hkv, 1, N)
            count = layers_for(shape.cache_bytes)
            layers = [arms.make_layer(shape, seed) for seed in range(count)]
            graphs = {}
            for pdl in (True, False):
                calls = [arms.ours(layer, shape, pdl=pdl) for layer in layers]
                graphs["early launch" if pdl else "plain"] = capture(calls)
            graphs["read only"] = _floor_graph(shape.cache_bytes, count)
            times = interleaved(graphs, count, rounds)
            rows.append({"shape": _plain(shape), "times": {n: asdict(t) for n, t in times.items()}})
    return {"rows": rows}


def ragged(rounds: int = 15) -> Row:
    """C: rows of very different length in one call, against the same tokens laid out evenly."""
    rows = []
    for Hq, Hkv in HEADS:
        shape = Shape(Hq, Hkv, B=8, N=16384)
        lengths = torch.tensor([16384, 8192, 4096, 2048, 16384, 1024, 512, 256], device="cuda")
        lengths = lengths.to(torch.int32)
        count = 4
        layers = [arms.make_layer(shape, seed, dense=False) for seed in range(count)]
        cut = [replace(layer, visual=layer.visual._replace(lengths=lengths)) for layer in layers]
        even = replace(shape, N=int(lengths.sum()) // shape.B)
        flat = [arms.make_layer(even, seed, dense=False) for seed in range(count)]
        if not _ragged_right(cut[0], shape, lengths):
            raise ValueError("ragged call disagrees with the reference")
        graphs = {
            "ragged": capture([arms.ours(layer, shape) for layer in cut]),
            "even, same tokens": capture([arms.ours(layer, even) for layer in flat]),
            "padded": capture([arms.ours(layer, shape) for layer in layers]),
        }
        times = interleaved(graphs, count, rounds)
        rows.append({"shape": _plain(shape), "times": {n: asdict(t) for n, t in times.items()}})
    return {"rows": rows}


def _ragged_right(layer: Layer, shape: Shape, lengths: Tensor) -> bool:
    got = arms.ours(layer, shape)()
    for row in range(shape.B):
        keep, end = slice(row, row + 1), int(lengths[row])
        visual = layer.visual._replace(
            keys=layer.visual.keys[keep, :, :end],
            values=layer.visual.values[keep, :, :end],
            basis=layer.visual.basis[keep],
            mean=layer.visual.mean[keep],
            lengths=None,
        )
        text = type(layer.text)(layer.text.keys[keep], layer.text.values[keep])
        want = attend_reference(layer.q[keep], visual, text, shape.scale)
        if not bool((got[keep].float() - want.float()).abs().max() <= 5e-2):
            return False
    return True


PACKS = {
    "bf16 k=32": {},
    "bf16 K, fp8 V": {"values": FP8},
    "fp8 K, fp8 V": {"keys": FP8, "values": FP8},
    "int8 K, int8 V": {"keys": torch.int8, "values": torch.int8},
    "k=32, r=32": {"r": 32},
    "k=16, r=16": {"k": 16, "r": 16},
    "dense fp8": {"k": 128, "keys": FP8, "values": FP8},
}


def quant(rounds: int = 15, sizes: tuple[tuple[int, int], ...] = ((8, 16384), (32, 16384))) -> Row:
    """D: 8-bit caches and rotated Values against bf16 dense and fp8 dense, with output errors."""
    rows = []
    for Hq, Hkv in HEADS:
        for B, N in sizes:
            rows.append(_quant_row(Shape(Hq, Hkv, B, N), rounds))
            torch.cuda.empty_cache()
    return {"rows": rows}


def _quant_row(base: Shape, rounds: int) -> Row:
    graphs, error, count = {}, {}, 4
    keep = []  # the graphs read these buffers
    for name, change in PACKS.items():
        shape = replace(base, **change)
        layers = [arms.make_layer(shape, seed, dense=False) for seed in range(count)]
        keep.append(layers)
        if not arms.right(layers[0], shape, arms.ours(layers[0], shape), False):
            raise ValueError(f"{name}: disagrees with the reference")
        graphs[name] = capture([arms.ours(layer, shape) for layer in layers])
        error[name] = _storage_error(shape)
    layers = [arms.make_layer(base, seed) for seed in range(count)]
    graphs["dense bf16"] = capture([arms.ours_dense(layer, base) for layer in layers])
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        calls = [arms.library(layer, base, backend) for layer in layers]
        graphs[backend.name.lower()] = capture(calls)
    times = interleaved(graphs, count, rounds)
    us = {name: timing.us for name, timing in times.items()}
    best = min(us[n] for n in ("dense bf16", "flash_attention", "cudnn_attention"))
    return {
        "shape": _plain(base),
        "times": {n: asdict(t) for n, t in times.items()},
        "over_best_dense": {n: best / us[n] for n in PACKS},
        "over_fp8_dense": {n: us["dense fp8"] / us[n] for n in PACKS},
        "relative_output_error_of_storage": error,
    }


def _storage_error(shape: Shape) -> float:
    """Relative output error that 8-bit storage alone adds, on random data (float32 arithmetic)."""
    small = replace(shape, B=1, N=2048)
    wide = replace(small, keys=torch.bfloat16, values=torch.bfloat16)
    packed, exact = arms.make_layer(small, 0, dense=False), arms.make_layer(wide, 0, dense=False)
    got, want = (
        attend_reference(x.q.float(), x.visual, x.text, shape.scale) for x in (packed, exact)
    )
    return float((got - want).norm() / want.norm())


def baselines(rounds: int = 11) -> Row:
    """ThinK and SparK as the paper times them: dense Keys are rebuilt, then attended to."""
    rows = []
    for Hq, Hkv in HEADS:
        for B, N in ((1, 2880), (8, 2880), (8, 16384)):
            rows.append(_baseline_row(Shape(Hq, Hkv, B, N), rounds))
            torch.cuda.empty_cache()
    return {"rows": rows}


def _own_values(layer: Layer) -> Layer:
    """The layer whose rebuilt Keys meet the Values of the compressed cache."""
    return replace(layer, values=torch.cat([layer.visual.values, layer.text.values], 2))


def _baseline_row(shape: Shape, rounds: int) -> Row:
    count = 4
    layers = [_own_values(arms.make_layer(shape, seed)) for seed in range(count)]
    index = torch.rand(shape.B, shape.Hkv, shape.d, device="cuda").argsort(-1)[..., : shape.k]
    think = [
        replace(layer, visual=layer.visual._replace(basis=None, mean=None, index=index))
        for layer in layers
    ]
    full = (shape.B, shape.Hkv, shape.N, shape.d)
    ranks = torch.rand(full, device="cuda", dtype=torch.bfloat16).argsort(-1)
    mask = ranks < shape.k
    fill = torch.rand(*full[:3], 1, device="cuda", dtype=torch.bfloat16)
    gathered = arms.ours(think[0], shape)().float()
    if not bool(
        (gathered - arms.reconstruct(think[0], shape, index)().float()).abs().max() <= 5e-2
    ):
        raise ValueError("ThinK's gather and its reconstruction disagree")
    flash = SDPBackend.FLASH_ATTENTION
    calls = {
        "ours": [arms.ours(layer, shape) for layer in layers],
        "ThinK, gathered query": [arms.ours(layer, shape) for layer in think],
        "dense flash": [arms.library(layer, shape, flash) for layer in layers],
        "ThinK, rebuilt": [arms.reconstruct(layer, shape, index) for layer in layers],
        "SparK, rebuilt": [arms.reconstruct_tokens(layer, shape, mask, fill) for layer in layers],
    }
    graphs = {name: capture(each) for name, each in calls.items()}
    times = interleaved(graphs, count, rounds)
    return {"shape": _plain(shape), "times": {n: asdict(t) for n, t in times.items()}}
