"""The arms of the attention benchmarks: inputs of one shape, and every rival over them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.timing import Captured, capture, interleaved, plain, read_only
from kernels.attention_launch import attend_triton
from kernels.reference import Text, Visual, attend_reference

from .cases import FP8
from .paper_kernels import attend_paper

Call = Callable[[], Tensor]
Row = dict[str, Any]
FLASH, CUDNN = SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION
PACKS: Final[dict[str, dict[str, Any]]] = {  # ways to store the cache, as changes to a shape
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


@dataclass(frozen=True)
class Shape:
    """One decode step of one layer: Hq / Hkv heads, B rows, N visual and M text tokens."""

    Hq: int = 32
    Hkv: int = 8
    B: int = 1
    N: int = 2880
    M: int = 64
    k: int = 32
    r: int | None = None  # rotated Value channels; None keeps all d
    d: int = 128
    keys: torch.dtype = torch.bfloat16
    values: torch.dtype = torch.bfloat16

    @property
    def scale(self) -> float:
        return self.d**-0.5

    @property
    def row_bytes(self) -> int:
        """Bytes of one token's Keys and Values, scales not counted."""
        return self.k * self.keys.itemsize + (self.r or self.d) * self.values.itemsize

    @property
    def cache_bytes(self) -> int:
        """Bytes a layer's call must read from the cache (scales counted, R and q not)."""
        row = self.row_bytes
        if self.values.itemsize == 1:
            row += 2  # a float16 scale a token
        return self.B * self.Hkv * (self.N * row + self.M * 2 * self.d * 2)

    @property
    def dense_bytes(self) -> int:
        return replace(self, k=self.d, r=None, keys=BF16, values=BF16).cache_bytes

    def __str__(self) -> str:
        heads = f"{self.Hq}/{self.Hkv}"
        return f"{heads} B={self.B} N={self.N} M={self.M} k={self.k}"


BF16 = torch.bfloat16


@dataclass(frozen=True)
class Layer:
    """One layer's buffers: the same query, full caches and a compressed visual cache."""

    q: Tensor
    visual: Visual
    text: Text
    dense: Visual | None
    keys: Tensor | None  # [B, Hkv, N + M, d], for the library kernels
    values: Tensor | None


def make_layer(shape: Shape, seed: int, dense: bool = True) -> Layer:
    """Random buffers on the GPU; `dense` adds the full-width copies that the rivals read."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    B, Hkv, N, M, d = shape.B, shape.Hkv, shape.N, shape.M, shape.d

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, device="cuda", dtype=BF16)

    q = draw(B, shape.Hq, 1, d)
    text = Text(draw(B, Hkv, M, d), draw(B, Hkv, M, d))
    basis = torch.linalg.qr(draw(d, shape.k).float())[0].to(BF16)
    basis = basis.expand(B, Hkv, d, shape.k).contiguous()
    visual = Visual(draw(B, Hkv, N, shape.k), draw(B, Hkv, N, shape.r or d))
    visual = visual._replace(basis=basis, mean=draw(B, Hkv, d) / 8)
    if shape.r:
        visual = visual._replace(value_basis=draw(B, Hkv, shape.r, d) / d**0.5)
    visual = narrow(visual, shape)
    if not dense:
        return Layer(q, visual, text, None, None, None)
    full = Visual(draw(B, Hkv, N, d), draw(B, Hkv, N, d))
    keys = torch.cat([full.keys, text.keys], 2)
    values = torch.cat([full.values, text.values], 2)
    return Layer(q, visual, text, full, keys, values)


def narrow(visual: Visual, shape: Shape) -> Visual:
    """Store Keys and Values in the shape's types, with scales for 8 bits."""
    if shape.keys.itemsize == 1:
        scale = visual.keys.abs().amax(2).float() / _top(shape.keys)
        stored = _cast(visual.keys.float() / scale[:, :, None], shape.keys)
        visual = visual._replace(keys=stored, key_scale=scale)
    if shape.values.itemsize == 1:
        scale = visual.values.abs().amax(-1).float() / _top(shape.values)
        stored = _cast(visual.values.float() / scale[..., None], shape.values)
        top = scale.amax(-1)
        share = (scale / top[..., None]).half()
        visual = visual._replace(values=stored, value_scale=share, value_top=top)
    return visual


def _top(dtype: torch.dtype) -> float:
    return 448.0 if dtype == FP8 else 127.0


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    top = _top(dtype)
    return (tensor if dtype == FP8 else tensor.round()).clamp(-top, top).to(dtype)


def ours(layer: Layer, shape: Shape, **options: object) -> Call:
    return lambda: attend_triton(layer.q, layer.visual, layer.text, shape.scale, **options)


def ours_dense(layer: Layer, shape: Shape, **options: object) -> Call:
    return lambda: attend_triton(layer.q, layer.dense, layer.text, shape.scale, **options)


def paper(layer: Layer, shape: Shape) -> Call:
    return lambda: attend_paper(layer.q, layer.visual, layer.text, shape.scale)


def library(layer: Layer, shape: Shape, backend: SDPBackend) -> Call:
    """PyTorch's attention with one backend, q_len 1, no mask, grouped heads."""

    def call() -> Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(
                layer.q, layer.keys, layer.values, scale=shape.scale, enable_gqa=True
            )

    return call


def rebuilt(layer: Layer, shape: Shape, recover: Callable[[Layer], Tensor]) -> Call:
    """A channel method as the paper times it: recover dense Keys, join the text's, attend."""

    def call() -> Tensor:
        keys = torch.cat([recover(layer), layer.text.keys], 2)
        with sdpa_kernel(FLASH):
            return F.scaled_dot_product_attention(
                layer.q, keys, layer.values, scale=shape.scale, enable_gqa=True
            )

    return call


def scatter(kept: Tensor, index: Tensor, d: int) -> Tensor:
    """ThinK's dense Keys [B, Hkv, N, d]: channels index [B, Hkv, k] of all tokens, else zero."""
    dense = kept.new_zeros(*kept.shape[:3], d)
    return dense.scatter_(-1, index[:, :, None].expand_as(kept), kept)


def fill_in(kept: Tensor, mask: Tensor, fill: Tensor) -> Tensor:
    """SparK's dense Keys: every token has its own channels, and pruned ones a magnitude.

    mask: [B, Hkv, N, d] bool; fill: [B, Hkv, N, 1].
    """
    dense = fill.expand_as(mask).clone()
    return dense.masked_scatter_(mask, kept)


def make_layers(shape: Shape, count: int, dense: bool = True) -> list[Layer]:
    """Layers with buffers of their own."""
    return [make_layer(shape, seed, dense) for seed in range(count)]


def rivals(layers: Sequence[Layer], shape: Shape) -> dict[str, Captured]:
    """Graphs of dense attention over all layers: ours and both libraries'."""
    graphs = {"dense bf16": capture([ours_dense(layer, shape) for layer in layers])}
    for backend in (FLASH, CUDNN):
        graphs[backend.name.lower()] = capture([library(each, shape, backend) for each in layers])
    return graphs


def gains(us: Mapping[str, float], names: Iterable[str]) -> Row:
    """The speed of each arm relative to the best of `rivals` and to our dense fp8."""
    best = min(us[name] for name in ("dense bf16", "flash_attention", "cudnn_attention"))
    return {
        "over_best_dense": {name: best / us[name] for name in names},
        "over_fp8_dense": {name: us["dense fp8"] / us[name] for name in names},
    }


def timed(shape: Shape, graphs: dict[str, Captured], count: int, rounds: int) -> Row:
    """The row of one shape: graphs of so many layers in turn."""
    fields = {k: str(v) if isinstance(v, torch.dtype) else v for k, v in asdict(shape).items()}
    return {"shape": fields, "times": plain(interleaved(graphs, count, rounds))}


def us_of(row: Row) -> dict[str, float]:
    """The medians of a row's times."""
    return {name: timing["us"] for name, timing in row["times"].items()}


def floor_graph(shape: Shape, count: int) -> Captured:
    """A read-only launch over as many bytes as each layer's cache has."""
    words = max(shape.cache_bytes // 4, 1)
    buffers = [torch.ones(words, dtype=torch.int32, device="cuda") for _ in range(count)]
    return capture([read_only(buffer) for buffer in buffers])


def rows_of(shapes: Iterable[Any], row: Callable[[Any], Row]) -> Row:
    """A row a shape, with the memory given back after each."""
    rows = []
    for shape in shapes:
        rows.append(row(shape))
        torch.cuda.empty_cache()
    return {"rows": rows}


def right(layer: Layer, shape: Shape, call: Call, dense: bool) -> bool:
    """Whether the call's first and last rows agree with the reference (bf16 bar 5e-2)."""
    got = call()
    for row in {0, shape.B - 1}:
        keep = slice(row, row + 1)
        visual = layer.dense if dense else layer.visual
        rows = {n: v[keep] for n, v in visual._asdict().items() if isinstance(v, Tensor)}
        text = Text(layer.text.keys[keep], layer.text.values[keep])
        want = attend_reference(layer.q[keep], visual._replace(**rows), text, shape.scale)
        if not bool((got[keep].float() - want.float()).abs().max() <= 5e-2):
            return False
    return True
