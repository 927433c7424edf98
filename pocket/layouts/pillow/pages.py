"""Pages of running text: headings, paragraphs, bullet lists, in one or two columns."""

import random

from pocket.content import words
from pocket.content.prose import sentence
from pocket.document import Document
from pocket.layouts.pillow.canvas import Canvas, blank_page, wrap
from pocket.layouts.style import PageStyle
from pocket.questions.pages import page_questions


def draw(rng: random.Random, style: PageStyle) -> Document:
    """An article, a letter or a slide; its transcription is Markdown."""
    canvas = blank_page(style)
    t, m = style.theme, style.margin
    columns = 2 if style.width > 520 and rng.random() < 0.2 else 1
    gutter = 18
    width = (style.width - 2 * m - gutter * (columns - 1)) / columns
    body = style.family.regular(style.size)
    leading = rng.uniform(1.12, 1.5) * body.line * 0.9
    blocks: list[str] = []
    bullets: list[str] = []
    heading = ""
    y = float(m)
    if rng.random() < 0.8:
        heading, y = _heading(rng, canvas, style, y)
        if heading:
            blocks.append("# " + heading)
    top, column = y, 0
    budget = style.budget - len(heading.encode()) - 8
    sort = rng.choice(("article", "article", "list", "mixed"))
    mark = rng.choice(("•", "-", "–", "1"))
    while True:
        room = style.height - m - y
        text = _paragraph(rng, style, sort == "article" or (sort == "mixed" and rng.random() < 0.5))
        bullet = text[0] == "\0"
        text = text.lstrip("\0")
        indent = body.width("00 ") if bullet else 0
        lines = wrap(text, body, width - indent)
        if len(text.encode()) > budget or any(body.width(x) > width - indent + 1 for x in lines):
            break
        if room < leading * len(lines):
            column += 1
            if column >= columns:
                break
            y = top
            continue
        x = m + column * (width + gutter)
        if bullet:
            sign = f"{len(bullets) + 1}." if mark == "1" else mark
            canvas.text(x, y, sign, body, t.accent if rng.random() < 0.3 else t.ink)
            bullets.append(text)
            blocks.append(f"{len(bullets)}. {text}" if mark == "1" else f"- {text}")
        else:
            blocks.append(text)
        for line in lines:
            canvas.text(x + indent, y, line, body, t.ink)
            y += leading
        y += leading * (0.15 if bullet else rng.choice((0.5, 0.7)))
        budget -= len(text.encode()) + 4
        if rng.random() < 0.06:
            break
    return canvas.document(page_questions(rng, heading, blocks, bullets))


def _heading(rng: random.Random, canvas: Canvas, style: PageStyle, y: float) -> tuple[str, float]:
    t, m = style.theme, style.margin
    face = rng.choice((style.heading.bold, style.heading.regular))(style.size * rng.uniform(1.2, 2))
    text = words.title(rng, style.lang)
    lines = wrap(text, face, style.width - 2 * m)
    if len(lines) > 2 or any(face.width(x) > style.width - 2 * m for x in lines):
        return "", y
    band = rng.random() < 0.15 and len(lines) == 1
    centre = rng.random() < 0.25
    if band:
        canvas.box(0, 0, style.width, y + face.line + 6, fill=t.accent)
    ink = (255, 255, 255) if band else rng.choice((t.ink, t.accent))
    for line in lines:
        x = style.width / 2 if centre else m
        canvas.text(x, y, line, face, ink, "centre" if centre else "left")
        y += face.line
    if rng.random() < 0.3:
        canvas.line([(m, y + 4), (style.width - m, y + 4)], t.rule)
    return text, y + face.line * rng.uniform(0.3, 0.7) + 6


def _paragraph(rng: random.Random, style: PageStyle, prose: bool) -> str:
    """Running text, or one bullet (marked by a leading NUL)."""
    if not prose:
        r = rng.random()
        if r < 0.25:
            return "\0" + words.product(rng)
        if r < 0.65:
            return "\0" + words.some(rng, 1, 5)
        return "\0" + sentence(rng, style.lang)
    limit = 3 if style.width > 500 else 2
    return " ".join(sentence(rng, style.lang) for _ in range(rng.randint(1, limit)))
