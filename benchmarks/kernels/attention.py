"""Attention over shapes, latency at B = 1, ragged batches, narrow caches, rebuilt Keys."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from benchmarks.timing import Captured, capture, layers_for, read_bandwidth
from kernels.reference import attend_reference

from . import arms
from .arms import CUDNN, FLASH, PACKS, Layer, Row, Shape, timed, us_of

GIB = 1 << 30
HEADS = ((32, 8), (28, 4))
NARROW: Final = (
    "bf16 k=32", "bf16 K, fp8 V", "fp8 K, fp8 V", "int8 K, int8 V", "k=32, r=32", "k=16, r=16",
    "dense fp8",
)  # fmt: skip


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


def attention(full: bool = False, rounds: int = 11) -> Row:
    """Ours, ours dense, the paper's kernels, FlashAttention and cuDNN on every shape."""
    bandwidth = read_bandwidth()
    refused: list[str] = []

    def row(shape: Shape) -> Row:
        count = layers_for(shape.cache_bytes)
        layers = arms.make_layers(shape, count)
        makers: dict[str, tuple[Callable[[Layer], arms.Call], bool]] = {
            "ours": (lambda layer: arms.ours(layer, shape), False),
            "ours dense": (lambda layer: arms.ours_dense(layer, shape), True),
            "flash": (lambda layer: arms.library(layer, shape, FLASH), True),
            "cudnn": (lambda layer: arms.library(layer, shape, CUDNN), True),
        }
        if shape.k & (shape.k - 1) == 0:  # the paper's kernels take powers of two
            makers["paper"] = (lambda layer: arms.paper(layer, shape), False)
        graphs = _graphs(layers, shape, makers, refused)
        graphs["read only"] = arms.floor_graph(shape, count)
        found = timed(shape, graphs, count, rounds)
        return found | ratios(shape, us_of(found), bandwidth)

    rows = arms.rows_of(shapes(full), row)
    return {"read_bytes_per_s": bandwidth, **rows, "refused": refused}


def ratios(shape: Shape, us: dict[str, float], bandwidth: float) -> Row:
    """Ratios of one shape's times, and the share of the read bandwidth; none without ours."""
    if "ours" not in us:
        return {}
    mine = us["ours"]
    row: Row = {
        "bandwidth_share": shape.cache_bytes / (mine * 1e-6) / bandwidth,
        "mib": shape.cache_bytes / (1 << 20),
    }
    dense = {n: us[n] for n in ("ours dense", "flash", "cudnn") if n in us}
    if dense:
        row["best_dense"] = min(dense, key=dense.__getitem__)
        row["over_best_dense"] = min(dense.values()) / mine
    if own := dense.pop("ours dense", None):
        row["over_own_dense"] = own / mine
        if dense:
            row["own_dense_over_other"] = min(dense.values()) / own
    if "paper" in us:
        row["over_paper"] = us["paper"] / mine
    return row


def latency(rounds: int = 11) -> Row:
    """One call at B = 1 in a graph, with and without programmatic dependent launch."""

    def row(shape: Shape) -> Row:
        count = layers_for(shape.cache_bytes)
        layers = arms.make_layers(shape, count)
        graphs = {
            name: capture([arms.ours(layer, shape, pdl=pdl) for layer in layers])
            for name, pdl in (("early launch", True), ("plain", False))
        }
        graphs["read only"] = arms.floor_graph(shape, count)
        return timed(shape, graphs, count, rounds)

    grid = [Shape(Hq, Hkv, 1, N) for Hq, Hkv in HEADS for N in (576, 2880, 16384)]
    return arms.rows_of(grid, row)


def ragged(rounds: int = 11, count: int = 4) -> Row:
    """Rows of very different length in one call, against the same tokens laid out evenly."""
    lengths = torch.tensor([16384, 8192, 4096, 2048, 16384, 1024, 512, 256], device="cuda")
    lengths = lengths.to(torch.int32)

    def row(shape: Shape) -> Row:
        layers = arms.make_layers(shape, count, dense=False)
        cut = [replace(layer, visual=layer.visual._replace(lengths=lengths)) for layer in layers]
        even = replace(shape, N=int(lengths.sum()) // shape.B)
        flat = arms.make_layers(even, count, dense=False)
        if not _ragged_right(cut[0], shape, lengths):
            raise ValueError("ragged call disagrees with the reference")
        graphs = {
            "ragged": capture([arms.ours(layer, shape) for layer in cut]),
            "even, same tokens": capture([arms.ours(layer, even) for layer in flat]),
            "padded": capture([arms.ours(layer, shape) for layer in layers]),
        }
        return timed(shape, graphs, count, rounds)

    return arms.rows_of([Shape(Hq, Hkv, B=8, N=16384) for Hq, Hkv in HEADS], row)


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


def quant(rounds: int = 11, count: int = 4) -> Row:
    """8-bit caches and rotated Values against bf16 dense and fp8 dense, with output errors."""

    def row(base: Shape) -> Row:
        graphs, error = {}, {}
        keep = []  # the graphs read these buffers
        for name in NARROW:
            shape = replace(base, **PACKS[name])
            layers = arms.make_layers(shape, count, dense=False)
            keep.append(layers)
            if not arms.right(layers[0], shape, arms.ours(layers[0], shape), False):
                raise ValueError(f"{name}: disagrees with the reference")
            graphs[name] = capture([arms.ours(layer, shape) for layer in layers])
            error[name] = _storage_error(shape)
        keep.append(arms.make_layers(base, count))
        found = timed(base, graphs | arms.rivals(keep[-1], base), count, rounds)
        found |= arms.gains(us_of(found), NARROW)
        return found | {"relative_output_error_of_storage": error}

    return arms.rows_of([Shape(Hq, Hkv, B, 16384) for Hq, Hkv in HEADS for B in (8, 32)], row)


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
    sizes = ((1, 2880), (8, 2880), (8, 16384))
    grid = [Shape(Hq, Hkv, B, N) for Hq, Hkv in HEADS for B, N in sizes]
    return arms.rows_of(grid, lambda shape: _baseline_row(shape, rounds))


def _own_values(layer: Layer) -> Layer:
    """The layer whose rebuilt Keys meet the Values of the compressed cache."""
    return replace(layer, values=torch.cat([layer.visual.values, layer.text.values], 2))


def _baseline_row(shape: Shape, rounds: int, count: int = 4) -> Row:
    layers = [_own_values(layer) for layer in arms.make_layers(shape, count)]
    index = torch.rand(shape.B, shape.Hkv, shape.d, device="cuda").argsort(-1)[..., : shape.k]
    think = [
        replace(layer, visual=layer.visual._replace(basis=None, mean=None, index=index))
        for layer in layers
    ]
    full = (shape.B, shape.Hkv, shape.N, shape.d)
    ranks = torch.rand(full, device="cuda", dtype=torch.bfloat16).argsort(-1)
    mask = ranks < shape.k
    fill = torch.rand(*full[:3], 1, device="cuda", dtype=torch.bfloat16)

    def scattered(layer: Layer) -> Tensor:
        return arms.scatter(layer.visual.keys, index, shape.d)

    def filled(layer: Layer) -> Tensor:
        return arms.fill_in(layer.visual.keys, mask, fill)

    gathered = arms.ours(think[0], shape)().float()
    if not bool(
        (gathered - arms.rebuilt(think[0], shape, scattered)().float()).abs().max() <= 5e-2
    ):
        raise ValueError("ThinK's gather and its reconstruction disagree")
    calls = {
        "ours": [arms.ours(layer, shape) for layer in layers],
        "ThinK, gathered query": [arms.ours(layer, shape) for layer in think],
        "dense flash": [arms.library(layer, shape, FLASH) for layer in layers],
        "ThinK, rebuilt": [arms.rebuilt(layer, shape, scattered) for layer in layers],
        "SparK, rebuilt": [arms.rebuilt(layer, shape, filled) for layer in layers],
    }
    graphs = {name: capture(each) for name, each in calls.items()}
    return timed(shape, graphs, count, rounds)
