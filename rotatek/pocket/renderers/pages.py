"""Pages of running text: headings, paragraphs, bullet lists, in one or two columns."""

from __future__ import annotations

import random

from .. import words
from ..document import Canvas, Document, Question, wrap
from ..questions import ORDINALS, absent, ask, yes_no
from .look import Look


def draw(rng: random.Random, look: Look) -> Document:
    """An article, a letter or a slide; its transcription is Markdown."""
    canvas = look.canvas()
    t, m = look.theme, look.margin
    columns = 2 if look.width > 520 and rng.random() < 0.2 else 1
    gutter = 18
    width = (look.width - 2 * m - gutter * (columns - 1)) / columns
    body = look.family.regular(look.size)
    leading = rng.uniform(1.12, 1.5) * body.line * 0.9
    blocks: list[str] = []
    bullets: list[str] = []
    heading = ""
    y = float(m)
    if rng.random() < 0.8:
        heading, y = _heading(rng, canvas, look, y)
        if heading:
            blocks.append("# " + heading)
    top, column = y, 0
    budget = look.budget - len(heading.encode()) - 8
    style = rng.choice(("article", "article", "list", "mixed"))
    mark = rng.choice(("•", "-", "–", "1"))
    while True:
        room = look.height - m - y
        text = _paragraph(
            rng, look, style == "article" or (style == "mixed" and rng.random() < 0.5)
        )
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


def _heading(rng: random.Random, canvas: Canvas, look: Look, y: float) -> tuple[str, float]:
    t, m = look.theme, look.margin
    face = rng.choice((look.heading.bold, look.heading.regular))(look.size * rng.uniform(1.2, 2))
    text = words.title(rng, look.lang)
    lines = wrap(text, face, look.width - 2 * m)
    if len(lines) > 2 or any(face.width(x) > look.width - 2 * m for x in lines):
        return "", y
    band = rng.random() < 0.15 and len(lines) == 1
    centre = rng.random() < 0.25
    if band:
        canvas.box(0, 0, look.width, y + face.line + 6, fill=t.accent)
    ink = (255, 255, 255) if band else rng.choice((t.ink, t.accent))
    for line in lines:
        x = look.width / 2 if centre else m
        canvas.text(x, y, line, face, ink, "centre" if centre else "left")
        y += face.line
    if rng.random() < 0.3:
        canvas.line([(m, y + 4), (look.width - m, y + 4)], t.rule)
    return text, y + face.line * rng.uniform(0.3, 0.7) + 6


def _paragraph(rng: random.Random, look: Look, prose: bool) -> str:
    """Running text, or one bullet (marked by a leading NUL)."""
    if not prose:
        r = rng.random()
        if r < 0.25:
            return "\0" + words.product(rng)
        if r < 0.65:
            return "\0" + words.some(rng, 1, 5)
        return "\0" + words.sentence(rng, look.lang)
    limit = 3 if look.width > 500 else 2
    return " ".join(words.sentence(rng, look.lang) for _ in range(rng.randint(1, limit)))


def _places(rng: random.Random, prose: list[str], bullets: list[str]) -> list[Question]:
    """Questions that find a paragraph or an item by what stands before it or at its start."""
    out = list[Question]()
    if 2 <= len(prose) <= 9:
        out.append(ask(rng, "count", str(len(prose)), n="paragraphs"))
    if len(prose) > 1:
        block = rng.choice(prose)
        cue = " ".join(block.split()[:3])
        if sum(p.startswith(cue) for p in prose) == 1:
            form = rng.choice(('Read the paragraph that starts with "{}".',
                               'Which paragraph begins "{}"?'))  # fmt: skip
            out.append(Question("transcribe", form.format(cue), block))
            form = rng.choice(('What is the last word of the paragraph that starts with "{}"?',
                               'How does the paragraph "{}..." end?'))  # fmt: skip
            out.append(Question("find", form.format(cue), block.split()[-1]))
    if len(bullets) > 2:
        i = rng.randrange(len(bullets) - 1)
        if bullets.count(bullets[i]) == 1:
            out.append(ask(rng, "follows", bullets[i + 1], kind="find", n="item", f=bullets[i]))
        if len(bullets) <= 9:
            out.append(ask(rng, "list", ", ".join(bullets), n=rng.choice(("items", "points"))))
    return out


def markdown(blocks: list[str]) -> str:
    """Blocks joined as Markdown: list items on following lines, others apart."""
    out = ""
    for i, block in enumerate(blocks):
        if i:
            tight = _item(block) and _item(blocks[i - 1])
            out += "\n" if tight else "\n\n"
        out += block
    return out


def _item(block: str) -> bool:
    return block.startswith("- ") or block.split(".", 1)[0].isdigit()


def page_questions(
    rng: random.Random, heading: str, blocks: list[str], bullets: list[str]
) -> list[Question]:
    """Questions about a page; ``blocks`` is its Markdown, ``bullets`` its list items."""
    if not blocks:
        return [ask(rng, "page", "", kind="transcribe")]
    out = [ask(rng, "page", markdown(blocks), kind="transcribe")]
    if heading:
        out.append(ask(rng, "title", heading))
    else:
        out.append(absent(rng, "title"))
    if 2 <= len(bullets) <= 9:
        out.append(
            ask(rng, "count", str(len(bullets)), n=rng.choice(("items", "points", "bullets")))
        )
        i = rng.randrange(min(len(bullets), len(ORDINALS)))
        out.append(ask(rng, "nth", bullets[i], k=ORDINALS[i], n=rng.choice(("item", "point"))))
        out.append(ask(rng, "nth", bullets[-1], k="last", n=rng.choice(("item", "point"))))
    prose = [b for b in blocks if not b.startswith("#") and not _item(b)]
    if len(prose) > 1:
        i = rng.randrange(min(len(prose), len(ORDINALS)))
        out.append(ask(rng, "nth", prose[i], k=ORDINALS[i], n="paragraph", kind="transcribe"))
    out += _places(rng, prose, bullets)
    text = " ".join(blocks)
    tokens = text.split()
    inner = rng.choice(blocks).split()
    if len(inner) > 5 and inner[0] not in "#-":
        i = rng.randrange(len(inner) - 3)
        cue = " ".join(inner[i : i + 3])
        if text.count(cue) == 1:
            forms = (
                f'Which word comes after "{cue}"?', f'what follows "{cue}"?',
                f'What is the next word after "{cue}"?',
            )  # fmt: skip
            out.append(Question("find", rng.choice(forms), inner[i + 3]))
    if len(tokens) > 8:
        word = rng.choice([w for w in tokens if len(w) > 3] or tokens).strip(".,!?#-")
        if word:
            out.append(yes_no(rng, "present", True, f=f'the word "{word}"'))
    other = words.invented(rng, 3)
    if other not in text:
        out.append(yes_no(rng, "present", False, f=f'the word "{other}"'))
    out.append(
        absent(rng, "field", f=rng.choice(("phone number", "total price", "invoice number")))
    )
    return out
