"""What the rest of the library knows of a vision-language model, whatever its family."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rotatek.budget import full_kv_bytes
from rotatek.cache.metrics import OutputMetrics
from rotatek.errors import RequestTooLong
from rotatek.inputs import Request
from rotatek.prompt import encode_chat, encode_text, expand_images
from rotatek.tokens.base import TokenPruner

Seen = tuple[Tensor, Tensor | None]  # visual tokens [N, hidden]; kept [N] bool, or None for all


@dataclass(frozen=True)
class Grid:
    """Where one image's visual tokens sit: rows x columns over the picture, in reading order."""

    rows: int
    columns: int


@dataclass(frozen=True)
class Pixels:
    """Preprocessed images: the vision tower's tensors, and the tokens each image becomes."""

    tensors: dict[str, Tensor]
    counts: tuple[int, ...]
    grids: tuple[Grid, ...]


@dataclass(frozen=True)
class Prompt:
    """One encoded request: ids [1, L], visual [1, L] bool; question [t], the question's own ids."""

    ids: Tensor
    visual: Tensor
    pixels: Pixels
    question: Tensor | None = None

    @property
    def visual_tokens(self) -> int:
        """N before any pruning."""
        return int(self.visual.sum())


@dataclass(frozen=True)
class Embedded:
    """What the language model reads.

    embeds: [B, L, hidden]; positions: [B, L] or [3, B, L] (M-RoPE); visual, valid: [B, L] bool;
    next_position: [B] the position of the first generated token; kept: [N] bool on the CPU, the
    visual tokens left by an encoder-stage pruner, or None.
    """

    embeds: Tensor
    positions: Tensor
    visual: Tensor
    valid: Tensor
    next_position: Tensor
    kept: Tensor | None = None

    def inputs(self) -> dict[str, Tensor]:
        """As `RotateKCache` wants them."""
        return {"visual": self.visual, "attention_mask": self.valid}


class VisionLanguageModel(ABC):
    """A loaded model with its tokenizer and image processor."""

    family: ClassVar[str]
    template: ClassVar[str | None] = None  # used where the checkpoint brings none

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, images: Any, name: str
    ) -> None:
        self.model, self.tokenizer, self.images, self.name = model, tokenizer, images, name
        self.metrics = OutputMetrics()

    @property
    def device(self) -> torch.device:
        """Where prompts go."""
        return self.model.get_input_embeddings().weight.device

    @property
    def image_token(self) -> int:
        """The id that stands for one visual token."""
        return int(self.model.config.image_token_id)

    @property
    def text_config(self) -> Any:
        """The language model's configuration."""
        return self.model.config.get_text_config()

    def full_bytes(self, tokens: int) -> int:
        """Bytes an uncompressed cache of `tokens` tokens takes."""
        config = self.text_config
        heads = config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // heads
        itemsize = self.model.get_input_embeddings().weight.element_size()
        return full_kv_bytes(
            config.num_hidden_layers, config.num_key_value_heads or heads, width, tokens, itemsize
        )

    def context(self, limit: int | None = None) -> int | None:
        """Tokens a conversation may have: the model's own number or `limit`, whichever is less."""
        own = getattr(self.text_config, "max_position_embeddings", None)
        return min((n for n in (own, limit) if n), default=None)

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an answer."""
        ids = self.model.generation_config.eos_token_id
        if ids is None:
            ids = self.tokenizer.eos_token_id
        return frozenset(ids if isinstance(ids, list) else [ids])

    @property
    @abstractmethod
    def banned_ids(self) -> tuple[int, ...]:
        """Vision ids, which an answer must not contain."""

    @abstractmethod
    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """Turn pictures into the vision tower's tensors."""

    @abstractmethod
    def features(self, pixels: Pixels) -> Tensor:
        """Projected visual tokens of all images, [N, hidden]."""

    @abstractmethod
    def tower_states(self, pixels: Pixels) -> Any:
        """Run the vision tower: what `reduced` needs, whatever the pruner."""

    @abstractmethod
    def reduced(
        self, pixels: Pixels, pruner: TokenPruner, watched: Any, question: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Let an encoder-stage pruner choose among the visual tokens.

        Args:
            pixels: the images.
            pruner: reduces each image, or each tile, on its own.
            watched: what `tower_states` returned for the same images.
            question: [t, hidden] embeddings of the question's words.

        Returns:
            Visual tokens [N, hidden], those that go among them, and kept [N] bool.
        """

    @abstractmethod
    def positions(self, prompt: Prompt) -> tuple[Tensor, Tensor]:
        """Positions of a prompt's tokens and of the first generated one; see `Embedded`."""

    def prompt(
        self, request: Request, limit: int | None = None, pixels: Pixels | None = None
    ) -> Prompt:
        """Encode a request.

        Args:
            request: what is asked.
            limit: the most tokens of prompt and answer together, where the model's own context is
                larger.
            pixels: the request's images, where they are preprocessed already.

        Raises:
            RequestTooLong: if the prompt and the answer exceed the context, or `limit` tokens.
        """
        pixels = pixels or self.preprocess(request.images)
        template = self.tokenizer.chat_template or self.template
        ids = encode_chat(self.tokenizer, request, template)
        ids = expand_images(ids, self.image_token, pixels.counts)
        room = self.context(limit)
        if room is not None and len(ids) + request.max_new_tokens > room:
            raise RequestTooLong
        tensor = torch.tensor([ids], device=self.device)
        asked = encode_text(self.tokenizer, request.question)
        question = torch.tensor(asked, dtype=torch.long, device=self.device)
        return Prompt(tensor, tensor == self.image_token, pixels, question)

    @torch.inference_mode()
    def run_tower(self, pixels: Pixels) -> Any:
        """`tower_states`, for several `encode_images` calls at the same pictures."""
        return self.tower_states(pixels)

    @torch.inference_mode()
    def encode_images(
        self,
        pixels: Pixels,
        pruner: TokenPruner | None = None,
        watched: Any | None = None,
        question: Tensor | None = None,
    ) -> Seen:
        """Run the vision tower; under an encoder-stage pruner, say which tokens stay.

        Args:
            pixels: the images.
            pruner: one of another stage changes nothing here.
            watched: what `run_tower` made of the same pictures, which saves the tower's run.
            question: ids [t] of the question, for a pruner that looks at it.

        Returns:
            Visual tokens [N, hidden], and kept [N] bool, or None where all stay.
        """
        if pruner is None or pruner.stage != "encoder" or pruner.kept_share == 1:
            return self.features(pixels), None
        if question is None:
            question = torch.empty(0, dtype=torch.long, device=self.device)
        words = self.model.get_input_embeddings()(question)
        return self.reduced(pixels, pruner, watched or self.tower_states(pixels), words)

    @torch.inference_mode()
    def embed(
        self, prompt: Prompt, pruner: TokenPruner | None = None, seen: Seen | None = None
    ) -> Embedded:
        """Place the vision tower's tokens in the prompt.

        Under an encoder-stage pruner the prompt shrinks here; what stays keeps its position.

        Args:
            prompt: an encoded request.
            pruner: for `encode_images`.
            seen: what `encode_images` made of the prompt's pixels, where it has run already.
        """
        embeds = self.model.get_input_embeddings()(prompt.ids)
        features, kept = seen or self.encode_images(prompt.pixels, pruner, question=prompt.question)
        embeds = embeds.masked_scatter(prompt.visual[..., None], features.to(embeds))
        positions, after = self.positions(prompt)
        visual = prompt.visual
        if kept is not None:
            rows = ~visual[0]
            rows[visual[0].nonzero()[kept, 0]] = True
            embeds, positions, visual = embeds[:, rows], positions[..., rows], visual[:, rows]
            kept = kept.cpu()
        return Embedded(embeds, positions, visual, torch.ones_like(visual), after, kept)

    def positions_at(self, position: Tensor) -> Tensor:
        """Position ids for one new token at `position` [B]: [B, 1]."""
        return position[:, None]


def pad_left(states: Tensor, length: int, dim: int) -> Tensor:
    """Zeros before `states` along `dim` up to `length`."""
    shape = list(states.shape)
    shape[dim] = length - shape[dim]
    return torch.cat([states.new_zeros(shape), states], dim)


def collate(prompts: Sequence[Embedded]) -> Embedded:
    """One left-padded batch of single prompts."""
    length = max(p.embeds.shape[1] for p in prompts)
    padded = [
        replace(
            p,
            embeds=pad_left(p.embeds, length, 1),
            positions=pad_left(p.positions, length, -1),
            visual=pad_left(p.visual, length, 1),
            valid=pad_left(p.valid, length, 1),
        )
        for p in prompts
    ]
    batch = -2 if prompts[0].positions.dim() == 3 else 0
    return Embedded(
        torch.cat([p.embeds for p in padded]),
        torch.cat([p.positions for p in padded], batch),
        torch.cat([p.visual for p in padded]),
        torch.cat([p.valid for p in padded]),
        torch.cat([p.next_position for p in padded]),
    )
