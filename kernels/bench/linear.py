"""A matrix product for one decode step: weights streamed once, a few rows of states.

Tiles are taken transposed, as in `kernels.attention`: sixteen outputs by eight rows fill a tensor
core's tile. For the benchmark's own decoder, beside cuBLAS.
"""

from typing import Final, NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import device_facts


class Tile(NamedTuple):
    """Outputs and inputs of a tile, warps of a program, tiles in flight."""

    outputs: int
    inputs: int
    warps: int
    stages: int


TILES: Final = (
    Tile(16, 256, 1, 4), Tile(16, 512, 1, 3), Tile(32, 256, 2, 4), Tile(32, 256, 4, 4),
    Tile(32, 512, 4, 3), Tile(64, 256, 4, 3), Tile(64, 128, 4, 5),
)  # fmt: skip

# (rows, outputs, inputs): the tile that beat cuBLAS in `python -m kernels.bench products`
CHOSEN: Final[dict[tuple[int, int, int], Tile]] = {}


@triton.jit(do_not_specialize=["rows"])
def stream_kernel(
    p_x, p_w, p_out, outputs, rows, K,
    RP: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """out [rows, outputs] = x [rows, K] @ w [outputs, K]^T for BLOCK_N outputs."""
    o_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    o_r = tl.arange(0, RP)
    m_n, m_r = o_n < outputs, o_r < rows
    p_row = p_w + tl.where(m_n, o_n, 0).to(tl.int64)[:, None] * K
    b_acc = tl.zeros([BLOCK_N, RP], tl.float32)
    for start in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        o_k = start + tl.arange(0, BLOCK_K)
        b_w = tl.load(p_row + o_k[None, :], eviction_policy="evict_first")
        b_x = tl.load(p_x + o_r[None, :] * K + o_k[:, None], mask=m_r[None, :], other=0.0)
        if WIDEN:
            b_w = b_w.to(tl.float32)
            b_x = b_x.to(tl.float32)
        b_acc = tl.dot(b_w, b_x, b_acc)
    p_tile = p_out + o_r[None, :] * outputs + o_n[:, None]
    tl.store(p_tile, b_acc.to(p_out.dtype.element_ty), mask=m_n[:, None] & m_r[None, :])


def streamed(x: Tensor, weight: Tensor, tile: Tile) -> Tensor:
    """x [rows, K] @ weight [outputs, K]^T; K a multiple of the tile's inputs, rows at most 64."""
    rows, K = x.shape
    outputs = weight.shape[0]
    out = torch.empty(rows, outputs, dtype=x.dtype, device=x.device)
    stream_kernel[triton.cdiv(outputs, tile.outputs),](
        x, weight, out, outputs, rows, K,
        RP=max(8, triton.next_power_of_2(rows)), BLOCK_N=tile.outputs, BLOCK_K=tile.inputs,
        STAGES=tile.stages, WIDEN=device_facts(x.device)[0] == 0, num_warps=tile.warps,
    )  # fmt: skip
    return out


def linear(x: Tensor, weight: Tensor, tile: Tile | None) -> Tensor:
    """By `streamed` with a tile, by PyTorch without one."""
    return F.linear(x, weight) if tile is None else streamed(x, weight, tile)
