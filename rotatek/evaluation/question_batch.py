"""A batch of questions as the model reads them: each picture is preprocessed and seen once."""

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache

from rotatek.bridge.row_layout import Layout
from rotatek.cache.rotatek_cache import cache_bytes
from rotatek.cache.token_plan import layout_of
from rotatek.engine.conversation import turn_of
from rotatek.engine.dialogues import Dialogue
from rotatek.evaluation.chains import NEUTRAL_TOKENS, Chain, answered_by
from rotatek.evaluation.suite import Item, Suite
from rotatek.inputs.request import clean_question, make_request
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
        limits: new tokens of a short answer, and of a page.
        long: whether a page is asked for.

    Attributes:
        whole: the padded batch with every visual token.
    """

    def __init__(
        self,
        vlm: VisionLanguageModel,
        suite: Suite,
        items: Sequence[Item],
        suffix: str,
        limits: tuple[int, int],
        long: bool = False,
    ) -> None:
        self.vlm, self.items, self.limits, self.limit = vlm, items, limits, limits[long]
        self._pixels: dict[int, Pixels] = {}
        self._watched: dict[int, Any] = {}
        prompts = self._prompts(suite, suffix)
        self._questions = [prompt.question for prompt in prompts]
        seen = {document: vlm.encode_images(pixels) for document, pixels in self._pixels.items()}
        pairs = zip(items, prompts, strict=True)
        self.whole = collate([vlm.embed(prompt, None, seen[i.document]) for i, prompt in pairs])
        self._layout = layout_of(vlm.model, self.whole.inputs())
        self._turns = [self._turns_of(item, suffix) for item in items]

    def _prompts(self, suite: Suite, suffix: str) -> list[Prompt]:
        """Encoded questions."""
        images = {item.document: suite.image(item.document) for item in self.items}
        prompts = []
        for item in self.items:
            request = make_request(images[item.document], item.question + suffix, self.limit)
            prompts.append(self.vlm.prompt(request, pixels=self._pixels.get(item.document)))
            self._pixels[item.document] = prompts[-1].pixels
        return prompts

    def _turns_of(self, item: Item, suffix: str) -> list[list[int]]:
        """Ids of a chain's later questions."""
        if not isinstance(item, Chain):
            return []
        asked = (clean_question(one.question + suffix) for one in item.later)
        return [turn_of(self.vlm, question).ids[0].tolist() for question in asked]

    def _limits_of(self, item: Item) -> list[int]:
        opened = NEUTRAL_TOKENS if isinstance(item, Chain) and item.opening is None else None
        limits = [self.limits[one is not None and one.long] for one in answered_by(item)]
        return [min(limits[0], opened or limits[0]), *limits[1:]]

    @property
    def room(self) -> int:
        """Tokens that a row may add, at most."""
        pairs = zip(self.items, self._turns, strict=True)
        return max(sum(map(len, turns), sum(self._limits_of(item))) for item, turns in pairs)

    def dialogues(self) -> list[Dialogue] | None:
        """Conversations at their beginning, one a row; None where nothing is asked twice."""
        if not any(self._turns):
            return None
        stops = self.vlm.stop_ids
        pairs = zip(self.items, self._turns, strict=True)
        return [Dialogue(turns, self._limits_of(item), stops) for item, turns in pairs]

    def shares(self, cache: Cache) -> list[float]:
        """The batch's bytes of a filled cache over an uncompressed one's, for each question.

        Args:
            cache: of the whole batch, compressed or plain.
        """
        every = self.vlm.full_bytes(self.whole.valid.numel(), len(self.items))
        return [cache_bytes(cache).total / every] * len(self.items)

    def under(self, pruner: TokenPruner) -> tuple[Embedded, Layout]:
        """The padded batch that a pruner leaves to the language model, and where its tokens are."""
        if pruner.stage != "encoder":
            return self.whole, self._layout
        if not self._watched:
            self._watched = {d: self.vlm.run_tower(pixels) for d, pixels in self._pixels.items()}
        seen: dict[Hashable, Seen] = {}  # a picture's, or a question's where the pruner asks
        views: list[Hashable] = []
        for number, item in enumerate(self.items):
            views.append((number, item.document) if pruner.asks else item.document)
            if views[-1] not in seen:
                seen[views[-1]] = self.vlm.encode_images(
                    self._pixels[item.document],
                    pruner,
                    self._watched[item.document],
                    self._questions[number],
                )
        return self._reduced([seen[view] for view in views])

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
            words=None if whole.words is None else whole.words.gather(1, source),
        )
        return embedded, layout
