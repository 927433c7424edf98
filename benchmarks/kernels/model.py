"""A decoder of random weights at a real model's shapes: enough to time a whole decode step.

Weights are bf16, joined as q|k|v and gate|up. The small operations between the matrix products are
one Triton launch each; matrix products are streamed by `benchmarks.kernels.linear` where that is
faster, else cuBLAS. A kernel of ours can start while the one before it ends (programmatic dependent
launch) and wait before it touches what others write; `Sizes.overlap` says where that pays. Every
position and length lives on the device, so a captured step serves growing text.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.attention_launch import attend_triton
from kernels.reference import Text, Visual

from .linear import CHOSEN, Tile, linear, overlaps

EPSILON = 1e-6
ROPE_BASE = 500000.0


@dataclass(frozen=True)
class Sizes:
    """Shapes of one decoder. overlap: the most rows of a step whose kernels start early."""

    name: str
    hidden: int
    inner: int
    layers: int
    Hq: int
    Hkv: int
    vocabulary: int
    d: int = 128
    overlap: int = 0

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that one step reads (the embedding's single row is left out)."""
        attention = self.hidden * self.d * (2 * self.Hq + 2 * self.Hkv)
        per_layer = attention + 3 * self.hidden * self.inner + 2 * self.hidden
        return 2 * (self.layers * per_layer + self.hidden * self.vocabulary)

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """(outputs, inputs) of a step's matrix products: q|k|v, out, gate|up, down, head."""
        wide = self.Hq * self.d
        return (
            (wide + 2 * self.Hkv * self.d, self.hidden), (self.hidden, wide),
            (2 * self.inner, self.hidden), (self.hidden, self.inner),
            (self.vocabulary, self.hidden),
        )  # fmt: skip


# ms of a step, dense and k = 32, with early starts against without, on an H200. Llama3-8B: 4.36 and
# 4.37 against 4.51 and 4.46 at B = 1, 8.45 and 7.03 against 8.42 and 6.98 at B = 8. Qwen2.5-VL-7B:
# 4.21 and 4.25 against 3.99 and 3.97 at B = 1, 6.00 and 5.46 against 5.82 and 5.22 at B = 8
LLAMA = Sizes("Llama3-8B", 4096, 14336, 32, 32, 8, 128256, overlap=1)
QWEN = Sizes("Qwen2.5-VL-7B", 3584, 18944, 28, 28, 4, 152064)


@triton.jit
def _norm_kernel(p_x, p_add, p_weight, p_out, H: tl.constexpr, HP: tl.constexpr, PDL: tl.constexpr):
    """x += add (in place); out = rmsnorm(x) * weight; one row a program."""
    if PDL:
        gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64) * H
    o = tl.arange(0, HP)
    m = o < H
    b_w = tl.load(p_weight + o, mask=m, other=0.0).to(tl.float32)
    if PDL:
        gdc_wait()
    b_x = tl.load(p_x + row + o, mask=m, other=0.0).to(tl.float32)
    if p_add is not None:
        b_x += tl.load(p_add + row + o, mask=m, other=0.0).to(tl.float32)
        tl.store(p_x + row + o, b_x.to(p_x.dtype.element_ty), mask=m)
    b_scale = tl.rsqrt(tl.sum(b_x * b_x, 0) / H + 1e-6)
    tl.store(p_out + row + o, (b_x * b_scale * b_w).to(p_out.dtype.element_ty), mask=m)


@triton.jit
def _rope_kernel(
    p_qkv, p_q, p_keys, p_values, p_lengths, s_tb, s_th, Hq, Hkv, visual, log2_base,
    D: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Rotate q and k to position visual + length - 1; append k and v to the text buffers there."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    i_b, i_h = tl.program_id(0), tl.program_id(1)
    heads = Hq + 2 * Hkv
    length = tl.load(p_lengths + i_b)
    o = tl.arange(0, D // 2)
    p_in = p_qkv + (i_b * heads + i_h) * D
    b_a = tl.load(p_in + o).to(tl.float32)
    b_b = tl.load(p_in + D // 2 + o).to(tl.float32)
    if i_h < Hq + Hkv:
        angle = (visual + length - 1).to(tl.float32) * tl.exp2(o * (-2.0 * log2_base / D))
        b_c, b_s = tl.cos(angle), tl.sin(angle)
        b_x = b_a * b_c - b_b * b_s
        b_y = b_b * b_c + b_a * b_s
    else:
        b_x = b_a
        b_y = b_b
    slot = i_b.to(tl.int64) * s_tb + (length - 1).to(tl.int64) * D
    if i_h < Hq:
        p_to = p_q + (i_b * Hq + i_h) * D
    elif i_h < Hq + Hkv:
        p_to = p_keys + slot + (i_h - Hq) * s_th
    else:
        p_to = p_values + slot + (i_h - Hq - Hkv) * s_th
    tl.store(p_to + o, b_x.to(p_to.dtype.element_ty))
    tl.store(p_to + D // 2 + o, b_y.to(p_to.dtype.element_ty))


@triton.jit
def _gate_kernel(p_in, p_out, inner, BLOCK: tl.constexpr, PDL: tl.constexpr):
    """silu(gate) * up from joined rows [gate | up]."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m = o < inner
    b_g = tl.load(p_in + row * 2 * inner + o, mask=m, other=0.0).to(tl.float32)
    b_u = tl.load(p_in + row * 2 * inner + inner + o, mask=m, other=0.0).to(tl.float32)
    b_y = b_g / (1.0 + tl.exp(-b_g)) * b_u
    tl.store(p_out + row * inner + o, b_y.to(p_out.dtype.element_ty), mask=m)


@dataclass
class Cache:
    """One layer's decode cache: a compressed or dense visual part, and growing text buffers."""

    visual: Visual
    text: Text

    @property
    def mask_bytes(self) -> int:
        """Bytes beside both parts."""
        return 0

    def attend(self, q: Tensor, scale: float) -> Tensor:
        """Attention of one step; q [B, Hq, 1, d]."""
        return attend_triton(q, self.visual, self.text, scale)


class Decoder:
    """Random weights of one model on the GPU.

    tiles: how a step's matrix products are streamed, by (rows, outputs, inputs): `CHOSEN` by
    default; cuBLAS for the others. pdl: whether the step's kernels overlap; None: as `sizes` says,
    where the GPU can. Both may be changed between steps.
    """

    def __init__(
        self,
        sizes: Sizes,
        seed: int = 0,
        device: str = "cuda",
        tiles: Mapping[tuple[int, int, int], Tile] | None = None,
    ) -> None:
        self.sizes = sizes
        self.tiles = CHOSEN if tiles is None else tiles
        self.pdl: bool | None = None
        self.device = device
        generator = torch.Generator(device=device).manual_seed(seed)

        def draw(*shape: int) -> Tensor:
            weight = torch.empty(*shape, dtype=torch.bfloat16, device=device)
            return weight.normal_(0.0, shape[-1] ** -0.5, generator=generator)

        s = sizes
        self.embedding = draw(s.vocabulary, s.hidden)
        self.head = draw(s.vocabulary, s.hidden)
        self.qkv = [draw((s.Hq + 2 * s.Hkv) * s.d, s.hidden) for _ in range(s.layers)]
        self.out = [draw(s.hidden, s.Hq * s.d) for _ in range(s.layers)]
        self.gate_up = [draw(2 * s.inner, s.hidden) for _ in range(s.layers)]
        self.down = [draw(s.hidden, s.inner) for _ in range(s.layers)]
        ones = torch.ones(s.hidden, dtype=torch.bfloat16, device=device)
        self.norms = [(ones, ones) for _ in range(s.layers)]

    def caches(self, B: int, N: int, M: int, k: int, seed: int = 1) -> list[Cache]:
        """Random caches of every layer; k = d is dense. Half of the M text slots are in use."""
        s, d = self.sizes, self.sizes.d
        generator = torch.Generator(device=self.device).manual_seed(seed)
        lengths = torch.full((B,), M // 2, dtype=torch.int32, device=self.device)

        def draw(*shape: int) -> Tensor:
            tensor = torch.empty(*shape, dtype=torch.bfloat16, device=self.device)
            return tensor.normal_(generator=generator)

        caches = []
        for _ in range(s.layers):
            visual = Visual(draw(B, s.Hkv, N, k), draw(B, s.Hkv, N, d))
            if k < d:
                basis = torch.linalg.qr(draw(d, k).float())[0].bfloat16()
                basis = basis.expand(B, s.Hkv, d, k).contiguous()
                visual = visual._replace(basis=basis, mean=draw(B, s.Hkv, d) / 8)
            text = Text(draw(B, s.Hkv, M, d), draw(B, s.Hkv, M, d), lengths)
            caches.append(Cache(visual, text))
        return caches

    def step(self, token: Tensor, caches: Sequence[Cache]) -> Tensor:
        """Logits [B, vocabulary] of one decode step; token [B] int64 takes slot length - 1."""
        s, B = self.sizes, token.shape[0]
        x = self.embedding[token].clone()
        added: Tensor | None = None
        for layer, cache in enumerate(caches):
            attended = self._attend(self._norm(x, added, self.norms[layer][0]), layer, cache)
            added = self._linear(attended, self.out[layer])
            normed = self._norm(x, added, self.norms[layer][1])
            both = self._linear(normed, self.gate_up[layer])
            gated = torch.empty(B, s.inner, dtype=x.dtype, device=x.device)
            _gate_kernel[B, triton.cdiv(s.inner, 1024)](
                both, gated, s.inner, BLOCK=1024, **self._launch(B)
            )
            added = self._linear(gated, self.down[layer])
        return self._linear(self._norm(x, added, self.norms[0][0]), self.head)

    def _linear(self, x: Tensor, weight: Tensor) -> Tensor:
        tile = self.tiles.get((x.shape[0], weight.shape[0], weight.shape[1]))
        return linear(x, weight, tile, self.overlaps(x.shape[0]))

    def overlaps(self, rows: int) -> bool:
        """Whether the kernels of a step of that many rows start early."""
        if self.pdl is not None:
            return self.pdl
        return rows <= self.sizes.overlap and overlaps(torch.device(self.device))

    def _launch(self, rows: int) -> dict[str, bool]:
        """Launch options of the small kernels."""
        return {"PDL": True, "launch_pdl": True} if self.overlaps(rows) else {"PDL": False}

    def _norm(self, x: Tensor, added: Tensor | None, weight: Tensor) -> Tensor:
        out = torch.empty_like(x)
        H = x.shape[-1]
        _norm_kernel[x.shape[0],](
            x, added, weight, out, H=H, HP=triton.next_power_of_2(H), num_warps=8,
            **self._launch(x.shape[0]),
        )  # fmt: skip
        return out

    def _attend(self, normed: Tensor, layer: int, cache: Cache) -> Tensor:
        s, B = self.sizes, normed.shape[0]
        qkv = self._linear(normed, self.qkv[layer])
        q = torch.empty(B, s.Hq, 1, s.d, dtype=qkv.dtype, device=qkv.device)
        text = cache.text
        _rope_kernel[B, s.Hq + 2 * s.Hkv](
            qkv, q, text.keys, text.values, text.lengths, *text.keys.stride()[:2],
            s.Hq, s.Hkv, cache.visual.tokens or cache.visual.keys.shape[2], _log2(ROPE_BASE),
            D=s.d, num_warps=1, **self._launch(B),
        )  # fmt: skip
        return cache.attend(q, s.d**-0.5).view(B, s.Hq * s.d)

    def prefill(self, tokens: int, rows: int = 1) -> Callable[[], Tensor]:
        """A causal forward pass over random states [rows, tokens], the last's logits: to time."""
        s = self.sizes
        x = torch.randn(rows, tokens, s.hidden, device=self.device).bfloat16()

        def run() -> Tensor:
            h = x
            for layer in range(s.layers):
                h = h + self._prefill_attention(h, layer)
                n = F.rms_norm(h, (s.hidden,), self.norms[layer][1], EPSILON)
                gate, up = F.linear(n, self.gate_up[layer]).chunk(2, -1)
                h = h + F.linear(F.silu(gate) * up, self.down[layer])
            return F.linear(h[:, -1], self.head)

        return run

    def _prefill_attention(self, h: Tensor, layer: int) -> Tensor:
        s = self.sizes
        n = F.rms_norm(h, (s.hidden,), self.norms[layer][0], EPSILON)
        qkv = (
            F.linear(n, self.qkv[layer]).view(h.shape[0], -1, s.Hq + 2 * s.Hkv, s.d).transpose(1, 2)
        )
        q, k, v = qkv.split([s.Hq, s.Hkv, s.Hkv], 1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return F.linear(mixed.transpose(1, 2).reshape(h.shape[0], -1, s.Hq * s.d), self.out[layer])


def _log2(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float64).log2())
