"""The third pocket's training forward: the first one's eyes, then SmolLM2 with its adapters.

It computes what the assembled checkpoint computes (a test holds the two together).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pocket.models.batch import Batch
from pocket.models.config import UNIT
from pocket.models.forward import UP, Forward, apart, line_angles, rms, text_angles, text_block
from pocket.models.smol import Smol, matrix_names
from pocket.models.tokenizer import Codec


def frozen_params(layer: Any) -> tuple[Tensor, ...]:
    """A decoder layer's tensors: two norms, then the matrices."""
    norms = (layer.input_layernorm, layer.post_attention_layernorm)
    return (*norms, *(getattr(layer, name) for name in matrix_names()))


def low_params(layer: Any) -> tuple[tuple[Tensor, Tensor], ...]:
    """The factors (up, down) of a layer's changes, in the matrices' order."""
    return tuple((layer[name].up, layer[name].down) for name in matrix_names())


def as_params(frozen: tuple[Tensor, ...]) -> tuple[Any, ...]:
    """`frozen_params` in the order that `text_block` takes; SmolLM2 has no biases."""
    n1, n2, q, k, v, o, gate, up, down = frozen
    return n1, q, None, k, None, v, None, o, n2, gate, up, down


def adapted_block(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    width: int,
    frozen: tuple[Tensor, ...],
    low: tuple[tuple[Tensor, Tensor], ...],
    scale: float,
    mask: Tensor | None,
    epsilon: float,
) -> Tensor:
    """One decoder block whose matrices have their changes added, as the shipped weights have.

    Adding them costs less than a part of a step's products, and gradients reach the factors
    through the sum.
    """
    n1, n2, *matrices = frozen
    sums = [w + scale * (up @ down) for w, (up, down) in zip(matrices, low, strict=True)]
    return text_block(x, cos, sin, width, as_params((n1, n2, *sums)), mask, epsilon)


def counted_loss(x: Tensor, norm: Tensor, embed: Tensor, said: Tensor, worth: Tensor,
                 epsilon: float) -> Tensor:  # fmt: skip
    """Weighted cross-entropy of states x [K, D] that say `said` [K], each worth `worth` [K]."""
    logits = F.linear(rms(x, norm, epsilon), embed).float()
    each = F.cross_entropy(logits, said, reduction="none")
    return (each * worth).sum() / worth.sum().clamp(min=1e-6)


def divergence(x: Tensor, base: Tensor, norm: Tensor, embed: Tensor, epsilon: float) -> Tensor:
    """Mean divergence KL(base || x) of what two states [K, D] say next, in nats.

    Source: Hinton et al., "Distilling the knowledge in a neural network", 2015.
    """
    now = F.linear(rms(x, norm, epsilon), embed).float().log_softmax(-1)
    with torch.no_grad():
        before = F.linear(rms(base, norm, epsilon), embed).float().log_softmax(-1)
    return (before.exp() * (before - now)).sum(-1).mean()


class SmolForward(Forward):
    """The forward pass of the third pocket, its block functions compiled once for all sizes."""

    def __init__(self, model: Smol, compile_blocks: bool, codec: Codec) -> None:
        super().__init__(model, compile_blocks)
        self.adapted_block, self.counted_loss = adapted_block, counted_loss
        self.divergence = divergence
        if compile_blocks:
            self.adapted_block = torch.compile(adapted_block, dynamic=True)
            self.counted_loss = torch.compile(counted_loss, dynamic=True)
            self.divergence = torch.compile(divergence, dynamic=True)
        self.codec, self.epsilon = codec, float(model.config.text_config.rms_norm_eps)
        self.prefix = torch.tensor(codec.prefix(), device=model.device)

    @property
    def visual(self) -> Any:
        """The vision tower and its connector."""
        return self.model.visual

    def read(
        self, seen: Tensor, text: Tensor, rows: int, columns: int, alone: bool = False
    ) -> Tensor:
        """Hidden states [B, T, D] of `text` [B, T] after the image's tokens `seen`."""
        embed, config = self.model.language.embed, self.model.config.text_config
        start = F.embedding(self.prefix, embed).expand(text.shape[0], -1, -1)
        x = torch.cat((start.float(), seen.float(), F.embedding(text, embed).float()), 1)
        first = len(self.prefix)
        angles = text_angles(rows, columns, first, text.shape[1], config, x.device)
        before = first + seen.shape[1]
        mask: Tensor | None = None
        if alone:
            angles, mask = apart(text, angles, before, self.codec.VISION_END)
        return self.decode(x, angles, mask)[:, before:]

    def decode(
        self, x: Tensor, angles: Tensor, mask: Tensor | None = None, adapted: bool = True
    ) -> Tensor:
        """All decoder layers over x [B, L, D], with the adapters or as SmolLM2 is."""
        cos, sin = angles.cos(), angles.sin()
        width, model = angles.shape[-1], self.model
        for frozen, low in zip(model.language.layers, model.adapters.layers, strict=True):
            p = frozen_params(frozen)
            if adapted:
                more = (low_params(low), model.scale, mask, self.epsilon)
                x = self.adapted_block(x, cos, sin, width, p, *more)
            else:
                x = self.text_block(x, cos, sin, width, as_params(p), mask, self.epsilon)
        return x

    def losses(  # type: ignore[override]
        self, batch: Batch, head: torch.nn.Linear
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Answer loss, glyph loss and divergence from SmolLM2 on text alone, of `batch`."""
        rows, columns = batch.images.shape[1] // UNIT, batch.images.shape[2] // UNIT
        at = (batch.labels.flatten() >= 0).nonzero()[:, 0]
        features, seen = self.see(batch.images)
        x = self.read(seen, batch.text, rows, columns, batch.alone).flatten(0, 1)[at]
        said, worth = batch.labels.flatten()[at], batch.weights.flatten()[at]
        language = self.model.language
        answer = self.counted_loss(x, language.norm, language.embed, said, worth, self.epsilon)
        features = features.flatten(0, 1)
        target = batch.glyph_target(len(features), head.out_features)
        glyph = self.glyph_loss(features, head.weight, head.bias, target, UP)
        return answer, glyph, self.plain_loss(batch.plain)

    def plain_loss(self, text: Tensor | None) -> Tensor:
        """How far the adapters lead SmolLM2 from itself on conversations [M, L] of text alone."""
        language, config = self.model.language, self.model.config.text_config
        if text is None:
            return language.norm.new_zeros(())
        x = F.embedding(text, language.embed).float()
        width = config.hidden_size // config.num_attention_heads
        theta = config.rope_parameters["rope_theta"]
        angles = line_angles(text.shape[1], width, theta, text.device)
        at = (text.flatten() != self.codec.PAD).nonzero()[:, 0]
        with torch.no_grad():
            base = self.decode(x, angles, adapted=False).flatten(0, 1)[at]
        now = self.decode(x, angles).flatten(0, 1)[at]
        return self.divergence(now, base, language.norm, language.embed, self.epsilon)
