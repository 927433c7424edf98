"""The vision tower's output, cached: a picture is encoded once for several questions.

Everything before the question is the same for every question about a picture. The key of a picture
is a digest of its pixels, so two visitors share one only where they showed the same picture.
Programs with different API keys never share one.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from PIL import Image
from torch import Tensor

from rotatek.cache.measures import storage_bytes
from rotatek.methods.tokens import TokenPruner
from rotatek.models import Prompt, VisionLanguageModel
from rotatek.models.base import Pixels, Seen

HEAVY: Final = "pixel_"  # begins the names of what nothing but the tower's first run needs


@dataclass
class ImageFeatures:
    """One request's pictures, as a model has encoded them; seen: every visual token's features
    (False), and the data by which encoder-stage pruners choose (True), as far as they are known."""

    key: bytes
    pixels: Pixels
    seen: dict[bool, Any] = field(default_factory=dict)

    def bytes(self) -> int:
        """Live bytes."""
        return storage_bytes(_tensors([*self.seen.values(), self.pixels.tensors.values()]))


def _watches(pruner: TokenPruner) -> bool:
    """Whether a pruner needs data of the vision tower."""
    return pruner.stage == "encoder" and pruner.kept_share < 1


def _tensors(things: Any) -> list[Tensor]:
    if isinstance(things, Tensor):
        return [things]
    return [t for thing in things or () for t in _tensors(thing)]


def key_of(images: tuple[Image.Image, ...], scope: str = "") -> bytes:
    """Equal for the same pixels in the same order; scope: as of `Request`."""
    whole = hashlib.blake2b(f"(){scope}".encode(), digest_size=32)
    for image in images:
        whole.update(f"{image.mode} {image.size};".encode())
        whole.update(image.tobytes())
    return whole.digest()


class ImageFeatureCache:
    """The pictures that one model has encoded most recently; most_bytes: limit of all cached
    results; 0 caches nothing."""

    def __init__(self, vlm: VisionLanguageModel, most_bytes: int) -> None:
        self.vlm, self.most_bytes = vlm, most_bytes
        self.hits = self.misses = 0
        self._kept: OrderedDict[bytes, ImageFeatures] = OrderedDict()
        self._guard = threading.Lock()

    def find(self, key: bytes, pruners: Iterable[TokenPruner]) -> ImageFeatures | None:
        """A picture that is warm for all of these pruners."""
        with self._guard:
            looked = self._kept.get(key)
            if looked is None or not set(map(_watches, pruners)) <= looked.seen.keys():
                self.misses += 1
                return None
            self.hits += 1
            self._kept.move_to_end(key)
            return looked

    def look(self, looked: ImageFeatures, prompt: Prompt, pruner: TokenPruner) -> Seen:
        """The result of `encode_images` for the pixels of a prompt, from cached results where there
        are any; new ones are added to `looked`."""
        pixels, watches = prompt.pixels, _watches(pruner)
        if watches not in looked.seen:
            with self._guard:  # another request may have encoded it meanwhile
                if (other := self._kept.get(looked.key)) is not None:
                    looked.seen = other.seen | looked.seen
        if watches not in looked.seen:
            if watches:
                with torch.inference_mode():
                    looked.seen[True] = self.vlm.tower_states(pixels)
            else:
                looked.seen[False], _ = self.vlm.encode_images(pixels, pruner)
            self._keep(looked)
        if not watches:
            return looked.seen[False], None
        return self.vlm.encode_images(pixels, pruner, watched=looked.seen[True])

    def _keep(self, looked: ImageFeatures) -> None:
        """Cache results; those used least recently are dropped."""
        light = {n: t for n, t in looked.pixels.tensors.items() if not n.startswith(HEAVY)}
        looked.pixels = replace(looked.pixels, tensors=light)
        with self._guard:
            if (other := self._kept.pop(looked.key, None)) is not None:
                looked.seen = other.seen | looked.seen
            self._kept[looked.key] = looked
            while self._kept and sum(one.bytes() for one in self._kept.values()) > self.most_bytes:
                self._kept.popitem(last=False)

    @property
    def bytes(self) -> int:
        """Live bytes of all cached results."""
        with self._guard:
            return sum(one.bytes() for one in self._kept.values())

    def clear(self) -> None:
        """Keep nothing."""
        with self._guard:
            self._kept.clear()
