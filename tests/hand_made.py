"""Processors of a few lines for LFM2-VL and Molmo 2, whose own ones need torchvision: every picture
becomes as many tokens as any other."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch import Tensor
from transformers import AutoTokenizer

from rotatek.models import VisionLanguageModel
from rotatek.models.families import FAMILIES
from tests.newer_families import (
    CONFIGS,
    lfm2_model,
    lfm2_tokenizer,
    molmo2_model,
    molmo2_tokenizer,
)
from tests.tiny import finish


def patches(image: Image.Image, width: int, height: int, side: int) -> Tensor:
    """[patches, side * side * 3] of a picture at a size, row by row."""
    seen = torch.from_numpy(np.asarray(image.resize((width, height)), dtype=np.float32) / 128 - 1)
    cut = seen.view(height // side, side, width // side, side, 3).permute(0, 2, 1, 3, 4)
    return cut.reshape(-1, side * side * 3)


class HandMade:
    """The parts that both processors share: a picture's text and tensors, one after another."""

    image_token: str
    first = ""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def text(self) -> str:
        """Of a picture."""
        raise NotImplementedError

    def tensors(self, images: list[Image.Image]) -> dict[str, Tensor]:
        """Of pictures."""
        raise NotImplementedError

    def __call__(self, text: str, images: list[Image.Image], **_: Any) -> dict[str, Tensor]:
        assert text.count(self.image_token) == len(images)
        written = self.first + text.replace(self.image_token, self.text())
        ids = torch.tensor([self.tokenizer(written, add_special_tokens=False)["input_ids"]])
        return {"input_ids": ids, **self.tensors(images)}


class Lfm2(HandMade):
    """Two tiles of 4 x 4 patches side by side, and a thumbnail of 2 x 4, padded to 16."""

    image_token = "<image>"
    image_start_token, image_end_token = "<|image_start|>", "<|image_end|>"
    image_thumbnail_token = "<|img_thumbnail|>"

    def text(self) -> str:
        tiles = "".join(f"<|img_row_1_col_{c}|>" + 4 * "<image>" for c in (1, 2))
        seen = tiles + self.image_thumbnail_token + 2 * "<image>"
        return self.image_start_token + seen.replace("<image>", "\ue010") + self.image_end_token

    def __call__(self, text: str, images: list[Image.Image], **_: Any) -> dict[str, Tensor]:
        assert text.count(self.image_token) == len(images)
        written = text.replace(self.image_token, self.text()).replace("\ue010", "<image>")
        ids = torch.tensor([self.tokenizer(written)["input_ids"]])
        return {"input_ids": ids, **self.tensors(images)}

    def tensors(self, images: list[Image.Image]) -> dict[str, Tensor]:
        views, shapes = [], []
        for image in images:
            tiles = patches(image, 128, 64, 16).view(4, 2, 4, -1).transpose(0, 1).flatten(1, 2)
            small = patches(image, 64, 32, 16)
            views += [*tiles, torch.nn.functional.pad(small, (0, 0, 0, 8))]
            shapes += [[4, 4], [4, 4], [2, 4]]
        sizes = torch.tensor(shapes)
        mask = (torch.arange(16) < sizes.prod(1, keepdim=True)).int()
        return {
            "pixel_values": torch.stack(views), "pixel_attention_mask": mask,
            "spatial_shapes": sizes,
        }  # fmt: skip


class Molmo2(HandMade):
    """A view and one crop, 4 x 4 patches and 2 x 2 tokens each."""

    image_token, first = "<|image|>", "<|endoftext|>"

    @property
    def image_token_ids(self) -> list[int]:
        """Of all tokens of pictures."""
        names = ["<im_patch>", "<im_col>", "<im_start>", "<low_res_im_start>", "<im_end>"]
        return self.tokenizer.convert_tokens_to_ids(names)

    def text(self) -> str:
        rows = 2 * (2 * "<im_patch>" + "<im_col>")
        return f"<low_res_im_start>{4 * '<im_patch>'}<im_end><im_start>{rows}<im_end>"

    def tensors(self, images: list[Image.Image]) -> dict[str, Tensor]:
        views = [patches(image, 56, 56, 14) for image in images for _ in range(2)]
        squares = torch.arange(16).view(2, 2, 2, 2).transpose(1, 2).reshape(4, 4)
        pooled = torch.cat([squares + 16 * number for number in range(len(views))])
        pooled[-1, -1] = -1  # a patch beyond the edge
        return {
            "pixel_values": torch.stack(views), "image_token_pooling": pooled,
            "image_grids": torch.tensor([[2, 2, 2, 2]] * len(images)),
        }  # fmt: skip


MADE = {
    "lfm2_vl": (lfm2_tokenizer, lfm2_model, Lfm2, 10),
    "molmo2": (molmo2_tokenizer, molmo2_model, Molmo2, 8),
}


def tiny_made(family: str) -> VisionLanguageModel:
    """The family's small model with such a processor; the test is skipped where transformers does
    not know the family."""
    if not hasattr(transformers, CONFIGS[family]):
        pytest.skip("this transformers does not know the family")
    tokens, network, processor, _ = MADE[family]
    tokenizer = tokens()
    return finish(family, network(tokenizer), tokenizer, processor(tokenizer))


def save_made(family: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """A checkpoint of such a model, which is loaded with such a processor while `patch` lasts."""
    vlm = tiny_made(family)
    vlm.model.save_pretrained(folder)
    vlm.tokenizer.save_pretrained(folder)

    class Loader:
        """In place of `AutoProcessor`."""

        @staticmethod
        def from_pretrained(source: str, **_: Any) -> HandMade:
            """The processor over a folder's tokenizer."""
            return MADE[family][2](AutoTokenizer.from_pretrained(source))

    patch.setitem(FAMILIES, family, FAMILIES[family]._replace(images=Loader))
