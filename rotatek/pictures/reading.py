"""A picture without a question: the chat up to the question, read and compressed.

Methods that weigh by queries need some: a few general questions are read after the picture, and
dropped. The cache ends where any question begins, and nothing in it depends on later questions.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from PIL import Image
from torch import Tensor

from rotatek.bridge.row_layout import WINDOW
from rotatek.cache import cache_file
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cache.token_plan import TokenPlan, is_one_of, layout_of
from rotatek.engine.image_features import key_of
from rotatek.engine.passes import GENERAL, fill, layout_behind
from rotatek.errors import CalibrationUnusable, RequestTooLong, TextBeforePicture
from rotatek.inputs.messages import PICTURE, Message
from rotatek.inputs.prompt import encode_chat, encode_cut, expand_images
from rotatek.inputs.request import Request, make_request
from rotatek.inputs.token_grid import Grid
from rotatek.methods.settings import Settings, path_names
from rotatek.models import Prompt, VisionLanguageModel
from rotatek.models.base import Pixels
from rotatek.pictures.store import digest

PROBES: Final = ("What is the total?", "Why?\nSay it in two lines.")  # to try a template's cut with


@dataclass(frozen=True)
class PictureNotes:
    """What a stored picture needs beside its cache. next_position: [1] where a question begins;
    tokens: of the chat before it; size: of the first picture in pixels, width and height; pages:
    pictures in the prompt; grids: where their visual tokens lie on them."""

    next_position: Tensor
    tokens: int
    visual_tokens: int
    size: tuple[int, int]
    pages: int
    grids: tuple[Grid, ...]


class PictureReader:
    """Reads pictures of one model under one setting; limit: the most tokens of a chat, where the
    model's context is larger.

    Raises:
        TextBeforePicture: where a chat may not be cut behind its picture.
    """

    def __init__(
        self, vlm: VisionLanguageModel, settings: Settings, limit: int | None = None
    ) -> None:
        self.vlm, self.settings, self.limit = vlm, settings, limit
        check_cut(vlm)
        self.owner = cache_file.identity(vlm.model)  # worked out once: it reads every parameter
        # what a picture's name depends on beside its pixels
        self._same = json.dumps(self.description(), sort_keys=True, default=str).encode()

    def description(self) -> dict[str, Any]:
        """The model, its image processor, the chat before a question, and the method, as JSON."""
        images = self.vlm.images
        processor = images.to_dict() if hasattr(images, "to_dict") else repr(images)
        head, _ = cut(self.vlm, "?", [self.vlm.placeholder])
        seen = json.dumps([processor, GENERAL, head, self.limit], sort_keys=True, default=str)
        try:
            files = [digest(Path(path).read_bytes()) for path in self.paths.values()]
        except OSError as error:
            raise CalibrationUnusable from error
        return {
            "model": self.owner,
            "settings": self.settings.without_paths().as_dict(),
            "reading": digest(seen.encode()),
            "files": files,
        }

    @property
    def paths(self) -> dict[str, str]:
        """Files of this machine that the settings name, by the options' flat names."""
        given = self.settings.as_dict()
        return {name: given[name] for name in sorted(path_names()) if given.get(name) is not None}

    def name_of(self, images: Sequence[Image.Image]) -> str:
        """Equal for the same pixels read by the same model in the same way: 40 hex digits."""
        whole = hashlib.blake2b(self._same, digest_size=20)
        whole.update(key_of(tuple(images)))
        return whole.hexdigest()

    def look(self, images: Sequence[Image.Image]) -> Pixels:
        """Pictures as the vision tower takes them; no device is needed for it."""
        return self.vlm.look(make_request(list(images), "?"))

    @torch.inference_mode()
    def read(self, images: Sequence[Image.Image], pixels: Pixels) -> RotateKCache:
        """Read pictures of one prompt, and compress them.

        Args:
            images: RGB, as `open_image` makes them.
            pixels: what `look` made of them.

        Returns:
            a filled cache that ends where a question begins; its `notes` are `PictureNotes`.
        """
        vlm = self.vlm
        head, _ = cut(vlm, "?", pixels.texts)
        ids = expand_images(head, vlm.visual_ids, pixels.runs)
        length, room = len(ids), vlm.context(self.limit)
        tail = cut(vlm, GENERAL, pixels.texts)[1]
        if room is not None and length + len(tail) > room:
            raise RequestTooLong
        tensor = torch.tensor([ids], device=vlm.device)
        prompt = Prompt(tensor, is_one_of(tensor, vlm.visual_ids), pixels)
        embedded = vlm.embed(prompt, self.settings.pruning)
        layout = layout_of(vlm.model, embedded.inputs())
        # the few general questions alone weigh; at least as many tokens as ever
        layout = layout_behind(layout, len(tail), max(0, WINDOW - len(tail)))
        plan = TokenPlan(layout, self.settings.pruning, vlm.key_layers)
        cache = RotateKCache(vlm.model, embedded.inputs(), self.settings, plan=plan)
        behind = torch.tensor([tail], device=vlm.device)
        fill(vlm, embedded, plan, [cache], timed=False, aside=behind)
        cache.filling.finish()  # while the device is ours
        cache.notes = PictureNotes(
            embedded.next_position, length, prompt.visual_tokens, images[0].size, len(images),
            pixels.grids,
        )  # fmt: skip
        return cache


def cut(
    vlm: VisionLanguageModel, question: str, texts: Sequence[str]
) -> tuple[list[int], list[int]]:
    """`encode_cut` for a model; texts: the placeholder of each picture."""
    return encode_cut(vlm.tokenizer, question, texts, vlm.placeholder)


def check_cut(vlm: VisionLanguageModel) -> None:
    """Refuse a template by which what comes before a question depends on the question."""
    texts, heads = [vlm.placeholder], []
    for question in PROBES:
        head, tail = cut(vlm, question, texts)
        request = Request((Image.new("RGB", (1, 1)),), (Message("user", (PICTURE, question)),))
        whole = encode_chat(vlm.tokenizer, request, texts, vlm.placeholder)
        heads.append(head)
        if head + tail != whole or head != heads[0]:
            raise TextBeforePicture
