"""What one page is built from: the service and the gallery."""

import functools
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import gradio as gr
import numpy as np

from rotatek.inputs import request
from rotatek.page.ask.parting import TOP
from rotatek.page.ask.settings import columns_of
from rotatek.page.binding import refusal
from rotatek.service.model_list import Example, presets
from rotatek.service.run import Run
from rotatek.service.service import Service

log = logging.getLogger("rotatek")


def digest(pixels: np.ndarray) -> str:
    """What tells one picture from another: SHA-256 of its RGB bytes, and its size."""
    height, width = pixels.shape[:2]
    return f"{width}x{height}:{hashlib.sha256(pixels.tobytes()).hexdigest()}"


@dataclass(frozen=True)
class PageContext:
    """Everything that the page's events share.

    Args:
        service: answers questions.
        examples: the gallery.
        grace_s: seconds for which a visitor's caches outlive the page's connection.
        collects: whether there is a Collection tab; not where models run in other processes.
        renews: whether a slider that stops moving asks again; not where answers use a visitor's
            quota.
    """

    service: Service
    examples: Sequence[Example] = ()
    renews: bool = True
    collects: bool = True
    grace_s: float = 300.0

    @functools.cached_property
    def pictures(self) -> dict[str, str]:
        """File names of the examples, by what tells their pixels apart."""
        paths = [example.image for example in self.examples]
        return {digest(np.asarray(request.open_image(path))): path.name for path in paths}

    def picture_name(self, pixels: np.ndarray) -> str | None:
        """Which example uint8 [height, width, 3] is, by file name; None for any other picture."""
        return self.pictures.get(digest(pixels))

    def greeting(self) -> Run | None:
        """The first example under the first preset, answered once for all visitors."""
        if not self.examples:
            return None
        example = self.examples[0]
        columns = columns_of(next(iter(presets().values())))
        return self.service.welcome(
            request.open_image(example.image), example.questions[0], columns, TOP
        )

    def prepare(self) -> None:
        """Load the default model and answer the greeting ahead of the first visitor.

        A failure is logged here, and shown to visitors who ask.
        """
        try:
            self.service.engine(self.service.models[0].name)
            self.greeting()
        except Exception as error:
            said = error if isinstance(error, gr.Error) else refusal(error)
            log.warning("the default model is not ready: %s", said.message)
