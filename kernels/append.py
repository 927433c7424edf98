"""Triton kernel that adds one token a row to a text whose older tokens are in 8 bits.

It follows `kernels.reference.append_plain`, in one launch in place of some twenty.
"""

import triton
import triton.language as tl
from torch import Tensor

from .plan import unit
from .reference import EIGHT, Text


@triton.jit
def _rounded(b_x):
    """The nearest whole number, ties away from zero."""
    return tl.where(b_x < 0, -tl.floor(0.5 - b_x), tl.floor(b_x + 0.5))


@triton.jit
def _store_eight(b_x, p_data, p_scale, o_d, m_d, TOP: tl.constexpr):
    """One Key or Value [DP] in 8 bits, with its scale."""
    scale = tl.maximum(tl.max(tl.abs(b_x), 0) / TOP, 1e-30).to(p_scale.dtype.element_ty)
    b_x = _rounded(b_x / scale.to(tl.float32))
    b_x = tl.minimum(tl.maximum(b_x, -TOP), TOP)
    tl.store(p_data + o_d, b_x.to(tl.int8), mask=m_d)
    tl.store(p_scale, scale)


@triton.jit(do_not_specialize=["M", "P", "Hkv"])
def append_kernel(
    p_key, p_value, p_keys, p_values, p_lengths, p_added, p_data, p_scales, p_gain,
    s_kb, s_kh, s_vb, s_vh, s_rb, s_rh, s_rm, s_wb, s_wh, s_wm, M, P, Hkv,
    D: tl.constexpr, DP: tl.constexpr, TOP: tl.constexpr,
):  # fmt: skip
    """Grid (B * Hkv): quantises the ring's second oldest token, then overwrites the oldest.

    M: slots of the ring, 2 or more; P: those of the past.
    """
    i_bh = tl.program_id(0)
    i_b = (i_bh // Hkv).to(tl.int64)
    i_h = (i_bh % Hkv).to(tl.int64)
    o_d = tl.arange(0, DP)
    m_d = o_d < D
    length = tl.load(p_lengths + i_b)
    if tl.load(p_added + i_b) > 0:
        p_keys += i_b * s_rb + i_h * s_rh
        p_values += i_b * s_wb + i_h * s_wh
        place = length - M + 1
        if (place >= 0) & (place < P):
            slot = (place % M).to(tl.int64)
            row = i_bh.to(tl.int64) * P + place
            b_gain = tl.load(p_gain + i_bh * D + o_d, mask=m_d, other=1.0)
            b_k = tl.load(p_keys + slot * s_rm + o_d, mask=m_d, other=0.0).to(tl.float32)
            b_v = tl.load(p_values + slot * s_wm + o_d, mask=m_d, other=0.0).to(tl.float32)
            _store_eight(b_k / b_gain, p_data + row * 2 * D, p_scales + row * 2, o_d, m_d, TOP)
            _store_eight(b_v, p_data + row * 2 * D + D, p_scales + row * 2 + 1, o_d, m_d, TOP)
        slot = (length % M).to(tl.int64)
        b_k = tl.load(p_key + i_b * s_kb + i_h * s_kh + o_d, mask=m_d)
        b_v = tl.load(p_value + i_b * s_vb + i_h * s_vh + o_d, mask=m_d)
        tl.store(p_keys + slot * s_rm + o_d, b_k, mask=m_d)
        tl.store(p_values + slot * s_wm + o_d, b_v, mask=m_d)


def append_text(text: Text, keys: Tensor, values: Tensor, added: Tensor) -> None:
    """Add one token a row, in place; see `kernels.reference.append_plain`.

    Args:
        text: with a past; its lengths stay as they were.
        keys: [B, Hkv, 1, d].
        values: [B, Hkv, 1, d].
        added: [B] of 0 or 1.
    """
    assert text.past is not None
    B, Hkv, M, d = text.keys.shape
    keys, values = unit(keys), unit(values)
    data, scales, gain = text.past
    append_kernel[(B * Hkv,)](
        keys, values, text.keys, text.values, text.lengths, added, data, scales, gain,
        *keys.stride()[:2], *values.stride()[:2],
        *text.keys.stride()[:3], *text.values.stride()[:3], M, data.shape[2], Hkv,
        D=d, DP=triton.next_power_of_2(d), TOP=float(EIGHT), num_warps=1,
    )  # fmt: skip
