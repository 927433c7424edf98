"""The training forward: the model's own weights in a plain function over equal-sized images.

It computes what `Qwen2_5_VLForConditionalGeneration` computes for one still image per sequence
(a test holds the two together), but over a whole batch at once, so that two small compiled block
functions carry all of the work at any size.
"""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from pocket.models import tokenizer
from pocket.models.batch import Batch
from pocket.models.config import MEAN, MERGE, PATCH, STD, UNIT
from pocket.models.rotary import turn

UP: Final = 4.0  # times that a glyph counts beside none


def rms(x: Tensor, weight: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Root-mean-square norm over the last dimension, in float32."""
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight


def attend(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, mask: Tensor | None = None
) -> Tensor:
    """Attention, laid out as it came.

    Args:
        q: [B, N, heads, d].
        k: [B, N, heads or fewer, d].
        v: As k.
        causal: Whether no query sees a later key.
        mask: Bool [B, 1, T, N], true where one of the last T queries sees a key. Those before them
            are causal, which needs no mask.

    Returns:
        [B, N, heads, d].
    """
    grouped = q.shape[2] != k.shape[2]
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    if mask is not None:
        n = q.shape[2] - mask.shape[2]
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            start = F.scaled_dot_product_attention(
                q[:, :, :n], k[:, :, :n], v[:, :, :n], is_causal=True, enable_gqa=grouped
            )
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            end = F.scaled_dot_product_attention(q[:, :, n:], k, v, mask)
        return torch.cat((start.transpose(1, 2), end.transpose(1, 2)), 1)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
    return out.transpose(1, 2)


def vision_block(x: Tensor, cos: Tensor, sin: Tensor, heads: int, p: tuple[Tensor, ...]) -> Tensor:
    """One vision block over x [B, N, D]; `p` as `vision_params` lists it."""
    n1, qkv_w, qkv_b, o_w, o_b, n2, g_w, g_b, u_w, u_b, d_w, d_b = p
    b, n, width = x.shape
    y = rms(x, n1)
    q, k, v = (  # three products, so that no gradient has to be joined
        F.linear(y, w, bias).view(b, n, heads, -1)
        for w, bias in zip(qkv_w.chunk(3), qkv_b.chunk(3), strict=True)
    )
    a = attend(turn(q, cos, sin), turn(k, cos, sin), v)
    x = x + F.linear(a.reshape(b, n, width), o_w, o_b)
    y = rms(x, n2)
    return x + F.linear(F.silu(F.linear(y, g_w, g_b)) * F.linear(y, u_w, u_b), d_w, d_b)


def text_block(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    width: int,
    p: tuple[Any, ...],
    mask: Tensor | None = None,
    epsilon: float = 1e-6,
) -> Tensor:
    """One decoder block.

    Args:
        x: [B, L, D].
        cos: [L, width], or [B * L, width] with the mask of `turn_mask`.
        sin: As cos.
        width: Channels of a head.
        p: As `text_params` lists them.
        mask: As `attend` takes it.
        epsilon: Of the norms.
    """
    n1, q_w, q_b, k_w, k_b, v_w, v_b, o_w, n2, g_w, u_w, d_w = p
    b, n, _ = x.shape
    y = rms(x, n1, epsilon)
    shape = (b, n, -1, width) if mask is None else (1, b * n, -1, width)
    q = turn(F.linear(y, q_w, q_b).view(shape), cos, sin).view(b, n, -1, width)
    k = turn(F.linear(y, k_w, k_b).view(shape), cos, sin).view(b, n, -1, width)
    v = F.linear(y, v_w, v_b).view(b, n, -1, width)
    x = x + F.linear(attend(q, k, v, mask is None, mask).reshape(b, n, -1), o_w)
    y = rms(x, n2, epsilon)
    return x + F.linear(F.silu(F.linear(y, g_w)) * F.linear(y, u_w), d_w)


def vision_params(block: Any) -> tuple[Tensor, ...]:
    """The weights of one vision block, in the order `vision_block` takes them."""
    a, m = block.attn, block.mlp
    return (
        block.norm1.weight, a.qkv.weight, a.qkv.bias, a.proj.weight, a.proj.bias,
        block.norm2.weight, m.gate_proj.weight, m.gate_proj.bias, m.up_proj.weight,
        m.up_proj.bias, m.down_proj.weight, m.down_proj.bias,
    )  # fmt: skip


def text_params(layer: Any) -> tuple[Tensor, ...]:
    """The weights of one decoder layer, in the order `text_block` takes them."""
    a, m = layer.self_attn, layer.mlp
    return (
        layer.input_layernorm.weight, a.q_proj.weight, a.q_proj.bias, a.k_proj.weight,
        a.k_proj.bias, a.v_proj.weight, a.v_proj.bias, a.o_proj.weight,
        layer.post_attention_layernorm.weight, m.gate_proj.weight, m.up_proj.weight,
        m.down_proj.weight,
    )  # fmt: skip


def colour_scale(device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and deviation of the three colours, in bytes."""
    return torch.tensor(MEAN, device=device) * 255, torch.tensor(STD, device=device) * 255


def patchify(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """uint8 [B, H, W, 3] to normalised patches [B, N, 3 * 14 * 14], in 2 x 2 blocks."""
    b, h, w, _ = images.shape
    x = (images.float() - mean) / std
    x = x.view(b, h // UNIT, MERGE, PATCH, w // UNIT, MERGE, PATCH, 3)
    return x.permute(0, 1, 4, 2, 5, 7, 3, 6).reshape(b, -1, 3 * PATCH * PATCH)


def vision_angles(rows: int, columns: int, head: int, device: torch.device) -> Tensor:
    """Rotary angles [4 * rows * columns, head] of the patches of `rows` x `columns` tokens."""
    r = torch.arange(2 * rows, device=device).view(rows, 1, 2, 1).expand(rows, columns, 2, 2)
    c = torch.arange(2 * columns, device=device).view(1, columns, 1, 2).expand(rows, columns, 2, 2)
    place = torch.stack((r, c), -1).reshape(-1, 2).float()
    inverse = 1 / 10_000 ** (torch.arange(0, head // 2, 2, device=device).float() / (head // 2))
    angles = (place[..., None] * inverse).flatten(1)
    return torch.cat((angles, angles), -1)


def text_angles(
    rows: int, columns: int, before: int, after: int, config: Any, device: Any
) -> Tensor:
    """M-RoPE angles [L, head] of a sequence: `before` tokens, the image, `after` tokens."""
    head = config.hidden_size // config.num_attention_heads
    r, c = torch.meshgrid(
        torch.arange(rows, device=device), torch.arange(columns, device=device), indexing="ij"
    )
    image = torch.stack((torch.zeros_like(r), r, c)).flatten(1) + before
    start = torch.arange(before, device=device).expand(3, -1)
    end = torch.arange(after, device=device).expand(3, -1) + before + max(rows, columns)
    place = torch.cat((start, image, end), 1).float()  # [3, L]
    theta = config.rope_parameters["rope_theta"]
    inverse = 1 / theta ** (torch.arange(0, head, 2, device=device).float() / head)
    angles = place[..., None] * inverse  # [3, L, head / 2]
    parts = angles.split(config.rope_parameters["mrope_section"], -1)
    chosen = torch.cat([part[i % 3] for i, part in enumerate(parts)], -1)
    return torch.cat((chosen, chosen), -1)


def line_angles(length: int, width: int, theta: float, device: torch.device) -> Tensor:
    """Rotary angles [length, width] of consecutive positions."""
    inverse = 1 / theta ** (torch.arange(0, width, 2, device=device).float() / width)
    angles = torch.arange(length, device=device).float()[:, None] * inverse
    return torch.cat((angles, angles), -1)


def turn_places(text: Tensor, end: int = tokenizer.VISION_END) -> tuple[Tensor, Tensor]:
    """Of text [B, T] whose turns all begin with `end`, the image's: turn, from 1, place in it."""
    begins = text == end
    at = torch.arange(text.shape[1], device=text.device).expand_as(text)
    return begins.cumsum(1), at - torch.where(begins, at, 0).cummax(1).values


def turn_mask(turns: Tensor, before: int) -> Tensor:
    """bool [B, 1, T, L]: text of `turns` [B, T] sees `before` tokens and its own turn."""
    own = (turns[:, None] == turns[:, :, None]).tril()
    return F.pad(own, (before, 0), value=True)[:, None]


def lm_loss(x: Tensor, norm: Tensor, embed: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Weighted cross-entropy of x [B, T, D] against labels [B, T] (-1: no loss)."""
    logits = F.linear(rms(x, norm), embed).float()
    each = F.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=-1, reduction="none"
    )
    return (each * weights.flatten()).sum() / weights.sum().clamp(min=1e-6)


def glyph_loss(features: Tensor, weight: Tensor, bias: Tensor, target: Tensor, up: float) -> Tensor:
    """Multi-hot binary cross-entropy per patch; positives count `up` times."""
    logits = F.linear(features, weight, bias).float()
    lost = F.softplus(logits) - target * logits
    lost = lost + target * (up - 1) * F.softplus(-logits)
    return lost.sum() / target.sum().clamp(min=1)


def apart(
    text: Tensor, angles: Tensor, before: int, end: int = tokenizer.VISION_END
) -> tuple[Tensor, Tensor]:
    """Angles [B * L, d] and mask [B, 1, T, L] of turns that are hidden from each other.

    Args:
        text: [B, T], turns that all begin with the image's end.
        angles: [L, d] of one conversation.
        before: Tokens before the text; every turn comes right after them.
        end: The token that ends an image.
    """
    turns, places = turn_places(text, end)
    own = (angles[:before].expand(len(text), -1, -1), angles[before:][places])
    return torch.cat(own, 1).flatten(0, 1), turn_mask(turns, before)


class Forward:
    """The forward pass of one model, its block functions compiled once for all sizes."""

    def __init__(self, model: Any, compile_blocks: bool) -> None:
        self.model = model
        self.vision_block, self.text_block = vision_block, text_block
        self.lm_loss, self.glyph_loss = lm_loss, glyph_loss
        if compile_blocks:
            self.vision_block = torch.compile(vision_block, dynamic=True)
            self.text_block = torch.compile(text_block, dynamic=True)
            self.lm_loss = torch.compile(lm_loss, dynamic=True)
            self.glyph_loss = torch.compile(glyph_loss, dynamic=True)
        # Made once: copying constants to a GPU at every step would wait for it each time.
        self.mean, self.std = colour_scale(model.device)
        self.prefix = torch.tensor(tokenizer.prefix(), device=model.device)

    @property
    def visual(self) -> Any:
        """The vision tower and its connector."""
        return self.model.model.visual

    def see(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Images [B, H, W, 3] to patch features [B, 4 N, Dv] and visual tokens [B, N, D]."""
        visual = self.visual
        heads = visual.config.num_heads
        rows, columns = images.shape[1] // UNIT, images.shape[2] // UNIT
        kernel = visual.patch_embed.proj.weight.sum(2).flatten(1)
        x = F.linear(patchify(images, self.mean, self.std), kernel).float()
        angles = vision_angles(rows, columns, x.shape[-1] // heads, x.device)
        cos, sin = angles.cos(), angles.sin()
        for block in visual.blocks:
            x = self.vision_block(x, cos, sin, heads, vision_params(block))
        merger = visual.merger
        y = rms(x, merger.ln_q.weight).view(x.shape[0], rows * columns, -1)
        y = F.linear(y, merger.mlp[0].weight, merger.mlp[0].bias)
        return x, F.linear(F.gelu(y), merger.mlp[2].weight, merger.mlp[2].bias)

    def read(
        self, seen: Tensor, text: Tensor, rows: int, columns: int, alone: bool = False
    ) -> Tensor:
        """Hidden states [B, T, D] of `text` [B, T] after the image's tokens `seen`."""
        language = self.model.model.language_model
        embed = language.embed_tokens.weight
        start = F.embedding(self.prefix, embed).expand(text.shape[0], -1, -1)
        x = torch.cat((start.float(), seen.float(), F.embedding(text, embed).float()), 1)
        first, after = len(self.prefix), text.shape[1]
        angles = text_angles(rows, columns, first, after, language.config, x.device)
        width, before = angles.shape[-1], first + seen.shape[1]
        mask: Tensor | None = None
        if alone:
            angles, mask = apart(text, angles, before)
        cos, sin = angles.cos(), angles.sin()
        for layer in language.layers:
            x = self.text_block(x, cos, sin, width, text_params(layer), mask)
        return x[:, before:]

    def losses(self, batch: Batch, head: torch.nn.Linear) -> tuple[Tensor, Tensor]:
        """Answer loss and glyph loss of `batch`."""
        rows, columns = batch.images.shape[1] // UNIT, batch.images.shape[2] // UNIT
        features, seen = self.see(batch.images)
        x = self.read(seen, batch.text, rows, columns, batch.alone)
        language = self.model.model.language_model
        answer = self.lm_loss(
            x, language.norm.weight, language.embed_tokens.weight, batch.labels, batch.weights
        )
        features = features.flatten(0, 1)
        target = batch.glyph_target(len(features), head.out_features)
        glyph = self.glyph_loss(features, head.weight, head.bias, target, UP)
        return answer, glyph
