"""A matrix product for one decode step: weights streamed once, a few rows of states.

Tiles are taken transposed, as in `kernels.attention`: sixteen outputs by eight rows fill a tensor
core's tile. For the benchmark's own decoder, beside cuBLAS.

With programmatic dependent launch a product starts while the kernel before it ends, and waits for
the states. Asking the L2 for its first weights meanwhile was slower in all of 20 shapes.
"""

from typing import Final, NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.plan import device_facts


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

# (rows, outputs, inputs): the fastest tile on an H200, in `python -m benchmarks products`.
# It saves 3.5 to 23 % of cuBLAS's time; q|k|v of Qwen (4,608 outputs) is within 1.3 % of it, as is
# gate|up of Llama (28,672), left to cuBLAS
CHOSEN: Final[dict[tuple[int, int, int], Tile]] = {
    (1, 6144, 4096): Tile(32, 256, 2, 4),
    (1, 4096, 4096): Tile(32, 256, 2, 4),
    (1, 4096, 14336): Tile(32, 512, 4, 3),
    (1, 128256, 4096): Tile(32, 256, 2, 4),
    (8, 6144, 4096): Tile(32, 256, 2, 4),
    (8, 4096, 4096): Tile(16, 256, 1, 4),
    (8, 4096, 14336): Tile(32, 512, 4, 3),
    (8, 128256, 4096): Tile(64, 256, 4, 3),
    (1, 4608, 3584): Tile(16, 256, 1, 4),
    (1, 3584, 3584): Tile(32, 256, 2, 4),
    (1, 37888, 3584): Tile(32, 256, 2, 4),
    (1, 3584, 18944): Tile(32, 512, 4, 3),
    (1, 152064, 3584): Tile(32, 256, 2, 4),
    (8, 4608, 3584): Tile(16, 256, 1, 4),
    (8, 3584, 3584): Tile(32, 256, 2, 4),
    (8, 37888, 3584): Tile(32, 256, 2, 4),
    (8, 3584, 18944): Tile(32, 512, 4, 3),
    (8, 152064, 3584): Tile(32, 256, 2, 4),
}


@triton.jit(do_not_specialize=["rows"])
def stream_kernel(
    p_x, p_w, p_out, outputs, rows, K,
    RP: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
    PDL: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """out [rows, outputs] = x [rows, K] @ w [outputs, K]^T for BLOCK_N outputs."""
    o_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    o_r = tl.arange(0, RP)
    m_n, m_r = o_n < outputs, o_r < rows
    p_row = (p_w + tl.where(m_n, o_n, 0).to(tl.int64) * K)[:, None]
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
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


def overlaps(device: torch.device) -> bool:
    """Whether kernels can start before the one ahead of them has ended."""
    return device_facts(device)[0] >= 90


def streamed(x: Tensor, weight: Tensor, tile: Tile, pdl: bool | None = None) -> Tensor:
    """x [rows, K] @ weight [outputs, K]^T; K a multiple of the tile's inputs, rows at most 64.

    pdl: start while the kernel before is still running; by default where the GPU can.
    """
    rows, K = x.shape
    outputs = weight.shape[0]
    pdl = overlaps(x.device) if pdl is None else pdl
    out = torch.empty(rows, outputs, dtype=x.dtype, device=x.device)
    stream_kernel[triton.cdiv(outputs, tile.outputs),](
        x, weight, out, outputs, rows, K,
        RP=max(8, triton.next_power_of_2(rows)), BLOCK_N=tile.outputs, BLOCK_K=tile.inputs,
        STAGES=tile.stages, PDL=pdl, WIDEN=device_facts(x.device)[0] == 0, num_warps=tile.warps,
        **({"launch_pdl": True} if pdl else {}),
    )  # fmt: skip
    return out


def linear(x: Tensor, weight: Tensor, tile: Tile | None, pdl: bool | None = None) -> Tensor:
    """By `streamed` with a tile, by PyTorch without one."""
    return F.linear(x, weight) if tile is None else streamed(x, weight, tile, pdl)
