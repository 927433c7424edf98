"""A batch of questions as the model reads them: each picture is preprocessed and seen once."""

from collections.abc import Hashable, Sequence
from typing import Any

import torch

from rotatek.bridge.row_layout import Layout
from rotatek.cache.token_plan import layout_of
from rotatek.evaluation.suite import Item, Suite
from rotatek.inputs.request import make_request
from rotatek.methods.tokens import TokenPruner
from rotatek.models import Embedded, Prompt, VisionLanguageModel
from rotatek.models.base import Pixels, Seen, by_depth, collate


class QuestionBatch:
    """Questions encoded once, whatever the settings.

    Args:
        vlm: the model.
        suite: where the pictures are.
        items: the questions.
        suffix: appended to every question.
        limit: new tokens of an answer.

    Attributes:
        whole: the padded batch with every visual token.
        full_bytes: of an uncompressed cache of it.
    """

    def __init__(
        self, vlm: VisionLanguageModel, suite: Suite, items: Sequence[Item], suffix: str, limit: int
    ) -> None:
        self.vlm, self.items, self.limit = vlm, items, limit
        self._pixels: dict[int, Pixels] = {}
        self._watched: dict[int, Any] = {}
        prompts = self._prompts(suite, suffix)
        self._questions = [prompt.question for prompt in prompts]
        seen = {document: vlm.encode_images(pixels) for document, pixels in self._pixels.items()}
        pairs = zip(items, prompts, strict=True)
        self.whole = collate([vlm.embed(prompt, None, seen[i.document]) for i, prompt in pairs])
        self._layout = layout_of(vlm.model, self.whole.inputs())
        self.full_bytes = vlm.full_bytes(self.whole.valid.numel())

    def _prompts(self, suite: Suite, suffix: str) -> list[Prompt]:
        """Encoded questions."""
        images = {item.document: suite.image(item.document) for item in self.items}
        prompts = []
        for item in self.items:
            request = make_request(images[item.document], item.question + suffix, self.limit)
            prompts.append(self.vlm.prompt(request, pixels=self._pixels.get(item.document)))
            self._pixels[item.document] = prompts[-1].pixels
        return prompts

    def under(self, pruner: TokenPruner) -> tuple[Embedded, Layout]:
        """The padded batch that a pruner leaves to the language model, and where its tokens are."""
        if pruner.stage != "encoder":
            return self.whole, self._layout
        if not self._watched:
            self._watched = {d: self.vlm.run_tower(pixels) for d, pixels in self._pixels.items()}
        seen: dict[Hashable, Seen] = {}  # a picture's, or a question's where the pruner asks
        sights: list[Hashable] = []
        for number, item in enumerate(self.items):
            sights.append((number, item.document) if pruner.asks else item.document)
            if sights[-1] not in seen:
                seen[sights[-1]] = self.vlm.encode_images(
                    self._pixels[item.document],
                    pruner,
                    self._watched[item.document],
                    self._questions[number],
                )
        return self._reduced([seen[sight] for sight in sights])

    @torch.inference_mode()
    def _reduced(self, seen: Sequence[Seen]) -> tuple[Embedded, Layout]:
        """The whole batch less what an encoder-stage pruner drops; positions stay."""
        whole = self.whole
        width = whole.embeds.shape[-1]
        features = torch.cat([tokens for tokens, _ in seen]).to(whole.embeds)
        first, deeper = by_depth(features, width)
        kept = torch.cat([kept for _, kept in seen if kept is not None])
        embeds = whole.embeds.masked_scatter(whole.visual[..., None], first)
        stays = (~whole.visual).masked_scatter(whole.visual, kept) & whole.valid
        layout, source = self._layout.take(stays)
        embedded = Embedded(
            embeds.gather(1, source[..., None].expand(-1, -1, width)),
            whole.positions.gather(-1, source.expand(*whole.positions.shape[:-1], -1)),
            layout.visual,
            layout.valid,
            whole.next_position,
            deeper=None if deeper is None else deeper[:, kept],
        )
        return embedded, layout
