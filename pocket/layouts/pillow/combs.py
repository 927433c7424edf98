"""Forms to be filled in: a box for each letter, or for each part of a value."""

import random
from typing import Final

from pocket.content.fields import field_pairs
from pocket.document import Document
from pocket.layouts.fonts import Face
from pocket.layouts.pillow.canvas import Canvas, blank_page
from pocket.layouts.pillow.titles import put_title
from pocket.layouts.style import PageStyle
from pocket.questions.fields import field_questions

LONGEST: Final = 34  # characters of a value, each in a box


def draw(rng: random.Random, style: PageStyle) -> Document:
    """A titled form; values are in one piece in an answer, on paper they are not."""
    canvas = blank_page(style)
    title, y = put_title(rng, canvas, style)
    beside, inked = rng.random() < 0.35, style.family.regular(style.size)
    label = style.family.regular(max(9, style.size * rng.uniform(0.7, 1.0)))
    pitch = inked.line * 1.5 + (0 if beside else label.line) + style.size * rng.uniform(0.2, 0.9)
    pairs = field_pairs(rng, max(1, int((style.height - style.margin - y) / pitch)))
    stop = max(label.width(key) for key, _ in pairs) + style.size if beside else 0.0
    whole, shown = rng.random() < 0.65, list[tuple[str, str]]()
    for key, value in pairs[: rng.randint(3, 14)]:
        left = style.margin + stop
        top = y if beside else y + label.line
        if len(value) > LONGEST or top + inked.line * 1.5 > style.height - 3:
            continue
        put = _letters if whole else _parts
        if not put(rng, canvas, style, (left, top), value, inked):
            continue
        lower = inked.line * 0.25 if beside else 0.0
        canvas.text(style.margin, y + lower, key, label, style.theme.ink)
        shown.append((key, value))
        canvas.content.append(value)  # which was drawn letter by letter
        y += pitch
    return canvas.document(field_questions(rng, title, shown) if shown else [])


def _letters(
    rng: random.Random, canvas: Canvas, style: PageStyle, at: tuple[float, float], value: str,
    face: Face,
) -> bool:  # fmt: skip
    """One box a character, some left empty behind the last; False where they do not fit."""
    x, y = at
    wide = max(face.width(c) for c in value) + style.size * 0.5
    boxes = len(value) + rng.randint(0, 4)
    boxes = min(boxes, int((style.width - style.margin - x) / wide))
    if boxes < len(value):
        return False
    for i in range(boxes):
        left = x + i * wide
        canvas.box(left, y, left + wide, y + face.line * 1.35, style.theme.page, style.theme.rule)
        if i < len(value):
            middle = left + (wide - face.width(value[i])) / 2
            canvas.text(middle, y + face.line * 0.17, value[i], face, style.theme.ink)
    return True


def _parts(
    rng: random.Random, canvas: Canvas, style: PageStyle, at: tuple[float, float], value: str,
    face: Face,
) -> bool:  # fmt: skip
    """One box a word or number; False where they do not fit."""
    x, y = at
    words, gap = value.split(" "), style.size * rng.uniform(0.15, 0.8)
    extra = style.size * rng.uniform(0.5, 1.6)
    wide = [face.width(word) + extra for word in words]
    if x + sum(wide) + gap * len(wide) > style.width - style.margin:
        return False
    for word, width in zip(words, wide, strict=True):
        canvas.box(x, y, x + width, y + face.line * 1.35, style.theme.panel, style.theme.rule)
        canvas.text(x + extra / 2, y + face.line * 0.17, word, face, style.theme.ink)
        x += width + gap
    return True
