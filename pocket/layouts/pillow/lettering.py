"""Letters on walls, boards and covers: how large, in which colour, with what depth."""

import random
from dataclasses import dataclass, field
from typing import Final

from pocket.content.colours import SERIES_NAMES, Colour, ink_on, luminance, shade
from pocket.document import Question
from pocket.layouts.fonts import Face, Family, pick_family
from pocket.layouts.pillow.canvas import Canvas
from pocket.layouts.style import PageStyle
from pocket.questions.templates import Asking

LARGE: Final = (
    "What does the large text say?", "What do the big letters say?",
    "What is written in large letters?",
    "What does the sign say in big letters?", "Read the large text.", "biggest text?",
    "What does it say?", "What word is the largest?",
)  # fmt: skip


@dataclass
class Scene(Asking):
    """A picture in the making: ground, what is written on it, and what may be asked."""

    rng: random.Random
    canvas: Canvas
    style: PageStyle
    questions: list[Question] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


def letters_for(scene: Scene) -> Family:
    """A family to letter with, at times a fancy one."""
    return pick_family(scene.rng, scene.style.split, western=True, fancy=scene.rng.random() < 0.25)


def fitted(family: Family, text: str, width: float, height: float, bold: bool = True) -> Face:
    """The largest face in which `text` is at most `width` by `height` pixels."""
    make = family.bold if bold else family.regular
    size = min(height / 1.25, 120.0)
    wide = make(40).width(text) / 40
    return make(max(9, int(min(size, width / max(0.1, wide)))))


def ink_at(scene: Scene, x: float, y: float, reach: float = 0.0) -> tuple[str, Colour]:
    """A colour of high contrast to its ground, and its name; `reach` pixels to both sides."""
    rng, image = scene.rng, scene.canvas.image
    w, h = image.size
    box = (
        max(0, int(x - reach)), max(0, int(y - reach / 4)),
        min(w, int(x + max(60, reach))), min(h, int(y + 40)),
    )  # fmt: skip
    patch = image.crop(box).resize((1, 1)).getpixel((0, 0))
    light = luminance(patch)  # type: ignore[arg-type]
    for _ in range(12):
        name = rng.choice((*SERIES_NAMES, "black", "white", "white", "black"))
        ink = shade(rng, name)
        if abs(luminance(ink) - light) > 0.36:
            return name, ink
    return ("black", (20, 20, 22)) if light > 0.5 else ("white", (250, 250, 250))


def lettered(
    scene: Scene, at: tuple[float, float], text: str, face: Face, ink: Colour, align: str = "centre"
) -> None:
    """Letters with depth, a shadow, an edge, or plain."""
    rng, canvas = scene.rng, scene.canvas
    x, y = at
    left = x - (face.width(text) / 2 if align == "centre" else 0)
    deep, r = max(1, face.size // 14), rng.random()
    if r < 0.2:
        shadow = (20, 20, 22) if luminance(ink) > 0.3 else (240, 240, 240)
        canvas.strike_again(left + deep, y + deep, text, face, shadow)
    elif r < 0.32:
        side = tuple(round(c * 0.55) for c in ink)
        for k in range(deep + 1, 0, -1):
            canvas.strike_again(left + k, y + k, text, face, side)  # type: ignore[arg-type]
    elif r < 0.42 and face.size > 20:
        edge = ink_on(ink)
        for dx, dy in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            canvas.strike_again(left + dx * deep * 0.7, y + dy * deep * 0.7, text, face, edge)
    canvas.text(left, y, text, face, ink)
