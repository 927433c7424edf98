"""Names with colours: keys of maps and plans, marks, labels, bars, coloured words, lamps."""

import random
from collections.abc import Callable
from typing import Final

from pocket.content import words
from pocket.content.colours import NAMED, SERIES_NAMES, Colour, ink_on, luminance, shade
from pocket.document import Document, Question
from pocket.layouts.fonts import Face
from pocket.layouts.pillow.canvas import Canvas, blank_page
from pocket.layouts.pillow.titles import put_title
from pocket.layouts.style import PageStyle
from pocket.questions.paraphrases import put
from pocket.questions.templates import ORDINALS, ask, yes_no

NOUNS: Final = (
    ("line", "lines"), ("route", "routes"), ("team", "teams"), ("zone", "zones"),
    ("entry", "entries"), ("label", "labels"), ("part", "parts"), ("series", "series"),
    ("group", "groups"), ("category", "categories"), ("item", "items"),
    ("name", "names"), ("area", "areas"),
)  # fmt: skip
Item = tuple[str, str, Colour]  # name, name of its colour, shade
Put = Callable[[Canvas, PageStyle, Face, float, float, float, Item], None]


def _mark(shape: str) -> Put:
    def put_mark(
        canvas: Canvas, style: PageStyle, face: Face, x: float, y: float, wide: float, item: Item
    ) -> None:
        side = max(7.0, face.ascent * {"line": 1.6, "dot": 0.8}.get(shape, 0.9))
        middle = y + face.line / 2
        box = (x, middle - side / 2, x + side, middle + side / 2)
        if shape == "dot":
            canvas.draw.ellipse(box, fill=item[2])
        elif shape == "ring":
            canvas.draw.ellipse(box, outline=item[2], width=max(2, int(side / 4)))
        elif shape == "line":
            canvas.line([(x, middle), (x + side, middle)], item[2], max(2, int(side / 9)))
        elif shape == "up":
            canvas.draw.polygon([(x, box[3]), (x + side, box[3]), (x + side / 2, box[1])], item[2])
        else:
            canvas.box(*box, fill=item[2])
        canvas.text(x + side + face.line * 0.4, y, item[0], face, style.theme.ink)

    return put_mark


def _word(
    canvas: Canvas, style: PageStyle, face: Face, x: float, y: float, wide: float, item: Item
) -> None:
    canvas.text(x, y, item[0], face, item[2])


def _pill(
    canvas: Canvas, style: PageStyle, face: Face, x: float, y: float, wide: float, item: Item
) -> None:
    end = x + face.width(item[0]) + face.line * 0.7
    canvas.box(x, y, end, y + face.line, item[2], radius=face.line // 3)
    canvas.text(x + face.line * 0.35, y, item[0], face, ink_on(item[2]))


def _bar(
    canvas: Canvas, style: PageStyle, face: Face, x: float, y: float, wide: float, item: Item
) -> None:
    share = 0.3 + 0.65 * (sum(map(ord, item[0])) % 97) / 97
    canvas.text(x, y, item[0], face, style.theme.ink)
    start = x + wide * 0.45
    canvas.box(start, y + 2, start + wide * 0.5 * share, y + face.line - 2, item[2])


def _edge(
    canvas: Canvas, style: PageStyle, face: Face, x: float, y: float, wide: float, item: Item
) -> None:
    canvas.box(x, y, x + max(3, face.line // 5), y + face.line, item[2])
    canvas.text(x + face.line * 0.5, y, item[0], face, style.theme.ink)


STYLES: Final[dict[str, Put]] = {
    "box": _mark("box"), "dot": _mark("dot"), "ring": _mark("ring"), "line": _mark("line"),
    "up": _mark("up"), "word": _word, "pill": _pill, "bar": _bar, "edge": _edge,
}  # fmt: skip


def items(rng: random.Random, names: list[str], mark: str, page: Colour) -> list[Item]:
    """A colour for each name: all different, or some alike; words in colours that can be read."""
    pool = [n for n in NAMED if n not in ("black", "white")]
    if mark == "word":
        pool = [n for n in pool if abs(luminance(NAMED[n][0]) - luminance(page)) > 0.3]
    else:
        pool = [n for n in pool if abs(luminance(NAMED[n][0]) - luminance(page)) > 0.08]
    alike = len(names) > len(pool) or rng.random() < 0.25
    picked = [rng.choice(pool) for _ in names] if alike else rng.sample(pool, len(names))
    one = {n: shade(rng, n) for n in SERIES_NAMES}
    return [(name, colour, one[colour]) for name, colour in zip(names, picked, strict=True)]


def draw(rng: random.Random, style: PageStyle) -> Document:
    """A title and coloured names in rows, columns or one below the other."""
    canvas, m = blank_page(style), style.margin
    title, y = put_title(rng, canvas, style)
    mark = rng.choice(tuple(STYLES))
    face = rng.choice((style.family.regular, style.family.bold))(style.size * rng.uniform(0.9, 1.5))
    columns = rng.choice((1, 1, 2, 3)) if style.width > 300 and mark != "bar" else 1
    wide, pitch = (style.width - 2 * m) / columns, face.line * rng.uniform(1.15, 2.0)
    room = max(1, int((style.height - m - y) / pitch)) * columns
    pool = words.unique(rng, words.label, min(room, rng.randint(2, 10)))
    limit = wide * (0.42 if mark == "bar" else 1) - face.line * 2.2
    names = [n for n in pool if face.width(n) < limit]
    made = items(rng, names, mark, style.theme.page)
    for i, item in enumerate(made):
        x, top = m + i % columns * wide, y + i // columns * pitch
        STYLES[mark](canvas, style, face, x, top, wide, item)
    return canvas.document(_questions(rng, title, made))


def _questions(rng: random.Random, title: str, made: list[Item]) -> list[Question]:
    out = [ask(rng, "title", title)] if title else []
    noun, plural = rng.choice(NOUNS)
    colours = [c for _, c, _ in made]
    for name, colour, _ in rng.sample(made, min(4, len(made))):
        out.append(put(rng, "colour", colour, "colour", f=name))
        if colours.count(colour) == 1:
            out.append(put(rng, "by_colour", name, "colour", n=noun, c=colour))
    if not made:
        return out
    (name, colour, _), other = rng.choice(made), rng.choice(SERIES_NAMES)
    for asked in (colour, other):
        text = rng.choice(("Is {f} {c}?", "Is {f} drawn in {c}?", "is the colour of {f} {c}"))
        answer = "yes" if asked == colour else "no"
        out.append(Question("yes_no", text.format(f=name, c=asked), answer))
    times = str(colours.count(colour))
    text = rng.choice(("How many {p} are {c}?", "number of {c} {p}", "how many are {c}"))
    out.append(Question("count", text.format(p=plural, c=colour), times))
    out.append(ask(rng, "count", str(len(made)), n=plural))
    if len(made) <= 6:
        out.append(ask(rng, "list", ", ".join(n for n, _, _ in made), n=plural))
        out.append(ask(rng, "list", ", ".join(colours), n="colours"))
    i = rng.randrange(min(len(made), len(ORDINALS)))
    out.append(put(rng, "colour", colours[i], "colour", f=f"the {ORDINALS[i]} {noun}"))
    out.append(ask(rng, "nth", made[i][0], k=ORDINALS[i], n=noun))
    out.append(yes_no(rng, "present", True, f=name))
    return out
