"""Mistral 3 and Pixtral: pictures in their own shape, with a token that ends each row of them."""

from collections.abc import Sequence
from typing import ClassVar, Final

import torch
from PIL import Image
from torch import Tensor, nn

from rotatek.inputs.token_grid import Grid
from rotatek.models.base import Pixels, VisionLanguageModel
from rotatek.models.gemma4 import unit_means

ENDS: Final = ("[IMG_BREAK]", "[IMG_END]")  # of a row of tokens, and of the last one
LOW_TOKENS: Final = 256  # of a picture at low detail, about


class Pixtral(VisionLanguageModel):
    """`LlavaForConditionalGeneration` with Pixtral's tower; its tokenizer and image processor."""

    family: ClassVar[str] = "pixtral"
    template: ClassVar[str | None] = (
        "{{ bos_token }}{%- for m in messages -%}{%- if m['role'] == 'system' -%}"
        "{{ raise_exception('there is no place for it') }}"
        "{%- elif m['role'] == 'user' -%}[INST]{%- for part in m['content'] -%}"
        "{{ '[IMG]' if part['type'] == 'image' else part['text'] }}{%- endfor -%}[/INST]"
        "{%- else -%}{%- for part in m['content'] -%}{{ part['text'] }}{%- endfor -%}"
        "{{ eos_token }}{%- endif -%}{%- endfor -%}"
    )

    @property
    def banned_ids(self) -> tuple[int, ...]:
        """The image id, and those behind a row."""
        ends = self.tokenizer.convert_tokens_to_ids(list(ENDS))
        return (*self.visual_ids, *(number for number in ends if number is not None))

    @property
    def low_pixels(self) -> int | None:
        """The pixels of 256 visual tokens."""
        return LOW_TOKENS * self._unit**2

    def size_within(self, width: int, height: int, least: int, most: int) -> tuple[int, int]:
        """Whole tokens, where the picture is scaled at all: its processor would round up."""
        wide, tall = super().size_within(width, height, least, most)
        if (wide, tall) == (width, height):
            return width, height
        unit = self._unit
        return max(wide // unit, 1) * unit, max(tall // unit, 1) * unit

    @property
    def _merge(self) -> int:
        """Patches along one side of a token."""
        return int(getattr(self.model.config, "spatial_merge_size", 1))

    @property
    def _unit(self) -> int:
        """Pixels along one side of a token."""
        return int(self.model.config.vision_config.patch_size) * self._merge

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """Resize to whole tokens within the longest edge; each row of tokens is a run."""
        unit = self._unit
        out = self.images(images=list(images), patch_size=unit, return_tensors="pt")
        grids, counts, texts, runs, start = [], [], [], [], 0
        between, last = ENDS
        for height, width in out["image_sizes"].tolist():
            rows, columns = height // unit, width // unit
            grids.append(Grid(rows, columns, start))
            counts.append(rows * columns)
            texts.append((rows - 1) * (self.placeholder + between) + self.placeholder + last)
            runs += rows * [columns]
            start += rows * columns
        tensors = {name: out[name].to(self.device) for name in ("pixel_values", "image_sizes")}
        return Pixels(tensors, tuple(counts), tuple(grids), tuple(texts), tuple(runs))

    def features(self, pixels: Pixels) -> Tensor:
        """Projected tokens of all pictures [N, hidden], each encoded without its padding: the
        tower's mask grows with the square of all patches of one call."""
        parts = []
        for view, size in zip(*pixels.tensors.values(), strict=True):
            height, width = size.tolist()
            one = {"pixel_values": view[None, :, :height, :width], "image_sizes": size[None]}
            parts.append(super().features(Pixels(one, (), (), (), ())))
        return torch.cat(parts)

    def watched_attention(self) -> tuple[nn.Module, bool]:
        """The last vision layer's."""
        return self.model.model.vision_tower.transformer.layers[-1].attention, False

    def per_token(self, values: Tensor, pixels: Pixels) -> Tensor:
        """Means over the patches that are merged into one token."""
        return unit_means(values, pixels.grids, self._merge)


class Mistral3(Pixtral):
    """`Mistral3ForConditionalGeneration` and its tokenizer and image processor."""

    family: ClassVar[str] = "mistral3"
    template: ClassVar[str | None] = (
        "{{ bos_token }}{%- for m in messages -%}"
        "{{ {'system': '[SYSTEM_PROMPT]', 'user': '[INST]'}.get(m['role'], '') }}"
        "{%- for part in m['content'] -%}"
        "{{ '[IMG]' if part['type'] == 'image' else part['text'] }}{%- endfor -%}"
        "{{ {'system': '[/SYSTEM_PROMPT]', 'user': '[/INST]'}.get(m['role'], eos_token) }}"
        "{%- endfor -%}"
    )
