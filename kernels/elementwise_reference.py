"""A layer's element-wise work in plain PyTorch, which rounds as transformers does.

transformers writes an RMSNorm as six passes over the states, a gate as two, and the positions of a
vision block as twelve. On an H100 they were some 40 of the 78 ms of Qwen2.5-VL-7B's vision tower
for 2,880 visual tokens, and some 14 of the 81 ms of its language model. `kernels.fused_elementwise`
does each in one pass.
"""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

CLOSE: Final = 2.0**-6  # two steps of bfloat16, of the largest number: a sum in another order


def norm_plain(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """transformers' RMSNorm: x [..., d] over its root mean square, in float32, times weight [d]."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


def gate_plain(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, both of one shape."""
    return F.silu(gate) * up


def rotate_plain(qkv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary queries and Keys: qkv [N, 3, H, d], cos and sin [N, d] -> [2, N, H, d]."""
    x = qkv[:, :2].transpose(0, 1).float()
    first, second = x.chunk(2, -1)
    turned = torch.cat([-second, first], -1)
    return (x * cos.float()[:, None] + turned * sin.float()[:, None]).to(qkv.dtype)


PLAIN: Final[dict[str, Callable[..., Tensor]]] = {
    "norm": norm_plain,
    "gate": gate_plain,
    "rotate": rotate_plain,
}
