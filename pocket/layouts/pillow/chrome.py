"""The surroundings of a program's page: a bar, a menu at the side, tabs; one entry is selected."""

import random
from dataclasses import dataclass, field
from typing import Final

from pocket.content import lexicon, words
from pocket.content.colours import Colour, hsv, ink_on
from pocket.document import Question
from pocket.layouts.fonts import Face
from pocket.layouts.pillow.canvas import Canvas, blank_page
from pocket.layouts.style import PageStyle
from pocket.questions.panels import denied, put
from pocket.questions.templates import Asking

MENU: Final = (
    "Dashboard|Overview|Home|Reports|Analytics|Settings|Users|Projects|Calendar|Messages|Inbox|"
    "Billing|"
    "Forms|Logs|Invoices|Contacts|Staff|Routes|Shifts|Suppliers|Warehouse|Machines|Samples|Rooms|"
    "Alerts|Search|Help|Profile|Team|Tasks|History|Archive|Drafts|Bin|Labels|Groups|"
    "Documents|"
    "Orders|Products|Customers|Discounts|Network|Storage|Security|Backups|Plugins|Library|"
    "Favourites|"
    "Downloads|Statistics|Workflows|Members|General|Advanced|Notifications|Appearance|Exports"
).split("|")


@dataclass
class Screen(Asking):
    """A program's window in the making: the part that is still empty, and what may be asked."""

    rng: random.Random
    canvas: Canvas
    style: PageStyle
    box: tuple[float, float, float, float]  # left, top, right, bottom that are still free
    ink: Colour
    muted: Colour
    panel: Colour
    rule: Colour
    accent: Colour
    questions: list[Question] = field(default_factory=list)

    @property
    def wide(self) -> float:
        """Pixels across that are free."""
        return self.box[2] - self.box[0]

    @property
    def high(self) -> float:
        """Pixels down that are free."""
        return self.box[3] - self.box[1]

    def text(
        self, x: float, y: float, text: str, face: Face, fill: Colour, align: str = "left"
    ) -> float:
        """Draw a line of text; returns its width."""
        return self.canvas.text(x, y, text, face, fill, align)

    def body(self, share: float = 1.0, bold: bool = False) -> Face:
        """The face of the body, `share` times as large."""
        make = self.style.family.bold if bold else self.style.family.regular
        return make(max(9.0, self.style.size * share))


def open_screen(rng: random.Random, style: PageStyle) -> Screen:
    """An empty window in the style's theme, its ground a little off white mostly."""
    t = style.theme
    ground = t.page
    if not t.dark and rng.random() < 0.6:
        ground = hsv(rng.random(), rng.uniform(0, 0.04), rng.uniform(0.94, 0.985))
    panel = t.panel if t.dark else (255, 255, 255)
    m = style.margin
    box = (float(m), float(m), float(style.width - m), float(style.height - m))
    return Screen(
        rng, blank_page(style, ground), style, box, t.ink, t.muted, panel, t.rule, t.accent
    )


def surround(screen: Screen, bar: float, menu: float, head: float, tab: float) -> None:
    """A bar, a menu at the side, a heading and tabs, each with the probability given."""
    parts = ((bar, top_bar), (menu, side_menu), (head, heading), (tab, tabs))
    for share, put_part in parts:
        if share and screen.rng.random() < share:
            put_part(screen.rng, screen)


def fitting(face: Face, text: str, width: float) -> str:
    """`text`, cut with an ellipsis where it is too wide, as programs do."""
    if face.width(text) <= width:
        return text
    while len(text) > 3 and face.width(text + "...") > width:
        text = text[:-1]
    return text.rstrip() + "..."


def names(rng: random.Random, n: int) -> list[str]:
    """`n` entries of a menu, none within another."""
    out: list[str] = []
    while len(out) < n:
        name = rng.choice(MENU) if rng.random() < 0.7 else words.some(rng, 1, 2).capitalize()
        if len(name) < 22 and not words.overlaps(name, out):
            out.append(name)
    return out


def top_bar(rng: random.Random, screen: Screen) -> None:
    """A bar with the program's name at the left and at times a user at the right."""
    canvas, style = screen.canvas, screen.style
    face = style.heading.bold(style.size * rng.uniform(1.0, 1.35))
    high = face.line * rng.uniform(1.3, 2.0)
    ground = rng.choice((screen.panel, screen.accent, hsv(rng.random(), 0.5, 0.25), screen.panel))
    canvas.box(0, 0, style.width, high, fill=ground)
    ink = ink_on(ground)
    brand = lexicon.word(rng).capitalize() if rng.random() < 0.6 else words.some(rng, 1, 2).title()
    x, side = float(style.margin), face.ascent
    if rng.random() < 0.5:
        mark(
            rng,
            canvas,
            (x, (high - side) / 2, side),
            ink if ground == screen.accent else screen.accent,
        )
        x += side * 1.4
    width = screen.text(x, (high - face.line) / 2, brand, face, ink)
    screen.questions.append(put(rng, "brand", brand))
    small = screen.body(0.9)
    user = rng.choice((words.FIRST[rng.randrange(40)], lexicon.invented(rng), words.person(rng)))
    if rng.random() < 0.4 and x + width + small.width(user) + 60 < style.width:
        screen.text(
            style.width - style.margin - 4, (high - small.line) / 2, user, small, ink, "right"
        )
        screen.questions.append(put(rng, "user", user))
    left, _, right, foot = screen.box
    screen.box = (left, high + style.size * 0.7, right, foot)


def mark(rng: random.Random, canvas: Canvas, at: tuple[float, float, float], ink: Colour) -> None:
    """A small icon: left, top and side."""
    x, y, s = at
    pen, w = canvas.draw, max(1, round(s / 10))
    kind = rng.randrange(7)
    box = (x, y, x + s, y + s)
    if kind == 0:
        pen.ellipse(box, outline=ink, width=w)
    elif kind == 1:
        pen.rectangle(box, outline=ink, width=w)
    elif kind == 2:
        pen.ellipse(box, fill=ink)
    elif kind == 3:
        pen.polygon([(x + s / 2, y), (x + s, y + s), (x, y + s)], outline=ink, width=w)
    elif kind == 4:
        for i in range(3):
            pen.line(
                [(x, y + s * (i + 0.5) / 3), (x + s, y + s * (i + 0.5) / 3)], fill=ink, width=w
            )
    elif kind == 5:
        for i, h in enumerate((0.5, 1, 0.7)):
            pen.rectangle((x + s * i / 3, y + s * (1 - h), x + s * i / 3 + s / 5, y + s), fill=ink)
    else:
        pen.rounded_rectangle(box, s / 4, fill=ink)


def side_menu(rng: random.Random, screen: Screen) -> None:
    """Entries at the left, one of them selected, some with a number behind."""
    canvas, style = screen.canvas, screen.style
    face = screen.body(rng.uniform(0.9, 1.05))
    wide = max(face.ascent * 8.0, style.width * rng.uniform(0.16, 0.24))
    if wide > style.width * 0.34:
        return
    top = screen.box[1] - style.size * 0.7 if screen.box[1] > style.margin else 0
    dark = rng.random() < 0.35
    ground = hsv(rng.random(), 0.35, rng.uniform(0.12, 0.25)) if dark else screen.panel
    canvas.box(0, top, wide, style.height, fill=ground)
    ink, muted = (ink_on(ground), (160, 165, 175)) if dark else (screen.ink, screen.muted)
    pitch = face.line * rng.uniform(1.35, 2.0)
    n = min(rng.randint(3, 12), int((style.height - top) / pitch) - 1)
    if n < 2:
        return
    shown, chosen = names(rng, n), rng.randrange(n)
    shown = [s for s in shown if face.width(s) < wide - face.ascent * 2.6]
    if len(shown) < 2:
        return
    chosen %= len(shown)
    way, icons = rng.randrange(4), rng.random() < 0.6
    counts: list[tuple[str, str]] = []
    y = top + pitch * rng.uniform(0.4, 1.2)
    for i, name in enumerate(shown):
        tone = muted if way == 3 else ink
        if i == chosen:
            tone = _select(
                canvas, (0.0, y, wide, pitch), way, screen.accent, ink if way != 3 else ink
            )
        x = face.ascent * 0.9
        if icons:
            mark(rng, canvas, (x, y + (pitch - face.ascent * 0.8) / 2, face.ascent * 0.8), tone)
            x += face.ascent * 1.4
        width = screen.text(x, y + (pitch - face.line) / 2, name, face, tone)
        figure = str(rng.randint(0, 400))
        if rng.random() < 0.15 and x + width + face.width(figure) + 16 < wide:
            screen.text(wide - 8, y + (pitch - face.line) / 2, figure, face, tone, "right")
            counts.append((name, figure))
        y += pitch
    screen.questions.append(put(rng, "page", shown[chosen]))
    screen.questions.append(put(rng, "page", shown[chosen]))
    screen.questions += [put(rng, "beside", figure, f=name) for name, figure in counts[:3]]
    left, upper, right, foot = screen.box
    screen.box = (wide + style.margin, upper, right, foot)


def _select(
    canvas: Canvas, at: tuple[float, float, float, float], way: int, accent: Colour, ink: Colour
) -> Colour:
    """Show that the entry in the row (left, top, width, height) is selected; its ink."""
    x, y, wide, high = at
    if way == 0:
        canvas.box(x, y, x + wide, y + high, fill=accent)
        return ink_on(accent)
    if way == 1:
        canvas.box(x, y, x + 4, y + high, fill=accent)
        return accent
    if way == 2:
        soft = (
            tuple(round(0.85 * 235 + 0.15 * c) for c in accent)
            if sum(ink) < 380
            else tuple(round(0.3 * c + 20) for c in accent)
        )
        canvas.box(x + 3, y, x + wide - 3, y + high, fill=soft, radius=5)  # type: ignore[arg-type]
        return ink
    canvas.box(x + wide - 4, y, x + wide, y + high, fill=accent)
    return ink


def tabs(rng: random.Random, screen: Screen) -> None:
    """A row of tabs, one of them selected."""
    canvas, face = screen.canvas, screen.body(rng.uniform(0.9, 1.1))
    left, y, right, foot = screen.box
    shown, chosen = names(rng, rng.randint(2, 5)), 0
    gap = face.ascent * rng.uniform(1.0, 2.0)
    x, places = left, list[tuple[float, float]]()
    for name in shown:
        width = face.width(name)
        if x + width > right:
            break
        places.append((x, width))
        x += width + gap
    if len(places) < 2:
        return
    chosen, way, high = rng.randrange(len(places)), rng.randrange(4), face.line * 1.5
    if way != 1:
        canvas.line([(left, y + high), (right, y + high)], screen.rule)
    for i, (at, width) in enumerate(places):
        tone = screen.muted if way in (0, 3) else screen.ink
        if i == chosen:
            tone = screen.ink
            if way == 0:
                canvas.box(at, y + high - 2, at + width, y + high, fill=screen.accent)
                tone = screen.accent
            elif way == 1:
                canvas.box(
                    at - 7, y, at + width + 7, y + high, fill=screen.accent, radius=round(high / 2)
                )
                tone = ink_on(screen.accent)
            elif way == 2:
                canvas.box(
                    at - 7, y, at + width + 7, y + high, fill=screen.panel, outline=screen.rule
                )
                canvas.box(at - 7, y, at + width + 7, y + 2, fill=screen.accent)
            else:
                canvas.text(at + 1, y + face.line * 0.25, shown[i], face, tone)
        screen.text(at, y + face.line * 0.25, shown[i], face, tone)
    screen.questions.append(put(rng, "tab", shown[chosen]))
    screen.questions.append(put(rng, "tab", shown[chosen]))
    screen.box = (left, y + high + face.line * 0.6, right, foot)


def heading(rng: random.Random, screen: Screen) -> None:
    """The page's title, at times with a line below it."""
    face = screen.style.heading.bold(screen.style.size * rng.uniform(1.2, 1.8))
    text = rng.choice(MENU) if rng.random() < 0.4 else words.some(rng, 1, 3)
    left, y, right, foot = screen.box
    if face.width(text) > right - left:
        return
    screen.text(left, y, text, face, screen.ink)
    screen.questions.append(put(rng, "title", text))
    y += face.line * 1.1
    if rng.random() < 0.35:
        small, line = screen.body(0.85), words.some(rng, 3, 6).capitalize()
        if small.width(line) < right - left:
            screen.text(left, y, line, small, screen.muted)
            screen.questions.append(put(rng, "below", line, f=text))
            y += small.line * 1.2
    screen.box = (left, y + screen.style.size * 0.5, right, foot)


def missing_label(rng: random.Random, screen: Screen) -> Question:
    """A question for a figure that is not shown."""
    shown = " ".join(screen.canvas.content).lower()
    while True:
        word = f"{lexicon.word(rng)} {rng.choice(('rate', 'count', 'level', 'total', 'limit'))}"
        if word.split()[0] not in shown:
            return denied(rng, "any", f=word)
