"""Caches whose rows differ in size from head to head: digits of many bits, heads of many widths."""

from dataclasses import dataclass, field

import numpy as np
from PIL import Image
from torch import Tensor

from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import prefill
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel

KINDS = {
    "bits": Settings.of(smaller=3),
}
ROOM = 64


@dataclass
class Alone:
    """One visitor: the same prompt in a cache of its own, and what it says there."""

    cache: RotateKCache
    position: Tensor
    token: Tensor
    said: list[int] = field(default_factory=list)


def filled(vlm: VisionLanguageModel, settings: Settings, number: int) -> Alone:
    """A picture and a question by number: neighbours differ in size, in text and in spectra."""
    noise = np.random.default_rng(number).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    image = Image.fromarray(noise).resize((140 + 28 * (number % 3), 168))
    asked = make_request(image, f"question {number} " * (1 + number % 3), ROOM)
    embedded = vlm.embed(vlm.prompt(asked))
    cache = RotateKCache(vlm.model, embedded.inputs(), settings)
    cache.release_steps()
    logits, _ = prefill(vlm, embedded, cache)
    return Alone(cache, embedded.next_position, logits.argmax(-1))
