"""DeepStack: further sets of vision features, which are added behind the first layers."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from rotatek.bridge.cache_argument import with_cache
from rotatek.models.base import Embedded, VisionLanguageModel


class DeepStack(VisionLanguageModel):
    """A family whose language model takes `deepstack_visual_embeds`."""

    def read(self, embedded: Embedded, cache: Cache) -> Tensor:
        """The language model's forward, which takes the additions of later layers."""
        if embedded.deeper is None:
            return super().read(embedded, cache)
        mask = None if bool(embedded.valid.all()) else embedded.valid.long()
        model = self.model.get_decoder()
        out = model(
            inputs_embeds=embedded.embeds,
            position_ids=embedded.positions,
            attention_mask=mask,
            use_cache=True,
            **with_cache(model, cache),
            visual_pos_masks=embedded.visual,
            deepstack_visual_embeds=list(embedded.deeper),
        )
        last = out.last_hidden_state[:, -1 - embedded.aside]
        logits: Tensor = self.model.get_output_embeddings()(last[:, None])[:, -1]
        return logits


def with_additions(out: Any) -> Tensor:
    """What a tower made of pictures: [N, (1 + D) hidden], the columns of the additions last.

    Args:
        out: of `get_image_features`: a part is one tensor, or one for each picture.
    """
    found = getattr(out, "pooler_output", out)
    parts = [found, *(getattr(out, "deepstack_features", None) or ())]
    return torch.cat([_whole(part) for part in parts], -1)


def _whole(part: Tensor | Sequence[Tensor]) -> Tensor:
    several = [part] if isinstance(part, Tensor) else part
    return torch.cat([one.flatten(0, -2) for one in several])
