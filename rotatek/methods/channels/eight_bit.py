"""8-bit storage of rotated Keys and of Values: e4m3 or int8, with scales of few bytes.

Rotated Keys have a spectrum: every channel gets its own float32 scale, which decoding multiplies
into the projected query. Values are scaled per token, in float16 relative to their head's largest,
which joins the softmax weights; the head's float32 scale is applied once, to the sum.
"""

from typing import Final

import torch
from torch import Tensor

from kernels.reference import Visual
from rotatek.methods.rotation import token_mask

STORED: Final = {"fp8": (torch.float8_e4m3fn, 448.0), "int8": (torch.int8, 127.0)}
SMALLEST: Final = 2.0**-14  # float16 keeps its precision down to here


def store_in_eight_bits(visual: Visual, lengths: Tensor, kind: str) -> Visual:
    """Keys and Values of one layer in eight bits, with their scales.

    Args:
        visual: keys [B, Hkv, N, k] and values [B, Hkv, N, r].
        lengths: [B] valid tokens; slots beyond are stored as zero.
        kind: "fp8" (e4m3) or "int8".
    """
    alive = token_mask(lengths, visual.keys.shape[2])[:, None, :, None]
    keys = visual.keys.float().masked_fill(~alive, 0.0)
    values = visual.values.float().masked_fill(~alive, 0.0)
    largest = STORED[kind][1]
    key_scale = _positive(keys.abs().amax(2) / largest)
    token = values.abs().amax(-1) / largest
    top = _positive(token.amax(-1))
    share = (token / top[..., None]).clamp(min=SMALLEST).half()
    return visual._replace(
        keys=_cast(keys / key_scale[:, :, None], kind),
        values=_cast(values / (share.float() * top[..., None])[..., None], kind),
        key_scale=key_scale,
        value_scale=share,
        value_top=top,
    )


def _positive(scale: Tensor) -> Tensor:
    """A scale that can be divided by, also where everything is zero."""
    return scale.clamp(min=torch.finfo(torch.float32).tiny * 2**24)


def _cast(scaled: Tensor, kind: str) -> Tensor:
    """Round to the nearest number that `kind` holds."""
    dtype, largest = STORED[kind]
    whole = scaled.round() if kind == "int8" else scaled
    return whole.clamp(-largest, largest).to(dtype)
