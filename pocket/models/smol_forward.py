"""The third pocket's training forward: the first one's eyes, then SmolLM2 with its adapters.

It computes what the assembled checkpoint computes (a test holds the two together).
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from pocket.models.batch import Batch
from pocket.models.config import UNIT
from pocket.models.forward import UP, Forward, apart, line_angles, rms, text_angles
from pocket.models.smol import Smol, matrix_names
from pocket.models.tokenizer import Codec

FACTORS: Final = "up", "down"  # of a matrix's change


def as_params(layer: Any, matrices: Sequence[Tensor]) -> tuple[Any, ...]:
    """A decoder layer in the order that `text_block` takes; SmolLM2 has no biases."""
    q, k, v, o, gate, up, down = matrices
    n1, n2 = layer.input_layernorm, layer.post_attention_layernorm
    return n1, q, None, k, None, v, None, o, n2, gate, up, down


def by_layer(matrices: Iterable[Tensor]) -> list[tuple[Tensor, ...]]:
    """Every layer's matrices, of those of one name [layers, rows, columns]."""
    return list(zip(*(stack.unbind() for stack in matrices), strict=True))


def counted_loss(x: Tensor, norm: Tensor, embed: Tensor, said: Tensor, worth: Tensor,
                 epsilon: float) -> Tensor:  # fmt: skip
    """Weighted cross-entropy of states x [K, D] that say `said` [K], each worth `worth` [K]."""
    logits = F.linear(rms(x, norm, epsilon), embed).float()
    each = F.cross_entropy(logits, said, reduction="none")
    return (each * worth).sum() / worth.sum().clamp(min=1e-6)


def divergence(x: Tensor, base: Tensor, said: Tensor, norm: Tensor, embed: Tensor,
               epsilon: float) -> Tensor:  # fmt: skip
    """Mean divergence KL(base || x) of what two states [M, L, D] say next, in nats.

    Of those that `said` [M, L] counts.
    Source: Hinton et al., "Distilling the knowledge in a neural network", 2015.
    """
    now = F.linear(rms(x, norm, epsilon), embed).float().log_softmax(-1)
    with torch.no_grad():
        before = F.linear(rms(base, norm, epsilon), embed).float().log_softmax(-1)
    return ((before.exp() * (before - now)).sum(-1) * said).sum() / said.sum().clamp(min=1)


class SmolForward(Forward):
    """The forward pass of the third pocket, its block functions compiled once for all sizes."""

    def __init__(self, model: Smol, compile_blocks: bool, codec: Codec) -> None:
        super().__init__(model, compile_blocks)
        self.counted_loss, self.divergence = counted_loss, divergence
        if compile_blocks:
            self.counted_loss = torch.compile(counted_loss, dynamic=True)
            self.divergence = torch.compile(divergence, dynamic=True)
        layers = model.language.layers
        self.frozen = {n: torch.stack([getattr(one, n) for one in layers]) for n in matrix_names()}
        self.unchanged = by_layer(self.frozen.values())
        self.codec, self.epsilon = codec, float(model.config.text_config.rms_norm_eps)
        self.prefix = torch.tensor(codec.prefix(), device=model.device)

    @property
    def visual(self) -> Any:
        """The vision tower and its connector."""
        return self.model.visual

    def adapted(self) -> list[tuple[Tensor, ...]]:
        """Every decoder layer's matrices with their changes added, as the shipped weights have.

        Those of one name are added together, in seven products. Gradients reach the factors through
        the sums.
        """
        device, layers = self.model.device.type, self.model.adapters.layers
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        sums = []
        for name, frozen in self.frozen.items():
            up, down = (torch.stack([getattr(one[name], x) for one in layers]) for x in FACTORS)
            changed = frozen + self.model.scale * (up @ down)
            sums.append(changed.to(dtype or changed.dtype))
        return by_layer(sums)

    def read(
        self,
        seen: Tensor,
        text: Tensor,
        rows: int,
        columns: int,
        alone: bool = False,
        matrices: Sequence[Sequence[Tensor]] | None = None,
    ) -> Tensor:
        """Hidden states [B, T, D] of `text` [B, T] after the image's tokens `seen`.

        `matrices` are those of `adapted`, where a step has made them.
        """
        embed, config = self.model.language.embed, self.model.config.text_config
        start = F.embedding(self.prefix, embed).expand(text.shape[0], -1, -1)
        x = torch.cat((start.float(), seen.float(), F.embedding(text, embed).float()), 1)
        first = len(self.prefix)
        angles = text_angles(rows, columns, first, text.shape[1], config, x.device)
        before = first + seen.shape[1]
        mask: Tensor | None = None
        if alone:
            angles, mask = apart(text, angles, before, self.codec.VISION_END)
        return self.decode(x, angles, matrices or self.adapted(), mask)[:, before:]

    def decode(
        self,
        x: Tensor,
        angles: Tensor,
        matrices: Sequence[Sequence[Tensor]],
        mask: Tensor | None = None,
    ) -> Tensor:
        """All decoder layers over x [B, L, D], with these matrices, a sequence for each."""
        cos, sin, width = angles.cos(), angles.sin(), angles.shape[-1]
        for layer, own in zip(self.model.language.layers, matrices, strict=True):
            x = self.text_block(x, cos, sin, width, as_params(layer, own), mask, self.epsilon)
        return x

    def losses(  # type: ignore[override]
        self, batch: Batch, head: torch.nn.Linear
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Answer loss, glyph loss and divergence from SmolLM2 on text alone, of `batch`."""
        rows, columns = batch.images.shape[1] // UNIT, batch.images.shape[2] // UNIT
        at = batch.labelled()
        features, seen = self.see(batch.images)
        own = self.adapted()
        x = self.read(seen, batch.text, rows, columns, batch.alone, own).flatten(0, 1)[at]
        said, worth = batch.labels.flatten()[at], batch.weights.flatten()[at]
        language = self.model.language
        answer = self.counted_loss(x, language.norm, language.embed, said, worth, self.epsilon)
        features = features.flatten(0, 1)
        target = batch.glyph_target(len(features), head.out_features)
        glyph = self.glyph_loss(features, head.weight, head.bias, target, UP)
        return answer, glyph, self.plain_loss(batch.plain, own)

    def plain_loss(
        self, text: Tensor | None, matrices: Sequence[Sequence[Tensor]] | None = None
    ) -> Tensor:
        """How far the adapters lead SmolLM2 from itself on conversations [M, L] of text alone."""
        language, config = self.model.language, self.model.config.text_config
        if text is None:
            return language.norm.new_zeros(())
        x = F.embedding(text, language.embed).float()
        width = config.hidden_size // config.num_attention_heads
        theta = config.rope_parameters["rope_theta"]
        angles = line_angles(text.shape[1], width, theta, text.device)
        with torch.no_grad():
            base = self.decode(x, angles, self.unchanged)
        now = self.decode(x, angles, matrices or self.adapted())
        said = text != self.codec.PAD
        return self.divergence(now, base, said, language.norm, language.embed, self.epsilon)
