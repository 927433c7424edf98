"""A letter in the making, which all of its parts write on."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pocket.content.colours import Colour
from pocket.document import Question
from pocket.layouts.fonts import Face
from pocket.layouts.pillow.canvas import Canvas
from pocket.layouts.style import PageStyle
from pocket.questions.templates import Asking

INK: Final = (0, 0, 0)


@dataclass
class Letter(Asking):
    """A sheet in the making: how it is set, what is taken of it, what may be asked."""

    rng: random.Random
    style: PageStyle
    canvas: Canvas
    set_: Callable[[float, bool, float], Face]  # of a size, heavy or not, and how tall
    size: float
    issuer: str
    address: tuple[str, ...]
    top: float
    foot: float
    left: float
    right: float
    questions: list[Question] = field(default_factory=list)

    def face(self, share: float = 1.0, heavy: bool = False, tall: float = 1.0) -> Face:
        """The face of a line `share` times as large as the text."""
        return self.set_(max(8.6, self.size * share), heavy, tall)

    def put(
        self, x: float, y: float, text: str, face: Face, align: str = "left", ink: Colour = INK
    ) -> bool:
        """Write a line where it fits; whether it does."""
        wide = face.width(text)
        start = x - {"left": 0.0, "centre": wide / 2, "right": wide}[align]
        if start < 2 or start + wide > self.style.width - 2 or y + face.line > self.style.height:
            return False
        self.canvas.text(x, y, text, face, ink, align)
        return True
