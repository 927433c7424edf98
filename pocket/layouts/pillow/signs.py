"""Signs, labels and single lines: one to three lines of text on a coloured ground."""

import random
from typing import Final

from pocket.content import formats, lexicon, words
from pocket.content.colours import NAMED, luminance, shade
from pocket.content.formats import number
from pocket.document import Document, Question
from pocket.layouts.fonts import Face, Family, pick_family
from pocket.layouts.pillow.canvas import blank_page, fit
from pocket.layouts.style import PageStyle
from pocket.questions.templates import ORDINALS, absent, ask, yes_no

PHRASES: Final = (
    "No parking|Exit|Entrance|Open|Closed|Push|Pull|Sale 50%|Staff only|Platform 4|Gate B12|"
    "Please wait|Danger|Keep right|One way|Reception|Fresh coffee|Room 214|Free Wi-Fi|"
    "Mind the step|"
    "Emergency exit|Bus stop|Speed limit 30|Toilets|Lift|Level 3|Ticket office|Do not enter|"
    "Ausgang|Sortie|Salida|Uscita|Saída|Utgång|Wyjście|Geöffnet|Fermé|Abierto"
).split("|")


def phrase(rng: random.Random) -> str:
    """A short text: a sign's words, a name, a code, a figure, invented words."""
    r = rng.random()
    if r < 0.2:
        return rng.choice(PHRASES)
    if r < 0.35:
        return formats.code(rng)
    if r < 0.45:
        return words.person(rng)
    if r < 0.55:
        return number(rng)
    if r < 0.63:
        return rng.choice((formats.date, formats.clock, words.email, formats.phone))(rng)
    if r < 0.72:
        return words.company(rng)
    text = " ".join(lexicon.word(rng) for _ in range(rng.randint(1, 4)))
    return rng.choice((text, text.capitalize(), text.title(), text.upper()))


def ground(rng: random.Random) -> tuple[str, tuple[int, int, int], str, tuple[int, int, int]]:
    """Two named colours that contrast: of the ground and of the ink."""
    while True:
        a, b = rng.sample(tuple(NAMED), 2)
        if rng.random() < 0.6:
            b = rng.choice(("white", "black", "yellow"))
        ca, cb = shade(rng, a), shade(rng, b)
        if a != b and abs(luminance(ca) - luminance(cb)) > 0.35:
            return a, ca, b, cb


def place(
    rng: random.Random, family: Family, text: str, width: float, height: float
) -> Face | None:
    """The largest face of a random target size in which `text` fits `width`."""
    size = min(height, rng.uniform(0.35, 1.0) * height)
    while size > 11:
        face = rng.choice((family.bold, family.regular))(size)
        if fit(text, face, width):
            return face
        size *= 0.85
    return None


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One sign, or several lines on a plain ground."""
    w, h = style.width, style.height
    name, colour, ink_name, ink = ground(rng)
    page = style.theme.page if rng.random() < 0.5 else shade(rng, rng.choice(tuple(NAMED)))
    plate = rng.random() < 0.5
    canvas = blank_page(style, page if plate else colour)
    m = style.margin
    x0, y0, x1, y1 = float(m), float(m), float(w - m), float(h - m)
    if plate:
        y0, y1 = y0 + rng.uniform(0, h / 5), y1 - rng.uniform(0, h / 5)
        radius = rng.choice((0, 6, 14, 24))
        canvas.box(x0, y0, x1, y1, fill=colour, radius=radius)
        if rng.random() < 0.4:
            canvas.frame((x0 + 4, y0 + 4, x1 - 4, y1 - 4), ink, radius, 2)
        x0, y0, x1, y1 = x0 + 12, y0 + 8, x1 - 12, y1 - 8
    n = rng.choice((1, 1, 2, 2, 3, 4)) if w < 300 else rng.choice((1, 2, 3, 4, 5, 6))
    family = pick_family(rng, style.split, western=False, fancy=True)
    step = (y1 - y0) / n
    lines: list[str] = []
    align = rng.choice(("left", "centre", "centre", "right"))
    for i in range(n):
        text = phrase(rng)
        face = place(rng, family, text, x1 - x0, step / 1.35)
        if face is None:
            text = formats.code(rng)[:8]
            face = family.regular(12)
        x = {"left": x0, "centre": (x0 + x1) / 2, "right": x1}[align]
        canvas.text(x, y0 + i * step + (step - face.line) / 2, text, face, ink, align)
        lines.append(text)
    return canvas.document(_questions(rng, lines, name, ink_name, plate))


def _questions(
    rng: random.Random, lines: list[str], ground_name: str, ink_name: str, plate: bool
) -> list[Question]:
    what = rng.choice(("the sign", "the label")) if plate else "the background"
    out = [ask(rng, "text", "\n".join(lines))]
    out.append(ask(rng, "colour", ground_name, f=what))
    out.append(ask(rng, "colour", ink_name, f=rng.choice(("the text", "the writing"))))
    if len(lines) > 1:
        for i in rng.sample(range(len(lines)), 2):
            out.append(ask(rng, "nth", lines[i], k=ORDINALS[i], n="line"))
        out.append(ask(rng, "nth", lines[-1], k="last", n="line"))
        out.append(ask(rng, "count", str(len(lines)), n="lines"))
    seen = rng.choice(lines)
    out.append(yes_no(rng, "present", True, f=f'"{seen}"'))
    other = phrase(rng)
    if other not in "\n".join(lines):
        out.append(yes_no(rng, "present", False, f=f'"{other}"'))
    out.append(absent(rng, "field", f=rng.choice(("phone number of the owner", "invoice total"))))
    return out
