"""A matrix product for one decode step: weights streamed once, a few rows of states.

Tiles are taken transposed, as in `kernels.attention`: sixteen outputs by eight rows fill a tensor
core's tile. For the benchmark's own decoder, beside cuBLAS.

Weights are constant, so with programmatic dependent launch a product starts while the kernel before
it ends, and asks the L2 for its first programs' weights before it waits for the states.
"""

from typing import Final, NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.launch import device_facts

AHEAD: Final = 0  # tiles of a program that the L2 is asked for
ASKING: Final = 3  # programs a multiprocessor that do: those that can start early


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

# (rows, outputs, inputs): the tile that beat cuBLAS by more than 2 % on an H200, in
# `python -m kernels.bench products`; gate|up of Llama (28,672 outputs) is cuBLAS's by 2 %
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


@triton.jit
def _ask(p_row, BLOCK_N: tl.constexpr, BYTES: tl.constexpr, PARTS: tl.constexpr):
    """Ask the L2 for BYTES of every row from p_row on, in PARTS pieces a row."""
    STEP: tl.constexpr = BYTES // PARTS
    o_part = tl.arange(0, PARTS).to(tl.int64) * STEP
    b_from = p_row.to(tl.int64)[:, None] + o_part[None, :]
    tl.inline_asm_elementwise(
        """{
        cp.async.bulk.prefetch.L2.global [$1], $2;
        mov.b32 $0, 0;
        }""",
        "=r,l,r", [b_from, tl.full([BLOCK_N, PARTS], STEP, tl.int32)],
        dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows", "asking"])
def stream_kernel(
    p_x, p_w, p_out, outputs, rows, K, asking,
    RP: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
    BYTES: tl.constexpr, PARTS: tl.constexpr, PDL: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """out [rows, outputs] = x [rows, K] @ w [outputs, K]^T for BLOCK_N outputs."""
    o_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    o_r = tl.arange(0, RP)
    m_n, m_r = o_n < outputs, o_r < rows
    p_first = p_w + tl.where(m_n, o_n, 0).to(tl.int64) * K
    if PDL:
        gdc_launch_dependents()
        if tl.program_id(0) < asking:
            _ask(p_first, BLOCK_N, BYTES, PARTS)
        gdc_wait()
    p_row = p_first[:, None]
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


def streamed(
    x: Tensor, weight: Tensor, tile: Tile, pdl: bool | None = None, ahead: int = AHEAD
) -> Tensor:
    """x [rows, K] @ weight [outputs, K]^T; K a multiple of the tile's inputs, rows at most 64.

    pdl: start while the kernel before is still running (as the GPU can, by default), and ask for
    `ahead` tiles of weights then.
    """
    rows, K = x.shape
    outputs = weight.shape[0]
    arch, sms = device_facts(x.device)
    pdl = overlaps(x.device) if pdl is None else pdl
    out = torch.empty(rows, outputs, dtype=x.dtype, device=x.device)
    stream_kernel[triton.cdiv(outputs, tile.outputs),](
        x, weight, out, outputs, rows, K, ASKING * sms if ahead else 0,
        RP=max(8, triton.next_power_of_2(rows)), BLOCK_N=tile.outputs, BLOCK_K=tile.inputs,
        STAGES=tile.stages, BYTES=weight.element_size() * min(K, max(1, ahead) * tile.inputs),
        PARTS=max(1, 32 * tile.warps // tile.outputs), PDL=pdl,
        WIDEN=arch == 0, num_warps=tile.warps,
        **({"launch_pdl": True} if pdl else {}),
    )  # fmt: skip
    return out


def linear(
    x: Tensor, weight: Tensor, tile: Tile | None, pdl: bool | None = None, ahead: int = AHEAD
) -> Tensor:
    """By `streamed` with a tile, by PyTorch without one."""
    return F.linear(x, weight) if tile is None else streamed(x, weight, tile, pdl, ahead)
