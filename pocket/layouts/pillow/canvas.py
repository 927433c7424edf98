"""A Pillow image that records the position of each glyph, and text that wraps."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from pocket.content.colours import Colour
from pocket.document import Document, Question
from pocket.glyphs import CLASS_OF
from pocket.layouts.fonts import Face
from pocket.layouts.style import PageStyle


class Canvas:
    """A Pillow image that remembers the centre of every glyph drawn on it."""

    def __init__(self, width: int, height: int, background: Colour) -> None:
        self.width, self.height = width, height
        self.image = Image.new("RGB", (width, height), background)
        self.draw = ImageDraw.Draw(self.image)
        self.content: list[str] = []
        self._points: list[tuple[int, float, float]] = []

    def replace(self, image: Image.Image) -> None:
        """Go on with another picture of the same size, before anything is drawn."""
        self.image, self.draw = image, ImageDraw.Draw(image)

    def text(
        self, x: float, y: float, text: str, face: Face, fill: Colour, align: str = "left"
    ) -> float:
        """Draw one line whose top is `y`; `align` says what `x` is. Returns its width."""
        width = face.width(text)
        if align == "right":
            x -= width
        elif align == "centre":
            x -= width / 2
        x, y = round(x), round(y)
        mask, left, top = face.mask(text)
        self.draw.bitmap((x + left, y + top), mask, fill)
        self._note(text, face, x, y)
        self.content.append(text)
        return width

    def text_rotated(
        self, x: float, y: float, text: str, face: Face, fill: Colour, degrees: int
    ) -> None:
        """Draw one line turned by `degrees` (counter-clockwise) around its centre (x, y)."""
        width, height = int(face.width(text)) + 2, face.line + 2
        mask = Image.new("L", (width, height), 0)
        ImageDraw.Draw(mask).text((1, 0), text, font=face.font, fill=255)
        turned = mask.rotate(degrees, expand=True, resample=Image.Resampling.BICUBIC)
        left, top = round(x - turned.width / 2), round(y - turned.height / 2)
        self.image.paste(fill, (left, top), turned)
        angle = np.deg2rad(degrees)
        offset = -width / 2
        for ch, advance in zip(text, face.advances(text), strict=True):
            along = offset + advance / 2
            offset += advance
            if ch in CLASS_OF:
                px, py = x + along * np.cos(angle), y - along * np.sin(angle)
                self._points.append((CLASS_OF[ch], px, py))
        self.content.append(text)

    def strike_again(self, x: float, y: float, text: str, face: Face, fill: Colour) -> None:
        """Draw a line once more at (x, y), as bold print does, without noting it."""
        mask, left, top = face.mask(text)
        self.draw.bitmap((round(x) + left, round(y) + top), mask, fill)

    def _note(self, text: str, face: Face, x: float, y: float) -> None:
        """Remember the centres of `text` whose left top corner is (x, y)."""
        middle = y + face.ascent * 0.64
        for ch, advance in zip(text, face.advances(text), strict=True):
            if ch in CLASS_OF:
                self._points.append((CLASS_OF[ch], x + advance / 2, middle))
            x += advance

    def box(
        self,
        x0: float,
        y0: float,
        x1: float,
        y1: float,
        fill: Colour | None = None,
        outline: Colour | None = None,
        radius: int = 0,
    ) -> None:
        """A rectangle, rounded when `radius` is positive."""
        xy = _corners(x0, y0, x1, y1)
        if radius > 0:
            self.draw.rounded_rectangle(xy, radius, fill=fill, outline=outline)
        else:
            self.draw.rectangle(xy, fill=fill, outline=outline)

    def frame(
        self, corners: tuple[float, float, float, float], ink: Colour, radius: int, width: int
    ) -> None:
        """The outline of a rectangle, `width` pixels wide, rounded when `radius` is positive."""
        xy = _corners(*corners)
        if radius > 0:
            self.draw.rounded_rectangle(xy, radius, outline=ink, width=width)
        else:
            self.draw.rectangle(xy, outline=ink, width=width)

    def line(self, points: Sequence[tuple[float, float]], fill: Colour, width: int = 1) -> None:
        """A polyline."""
        self.draw.line([(round(x), round(y)) for x, y in points], fill=fill, width=width)

    def document(self, questions: list[Question]) -> Document:
        """Hand over the drawing."""
        glyphs = np.array(self._points, dtype=np.float32).reshape(-1, 3)
        return Document(self.image, glyphs, questions, content=self.content)


def _corners(x0: float, y0: float, x1: float, y1: float) -> tuple[int, int, int, int]:
    """Whole pixels, none of them beyond the other side."""
    return round(x0), round(y0), max(round(x0), round(x1)), max(round(y0), round(y1))


def wrap(text: str, face: Face, width: float) -> list[str]:
    """Break `text` at spaces into lines of at most `width` pixels."""
    lines, line = [], ""
    for word in text.split():
        trial = f"{line} {word}".strip()
        if line and face.width(trial) > width:
            lines.append(line)
            line = word
        else:
            line = trial
    return [*lines, line] if line else lines


def fit(text: str, face: Face, width: float) -> bool:
    """Whether `text` fits into `width` pixels on one line."""
    return face.width(text) <= width


def blank_page(style: PageStyle, background: Colour | None = None) -> Canvas:
    """An empty page of this style, on its own ground unless another is given."""
    return Canvas(style.width, style.height, background or style.theme.page)
