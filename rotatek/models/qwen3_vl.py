"""Qwen3-VL: as Qwen2-VL, with deeper vision features added to the first layers (DeepStack), and
clips whose frames are separate, each behind its time."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from rotatek.bridge.cache_argument import with_cache
from rotatek.inputs.request import Clip
from rotatek.models.base import Embedded, Pixels
from rotatek.models.qwen2_vl import Qwen2VL


class Qwen3VL(Qwen2VL):
    """`Qwen3VLForConditionalGeneration` and its tokenizer and image processor."""

    family: ClassVar[str] = "qwen3_vl"

    def features(self, pixels: Pixels) -> Tensor:
        """Merged embeddings and, in further columns, the additions of each of the first layers,
        [N, (1 + D) hidden]."""
        out = self._tower(pixels)
        parts = [out.pooler_output, *out.deepstack_features]
        # Releases differ in whether a part is one tensor, or one for each picture.
        whole = [part if isinstance(part, Tensor) else torch.cat(tuple(part)) for part in parts]
        return torch.cat(whole, -1)

    def read(self, embedded: Embedded, cache: Cache) -> Tensor:
        """The language model's forward, which takes the additions of later layers."""
        mask = None if bool(embedded.valid.all()) else embedded.valid.long()
        model = self.model.model.language_model
        out = model(
            inputs_embeds=embedded.embeds,
            position_ids=embedded.positions,
            attention_mask=mask,
            use_cache=True,
            **with_cache(model, cache),
            visual_pos_masks=embedded.visual,
            deepstack_visual_embeds=None if embedded.deeper is None else list(embedded.deeper),
        )
        return self.model.lm_head(out.last_hidden_state[:, -1:])[:, -1]

    def _clip_text(
        self, clip: Clip, counts: Sequence[int]
    ) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """A time, then a frame's visual tokens, as often as there are pairs of frames."""
        depth, config = self.images.temporal_patch_size, self.model.config
        start, seen, end = (
            self.token(number)
            for number in (
                config.vision_start_token_id,
                config.video_token_id,
                config.vision_end_token_id,
            )
        )
        times = [*clip.times, *[clip.times[-1]] * (-len(clip.times) % depth)]
        text = "".join(
            f"<{(times[i] + times[i + depth - 1]) / 2:.1f} seconds>{start}{seen}{end}"
            for i in range(0, len(times), depth)
        )
        return (text,), tuple(counts)
