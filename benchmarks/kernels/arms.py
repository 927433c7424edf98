"""The arms of the attention benchmarks: inputs of one shape, and every rival over them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.attention_launch import attend_triton
from kernels.reference import Text, Visual, attend_reference

from .cases import FP8
from .paper_kernels import attend_paper

Call = Callable[[], Tensor]


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


def reconstruct(layer: Layer, shape: Shape, index: Tensor) -> Call:
    """ThinK as the paper times it: scatter the kept channels into dense Keys, join, attend."""

    def call() -> Tensor:
        B, Hkv, N, _ = layer.visual.keys.shape
        dense = layer.q.new_zeros(B, Hkv, N, shape.d)
        where = index[:, :, None].expand(-1, -1, N, -1)
        dense.scatter_(-1, where, layer.visual.keys)
        keys = torch.cat([dense, layer.text.keys], 2)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(
                layer.q, keys, layer.values, scale=shape.scale, enable_gqa=True
            )

    return call


def reconstruct_tokens(layer: Layer, shape: Shape, mask: Tensor, fill: Tensor) -> Call:
    """SparK: every token has its own channels, and pruned ones a recovered magnitude.

    mask: [B, Hkv, N, d] bool; fill: [B, Hkv, N, 1].
    """

    def call() -> Tensor:
        dense = fill.expand_as(mask).clone()
        dense.masked_scatter_(mask, layer.visual.keys)
        keys = torch.cat([dense, layer.text.keys], 2)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(
                layer.q, keys, layer.values, scale=shape.scale, enable_gqa=True
            )

    return call


def right(layer: Layer, shape: Shape, call: Call, dense: bool) -> bool:
    """Whether the call's first and last rows agree with the reference (bf16 bar 5e-2)."""
    got = call()
    for row in {0, shape.B - 1}:
        keep = slice(row, row + 1)
        visual = layer.dense if dense else layer.visual
        rows = {name: value[keep] for name, value in visual._asdict().items() if _is_tensor(value)}
        text = Text(layer.text.keys[keep], layer.text.values[keep])
        want = attend_reference(layer.q[keep], visual._replace(**rows), text, shape.scale)
        if not bool((got[keep].float() - want.float()).abs().max() <= 5e-2):
            return False
    return True


def _is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)
