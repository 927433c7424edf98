"""Cards in rows and columns: a name, one to three figures, at times a tag and a picture."""

import random
from dataclasses import dataclass, field, replace

from pocket.content.cards import Deck, DeckMaker, make_deck
from pocket.content.colours import SERIES_NAMES, Colour, ink_on, shade
from pocket.document import Document
from pocket.layouts.fonts import Face
from pocket.layouts.pillow.canvas import Canvas, blank_page, wrap
from pocket.layouts.pillow.titles import put_title
from pocket.layouts.style import PageStyle
from pocket.questions.cards import deck_questions


def draw(rng: random.Random, style: PageStyle) -> Document:
    """Cards in a grid, or one below the other as strips."""
    canvas = blank_page(style)
    title, y = put_title(rng, canvas, style)
    if style.width > 300 and rng.random() < 0.3:
        made = strips(rng, canvas, style, y)
    else:
        made = grid(rng, canvas, style, y)
    return canvas.document(deck_questions(rng, title, made, style.budget))


@dataclass(frozen=True)
class Card:
    """The style of each card of a grid."""

    name: Face
    body: Face
    big: Face
    lead: bool  # the first figure is in large type
    top: bool  # ... and above the name
    mini: bool  # labels above figures, side by side
    picture: float
    pad: float
    centre: bool
    tints: dict[str, Colour] = field(default_factory=dict)  # of its tags


def _card(rng: random.Random, style: PageStyle) -> Card:
    s, f = style.size, style.family
    lead = rng.random() < 0.35
    return Card(
        name=rng.choice((f.bold, f.bold, style.heading.bold, f.regular))(s * rng.uniform(1, 1.2)),
        body=f.regular(max(10, s * rng.uniform(0.8, 1))),
        big=rng.choice((f.bold, f.regular))(s * rng.uniform(1.15, 1.7)),
        lead=lead,
        top=lead and rng.random() < 0.25,
        mini=not lead and rng.random() < 0.35,
        picture=s * rng.uniform(1.5, 5) if rng.random() < 0.25 else 0.0,
        pad=s * rng.uniform(0.35, 0.9),
        centre=rng.random() < 0.2,
    )


def grid(
    rng: random.Random, canvas: Canvas, style: PageStyle, y: float, make: DeckMaker = make_deck
) -> Deck:
    """Equal cards in one to four columns, as many as the page holds."""
    card, m = _card(rng, style), style.margin
    made = make(rng, 28, 3)
    gap = style.size * rng.uniform(0.3, 1)
    if card.mini:
        for f in made.fields:
            f.pattern = "{k}: {v}"  # how it is read out; drawn are label and figure apart
            f.label = f.label.capitalize() if f.label.islower() else f.label
    columns = max(1, min(rng.randint(2, 4), int((style.width - 2 * m) / (style.size * 6.5))))
    while True:
        width = (style.width - 2 * m - gap * (columns - 1)) / columns
        fits = [i for i in range(28) if _height(card, made, i, width - 2 * card.pad) > 0]
        if len(fits) > 12 or columns == 1:
            break
        columns -= 1
    inner = width - 2 * card.pad
    tall = max([_height(card, made, i, inner) for i in fits], default=0.0) + 2 * card.pad
    rows = int((style.height - m - y + gap) / (tall + gap)) if fits else 0
    if not rows:
        return made.keep([])
    most = min(len(fits), rows * columns)
    count = most if rng.random() < 0.6 else rng.randint(min(2, most), most)
    made = made.keep(fits[:count])
    frame = rng.choice(("panel", "panel", "outline", "bare", "edge"))
    radius, card = rng.choice((0, 4, 8, 12)), replace(card, tints=_tints(rng, made))
    for i in range(count):
        x, top = m + i % columns * (width + gap), y + i // columns * (tall + gap)
        _ground(canvas, style, frame, (x, top, x + width, top + tall), radius)
        _fill(rng, canvas, style, card, made, i, (x + card.pad, top + card.pad, inner))
    return made


def _tints(rng: random.Random, made: Deck) -> dict[str, Colour]:
    """A colour for each tag, the same on every card."""
    names = rng.sample(SERIES_NAMES, len(set(made.tags)) + 1)
    plain, one = shade(rng, names[0]), rng.random() < 0.4
    tags = sorted(set(made.tags))
    return {"": plain} | {t: plain if one else shade(rng, n)
                          for t, n in zip(tags, names[1:], strict=True)}  # fmt: skip


def _ground(
    canvas: Canvas,
    style: PageStyle,
    frame: str,
    box: tuple[float, float, float, float],
    radius: int,
) -> None:
    t = style.theme
    if frame == "panel":
        canvas.box(*box, t.panel, t.rule, radius)
    elif frame == "outline":
        canvas.box(*box, None, t.rule, radius)
    elif frame == "edge":
        canvas.box(box[0], box[1], box[0] + 2, box[3], t.accent)


def _lines(card: Card, made: Deck, i: int) -> list[tuple[str, Face, bool]]:
    """The lines of figures on card `i`: text, face, whether it leads; without the mini ones."""
    if card.mini:
        return []
    rest = [(f.line(i), card.body, False) for f in made.fields]
    if card.lead:
        rest[0] = (rest[0][0], card.big, True)
    return rest


def _height(card: Card, made: Deck, i: int, width: float) -> float:
    """Height of what card `i` holds, 0 if something is wider than `width`."""
    name = wrap(made.names[i], card.name, width)
    lines = _lines(card, made, i)
    texts = [(x, card.name) for x in name] + [(x, face) for x, face, _ in lines]
    if len(name) > 2 or any(face.width(x) > width for x, face in texts):
        return 0.0
    tall = card.picture + card.name.line * len(name) + sum(f.line * 1.08 for _, f, _ in lines)
    if card.mini:
        if sum(_mini_widths(card, made, i)) > width:
            return 0.0
        tall += card.body.line * 2.3
    if made.tags:
        if card.body.width(made.tags[i]) + 12 > width:
            return 0.0
        tall += card.body.line * 1.4
    return tall


def _mini_widths(card: Card, made: Deck, i: int) -> list[float]:
    gap = card.body.line * 0.6
    return [max(card.body.width(f.label), card.body.width(f.texts[i])) + gap for f in made.fields]


def _fill(
    rng: random.Random, canvas: Canvas, style: PageStyle, card: Card, made: Deck, i: int,
    place: tuple[float, float, float],
) -> None:  # fmt: skip
    """Everything on card `i`; place: left, top and width of its inside."""
    (left, y, width), t = place, style.theme
    x, align = (left + width / 2, "centre") if card.centre else (left, "left")
    if card.picture:
        canvas.box(
            left, y, left + width, y + card.picture * 0.9, shade(rng, rng.choice(SERIES_NAMES))
        )
        y += card.picture
    lines = _lines(card, made, i)
    if card.top:
        text, face, _ = lines.pop(0)
        canvas.text(x, y, text, face, t.accent, align)
        y += face.line * 1.08
    for text in wrap(made.names[i], card.name, width):
        canvas.text(x, y, text, card.name, t.ink, align)
        y += card.name.line
    for text, face, lead in lines:
        canvas.text(x, y, text, face, t.accent if lead else t.muted, align)
        y += face.line * 1.08
    if card.mini:
        at = left
        for own, wide in zip(made.fields, _mini_widths(card, made, i), strict=True):
            canvas.text(at, y + 2, own.label, card.body, t.muted)
            canvas.text(at, y + 2 + card.body.line, own.texts[i], card.body, t.ink)
            at += max(wide, width / len(made.fields) * 0.98 if card.centre else wide)
        y += card.body.line * 2.3
    if made.tags:
        start = x - (card.body.width(made.tags[i]) + 12) / 2 if card.centre else x
        _pill(canvas, start, y + card.body.line * 0.15, made.tags[i], card.body, card.tints)


def _pill(
    canvas: Canvas, x: float, y: float, tag: str, face: Face, tints: dict[str, Colour]
) -> float:
    """A tag on its ground; returns its width."""
    wide, tint = face.width(tag) + 12, tints[tag]
    canvas.box(x, y - 1, x + wide, y + face.line + 1, tint, radius=face.line // 2)
    canvas.text(x + 6, y, tag, face, ink_on(tint))
    return wide


def strips(
    rng: random.Random, canvas: Canvas, style: PageStyle, y: float, make: DeckMaker = make_deck
) -> Deck:
    """Cards one below the other: the name left, its figures and tag at the right."""
    t, m, s = style.theme, style.margin, style.size
    name, body = style.family.bold(s), style.family.regular(max(10, s * 0.9))
    made, left = make(rng, 24, 2), m + 6.0
    under = rng.random() < 0.5 and len(made.fields) > 1  # the second figure is below the name
    tall = name.line + body.line * under + s * rng.uniform(0.5, 1.4)
    face, mark = rng.random() < 0.35, tall * 0.7
    left += mark + 8 if face else 0
    right, frame = style.width - m - 6.0, rng.choice(("rule", "panel", "bare"))
    beside = made.fields[:1] if under else made.fields
    tag_wide = max((body.width(x) + 20 for x in made.tags), default=0.0)
    wides = [max(body.width(f.line(i)) for i in range(24)) + s for f in beside]
    reach = right - tag_wide - sum(wides) - left - 8
    fits = [i for i in range(24) if name.width(made.names[i]) < reach]
    fits = [i for i in fits if not under or body.width(made.fields[1].line(i)) < reach]
    made = made.keep(fits[: max(0, int((style.height - m - y) / (tall + 4)))])
    tints = _tints(rng, made)
    for i, text in enumerate(made.names):
        if frame == "panel":
            canvas.box(m, y, style.width - m, y + tall, t.panel, t.rule, 4)
        elif frame == "rule":
            canvas.line([(m, y + tall + 2), (style.width - m, y + tall + 2)], t.rule)
        top = y + (tall - name.line - body.line * under) / 2
        if face:
            box = (m + 5, y + tall * 0.15, m + 5 + mark, y + tall * 0.85)
            canvas.draw.ellipse(box, fill=shade(rng, rng.choice(SERIES_NAMES)))
        canvas.text(left, top, text, name, t.ink)
        if under:
            canvas.text(left, top + name.line, made.fields[1].line(i), body, t.muted)
        middle, at = y + (tall - body.line) / 2, right - tag_wide
        if made.tags:
            _pill(canvas, at + 8, middle, made.tags[i], body, tints)
        for wide, own in zip(reversed(wides), reversed(made.fields[: len(wides)]), strict=True):
            canvas.text(at, middle, own.line(i), body, t.ink, "right")
            at -= wide
        y += tall + 4
    return made
