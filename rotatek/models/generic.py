"""Any other family with an image token: its own processor writes the prompt, its own forward reads
it. Where its visual tokens lie on the picture is known if the processor's shapes say so."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import groupby
from typing import Any, Final

import torch
from PIL import Image
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

from rotatek.bridge.attention import arguments
from rotatek.bridge.scope import own_calls
from rotatek.cache.token_plan import is_one_of
from rotatek.errors import ModelUnsupported, UserError
from rotatek.inputs.token_grid import Grid
from rotatek.models.base import Embedded, Pixels, Prompt, Shown, VisionLanguageModel, with_additions

KINDS: Final = ("token_type_ids", "mm_token_type_ids", "moe_mm_token_type_ids")
TEXT: Final = ("input_ids", "attention_mask", *KINDS)
PLACEHOLDERS: Final = ("image_placeholder_token", "image_token", "boi_token")
AROUND: Final = ("start_", "", "end_")
BLANK: Final = (Image.new("RGB", (96, 64)),)  # what `check` shows


class Generic(VisionLanguageModel):
    """A model of an unknown family, with its `AutoProcessor` as image processor."""

    @cached_property
    def placeholder(self) -> str:
        """The text of a picture that the processor turns into visual tokens."""
        told = [str(getattr(self.images, name, None) or "") for name in PLACEHOLDERS]
        told.append("".join(getattr(self.images, f"image_{name}token", "") for name in AROUND))
        seen = {}
        for text in filter(None, told):
            with suppress(ModelUnsupported):
                ids = self._processed(BLANK, "", text)["input_ids"]
                seen[text] = int(is_one_of(ids, self.visual_ids).sum())
        if not any(seen.values()):
            raise self._unread("its processor names no text that becomes a picture")
        return max(seen, key=lambda text: seen[text])

    def preprocess(self, images: Sequence[Image.Image]) -> Pixels:
        """Let the processor turn pictures into tensors and text.

        Raises:
            ModelUnsupported: where it makes no visual tokens of them, or others of several pictures
                together than of each alone.
        """
        shown = []
        for image in images:
            out = self._processed([image])
            ids, runs = [], []  # one visual token a run, and the length of each
            for token, group in groupby(out["input_ids"][0].tolist()):
                run = len([*group])
                if token in self.visual_ids:
                    runs.append(run)
                    run = 1
                ids += [token] * run
            text = self.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
            shown.append(Shown(text, tuple(runs)))
        if len(images) > 1:
            out = self._processed(images)
        tokens = [sum(one.counts) for one in shown]
        made = int(is_one_of(out["input_ids"], self.visual_ids).sum())
        if made == 0 or made != sum(tokens):
            raise self._unread("pictures become other tokens than its processor says")
        tensors = {
            name: value.to(self.device)
            for name, value in out.items()
            if isinstance(value, Tensor) and name not in TEXT
        }
        sides = self._sides(tensors)
        found = [_grid(side, count) for side, count in zip(sides, tokens, strict=False)]
        if len(sides) == len(shown) and all(found):
            grids = (grid for grid in found if grid)
            shown = [one._replace(grids=(grid,)) for one, grid in zip(shown, grids, strict=True)]
        return Pixels.of(tensors, shown)

    def _processed(
        self, images: Sequence[Image.Image], question: str = "", placeholder: str = ""
    ) -> Any:
        text = (placeholder or self.placeholder) * len(images) + question
        try:
            return self.images(
                text=text, images=list(images), return_tensors="pt", add_special_tokens=False
            )
        except Exception as error:  # a processor's own checks raise anything
            raise self._unread("its processor does not take these pictures") from error

    def _unread(self, why: str) -> UserError:
        return ModelUnsupported(
            f"Models of type {self.model.config.model_type!r} cannot be asked here: {why}. Use "
            "`model.generate` with a `RotateKCache`, or one of the families that "
            "`python -m rotatek info` lists."
        )

    def _sides(self, tensors: dict[str, Tensor]) -> list[list[int]]:
        """Rows and columns of each picture's patches, where a tensor tells them; else nothing."""
        if "image_grid_thw" in tensors:
            return tensors["image_grid_thw"][:, -2:].tolist()
        if "image_position_ids" in tensors:  # column and row of each patch, -1 for padding
            return (tensors["image_position_ids"].amax(1) + 1).flip(-1).tolist()
        vision = getattr(self.model.config, "vision_config", None)
        side, sizes = getattr(vision, "patch_size", None), tensors.get("image_sizes")
        if not isinstance(side, int) or sizes is None or bool((sizes % side).any()):
            return []
        return (sizes // side).tolist()

    @own_calls()
    def features(self, pixels: Pixels) -> Tensor:
        """The result of the model's own `get_image_features`; ModelUnsupported is raised where it
        has none, or does not take the processor's tensors."""
        encode = self.own("get_image_features")
        if encode is None:
            raise self._unread("its class does not encode pictures separately")
        try:
            return with_additions(encode(**pixels.tensors, return_dict=True))
        except TypeError as error:
            raise self._unread("its class encodes pictures in a way of its own") from error

    def besides(self, embedded: Embedded) -> dict[str, Any]:
        """The kinds of the tokens, under each name that the model's own forward knows."""
        return {name: kind * embedded.visual.long() for name, kind in self._marks.items()}

    @cached_property
    def _marks(self) -> dict[str, int]:
        """The kind of a visual token, as the processor gives it."""
        out = self._processed(BLANK)
        visual = is_one_of(out["input_ids"], self.visual_ids)
        known = [name for name in KINDS if name in arguments(self.model)]
        return {name: int(out[name][visual].max()) if name in out else 1 for name in known}

    @cached_property
    def axes(self) -> int:
        return 0 if self.own("get_rope_index") is None else len(self.positions(self._tried())[0])

    def _tried(self) -> Prompt:
        """A blank picture and a word."""
        ids = self._processed(BLANK, " a")["input_ids"].to(self.device)
        return Prompt(ids, is_one_of(ids, self.visual_ids), self.preprocess(BLANK))

    @torch.inference_mode()
    def check(self) -> None:
        """Compare what reaches the language model when its own class reads a picture with what
        reaches it from here. ModelUnsupported: where they differ, so that answers would, too."""
        prompt = self._tried()
        embedded = self.embed(prompt)
        given = {"input_ids": prompt.ids, "attention_mask": torch.ones_like(prompt.ids)}
        given |= prompt.pixels.tensors | self.besides(embedded)
        known = {name: value for name, value in given.items() if name in arguments(self.model)}
        own = self._reaching(lambda: self.model(**known))
        if isinstance(own.get("attention_mask"), Tensor) and own["attention_mask"].dim() == 2:
            del own["attention_mask"]  # it hides nothing
        if own.get("position_ids") is None:
            own["position_ids"] = torch.arange(prompt.ids.shape[1], device=self.device)[None]
        try:
            ours = self._reaching(lambda: self.read(embedded, DynamicCache()))
        except RuntimeError as error:  # of a class that needs the ids
            raise self._unread("its language model needs more than visual tokens") from error
        mine, theirs = dict(_tensors(ours)), dict(_tensors(own))
        same = mine.keys() == theirs.keys() and all(
            mine[name].shape == theirs[name].shape
            and torch.allclose(mine[name].float(), theirs[name].float(), rtol=1e-2, atol=1e-2)
            for name in mine
        )
        if not same:
            raise self._unread("its language model is given more than visual tokens")

    def _reaching(self, forward: Callable[[], Any]) -> dict[str, Any]:
        """The keyword arguments of the language model's call in a forward pass, which ends there.
        No other thread uses the model yet."""
        given: dict[str, Any] = {}

        def stop(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
            given.update(kwargs)
            raise _Reached

        decoder = self.model.get_decoder()
        handle = decoder.register_forward_pre_hook(stop, prepend=True, with_kwargs=True)
        try:
            with suppress(_Reached):
                forward()
        finally:
            handle.remove()
        return given


class _Reached(Exception):
    """Ends a forward pass at its language model."""


def _grid(patches: Sequence[int], count: int) -> Grid | None:
    """The grid of a picture of rows and columns of patches and so many tokens, where it is one."""
    rows, columns = patches
    unit = math.isqrt(rows * columns // count)  # patches along one side of a token
    if unit < 1 or rows % unit or columns % unit or rows * columns != count * unit**2:
        return None
    return None if min(rows, columns) < 2 * unit else Grid(rows // unit, columns // unit)


def _tensors(given: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor in nested arguments, by its place."""
    if isinstance(given, Tensor):
        yield name, given
    elif isinstance(given, Mapping | list | tuple):
        items = given.items() if isinstance(given, Mapping) else enumerate(given)
        for key, value in items:
            yield from _tensors(value, f"{name}.{key}")
