"""Layers of a loaded model whose element-wise work is one kernel on a GPU
(`kernels.fused_elementwise`).

A layer keeps its weights and its name; only its class becomes a subclass. Where the kernel cannot
run, the layer's own forward or the same in plain PyTorch does.
"""

from typing import Any

from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from kernels.dispatch import elementwise
from kernels.elementwise_reference import rotate_plain
from rotatek.bridge.attention import arguments
from rotatek.bridge.scope import is_own


class _Norm(nn.Module):
    weight: Tensor
    variance_epsilon: float

    def forward(self, hidden_states: Tensor) -> Tensor:
        made = elementwise("norm", hidden_states, self.weight, self.variance_epsilon)
        return super().forward(hidden_states) if made is None else made


class _Gated(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module
    act_fn: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_proj(x), self.up_proj(x)
        made = elementwise("gate", gate, up)
        out: Tensor = self.down_proj(self.act_fn(gate) * up if made is None else made)
        return out


class _Vision(nn.Module):
    """Attention of a Qwen vision block, with rotary positions of queries and Keys."""

    qkv: nn.Module
    proj: nn.Module
    num_heads: int
    scaling: float
    config: Any

    def forward(
        self,
        hidden_states: Tensor,
        cu_seqlens: Tensor,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        max_seqlen: int | None = None,
        **kwargs: Any,
    ) -> Tensor:
        ours = is_own() and self.config._attn_implementation == "sdpa"
        if position_embeddings is None or not ours:
            own: Tensor = super().forward(
                hidden_states, cu_seqlens, position_embeddings, max_seqlen, **kwargs
            )
            return own
        tokens = hidden_states.shape[0]
        qkv = self.qkv(hidden_states).view(tokens, 3, self.num_heads, -1)
        turned = elementwise("rotate", qkv, *position_embeddings)
        if turned is None:
            turned = rotate_plain(qkv, *position_embeddings)
        query, key = turned.transpose(1, 2)[:, None]  # [1, H, N, d] each
        value = qkv[:, 2].transpose(0, 1)[None]
        attend = ALL_ATTENTION_FUNCTIONS.get_interface("sdpa", sdpa_attention_forward)
        seen, _ = attend(
            self, query, key, value, attention_mask=None, scaling=self.scaling, dropout=0.0,
            is_causal=False, **kwargs,
        )  # fmt: skip
        out: Tensor = self.proj(seen.reshape(tokens, -1))
        return out


def fuse(model: nn.Module) -> None:
    """Let the layers of a model that are known here do their element-wise work in one pass."""
    made: dict[tuple[type, type], type] = {}  # a subclass for each kind and layer class
    for module in model.modules():
        own, kind = type(module), _kind(module)
        if kind is None or isinstance(module, kind):
            continue
        if (kind, own) not in made:
            made[kind, own] = type(own.__name__, (kind, own), {"__module__": own.__module__})
        module.__class__ = made[kind, own]


def _kind(module: nn.Module) -> type[nn.Module] | None:
    """Which of the three a layer is, if any, by its attributes."""
    has = vars(module).keys() | module._modules.keys() | module._parameters.keys()
    if {"weight", "variance_epsilon"} <= has and type(module).__name__.endswith("RMSNorm"):
        return _Norm
    if {"gate_proj", "up_proj", "down_proj", "act_fn"} <= has:
        alone = len(arguments(module)) == 2  # self and the states: no experts, no shares
        silu = "SiLU" in type(module.act_fn).__name__
        return _Gated if alone and silu else None
    if {"qkv", "proj", "num_heads", "scaling"} <= has and "cu_seqlens" in arguments(module):
        return _Vision
    return None
