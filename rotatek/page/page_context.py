"""What one page is built from: the service and the gallery."""

import functools
import hashlib
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rotatek import errors
from rotatek.inputs.images import open_image
from rotatek.page.settings import columns_of, sampling_of
from rotatek.service.model_list import Example, presets
from rotatek.service.service import Run, Service

log = logging.getLogger("rotatek")


def digest(pixels: np.ndarray) -> str:
    """What tells one picture from another: SHA-256 of its RGB bytes, and its size."""
    height, width = pixels.shape[:2]
    return f"{width}x{height}:{hashlib.sha256(pixels.tobytes()).hexdigest()}"


@dataclass(frozen=True)
class PageContext:
    """Everything that the page's events share.

    Args:
        examples: the gallery.
        collects: whether there is a Collection tab; not where models run in other processes.
        renews: whether a slider that stops moving asks again; not where answers use a visitor's
            quota.
    """

    service: Service
    examples: Sequence[Example] = ()
    renews: bool = True
    collects: bool = True
    _greeted: list[Run] = field(default_factory=list, init=False, repr=False)
    _greeting: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @functools.cached_property
    def pictures(self) -> dict[str, str]:
        """File names of the examples, by what tells their pixels apart."""
        return {digest(np.asarray(open_image(e.image))): e.image.name for e in self.examples}

    def greeting(self) -> Run | None:
        """The first example under the first preset, answered once for all visitors."""
        with self._greeting:
            if self.examples and not self._greeted:
                example, chosen = self.examples[0], next(iter(presets().values()))
                self._greeted[:] = self.service.ask(
                    self.service.models[0].name, open_image(example.image),
                    example.questions[0], columns_of(chosen), 64, sampling=sampling_of(0, None),
                )  # fmt: skip
            return self._greeted[-1] if self._greeted else None

    def prepare(self) -> None:
        """Load the default model and answer the greeting. A failure is logged here, and shown to
        visitors who ask."""
        try:
            self.service.engine(self.service.models[0].name)
            self.greeting()
        except Exception as error:
            log.warning("the default model is not ready: %s", errors.public_message(error))
