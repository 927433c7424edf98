"""Element-wise work of a model's layers, one pass over its states each: norm, gate, rotation.

Each rounds where plain PyTorch rounds (`kernels.elementwise_reference`), so that only the order of
a sum changes a layer's numbers.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .plan import unit

BLOCK = 2048  # numbers of a gate that one program makes


@triton.jit
def norm_kernel(p_x, p_weight, p_out, s_x, eps, D: tl.constexpr, DP: tl.constexpr):
    """One row: x / rms(x) in float32, rounded, times the weight."""
    i_n = tl.program_id(0).to(tl.int64)
    o_d = tl.arange(0, DP)
    m_d = o_d < D
    b_x = tl.load(p_x + i_n * s_x + o_d, mask=m_d, other=0.0).to(tl.float32)
    b_scale = 1.0 / tl.sqrt_rn(tl.sum(b_x * b_x, 0) / D + eps)
    b_weight = tl.load(p_weight + o_d, mask=m_d, other=0.0).to(tl.float32)
    b_made = (b_x * b_scale).to(p_out.dtype.element_ty).to(tl.float32) * b_weight
    tl.store(p_out + i_n * D + o_d, b_made.to(p_out.dtype.element_ty), mask=m_d)


@triton.jit
def gate_kernel(p_gate, p_up, p_out, size, BLOCK: tl.constexpr):
    """silu(gate), rounded, times up."""
    o_n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m_n = o_n < size
    b_gate = tl.load(p_gate + o_n, mask=m_n, other=0.0).to(tl.float32)
    b_silu = (b_gate / (1.0 + tl.exp(-b_gate))).to(p_out.dtype.element_ty).to(tl.float32)
    b_up = tl.load(p_up + o_n, mask=m_n, other=0.0).to(tl.float32)
    tl.store(p_out + o_n, (b_silu * b_up).to(p_out.dtype.element_ty), mask=m_n)


@triton.jit
def rotate_kernel(
    p_x, p_cos, p_sin, p_out, s_x, N,
    H: tl.constexpr, HP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
):  # fmt: skip
    """Query (program 0 of axis 1) or Key (1) of one token: x cos + (-x2, x1) sin in float32."""
    i_n, i_side = tl.program_id(0).to(tl.int64), tl.program_id(1)
    o_h, o_d = tl.arange(0, HP), tl.arange(0, DP)
    m_x = (o_h < H)[:, None] & (o_d < D)[None, :]
    o_other = tl.where(o_d < D // 2, o_d + D // 2, o_d - D // 2)
    p_x += i_n * s_x + i_side * H * D
    b_x = tl.load(p_x + o_h[:, None] * D + o_d[None, :], mask=m_x, other=0.0)  # [H, d]
    b_other = tl.load(p_x + o_h[:, None] * D + o_other[None, :], mask=m_x, other=0.0)
    b_other = tl.where((o_d < D // 2)[None, :], -b_other.to(tl.float32), b_other.to(tl.float32))
    b_cos = tl.load(p_cos + i_n * D + o_d, mask=o_d < D, other=0.0).to(tl.float32)
    b_sin = tl.load(p_sin + i_n * D + o_d, mask=o_d < D, other=0.0).to(tl.float32)
    b_made = b_x.to(tl.float32) * b_cos[None, :] + b_other * b_sin[None, :]
    p_out += (i_side * N + i_n) * H * D
    b_made = b_made.to(p_out.dtype.element_ty)
    tl.store(p_out + o_h[:, None] * D + o_d[None, :], b_made, mask=m_x)


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """As `kernels.elementwise_reference.norm_plain`."""
    D = x.shape[-1]
    rows = unit(x.reshape(-1, D))
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    warps = 8 if D > BLOCK else 4
    if len(rows):
        norm_kernel[(len(rows),)](
            rows, weight, out, rows.stride(0), eps, D, triton.next_power_of_2(D), num_warps=warps
        )
    return out


def gate(gate: Tensor, up: Tensor) -> Tensor:
    """As `kernels.elementwise_reference.gate_plain`."""
    gate, up = gate.contiguous(), up.contiguous()
    out, size = torch.empty_like(gate), gate.numel()
    if size:
        gate_kernel[(triton.cdiv(size, BLOCK),)](gate, up, out, size, BLOCK)
    return out


def rotate(qkv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As `kernels.elementwise_reference.rotate_plain`."""
    N, _, H, D = qkv.shape
    qkv, cos, sin = qkv.contiguous(), cos.contiguous(), sin.contiguous()
    out = torch.empty(2, N, H, D, dtype=qkv.dtype, device=qkv.device)
    if N:
        sizes = (H, triton.next_power_of_2(H), D, triton.next_power_of_2(D))
        rotate_kernel[(N, 2)](qkv, cos, sin, out, qkv.stride(0), N, *sizes)
    return out
