"""Any other family with an image token: its own processor writes the prompt, its own forward reads
it. The positions of its visual tokens on the picture are unknown."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rotatek.errors import ModelUnsupported
from rotatek.models.base import Pixels, VisionLanguageModel


class Generic(VisionLanguageModel):
    """A model of an unknown family, with its `AutoProcessor` as image processor."""

    family: ClassVar[str] = "other"

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, images: Any, name: str
    ) -> None:
        super().__init__(model, tokenizer, images, name)
        if not tokenizer.chat_template:
            tokenizer.chat_template = getattr(images, "chat_template", None)

    @property
    def placeholder(self) -> str:
        """The processor's placeholder of a picture."""
        return str(getattr(self.images, "image_token", None) or super().placeholder)

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """Let the processor turn each picture into tensors and text."""
        texts, runs, made = [], [], []
        for image in images:
            out = self.images(
                text=self.placeholder, images=[image], return_tensors="pt",
                add_special_tokens=False,
            )  # fmt: skip
            ids = out.pop("input_ids")[0].tolist()
            shortened, lengths = collapsed(ids, self.visual_ids)
            texts.append(self.tokenizer.decode(shortened, clean_up_tokenization_spaces=False))
            runs += lengths
            made.append({k: v for k, v in out.items() if isinstance(v, Tensor) and k not in _TEXT})
        tensors = {name: torch.cat([one[name] for one in made]) for name in made[0]}
        tensors = {name: tensor.to(self.device) for name, tensor in tensors.items()}
        return Pixels(tensors, tuple(runs), (), tuple(texts), tuple(runs))

    def features(self, pixels: Pixels) -> Tensor:
        """The result of the model's own `get_image_features` for the processor's tensors.

        Raises:
            ModelUnsupported: where it has none, or does not take them.
        """
        try:
            return super().features(pixels)
        except (AttributeError, TypeError) as error:
            raise ModelUnsupported(
                f"Models of type {self.model.config.model_type!r} do not encode pictures in a way "
                "that RotateK can read. `python -m rotatek info` lists the families that work."
            ) from error


_TEXT = ("attention_mask", "token_type_ids", "mm_token_type_ids")


def collapsed(ids: Sequence[int], visual: Sequence[int]) -> tuple[list[int], list[int]]:
    """Token ids with one visual token a run, and the lengths of the runs."""
    short: list[int] = []
    runs: list[int] = []
    for token in ids:
        if token in visual and short and short[-1] == token:
            runs[-1] += 1
            continue
        if token in visual:
            runs.append(1)
        short.append(token)
    return short, runs
