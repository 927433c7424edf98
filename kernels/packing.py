"""Projects states onto their stored rows, quantises and packs the digits, in one launch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .moments import padded
from .plan import device_facts
from .planes import GRANULE, TILE, granules
from .tiles import dot


@triton.jit(do_not_specialize=["N", "Hkv", "W"])
def pack_kernel(
    p_x, p_mean, p_basis, p_steps, p_counts, p_offsets, p_data, s_xb, s_xh, s_xn, N, Hkv, W,
    D: tl.constexpr, DP: tl.constexpr, VALUES: tl.constexpr, PREC: tl.constexpr,
    WIDEN: tl.constexpr,
):  # fmt: skip
    """One tile of 128 tokens of one head: its granules one after the other.

    p_basis: [B, Hkv, D, W]; p_steps: [B, Hkv, W]. VALUES: words are stored channels by tokens.
    """
    i_t, i_bh = tl.program_id(0), tl.program_id(1)
    o_t, o_d, o_c = tl.arange(0, 128), tl.arange(0, DP), tl.arange(0, 16)
    m_d = o_d < D
    n0 = tl.load(p_counts + i_bh * 4) // 16
    n1 = tl.load(p_counts + i_bh * 4 + 1) // 16
    n2 = tl.load(p_counts + i_bh * 4 + 2) // 16
    n3 = tl.load(p_counts + i_bh * 4 + 3) // 16
    p_out = p_data + tl.load(p_offsets + i_bh) + i_t * (n0 + n1 + n2 + n3).to(tl.int64) * 256
    p_x += (i_bh // Hkv).to(tl.int64) * s_xb + (i_bh % Hkv).to(tl.int64) * s_xh
    token = (i_t * 128 + o_t).to(tl.int64)
    m_x = (token < N)[:, None] & m_d[None, :]
    b_x = tl.load(p_x + token[:, None] * s_xn + o_d[None, :], mask=m_x, other=0.0)
    b_mean = tl.load(p_mean + i_bh * D + o_d, mask=m_d, other=0.0).to(tl.float32)
    b_x = b_x.to(tl.float32) - b_mean[None, :]
    p_basis += i_bh.to(tl.int64) * D * W + o_d[:, None] * W + o_c[None, :]
    o_e = tl.arange(0, 16)
    o_w = o_e[:, None] * (1 if VALUES else 16) + o_c[None, :] * (16 if VALUES else 1)
    b_shift = 2 * tl.arange(0, 8)[:, None, None]
    for g in tl.range(0, n0):
        b_steps = tl.load(p_steps + i_bh * W + g * 16 + o_c)
        b_r = tl.load(p_basis + g * 16, mask=m_d[:, None] & (o_c < 16)[None, :], other=0.0)
        b_zero = tl.zeros([128, 16], tl.float32)
        b_y = dot(b_x, b_r.to(tl.float32), b_zero, tl.float32, PREC, WIDEN) / b_steps[None, :]
        two = (g < n1).to(tl.int32)
        three = (g < n2).to(tl.int32)
        four = (g < n3).to(tl.int32)
        half = (2 << (2 * (two + three + four))).to(tl.float32)
        b_c = tl.minimum(tl.maximum(tl.floor(b_y + half), 0.0), 2.0 * half - 1.0)
        b_c = tl.where((token < N)[:, None], b_c, 0.0).to(tl.int32)
        b_c = tl.reshape(b_c, [8, 16, 16])
        slot = g
        b_w = tl.sum((b_c & 3) << b_shift, 0).to(tl.int16)
        tl.store(p_out + slot * 256 + o_w, b_w)
        if two > 0:
            b_w = tl.sum(((b_c >> 2) & 3) << b_shift, 0).to(tl.int16)
            tl.store(p_out + (n0 + slot) * 256 + o_w, b_w)
        if three > 0:
            b_w = tl.sum(((b_c >> 4) & 3) << b_shift, 0).to(tl.int16)
            tl.store(p_out + (n0 + n1 + slot) * 256 + o_w, b_w)
        if four > 0:
            b_w = tl.sum(((b_c >> 6) & 3) << b_shift, 0).to(tl.int16)
            tl.store(p_out + (n0 + n1 + n2 + slot) * 256 + o_w, b_w)


def pack_states(
    states: Tensor,
    mean: Tensor,
    basis: Tensor,
    counts: Tensor,
    steps: Tensor,
    values: bool = False,
    offsets: Tensor | None = None,
    words: int | None = None,
) -> tuple[Tensor, Tensor]:
    """`kernels.planes.pack` of (states - mean) basis; a code may differ by one where it rounds.

    Args:
        states: [B, Hkv, N, d], last stride 1.
        mean: [B, Hkv, d].
        basis: [B, Hkv, d, w], channels by falling depth.
        counts: [B, Hkv, 4] int32, as `pack` takes them.
        steps: [B, Hkv, w] float32.
        values: channels by tokens, as Values are stored.
        offsets: where heads begin, if the caller knows: then nothing waits for the device.
        words: of all heads, beside `offsets`.

    Returns:
        data and offsets of `kernels.planes.Planes`.
    """
    B, Hkv, N, d = states.shape
    arch, _ = device_facts(states.device)
    tiles = -(-N // TILE)
    if offsets is None or words is None:
        sizes = granules(counts).long().flatten() * (tiles * GRANULE * GRANULE)
        ends = sizes.cumsum(0)
        offsets, words = (ends - sizes).view(B, Hkv), int(ends[-1])
    data = torch.empty(words, dtype=torch.int16, device=states.device)
    if data.numel():
        pack_kernel[tiles, B * Hkv](
            states, mean.contiguous(), basis.contiguous(), steps.float().contiguous(),
            counts.contiguous(), offsets.contiguous(), data, *states.stride()[:3], N, Hkv,
            basis.shape[-1],
            D=d, DP=padded(d), VALUES=values, PREC="tf32", WIDEN=arch == 0, num_warps=4,
        )  # fmt: skip
    return data, offsets
