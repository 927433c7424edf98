"""Everyday photographs: cards, notices, screens, letters, chats, lists.

The content is a plan of `questions.topics`; its questions seldom repeat what is printed beside the
answer.
"""

import random
from dataclasses import dataclass, replace
from typing import Final

from pocket.content import prose, topic
from pocket.content.colours import Colour, ink_on
from pocket.document import Document, Question
from pocket.layouts.fonts import Face
from pocket.layouts.pillow.canvas import Canvas, blank_page, wrap
from pocket.layouts.style import PageStyle
from pocket.questions.pages import page_markdown
from pocket.questions.templates import ask
from pocket.questions.topics import Fact, Plan, plan

TRIES: Final = 5
TIERED: Final = 0.5  # share of the lines that are set in tiers, as posters and screens are
FILLERS: Final = 0.4  # share of pages of prose with sentences without questions


@dataclass(frozen=True)
class Line:
    """One line of text to be drawn."""

    x: float
    y: float
    text: str
    face: Face
    ink: Colour
    align: str = "left"


class Sheet:
    """Lines and boxes that are measured first and drawn when all of them fit."""

    def __init__(self, rng: random.Random, style: PageStyle) -> None:
        self.rng, self.style, self.fits = rng, style, True
        self.y = float(style.margin)
        if rng.random() < 0.25:
            self.y += style.height * rng.uniform(0, 0.25)
        self.body = style.family.regular(style.size)
        self.bold = style.family.bold(style.size)
        self.leading = self.body.line * rng.uniform(1.0, 1.35)
        self.lines: list[Line] = []
        self.boxes: list[tuple[float, float, float, float, Colour, int]] = []
        self.rules: list[tuple[float, float, float]] = []
        self.blocks: list[str] = []

    @property
    def width(self) -> float:
        """Between the margins, pixels."""
        return self.style.width - 2 * self.style.margin

    def put(self, x: float, text: str, face: Face, ink: Colour, align: str = "left") -> None:
        """A line at the present height."""
        left = {"left": x, "centre": x - face.width(text) / 2, "right": x - face.width(text)}[align]
        inside = left >= 2 and left + face.width(text) <= self.style.width - 2
        self.fits &= inside and self.y + face.line <= self.style.height - 3
        self.lines.append(Line(x, self.y, text, face, ink, align))

    def paragraph(
        self, text: str, face: Face, ink: Colour, align: str = "left", indent: float = 0.0
    ) -> None:
        """Wrapped lines; the height moves on below them."""
        m, style = self.style.margin, self.style
        x = {"left": m + indent, "centre": style.width / 2, "right": style.width - m}[align]
        for line in wrap(text, face, self.width - indent):
            self.put(x, line, face, ink, align)
            self.y += max(self.leading, face.line * 1.02)
        self.blocks.append(text)

    def draw(self) -> Canvas:
        """Everything on a canvas."""
        canvas = blank_page(self.style)
        for x0, y0, x1, y1, fill, radius in self.boxes:
            canvas.box(x0, y0, x1, y1, fill=fill, radius=radius)
        for x0, x1, y in self.rules:
            canvas.line([(x0, y), (x1, y)], self.style.theme.rule)
        for line in self.lines:
            canvas.text(line.x, line.y, line.text, line.face, line.ink, line.align)
        return canvas


def draw(rng: random.Random, style: PageStyle, held: bool = False) -> Document:
    """A document of one topic; without questions if nothing of it fits."""
    room = max(2, int(style.room * rng.uniform(0.5, 0.9)))
    plain = style
    for trial in range(TRIES):
        made = plan(rng, room, held)
        style = _larger(rng, plain, made) if trial < 2 else plain
        sheet = Sheet(rng, style)
        tiered = made.layout == "lines" and not held and rng.random() < TIERED
        (_tiers if tiered else LAYOUTS[made.layout])(sheet, made)
        if sheet.fits:
            questions = [q for q in made.questions if len(q.answer.encode()) <= style.budget]
            return sheet.draw().document(questions + whole(rng, sheet, made))
        room = max(2, int(room * 0.7))
    return blank_page(style).document([])


def _larger(rng: random.Random, style: PageStyle, made: Plan) -> PageStyle:
    """Larger type where there is little to write, as on notices."""
    lines = len(made.facts) + len(made.rows) + 2 * bool(made.head)
    most = min(2.0, style.room / (1.5 * lines))
    if made.layout == "prose" or most <= 1 or rng.random() < 0.4:
        return style
    return replace(style, size=style.size * rng.uniform(1, most))


def draw_held(rng: random.Random, style: PageStyle) -> Document:
    """A document of a topic that training never sees."""
    return draw(rng, style, held=True)


def whole(rng: random.Random, sheet: Sheet, made: Plan) -> list[Question]:
    """The transcription, where the order of reading is plain."""
    if made.layout == "pairs" or not sheet.blocks:
        return []
    if made.layout == "table":
        text, form = "\n".join(sheet.blocks), "table"
        if made.facts or made.head:
            return []
    else:
        text, form = page_markdown(sheet.blocks) if made.layout == "prose" else "\n".join(
            sheet.blocks), "page"  # fmt: skip
    fits = len(text.encode()) <= sheet.style.budget
    return [ask(rng, form, text, kind="transcribe")] if fits else []


def _head(sheet: Sheet, made: Plan) -> None:
    """The title, at times on a band, and some room below it."""
    if not made.head:
        return
    rng, style = sheet.rng, sheet.style
    face = rng.choice((style.heading.bold, style.heading.bold, style.heading.regular))(
        style.size * rng.uniform(1.05, 1.9)
    )
    align = "centre" if rng.random() < 0.25 else "left"
    ink = style.theme.accent if rng.random() < 0.4 else style.theme.ink
    if rng.random() < 0.2:
        ink = ink_on(style.theme.accent)
        rows = len(wrap(made.head, face, sheet.width))
        bottom = style.margin + rows * max(sheet.leading, face.line * 1.02) + style.size * 0.4
        sheet.boxes.append((0, 0, style.width, bottom, style.theme.accent, 0))
    sheet.paragraph(made.head, face, ink, align)
    sheet.y += style.size * rng.uniform(0.4, 1.1)


def _lines(sheet: Sheet, made: Plan) -> None:
    """Every fact and row on a line of its own, some larger, with rules or bullets at times."""
    rng, style = sheet.rng, sheet.style
    _head(sheet, made)
    align = rng.choice(("left", "left", "left", "centre"))
    mark = rng.choice(("", "", "", "• ", "- ")) if align == "left" else ""
    ruled, gap = rng.random() < 0.2, style.size * rng.choice((0.1, 0.3, 0.6))
    loud = rng.random() < 0.35
    for text in made.texts:
        face, ink = sheet.body, style.theme.ink
        if loud and rng.random() < 0.3:
            face = style.heading.bold(style.size * rng.uniform(1.1, 1.8))
            ink = rng.choice((ink, style.theme.accent))
        if mark and not sheet.lines and rng.random() < 0.5:
            mark = ""
        if mark:
            sheet.put(style.margin, mark.strip(), sheet.body, style.theme.ink)
        sheet.paragraph(text, face, ink, align, sheet.body.width(mark))
        if ruled:
            sheet.rules.append((style.margin, style.width - style.margin, sheet.y + gap / 2))
        sheet.y += gap


def _tiers(sheet: Sheet, made: Plan) -> None:
    """Groups of a loud line and quieter ones, below it or at its right, on panels at times.

    Nothing but size, weight and place tells what belongs together: posters, lists of a telephone,
    cards of a page. The order of reading is not plain, so nothing is transcribed.
    """
    rng, style = sheet.rng, sheet.style
    t, m, left = style.theme, style.margin, list(made.texts)
    _head(sheet, made)
    centred, panels, icons = rng.random() < 0.25, rng.random() < 0.45, rng.random() < 0.35
    scale, pad = rng.uniform(1.0, 1.8), style.size * rng.uniform(0.3, 0.7)
    quiet = style.family.regular(max(9.0, style.size * rng.uniform(0.75, 1.0)))
    heavy = rng.choice((style.heading.bold, style.family.bold, style.heading.regular))
    loud = heavy(style.size * scale)
    inset = loud.line * 1.3 if icons and not centred else 0.0
    while left:
        count = min(len(left), rng.choice((1, 2, 2, 3)))
        group, left = left[:count], left[count:]
        top, number = sheet.y, len(sheet.boxes)
        sheet.y += pad * panels
        if rng.random() < 0.15:  # what is small may also stand first
            sheet.paragraph(group.pop(), quiet, t.muted, "centre" if centred else "left", inset)
        for i, text in enumerate(group):
            face, ink = (loud, t.ink) if i == 0 else (quiet, rng.choice((t.muted, t.ink)))
            beside = i == 1 and not centred and rng.random() < 0.4
            room = sheet.width - inset - loud.width(group[0]) - style.size - pad
            if beside and quiet.width(text) < room:
                below, sheet.y = sheet.y, sheet.y - max(sheet.leading, loud.line * 1.02)
                sheet.put(style.width - m - pad * panels, text, quiet, ink, "right")
                sheet.y = below
            else:
                sheet.paragraph(text, face, ink, "centre" if centred else "left", inset)
        if inset:
            side = loud.line * 0.9
            sheet.boxes.append((m, top + pad, m + side, top + pad + side, t.accent,
                                round(side * rng.choice((0.0, 0.3, 0.5)))))  # fmt: skip
        sheet.y += pad * panels
        if panels:
            sheet.boxes.insert(number, (m - pad, top, style.width - m + pad, sheet.y, t.panel,
                                        round(pad)))  # fmt: skip
        elif rng.random() < 0.15:
            sheet.rules.append((m, style.width - m, sheet.y + pad * 0.5))
        sheet.y += style.size * rng.uniform(0.3, 1.3)
    sheet.blocks.clear()


def _pairs(sheet: Sheet, made: Plan) -> None:
    """Labels beside, above or far left of their values; some values have none."""
    rng, style = sheet.rng, sheet.style
    t, m = style.theme, style.margin
    _head(sheet, made)
    way = rng.choice(("beside", "apart", "above", "tiles"))
    faces = rng.choice(((sheet.body, sheet.bold), (sheet.bold, sheet.body), (sheet.body,) * 2))
    key_ink, colon = rng.choice((t.muted, t.ink)), rng.choice(("", "", ":"))
    gap = style.size * rng.uniform(0.15, 0.8)
    labels = [f.label + colon for f in made.facts if f.label]
    stop = max((faces[0].width(x) for x in labels), default=0) + style.size * rng.uniform(0.6, 2)
    if way == "tiles":
        _tiles(sheet, made.facts, faces, key_ink, gap)
    for fact in made.facts if way != "tiles" else ():
        if not fact.label:
            sheet.paragraph(fact.text, sheet.body, t.ink)
        elif way == "above":
            sheet.paragraph(fact.label, faces[0], key_ink)
            sheet.paragraph(fact.value, faces[1], t.ink)
        else:
            sheet.put(m, fact.label + colon, faces[0], key_ink)
            far = way == "apart"
            value = fact.value
            room = sheet.width - (faces[0].width(fact.label + colon) + 8 if far else stop)
            sheet.fits &= faces[1].width(value) <= room
            sheet.put(style.width - m if far else m + stop, value, faces[1], t.ink,
                      "right" if far else "left")  # fmt: skip
            sheet.y += sheet.leading
        sheet.y += gap
    for text in made.lines:
        sheet.paragraph(text, sheet.body, t.ink)


def _tiles(
    sheet: Sheet, facts: list[Fact], faces: tuple[Face, ...], ink: Colour, gap: float
) -> None:
    """Label above value, in two or three columns."""
    style, columns = sheet.style, sheet.rng.choice((2, 2, 3)) if sheet.style.width > 330 else 1
    step = sheet.width / columns
    for i in range(0, len(facts), columns):
        top = sheet.y
        for j, fact in enumerate(facts[i : i + columns]):
            x, sheet.y = style.margin + j * step, top
            if fact.label:
                sheet.put(x, fact.label, faces[0], ink)
            sheet.y = top + sheet.leading * bool(fact.label)
            text = fact.value if fact.label else fact.text
            sheet.fits &= max(faces[1].width(text), faces[0].width(fact.label)) <= step - 6
            sheet.put(x, text, faces[1], style.theme.ink)
        sheet.y = top + 2 * sheet.leading + gap


def _prose(sheet: Sheet, made: Plan) -> None:
    """Paragraphs: the facts' sentences in order, others between them."""
    rng, style = sheet.rng, sheet.style
    _head(sheet, made)
    if sheet.blocks:
        sheet.blocks[0] = "# " + sheet.blocks[0]
    fillers = rng.random() < FILLERS
    texts, paragraph = made.texts, list[str]()
    for i, text in enumerate(texts):
        whole = text if text.endswith((".", "!", "?")) else text + "."
        paragraph.append(whole)
        if fillers and rng.random() < 0.3:
            paragraph.append(prose.sentence(rng, "en"))
        if rng.random() < 0.4 or i == len(texts) - 1:
            sheet.paragraph(" ".join(paragraph), sheet.body, style.theme.ink)
            sheet.y += style.size * 0.5
            paragraph = []


def _bubbles(sheet: Sheet, made: Plan) -> None:
    """A chat: messages in boxes, left and right by turns."""
    rng, style = sheet.rng, sheet.style
    t, m, pad = style.theme, style.margin, style.size * 0.45
    tints = [t.panel if t.panel != t.page else t.rule, t.accent]
    _head(sheet, made)
    side, widest = rng.random() < 0.5, sheet.width * rng.uniform(0.7, 0.85)
    for text in made.texts:
        lines = wrap(text, sheet.body, widest - 2 * pad)
        width = max(sheet.body.width(x) for x in lines) + 2 * pad
        x0 = style.width - m - width if side else float(m)
        height = len(lines) * sheet.leading + 2 * pad
        box = (x0, sheet.y, x0 + width, sheet.y + height, tints[side], round(style.size * 0.6))
        sheet.boxes.append(box)
        sheet.y += pad
        for line in lines:
            sheet.put(x0 + pad, line, sheet.body, ink_on(t.accent) if side else t.ink)
            sheet.y += sheet.leading
        sheet.y += pad + style.size * 0.4
        sheet.blocks.append(text)
        if rng.random() < 0.75:
            side = not side


def _table(sheet: Sheet, made: Plan) -> None:
    """Rows below their heads; facts above."""
    rng, style = sheet.rng, sheet.style
    t, m = style.theme, style.margin
    _head(sheet, made)
    for fact in made.facts:
        sheet.paragraph(fact.text, sheet.body, t.ink)
    if not made.rows:
        return
    rows, gap = [made.heads, *made.rows], style.size * rng.uniform(0.6, 1.6)
    widths = [max(sheet.bold.width(r[i]) for r in rows) + gap for i in range(len(made.heads))]
    spare = sheet.width - sum(widths)
    sheet.fits &= spare >= 0
    if rng.random() < 0.6:
        widths = [w + max(0, spare) / len(widths) for w in widths]
    pitch, striped, ruled = sheet.leading * rng.uniform(1, 1.4), rng.random() < 0.3, rng.random()
    figures = [all(topic.figure(r[i]) is not None for r in made.rows) for i in range(len(widths))]
    right, sheet.y = rng.random() < 0.5, sheet.y + style.size * 0.3
    for k, row in enumerate(rows):
        x = float(m)
        if striped and k % 2 == 0:
            sheet.boxes.append((m - 3, sheet.y - 2, m + sum(widths), sheet.y + pitch - 2,
                                t.panel, 0))  # fmt: skip
        for i, cell in enumerate(row):
            face = sheet.bold if k == 0 else sheet.body
            far = right and figures[i]
            sheet.put(x + (widths[i] - gap if far else 0), cell, face, t.ink,
                      "right" if far else "left")  # fmt: skip
            x += widths[i]
        sheet.y += pitch
        if ruled < 0.4 or k == 0:
            sheet.rules.append((m - 3, m + sum(widths), sheet.y - 3))
        sheet.blocks.append("| " + " | ".join(row) + " |")
        if k == 0:
            sheet.blocks.append("| " + " | ".join("---" for _ in row) + " |")


LAYOUTS: Final = {
    "lines": _lines,
    "pairs": _pairs,
    "prose": _prose,
    "bubbles": _bubbles,
    "table": _table,
}
