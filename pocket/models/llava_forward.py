"""The second pocket's training forward: its own weights in a plain function over one tiling.

It computes what `LlavaNextForConditionalGeneration` computes for one picture per sequence (a test
holds the two together), but over a whole batch of pictures of one size.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pocket.models import tokenizer
from pocket.models.batch import TileBatch
from pocket.models.config import PATCH
from pocket.models.forward import apart, colour_scale, glyph_loss, lm_loss, rms, text_block
from pocket.models.llava import vision_parts
from pocket.models.llava_tiles import READABLE, Tiling, join
from pocket.models.rotary import turn


def clip_block(x: Tensor, heads: int, p: tuple[Tensor, ...]) -> Tensor:
    """One block of the tower over x [B, N, D]; `p` as `clip_params` lists it."""
    n1, b1, q_w, q_b, k_w, k_b, v_w, v_b, o_w, o_b, n2, b2, u_w, u_b, d_w, d_b = p
    b, n, width = x.shape
    y = F.layer_norm(x, (width,), n1, b1)
    q = F.linear(y, q_w, q_b).view(b, n, heads, -1).transpose(1, 2)
    k = F.linear(y, k_w, k_b).view(b, n, heads, -1).transpose(1, 2)
    v = F.linear(y, v_w, v_b).view(b, n, heads, -1).transpose(1, 2)
    a = F.scaled_dot_product_attention(q, k, v)
    x = x + F.linear(a.transpose(1, 2).reshape(b, n, width), o_w, o_b)
    y = F.linear(F.layer_norm(x, (width,), n2, b2), u_w, u_b)
    return x + F.linear(y * torch.sigmoid(1.702 * y), d_w, d_b)


def clip_params(layer: Any) -> tuple[Tensor, ...]:
    """The weights of one block of the tower, in the order `clip_block` takes them."""
    a, m, n1, n2 = layer.self_attn, layer.mlp, layer.layer_norm1, layer.layer_norm2
    return (
        n1.weight, n1.bias, a.q_proj.weight, a.q_proj.bias, a.k_proj.weight, a.k_proj.bias,
        a.v_proj.weight, a.v_proj.bias, a.out_proj.weight, a.out_proj.bias, n2.weight, n2.bias,
        m.fc1.weight, m.fc1.bias, m.fc2.weight, m.fc2.bias,
    )  # fmt: skip


def llama_params(layer: Any) -> tuple[Any, ...]:
    """The weights of one decoder layer, in the order `text_block` takes them; no biases."""
    a, m = layer.self_attn, layer.mlp
    return (
        layer.input_layernorm.weight, a.q_proj.weight, None, a.k_proj.weight, None,
        a.v_proj.weight, None, a.o_proj.weight, layer.post_attention_layernorm.weight,
        m.gate_proj.weight, m.up_proj.weight, m.down_proj.weight,
    )  # fmt: skip


def tile_patches(tiles: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """uint8 [B, side, side, 3] to normalised patches [B, N, 3 * 14 * 14], row by row."""
    b, side = tiles.shape[:2]
    x = ((tiles.float() - mean) / std).view(b, side // PATCH, PATCH, side // PATCH, PATCH, 3)
    return x.permute(0, 1, 3, 5, 2, 4).reshape(b, -1, 3 * PATCH * PATCH)


def line_angles(length: int, width: int, theta: float, device: torch.device) -> Tensor:
    """Rotary angles [length, width] of consecutive positions."""
    inverse = 1 / theta ** (torch.arange(0, width, 2, device=device).float() / width)
    angles = torch.arange(length, device=device).float()[:, None] * inverse
    return torch.cat((angles, angles), -1)


Angles = tuple[Tensor, Tensor]  # cosines and sines


def told_loss(
    text: Tensor, seen: Tensor, at: Angles, by: Angles, p: tuple[Tensor, ...], batch: Angles
) -> Tensor:
    """Weighted cross-entropy of one head's attention over the visual tokens.

    Args:
        text: The input of the head's layer, of the text [B, T, D].
        seen: ... and of the visual tokens [B, N, D].
        at: Angles [T, d] or [B * T, d] of the text.
        by: Angles [N, d] of the visual tokens.
        p: The layer's norm and the head's projections to queries and Keys [d, D].
        batch: Targets [B, T], the visual token to attend to or -1, and weights [B, T].
    """
    norm, q_w, k_w = p
    places, weights = batch
    b, t, _ = text.shape
    shape = (-1, at[0].shape[0], 1, at[0].shape[1])
    q = turn(F.linear(rms(text, norm), q_w).view(shape), *at).view(b, t, -1)
    k = turn(F.linear(rms(seen, norm), k_w)[:, :, None], *by)[:, :, 0]
    scores = (q @ k.mT).float() * q.shape[-1] ** -0.5
    lost = F.cross_entropy(
        scores.flatten(0, 1), places.flatten(), ignore_index=-1, reduction="none"
    )
    counted = (weights * (places >= 0)).flatten()
    return (lost * counted).sum() / counted.sum().clamp(min=1e-6)


class TileForward:
    """The forward pass of one model, its block functions compiled once for all sizes."""

    def __init__(self, model: Any, compile_blocks: bool) -> None:
        self.model = model
        self.clip_block, self.text_block, self.told_loss = clip_block, text_block, told_loss
        self.lm_loss, self.glyph_loss = lm_loss, glyph_loss
        if compile_blocks:
            self.clip_block = torch.compile(clip_block, dynamic=True)
            self.text_block = torch.compile(text_block, dynamic=True)
            self.told_loss = torch.compile(told_loss, dynamic=True)
            self.lm_loss = torch.compile(lm_loss, dynamic=True)
            self.glyph_loss = torch.compile(glyph_loss, dynamic=True)
        # Made once: copying constants to a GPU at every step would wait for it each time.
        self.mean, self.std = colour_scale(model.device)
        self.prefix = torch.tensor(tokenizer.prefix(), device=model.device)

    def features(self, tiles: Tensor) -> Tensor:
        """Tiles uint8 [B, side, side, 3] to patch features [B, N, Dv]."""
        tower = vision_parts(self.model)
        embeddings = tower.embeddings
        heads = tower.encoder.layers[0].self_attn.num_heads
        kernel = embeddings.patch_embedding.weight.flatten(1)
        x = F.linear(tile_patches(tiles, self.mean, self.std), kernel).float()
        mark = embeddings.class_embedding.expand(len(x), 1, -1)
        x = torch.cat((mark, x), 1) + embeddings.position_embedding.weight
        norm = tower.pre_layrnorm
        x = F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias)
        for layer in tower.encoder.layers:
            x = self.clip_block(x, heads, clip_params(layer))
        return x[:, 1:]

    def see(self, batch: TileBatch) -> tuple[Tensor, Tensor]:
        """Patch features [B, tiles, N, Dv] and packed visual tokens [B, L, D] of a batch."""
        tiles = join(batch.images, batch.grid, batch.plan)
        features = self.features(tiles.flatten(0, 1)).unflatten(0, tiles.shape[:2])
        project = self.model.model.multi_modal_projector
        y = F.linear(features.flatten(1, 2), project.linear_1.weight, project.linear_1.bias)
        y = F.linear(F.gelu(y), project.linear_2.weight, project.linear_2.bias).float()
        newline = self.model.model.image_newline.expand(len(y), 1, -1)
        return features, torch.cat((y, newline), 1)[:, batch.order]

    def read(self, seen: Tensor, batch: TileBatch) -> tuple[Tensor, Tensor]:
        """Hidden states [B, T, D] of the text after the visual tokens; loss of the attention
        target."""
        language, text = self.model.model.language_model, batch.text
        config, embed = language.config, language.embed_tokens.weight
        start = F.embedding(self.prefix, embed).expand(text.shape[0], -1, -1)
        x = torch.cat((start.float(), seen, F.embedding(text, embed).float()), 1)
        theta = config.rope_parameters["rope_theta"]
        angles, mask = line_angles(x.shape[1], config.head_dim, theta, x.device), None
        first, before = len(self.prefix), len(self.prefix) + seen.shape[1]
        by = angles[first:before]
        if batch.alone:
            angles, mask = apart(text, angles, before)
        at = angles.view(-1, x.shape[1], config.head_dim)[:, before:].flatten(0, 1)
        cos, sin = angles.cos(), angles.sin()
        for i, layer in enumerate(language.layers):
            p = llama_params(layer)
            if i == told_layer(len(language.layers)):
                head = (p[0], p[1][: config.head_dim], p[3][: config.head_dim])
                where = (at.cos(), at.sin()), (by.cos(), by.sin())
                told = self.told_loss(
                    x[:, before:], x[:, first:before], *where, head, (batch.places, batch.weights)
                )
            x = self.text_block(x, cos, sin, config.head_dim, p, mask)
        return x[:, before:], told

    def losses(
        self, batch: TileBatch, head: torch.nn.Linear, up: float = 4.0
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Answer loss, glyph loss and attention-target loss of `batch`."""
        features, seen = self.see(batch)
        x, told = self.read(seen, batch)
        language = self.model.model.language_model
        answer = self.lm_loss(
            x, language.norm.weight, language.embed_tokens.weight, batch.labels, batch.weights
        )
        return answer, self.glyphs(features, batch, head, up), told

    def glyphs(
        self, features: Tensor, batch: TileBatch, head: torch.nn.Linear, up: float
    ) -> Tensor:
        """The auxiliary loss; an illegible base view has no part in it."""
        target = features.new_zeros(features[..., 0].numel(), head.out_features)
        target[batch.glyph_patch, batch.glyph_class] = 1.0
        first = first_legible(batch.plan)
        target = target.view(*features.shape[:3], -1)[:, first:].flatten(0, 2)
        seen = features[:, first:].flatten(0, 2)
        return self.glyph_loss(seen, head.weight, head.bias, target, up)


def told_layer(layers: int) -> int:
    """The layer whose first head is trained to attend to the target token."""
    return layers * 2 // 3


def first_legible(plan: Tiling) -> int:
    """The first view that teaches glyphs: the base view, or the first tile."""
    return 0 if plan.base_scale >= READABLE else 1
