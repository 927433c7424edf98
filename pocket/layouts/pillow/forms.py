"""Keys and values: forms, invoices, business cards, badges, specification sheets."""

import random

from pocket.content.fields import field_pairs
from pocket.document import Document
from pocket.layouts.fonts import Face
from pocket.layouts.pillow.canvas import Canvas, blank_page
from pocket.layouts.pillow.titles import put_title
from pocket.layouts.style import PageStyle
from pocket.questions.fields import field_questions


def draw(rng: random.Random, style: PageStyle) -> Document:
    """A titled sheet of fields in one of several layouts."""
    layout = rng.choice((_beside, _beside, _below, _boxed, _striped, _flow))
    canvas = blank_page(style)
    title, y = put_title(rng, canvas, style)
    shown = layout(rng, canvas, style, y)
    return canvas.document(field_questions(rng, title, shown))


def _faces(rng: random.Random, style: PageStyle) -> tuple[Face, Face]:
    s = style.size
    return rng.choice(
        (
            (style.family.regular(s), style.family.bold(s)),
            (style.family.bold(s), style.family.regular(s)),
            (style.family.regular(s), style.family.regular(s)),
            (style.family.regular(max(10, s * 0.85)), style.family.regular(s)),
        )
    )


def _beside(
    rng: random.Random, canvas: Canvas, style: PageStyle, y: float
) -> list[tuple[str, str]]:
    """Key left, value right of it, at a tab stop or at the right margin."""
    t, m = style.theme, style.margin
    key_face, value_face = _faces(rng, style)
    pitch = value_face.line * rng.uniform(1.05, 1.9)
    colon = rng.choice((":", ":", "", ""))
    items = field_pairs(rng, max(1, int((style.height - m - y) / pitch)))
    stop = max(key_face.width(k + colon) for k, _ in items) + style.size * rng.uniform(0.7, 2.5)
    right = rng.random() < 0.3
    rules = rng.random() < 0.35
    shown = []
    for key, value in items[: rng.randint(3, 16)]:
        if m + stop + value_face.width(value) > style.width - m or y + pitch > style.height - 2:
            continue
        canvas.text(m, y, key + colon, key_face, t.muted if not colon else t.ink)
        if right:
            canvas.text(style.width - m, y, value, value_face, t.ink, "right")
        else:
            canvas.text(m + stop, y, value, value_face, t.ink)
        if rules:
            canvas.line([(m, y + pitch - 2), (style.width - m, y + pitch - 2)], t.rule)
        shown.append((key, value))
        y += pitch
    return shown


def _below(rng: random.Random, canvas: Canvas, style: PageStyle, y: float) -> list[tuple[str, str]]:
    """A grid of small keys with the value under each."""
    t, m = style.theme, style.margin
    key_face = style.family.regular(max(10, style.size * 0.8))
    value_face = rng.choice((style.family.regular, style.family.bold))(style.size)
    columns = max(1, min(3, int((style.width - 2 * m) / (style.size * rng.uniform(10, 15)))))
    width = (style.width - 2 * m) / columns
    pitch = (key_face.line + value_face.line) * rng.uniform(1.1, 1.5)
    rows = max(1, int((style.height - m - y) / pitch))
    shown = []
    upper = rng.random() < 0.2
    for i, (key, value) in enumerate(field_pairs(rng, min(rows * columns, rng.randint(3, 18)))):
        x, top = m + (i % columns) * width, y + (i // columns) * pitch
        key = key.upper() if upper else key
        if max(value_face.width(value), key_face.width(key)) > width - 6:
            continue
        canvas.text(x, top, key, key_face, t.muted)
        canvas.text(x, top + key_face.line, value, value_face, t.ink)
        shown.append((key, value))
    return shown


def _boxed(rng: random.Random, canvas: Canvas, style: PageStyle, y: float) -> list[tuple[str, str]]:
    """Form fields: the key above a box that holds the value."""
    t, m = style.theme, style.margin
    key_face, value_face = (
        style.family.regular(max(10, style.size * 0.9)),
        style.family.regular(style.size),
    )
    columns = 2 if style.width > 400 and rng.random() < 0.5 else 1
    width = (style.width - 2 * m) / columns
    pitch = key_face.line + value_face.line * 1.6 + style.size * rng.uniform(0.2, 0.8)
    rows = max(1, int((style.height - m - y) / pitch))
    radius = rng.choice((0, 3, 6))
    shown = []
    for i, (key, value) in enumerate(field_pairs(rng, min(rows * columns, rng.randint(2, 14)))):
        x, top = m + (i % columns) * width, y + (i // columns) * pitch
        if max(value_face.width(value), key_face.width(key)) > width - 20:
            continue
        canvas.text(x, top, key, key_face, t.ink)
        box = top + key_face.line
        canvas.box(x, box, x + width - 8, box + value_face.line * 1.5, t.panel, t.rule, radius)
        canvas.text(x + 6, box + value_face.line * 0.22, value, value_face, t.ink)
        shown.append((key, value))
    return shown


def _striped(
    rng: random.Random, canvas: Canvas, style: PageStyle, y: float
) -> list[tuple[str, str]]:
    """Rows on alternating grounds inside a frame."""
    t, m = style.theme, style.margin
    key_face, value_face = _faces(rng, style)
    pitch = value_face.line * rng.uniform(1.3, 1.9)
    stop = (style.width - 2 * m) * rng.uniform(0.38, 0.5)
    shown: list[tuple[str, str]] = []
    for key, value in field_pairs(rng, min(16, max(1, int((style.height - m - y) / pitch)))):
        if (
            stop + value_face.width(value) > style.width - 2 * m - 8
            or key_face.width(key) > stop - 8
        ):
            continue
        ground = t.panel if len(shown) % 2 else t.page
        canvas.box(m, y, style.width - m, y + pitch, ground, t.rule)
        top = y + (pitch - value_face.line) / 2
        canvas.text(m + 6, top, key, key_face, t.ink)
        canvas.text(m + stop, top, value, value_face, t.ink)
        shown.append((key, value))
        y += pitch
    return shown


def _flow(rng: random.Random, canvas: Canvas, style: PageStyle, y: float) -> list[tuple[str, str]]:
    """Fields one after another along the line, the value beside or under its key."""
    t, m = style.theme, style.margin
    key_face = style.family.regular(max(10, style.size * rng.uniform(0.75, 1)))
    value_face = rng.choice((style.family.regular, style.family.bold))(style.size)
    under, gap = rng.random() < 0.6, style.size * rng.uniform(1.2, 3)
    pitch = (key_face.line * under + value_face.line) * rng.uniform(1.2, 1.8)
    x, shade = float(m), rng.choice((t.muted, t.accent, t.ink))
    shown: list[tuple[str, str]] = []
    for key, value in field_pairs(rng, rng.randint(3, 20)):
        head = key if under else key + ":"
        wide = key_face.width(head + " ")
        width = max(wide, value_face.width(value)) if under else wide + value_face.width(value)
        if x + width > style.width - m and x > m:
            x, y = float(m), y + pitch
        if y + pitch > style.height - m / 2:
            break
        if x + width > style.width - m:
            continue
        canvas.text(x, y, head, key_face, shade)
        if under:
            canvas.text(x, y + key_face.line, value, value_face, t.ink)
        else:
            canvas.text(x + wide, y + key_face.ascent - value_face.ascent, value, value_face, t.ink)
        shown.append((key, value))
        x += width + gap
    return shown
