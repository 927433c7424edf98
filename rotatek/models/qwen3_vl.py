"""Qwen3-VL: as Qwen2-VL, with deeper vision features added to the first layers (DeepStack), and
clips whose frames are separate, each behind its time."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from rotatek.inputs.request import Clip
from rotatek.models.base import Pixels
from rotatek.models.deepstack import DeepStack, with_additions
from rotatek.models.qwen2_vl import Qwen2VL


class Qwen3VL(Qwen2VL, DeepStack):
    """`Qwen3VLForConditionalGeneration` and its tokenizer and image processor."""

    family: ClassVar[str] = "qwen3_vl"

    def features(self, pixels: Pixels) -> Tensor:
        """Merged embeddings and, in further columns, the additions of each of the first layers,
        [N, (1 + D) hidden]."""
        return with_additions(self._tower(pixels))

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
