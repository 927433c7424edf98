"""The paper's two decode kernels, as an arm of `benchmarks attention` (never used to serve).

Source: arXiv 2605.19218, appendix "RotateK Decode Kernel Implementation": phase 1 on a
(B, Hq, N_s) grid, one warp, tiles of 64 tokens, q . R in every program, at most 64 splits; phase 2
on (B, Hq). One program a *query* head and no tl.dot. k and d must be powers of two.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.reference import Narrow, Text

LOG2_E = 1.4426950408889634
BLOCK_N = 64


@triton.jit
def _loop(
    p_k, p_v, b_q, bias, lo, hi, scale_log2, W: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr
):
    """One query over tokens lo to hi, Keys of width W: the softmax state (sums [D], max, mass)."""
    o_d, o_w = tl.arange(0, D), tl.arange(0, W)
    b_acc = tl.zeros([D], tl.float32)
    b_m = -float("inf")
    b_l = 0.0
    for start in tl.range(lo, hi, BLOCK):
        o_n = start + tl.arange(0, BLOCK)
        m_n = o_n < hi
        p_tile = p_k + o_n[:, None] * W + o_w[None, :]
        b_k = tl.load(p_tile, mask=m_n[:, None], other=0.0).to(tl.float32)
        b_s = (tl.sum(b_k * b_q[None, :], 1) + bias) * scale_log2
        b_s = tl.where(m_n, b_s, -float("inf"))
        b_next = tl.maximum(b_m, tl.max(b_s, 0))
        b_past = tl.exp2(b_m - b_next)
        b_p = tl.exp2(b_s - b_next)
        p_tile = p_v + o_n[:, None] * D + o_d[None, :]
        b_v = tl.load(p_tile, mask=m_n[:, None], other=0.0).to(tl.float32)
        b_acc = b_acc * b_past + tl.sum(b_p[:, None] * b_v, 0)
        b_l = b_l * b_past + tl.sum(b_p, 0)
        b_m = b_next
    return b_acc, b_m, b_l


@triton.jit
def _sparse_kernel(
    p_q, p_k, p_v, p_r, p_mean, p_acc, p_m, p_l, N, per_split, splits, scale_log2,
    G: tl.constexpr, Hq: tl.constexpr, D: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Phase 1: one query head's attention over one split of the rotated visual tokens."""
    i_b, i_h, i_s = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row = i_b * Hq + i_h
    kv = (i_b * (Hq // G) + i_h // G).to(tl.int64)
    o_d, o_k = tl.arange(0, D), tl.arange(0, K)
    b_q = tl.load(p_q + row * D + o_d).to(tl.float32)
    b_r = tl.load(p_r + kv * D * K + o_d[:, None] * K + o_k[None, :]).to(tl.float32)
    b_low = tl.sum(b_q[:, None] * b_r, 0)
    bias = tl.sum(b_q * tl.load(p_mean + kv * D + o_d).to(tl.float32), 0)
    lo, hi = i_s * per_split, tl.minimum((i_s + 1) * per_split, N)
    p_k, p_v = p_k + kv * N * K, p_v + kv * N * D
    b_acc, b_m, b_l = _loop(p_k, p_v, b_low, bias, lo, hi, scale_log2, K, D, BLOCK)
    slot = row * splits + i_s
    tl.store(p_acc + slot.to(tl.int64) * D + o_d, b_acc)
    tl.store(p_m + slot, b_m)
    tl.store(p_l + slot, b_l)


@triton.jit
def _full_merge_kernel(
    p_q, p_k, p_v, p_acc, p_m, p_l, p_out, M, splits, scale_log2,
    G: tl.constexpr, Hq: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Phase 2: full-width attention over prompt and text, then the online merge of the splits."""
    i_b, i_h = tl.program_id(0), tl.program_id(1)
    row = i_b * Hq + i_h
    kv = (i_b * (Hq // G) + i_h // G).to(tl.int64)
    o_d = tl.arange(0, D)
    b_q = tl.load(p_q + row * D + o_d).to(tl.float32)
    p_k, p_v = p_k + kv * M * D, p_v + kv * M * D
    b_acc, b_m, b_l = _loop(p_k, p_v, b_q, 0.0, 0, M, scale_log2, D, D, BLOCK)
    for i_s in range(splits):
        slot = row * splits + i_s
        b_ms = tl.load(p_m + slot)
        b_next = tl.maximum(b_m, b_ms)
        b_past = tl.exp2(b_m - b_next)
        b_new = tl.exp2(b_ms - b_next)
        b_acc = b_acc * b_past + tl.load(p_acc + slot.to(tl.int64) * D + o_d) * b_new
        b_l = b_l * b_past + tl.load(p_l + slot) * b_new
        b_m = b_next
    tl.store(p_out + row * D + o_d, (b_acc / (b_l + 1e-20)).to(p_out.dtype.element_ty))


def attend_paper(q: Tensor, visual: Narrow, text: Text, scale: float) -> Tensor:
    """Decode attention the paper's way; contiguous inputs, no lengths, T = 1."""
    B, Hq, _, d = q.shape
    N, M, k = visual.keys.shape[2], text.keys.shape[2], visual.keys.shape[-1]
    splits = max(1, min(-(-N // BLOCK_N), 64))
    per_split = -(-N // splits)
    scratch = torch.empty(B * Hq * splits * (d + 2), dtype=torch.float32, device=q.device)
    rows = B * Hq * splits
    acc, top, total = scratch[: rows * d], scratch[rows * d : -rows], scratch[-rows:]
    out = torch.empty_like(q)
    shape = {"G": Hq // text.keys.shape[1], "Hq": Hq, "D": d, "BLOCK": BLOCK_N, "num_warps": 1}
    _sparse_kernel[B, Hq, splits](
        q, visual.keys, visual.values, visual.basis, visual.mean, acc, top, total,
        N, per_split, splits, scale * LOG2_E, K=k, num_stages=3, **shape,
    )  # fmt: skip
    _full_merge_kernel[B, Hq](
        q, text.keys, text.values, acc, top, total, out, M, splits, scale * LOG2_E,
        num_stages=2, **shape,
    )  # fmt: skip
    return out
