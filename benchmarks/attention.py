"""Attention of one decode step over k channels and packed digits, beside dense kernels.

Every layer has buffers of its own and one graph replays all of them, so the L2 is cold; the arms of
a shape take turns. Each arm's first and last row are compared with plain PyTorch first: one that
disagrees, or cannot run, is refused and has no time. Digits are named by bytes a token and head of
Keys and of Values.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.timing import capture, interleaved, layers_for, read_bandwidth, read_only
from kernels.attention_launch import attend_triton
from kernels.packed_attention_launch import attend_packed
from kernels.planes import GRANULE, TILE, Planes, depths_of, granules, samples
from kernels.reference import Narrow, Packed, Text, Visual, attend_reference

Counts = tuple[tuple[int, ...], ...]  # channels with a digit of each level; heads take turns
DIGITS: Final[dict[str, tuple[Counts, Counts]]] = {  # of the Keys and of the Values
    "16": (((32, 0, 0, 0),), ((32, 0, 0, 0),)),
    "24": (((32, 16, 0, 0),), ((32, 16, 0, 0),)),
    "24 mixed": (
        ((16, 0, 0, 0), (32, 16, 0, 0), (48, 16, 16, 0), (32, 16, 0, 0)),
        ((48, 16, 0, 0), (16, 0, 0, 0), (16, 16, 0, 0), (32, 16, 16, 16)),
    ),
    "64": (((64, 32, 16, 16),), ((64, 32, 16, 16),)),
}
BF16: Final = torch.bfloat16
BAR: Final = 5e-2  # the most that bf16 may differ from plain PyTorch
DENSE: Final = ("our dense", "flash", "cudnn")


@dataclass(frozen=True)
class Shape:
    """One layer's step: Hq / Hkv heads of width d, B rows, N visual and M text tokens."""

    Hq: int
    Hkv: int
    B: int
    N: int
    M: int = 64
    d: int = 128

    def nbytes(self, visual: float) -> int:
        """Bytes that a call reads, with so many a visual token and head."""
        return round(self.B * self.Hkv * (self.N * visual + self.M * 4 * self.d))


@dataclass(frozen=True)
class Arm:
    """attend(q, visual, text, scale) over a layer that `make` draws, of `visual` bytes a token."""

    attend: Callable[..., Tensor]
    make: Callable[[Shape, torch.Generator], tuple[Tensor, Visual, Text]]
    visual: float


def draw(generator: torch.Generator, *size: int) -> Tensor:
    return torch.randn(*size, generator=generator, device=generator.device, dtype=BF16)


def ends(shape: Shape, generator: torch.Generator) -> tuple[Tensor, Text]:
    """The query and the text."""
    q = draw(generator, shape.B, shape.Hq, 1, shape.d)
    keys, values = (draw(generator, shape.B, shape.Hkv, shape.M, shape.d) for _ in range(2))
    return q, Text(keys, values)


def channels(k: int, shape: Shape, generator: torch.Generator) -> tuple[Tensor, Narrow, Text]:
    """k rotated Key channels, and whole Values."""
    grid, d = (shape.B, shape.Hkv), shape.d
    q, text = ends(shape, generator)
    basis = torch.linalg.qr(draw(generator, d, k).float())[0].to(BF16)
    visual = Narrow(
        draw(generator, *grid, shape.N, k), draw(generator, *grid, shape.N, d),
        basis=basis.expand(*grid, d, k).contiguous(), mean=draw(generator, *grid, d) / 8,
    )  # fmt: skip
    return q, visual, text


def dense(shape: Shape, generator: torch.Generator) -> tuple[Tensor, Narrow, Text]:
    """Whole Keys and Values in one buffer with the text's, as all dense kernels read them."""
    q, text = ends(shape, generator)
    size = (shape.B, shape.Hkv, shape.N + shape.M, shape.d)
    whole = Narrow(draw(generator, *size), draw(generator, *size))
    return q, whole, Text(text.keys[:, :, :0], text.values[:, :, :0])


def digits(name: str, shape: Shape, generator: torch.Generator) -> tuple[Tensor, Packed, Text]:
    """Random digits in int8 bases."""
    q, text = ends(shape, generator)
    mean, shift = (draw(generator, shape.B, shape.Hkv, shape.d) / 8 for _ in range(2))
    keys, values = (planes(counts, shape, generator) for counts in DIGITS[name])
    return q, Packed(keys, values, shape.N, None, mean, shift), text


def planes(counts: Counts, shape: Shape, generator: torch.Generator) -> Planes:
    """Random digits; every channel is as large as one of 2 bits."""
    heads, device = shape.B * shape.Hkv, generator.device
    levels = torch.tensor([counts[head % len(counts)] for head in range(heads)], dtype=torch.int32)
    words = granules(levels).long() * (-(-shape.N // TILE) * GRANULE**2)
    own = levels[:, 0]
    drawn = partial(torch.randint, device=device, generator=generator)
    data = drawn(-(1 << 15), 1 << 15, (int(words.sum()),), dtype=torch.int16)
    basis = drawn(-127, 128, (int(own.sum()), shape.d), dtype=torch.int8)
    depths = torch.cat([depths_of(level, int(level[0])) for level in levels])
    grid = (shape.B, shape.Hkv)
    return Planes(
        data, levels.view(*grid, 4).to(device), (words.cumsum(0) - words).view(grid).to(device),
        basis, (8e-3 / 4.0 ** (depths // 2)).to(device),
        (own.cumsum(0) - own).view(grid).int().to(device), int(granules(levels).max()),
    )  # fmt: skip


def library(backend: SDPBackend, q: Tensor, visual: Narrow, text: Text, scale: float) -> Tensor:
    """PyTorch's attention with one backend, one query token, no mask, grouped heads."""
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(
            q, visual.keys, visual.values, scale=scale, enable_gqa=True
        )


def arms_of(k: list[int], mixes: list[str]) -> dict[str, Arm]:
    """Every arm by name."""
    d = Shape.d
    found = {f"k={each}": Arm(attend_triton, partial(channels, each), 2 * (each + d)) for each in k}
    for name in mixes:
        size = sum(sum(map(sum, side)) / len(side) / 4 for side in DIGITS[name])
        found[f"digits {name}"] = Arm(attend_packed, partial(digits, name), size)
    found["our dense"] = Arm(attend_triton, dense, 4 * d)
    for name, backend in zip(
        DENSE[1:], (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION), strict=True
    ):
        found[name] = Arm(partial(library, backend), dense, 4 * d)
    return found


def gap(arm: Arm, layer: tuple[Tensor, Visual, Text], scale: float) -> float:
    """The largest difference from plain PyTorch, of the first and the last row."""
    q, visual, text = layer
    got, worst = arm.attend(*layer, scale), 0.0
    for row in {0, len(q) - 1}:
        keep = torch.tensor([row], device=q.device)
        fields: dict[str, Any] = {
            name: samples(part, keep) if isinstance(part, Planes) else part[keep]
            for name, part in visual._asdict().items()
            if isinstance(part, Tensor | Planes)
        }
        own = Text(text.keys[keep], text.values[keep])
        want = attend_reference(q[keep], visual._replace(**fields), own, scale)
        worst = max(worst, float((got[keep].float() - want.float()).abs().max()))
    return worst


def measure(shape: Shape, arms: dict[str, Arm], rounds: int, device: str) -> Iterator[dict]:
    """A row an arm: us a layer with its quartiles, bytes over the read bandwidth of the same run,
    and the speed over the best dense kernel and our dense one."""
    known = {"heads": f"{shape.Hq}/{shape.Hkv}", "B": shape.B, "N": shape.N}
    count = 1 if device == "cpu" else layers_for(shape.nbytes(2 * shape.d))
    scale = shape.d**-0.5
    sizes = {arm.make: shape.nbytes(arm.visual) for arm in arms.values()}
    if device != "cpu" and sum(sizes.values()) * count > 0.9 * torch.cuda.mem_get_info()[0]:
        yield known | {"left_out": "more than this GPU's memory"}
        return
    made: dict[Any, list[tuple[Tensor, Visual, Text]]] = {}
    replays: dict[str, Callable[[], object]] = {}
    for name, arm in arms.items():
        layers = made.setdefault(arm.make, [])
        if not layers:
            seeds = (torch.Generator(device).manual_seed(seed) for seed in range(count))
            layers += [arm.make(shape, seed) for seed in seeds]
        try:
            worst = gap(arm, layers[0], scale)
            if not worst <= BAR:
                raise ValueError(f"differs from plain PyTorch by {worst:.2g}")
            replays[name] = capture([partial(arm.attend, *each, scale) for each in layers], device)
        except (RuntimeError, ValueError) as error:
            yield known | {"arm": name, "refused": f"{type(error).__name__} {str(error)[:100]}"}
    floor = torch.ones(max(1, shape.nbytes(2 * shape.d) // 4), dtype=torch.int32, device=device)
    times = interleaved(replays, count, rounds, device)
    read = interleaved({"": capture([read_only(floor)], device)}, 1, rounds, device)[""][0]
    best = min((times[name][0] for name in DENSE if name in times), default=float("nan"))
    for name, (us, low, high) in times.items():
        size = shape.nbytes(arms[name].visual)
        row = known | {"arm": name, "us": us, "low": low, "high": high, "MB": size / 1e6}
        row |= {"bytes_per_s": size / us * 1e6, "over_best_dense": best / us}
        if "our dense" in times:
            row["over_our_dense"] = times["our dense"][0] / us
        yield row
    yield known | {"arm": "read only", "us": read, "MB": floor.nbytes / 1e6}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--tokens", type=int, nargs="+", default=[2880, 16384, 65536])
    parser.add_argument("--heads", nargs="+", default=["32/8", "28/4"], help="query/key heads")
    parser.add_argument("--k", type=int, nargs="*", default=[32], help="channels that are kept")
    parser.add_argument("--digits", nargs="*", choices=DIGITS, default=["24", "64"])
    parser.add_argument("--text", type=int, default=64, help="text tokens")
    parser.add_argument("--rounds", type=int, default=11, help="how often the arms take turns")


def run(options: argparse.Namespace) -> Iterator[dict]:
    device = "cpu" if options.tiny else "cuda"
    arms = arms_of(options.k, options.digits)
    yield {"arm": "read bandwidth", "bytes_per_s": read_bandwidth(device, options.rounds)}
    if options.tiny:
        yield from measure(Shape(4, 2, 2, 70, 8), arms, options.rounds, device)
        return
    for heads in options.heads:
        Hq, Hkv = map(int, heads.split("/"))
        for B in options.batch:
            for N in options.tokens:
                shape = Shape(Hq, Hkv, B, N, options.text)
                yield from measure(shape, arms, options.rounds, device)
                torch.cuda.empty_cache()
