"""Notes and plates of a few lines: any label and its value, written in any of the usual ways."""

import random
from dataclasses import dataclass
from typing import Final

from pocket.content import formats, lexicon, words
from pocket.content.colours import NAMED, Colour, ink_on, luminance, shade
from pocket.content.fields import any_value
from pocket.content.formats import number
from pocket.document import Document, Question
from pocket.layouts.fonts import Face
from pocket.layouts.pillow.canvas import Canvas, blank_page, wrap
from pocket.layouts.style import PageStyle
from pocket.questions.paraphrases import denied, put
from pocket.questions.templates import ORDINALS, ask, yes_no

HEADS: Final = (
    "code word name number date time price place room colour size total amount key pet group "
    "level code letter line page file street team tool model title author winner speaker host "
    "driver teacher doctor client owner guest topic route stop track locker box shelf bin lot "
    "ticket pass plan rate fee tip tax offer score goal record weight length width depth speed "
    "limit range voltage pressure dose serial version channel frequency password user login port "
    "address phone mail capital river animal plant flavour dish drink recipe song band film book "
    "language subject grade deadline start end arrival departure delay bench country city"
).split()
FRONTS: Final = (
    "code secret pass magic first last next main final new old total net gross daily weekly "
    "monthly yearly meeting parking opening closing delivery order billing home office emergency "
    "spare front back upper lower inner outer red blue guest staff family team group lucky winning "
    "reserve entry exit landing test trial member client case batch part stock shelf"
).split()
WAYS: Final = (
    "{k}: {v}", "{k}: {v}", "{k} {v}", "{k} - {v}", "{k} = {v}", "{k} is {v}", "{k}; {v}",
    "The {k} is {v}.", "Our {k}: {v}", "{k} | {v}", "{v} ({k})",
)  # fmt: skip


@dataclass(frozen=True)
class Plate:
    """Ground, inks, faces and place of one note's lines."""

    ground: Colour
    ink: Colour
    dim: Colour
    key: Face
    value: Face
    align: str
    way: str


def label(rng: random.Random) -> str:
    """The label of a value: everyday words, or any words."""
    r = rng.random()
    if r < 0.45:
        return f"{rng.choice(FRONTS)} {rng.choice(HEADS)}"
    if r < 0.7:
        return rng.choice(HEADS)
    if r < 0.85:
        return f"{lexicon.word(rng)} {rng.choice(HEADS)}"
    return words.some(rng, 1, 2).lower()


def value(rng: random.Random) -> str:
    """Anything a label may have, mostly short."""
    r = rng.random()
    if r < 0.35:
        return rng.choice(
            (lexicon.word(rng), lexicon.word(rng).capitalize(), lexicon.word(rng).upper())
        )
    return number(rng) if r < 0.5 else formats.code(rng) if r < 0.6 else any_value(rng)


def pairs(rng: random.Random, n: int) -> list[tuple[str, str]]:
    """`n` labels, none within another, and their values."""
    out: list[tuple[str, str]] = []
    while len(out) < n:
        key = label(rng)
        if all(key not in k and k not in key for k, _ in out):
            out.append((key, value(rng)))
    return out


def _plate(rng: random.Random, style: PageStyle, scale: float) -> Plate:
    t, size = style.theme, style.size * scale
    ground, ink, dim = t.page, t.ink, rng.choice((t.muted, t.ink, t.accent))
    if rng.random() < 0.3:
        ground = shade(rng, rng.choice(tuple(NAMED)))
        ink = dim = ink_on(ground)
        if abs(luminance(ground) - luminance(ink)) < 0.4:
            ground, ink, dim = t.page, t.ink, t.ink
    faces = (style.family.regular, style.family.bold, style.heading.bold)
    small = max(10.0, size * rng.choice((0.7, 0.85, 1)))
    above = rng.random() < 0.35
    return Plate(
        ground, ink, dim,
        key=rng.choice(faces)(small if above else size), value=rng.choice(faces)(size),
        align=rng.choice(("left", "left", "centre")), way="" if above else rng.choice(WAYS),
    )  # fmt: skip


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One to seven labelled values, as large as there is room for."""
    made = pairs(rng, rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 6, 7)))
    title = words.title(rng) if rng.random() < 0.35 else ""
    most = min(2.4, style.height / (style.size * 1.7 * (len(made) + 2)))
    plate = _plate(rng, style, max(1.0, rng.uniform(0.8, max(1.0, most))))
    canvas, y = blank_page(style, plate.ground), style.margin + rng.uniform(0, 0.25) * style.height
    head = style.heading.bold(style.size)
    if title and head.width(title) < style.width - 2 * style.margin:
        y = style.margin + _line(canvas, style, plate, style.margin, title, head)
    else:
        title = ""
    capital = rng.choice((str, str.capitalize, str.title, str.upper))
    gap = plate.value.line * rng.uniform(0.1, 0.7)
    shown, lines = list[tuple[str, str]](), list[str]()
    for key, text in made:
        tall = _height(plate, style, capital(key), text)
        if tall and y + tall < style.height - 3:
            lines += _write(canvas, style, plate, y, capital(key), text)
            shown.append((capital(key), text))
            y += tall + gap
    return canvas.document(_questions(rng, title, shown, lines))


def _line(canvas: Canvas, style: PageStyle, plate: Plate, y: float, text: str, face: Face) -> float:
    """Draw one line; returns its height."""
    x = style.width / 2 if plate.align == "centre" else style.margin
    canvas.text(x, y, text, face, plate.ink if face is plate.value else plate.dim, plate.align)
    return face.line


def _texts(plate: Plate, style: PageStyle, key: str, value: str) -> list[tuple[str, Face]]:
    """The lines of one pair, each with its face."""
    if not plate.way:
        return [(key, plate.key), (value, plate.value)]
    text = plate.way.format(k=key, v=value)
    wide = style.width - 2 * style.margin
    return [(line, plate.value) for line in wrap(text, plate.value, wide)]


def _height(plate: Plate, style: PageStyle, key: str, value: str) -> float:
    """Pixels that a pair takes; 0 if it is too wide or would break inside of a word or value."""
    lines = _texts(plate, style, key, value)
    wide = style.width - 2 * style.margin
    if len(lines) > 2 or any(face.width(text) > wide for text, face in lines):
        return 0.0
    return sum(face.line for _, face in lines)


def _write(
    canvas: Canvas, style: PageStyle, plate: Plate, y: float, key: str, value: str
) -> list[str]:
    """Draw one pair; returns its lines."""
    lines = _texts(plate, style, key, value)
    for text, face in lines:
        y += _line(canvas, style, plate, y, text, face)
    return [text for text, _ in lines]


def _questions(
    rng: random.Random, title: str, shown: list[tuple[str, str]], lines: list[str]
) -> list[Question]:
    out, values = list[Question](), [v for _, v in shown]
    for key, text in shown:
        asked = key if rng.random() < 0.3 else key.lower()
        out += [put(rng, "field", text, "field", f=asked) for _ in range(2)]
        if values.count(text) == 1 and not any(text in k for k, _ in shown):
            out.append(put(rng, "names", key, "reverse", v=text))
    if not shown:
        return out
    keys, said = [k.lower() for k, _ in shown], "\n".join(lines).lower()
    near = rng.choice(keys).split()[0] + " " + rng.choice(HEADS)
    other = near if rng.random() < 0.5 else label(rng)
    if not any(other in k or k in other for k in keys) and other not in said:
        out.append(denied(rng, "field", f=other))
        out.append(yes_no(rng, "present", False, f=f"the {other}"))
    out.append(yes_no(rng, "present", True, f=f"the {rng.choice(keys)}"))
    head = [title] if title else []
    out.append(ask(rng, "text", "\n".join([*head, *lines]), kind="transcribe"))
    if title:
        out.append(ask(rng, "title", title))
    if len(shown) > 2:
        i = rng.randrange(len(shown))
        out.append(ask(rng, "nth", values[i], k=ORDINALS[i], n="value"))
        out.append(ask(rng, "list", ", ".join(values), n="values"))
    return out
