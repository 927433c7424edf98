"""Qwen2-VL: native resolution, 2x2 merged patches, M-RoPE positions, clips of paired frames."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import torch
from PIL import Image
from torch import Tensor, nn
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from rotatek.bridge.scope import own_calls
from rotatek.inputs.crop_margins import blank_margins
from rotatek.inputs.request import Clip
from rotatek.inputs.token_grid import Grid
from rotatek.models.base import Pixels, Prompt, VisionLanguageModel
from rotatek.models.patches import EDGES, patches_of

CLIP_TOKENS: Final = 4096  # visual tokens of one clip, at most: its frames share them
LOW_TOKENS: Final = 256  # of a picture at low detail, at most
LEAST_FRAME_TOKENS: Final = 4  # of a frame


class Qwen2VL(VisionLanguageModel):
    """`Qwen2VLForConditionalGeneration` and its tokenizer and image processor."""

    family: ClassVar[str] = "qwen2_vl"

    @property
    def banned_ids(self) -> tuple[int, ...]:
        """Vision start, end, image and video ids."""
        config = self.model.config
        names = ("vision_start_token_id", "vision_end_token_id")
        ends = (getattr(config, name, None) for name in names)
        return tuple(number for number in ends if number is not None) + self.visual_ids

    @property
    def low_pixels(self) -> int | None:
        """The pixels of 256 visual tokens."""
        return LOW_TOKENS * self._unit**2

    def size_within(self, width: int, height: int, least: int, most: int) -> tuple[int, int]:
        """In multiples of a visual token's side, as the image processor would choose under these
        bounds and its own; the picture's own size where it would choose the same anyway."""
        low, high = (int(self.images.size[edge]) for edge in EDGES)
        most = max(min(most, high), self._unit**2)
        tall, wide = smart_resize(height, width, self._unit, min(max(least, low), most), most)
        as_is = smart_resize(height, width, self._unit, low, high)
        return (width, height) if (tall, wide) == as_is else (wide, tall)

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """Resize to whole 2x2 units of patches; N = rows x columns / 4. Pictures that would be
        scaled down lose their blank margins first."""
        unit = self.images.patch_size * self._merge
        most = self.images.size["longest_edge"] // unit**2
        cuts = [blank_margins(image, unit, most) for image in images]
        shown = [
            image if cut is None else cut.of(image, unit)
            for image, cut in zip(images, cuts, strict=True)
        ]
        made = [patches_of(self.images, [image], self.device) for image in shown]
        shapes = [(1, rows, columns) for _, rows, columns in made]
        counts, grids = self._grids(shapes)
        grids = tuple(
            grid if cut is None else Grid.within(cut.rows, cut.columns, cut.part, grid.start)
            for grid, cut in zip(grids, cuts, strict=True)
        )
        tensors = {
            "pixel_values": _joined([patches for patches, _, _ in made]),
            "image_grid_thw": torch.tensor(shapes, device=self.device),
        }
        return Pixels(tensors, counts, grids, (self.placeholder,) * len(counts), counts)

    def preprocess_clip(self, clip: Clip) -> Pixels:
        """Pair the frames in time: two share their visual tokens, as the family's clips do."""
        depth, merge = self.images.temporal_patch_size, self._merge
        units = (self.images.patch_size * merge) ** 2
        steps = -(-len(clip.frames) // depth)
        room = max(CLIP_TOKENS // steps, LEAST_FRAME_TOKENS) * units
        size = {
            "longest_edge": min(self.images.size["longest_edge"], room),
            "shortest_edge": min(self.images.size["shortest_edge"], room),
        }
        frames = [*clip.frames, *[clip.frames[-1]] * (-len(clip.frames) % depth)]
        made = [
            patches_of(self.images, frames[start : start + depth], self.device, size)
            for start in range(0, len(frames), depth)
        ]
        _, rows, columns = made[0]
        seconds = (clip.times[-1] - clip.times[0]) / max(len(clip.times) - 1, 1) * depth
        tensors = {
            "pixel_values_videos": _joined([patches for patches, _, _ in made]),
            "video_grid_thw": torch.tensor([[steps, rows, columns]]),
            "second_per_grid_ts": torch.tensor([seconds]),
        }
        counts, grids = self._grids([[1, rows, columns]] * steps)
        texts, runs = self._clip_text(clip, counts)
        tensors = {name: tensor.to(self.device) for name, tensor in tensors.items()}
        return Pixels(tensors, counts, grids, texts, runs)

    @property
    def _unit(self) -> int:
        """Pixels along one side of a visual token."""
        return int(self.images.patch_size * self._merge)

    @property
    def _merge(self) -> int:
        """Patches along one side of a visual token."""
        return int(self.model.config.vision_config.spatial_merge_size)

    def _grids(self, patches: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], tuple[Grid, ...]]:
        """Visual tokens of each picture, and its grid."""
        merge, start, grids = self._merge, 0, []
        for _, height, width in patches:
            grids.append(Grid(height // merge, width // merge, start))
            start += grids[-1].rows * grids[-1].columns
        return tuple(grid.rows * grid.columns for grid in grids), tuple(grids)

    def _clip_text(
        self, clip: Clip, counts: Sequence[int]
    ) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The text of a clip, and the lengths of its runs of visual tokens."""
        return (self.token(self.model.config.video_token_id),), (sum(counts),)

    def features(self, pixels: Pixels) -> Tensor:
        """Merged embeddings of all images, [N, hidden]."""
        return torch.cat(tuple(self._tower(pixels).pooler_output))

    @own_calls()
    def _tower(self, pixels: Pixels) -> Any:
        """The vision tower's output for images or a clip."""
        tensors = pixels.tensors
        if "video_grid_thw" in tensors:
            return self.model.get_video_features(
                tensors["pixel_values_videos"], tensors["video_grid_thw"], return_dict=True
            )
        return self.model.get_image_features(
            tensors["pixel_values"], tensors["image_grid_thw"], return_dict=True
        )

    def watched_attention(self) -> tuple[nn.Module, bool]:
        """The last vision block's."""
        return self.model.model.visual.blocks[-1].attn, False

    def per_token(self, values: Tensor, pixels: Pixels) -> Tensor:
        """Means over 2x2 units, which are adjacent in memory."""
        return values.flatten(0, 1).unflatten(0, (-1, self._merge**2)).mean(1)

    def positions(self, prompt: Prompt) -> tuple[Tensor, Tensor]:
        """M-RoPE positions [3, 1, L]; asked of the model, stored nowhere."""
        tensors = prompt.pixels.tensors
        if not prompt.pixels.runs:  # of texts alone, the same on every axis
            positions, after = super().positions(prompt)
            return positions.expand(3, -1, -1), after
        names = ("image_grid_thw", "video_grid_thw", "second_per_grid_ts")
        kinds = prompt.visual.int()
        if "video_grid_thw" in tensors:
            kinds = 2 * kinds
        positions, _ = self.model.model.get_rope_index(
            prompt.ids,
            mm_token_type_ids=kinds,
            **{name: tensors[name] for name in names if name in tensors},
        )
        return positions, positions[..., -1].amax(0) + 1  # a clip's time may be further on

    def positions_at(self, position: Tensor) -> Tensor:
        """[3, B, 1]: text tokens have the same position on every axis."""
        return position[None, :, None].expand(3, -1, 1)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """All of them in a row; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
