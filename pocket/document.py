"""A document: an image, the position of each glyph, and questions with true answers."""

from dataclasses import dataclass, field

import numpy as np
from PIL import Image


@dataclass(frozen=True)
class Question:
    """One question about a document; `kind` names the skill it asks for."""

    kind: str
    text: str
    answer: str


@dataclass
class Document:
    """A picture and what is known about it.

    Attributes:
        image: RGB.
        glyphs: float32 [n, 3]: the class of each drawn character and its centre (x, y) in pixels.
        questions: What may be asked, with true answers.
        renderer: By its name in `layouts.registry`.
        content: Every string drawn: an answer that is read must be found in it.
        printer: What has put it on paper, or nothing for what a screen shows.
        sheet: Where the paper lies: left, top, right, bottom in pixels; None: everywhere.
    """

    image: Image.Image
    glyphs: np.ndarray
    questions: list[Question]
    renderer: str = ""
    content: list[str] = field(default_factory=list)
    printer: str = ""
    sheet: tuple[int, int, int, int] | None = None
