"""Directories in small type: columns of names with a number, under letters or headings.

Never trained on: set in type that training does not have either, they measure small print.
"""

import random

from pocket.content import formats, words
from pocket.document import Document, Question
from pocket.layouts.fonts import Family, pick_family
from pocket.layouts.pillow.canvas import Canvas, blank_page
from pocket.layouts.style import PageStyle
from pocket.questions.templates import ABSENT, careless

SMALLEST, LARGEST = 9.0, 12.4  # pixels of a letter's size
TAILS = (
    (
        "phone number",
        "What is the phone number of {f}?",
        lambda r: formats.run(r, "0123456789", 5, 7),
    ),
    ("page", "On which page is {f}?", lambda r: str(r.randint(2, 640))),
    ("room", "In which room is {f}?", lambda r: f"{r.choice('ABCDE')}{r.randint(10, 499)}"),
    ("price", "How much is {f}?", lambda r: f"{r.uniform(0.5, 99):.2f}"),
    (
        "extension",
        "What is the extension of {f}?",
        lambda r: f"{r.randint(10, 99)}-{r.randint(10, 99)}",
    ),
)


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One page."""
    canvas = blank_page(style, (255, 255, 255) if rng.random() < 0.7 else None)
    family = pick_family(rng, style.split, western=True)
    size = rng.uniform(SMALLEST, LARGEST)
    return canvas.document(_page(rng, style, canvas, family, size))


def _page(
    rng: random.Random, style: PageStyle, canvas: Canvas, family: Family, size: float
) -> list[Question]:
    white = canvas.image.getpixel((0, 0)) != style.theme.page
    ink = (20, 20, 24) if white else style.theme.ink
    face, bold, head = family.regular(size), family.bold(size * 1.15), family.bold(size * 1.9)
    what, form, make = rng.choice(TAILS)
    title, m = words.some(rng, 1, 3), style.margin
    canvas.text(m, m, title, head, ink)
    top = m + head.line * 1.3
    columns = max(1, int((style.width - 2 * m) / (face.width("0") * rng.uniform(34, 48))))
    wide = (style.width - 2 * m) / columns
    draw_name = rng.choice((words.person, words.company, words.product))
    leaders, pitch = rng.random() < 0.5, face.line * rng.uniform(1.02, 1.6)
    found: list[tuple[str, str, str]] = []
    for c in range(columns):
        x, y, heading = m + c * wide, float(top), ""
        while y + face.line * 2 < style.height - m:
            if not heading or rng.random() < 0.09:
                heading = words.some(rng, 1, 1).title()
                canvas.text(x, y, heading, bold, ink)
                y += bold.line
            name, value = draw_name(rng), make(rng)
            room = wide - face.width(value) - size * 2
            if face.width(name) > room or any(name in f[0] or f[0] in name for f in found):
                continue
            canvas.text(x, y, name, face, ink)
            end = x + wide - size
            canvas.text(end, y, value, face, ink, "right")
            if leaders:
                dots = int((room - face.width(name)) / face.width("."))
                if dots > 3:
                    gap = "." * (dots - 2)
                    canvas.text(x + face.width(name) + 3, y, gap, face, style.theme.muted)
            found.append((name, value, heading))
            y += pitch
    return _questions(rng, (title, what, form), found)


def _questions(
    rng: random.Random, about: tuple[str, str, str], found: list[tuple[str, str, str]]
) -> list[Question]:
    title, what, form = about
    out = [Question("title", careless(rng, "What is the title?"), title)]
    heads = [h for _, _, h in found]
    values = [v for _, v, _ in found]
    for name, value, heading in rng.sample(found, min(6, len(found))):
        asked = rng.choice((form, f"{what} of {{f}}?", f"{{f}}: {what}?")).format(f=name)
        out.append(Question("value", careless(rng, asked), value))
        if values.count(value) == 1:
            out.append(Question("reverse", f"Which entry has the {what} {value}?", name))
        if len(set(heads)) > 1:
            out.append(Question("find", f"Under which heading is {name}?", heading))
    for i in rng.sample(range(len(found) - 1), min(2, len(found) - 1)):
        if found[i][2] == found[i + 1][2]:
            out.append(
                Question("find", f"Which entry comes right after {found[i][0]}?", found[i + 1][0])
            )
    out.append(Question("absent", form.format(f=words.person(rng)), ABSENT))
    return out
