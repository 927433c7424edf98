"""Dashboards: cards with a figure above, beside or below its label, and cards about things."""

import random
from dataclasses import replace

from pocket.content import panels, words
from pocket.content.colours import Colour
from pocket.content.panels import Figure
from pocket.content.tables import Grid
from pocket.document import Document
from pocket.layouts.pillow import chrome
from pocket.layouts.pillow.chrome import Screen, fitting
from pocket.layouts.style import PageStyle
from pocket.questions.panels import of_figure, put
from pocket.questions.templates import ask

Box = tuple[float, float, float, float]  # left, top, width, height


def draw(rng: random.Random, style: PageStyle) -> Document:
    """A program's page of cards."""
    screen = chrome.open_screen(rng, replace(style, size=min(style.size, style.width / 36)))
    chrome.surround(screen, bar=0.6, menu=0.5 if style.width > 420 else 0, head=0.6, tab=0.25)
    make = rng.choices((_metrics, _things, _both), (4, 4, 2))[0]
    make(rng, screen)
    if screen.questions:
        screen.questions.append(chrome.missing_label(rng, screen))
    return screen.canvas.document(screen.questions)


def _both(rng: random.Random, screen: Screen) -> None:
    """Figures on top, things below."""
    left, y, right, foot = screen.box
    screen.box = (left, y, right, y + (foot - y) * rng.uniform(0.3, 0.45))
    _metrics(rng, screen)
    screen.box = (left, screen.box[3] + 4, right, foot)
    rng.choice((_things, _chart))(rng, screen)


def _cells(rng: random.Random, screen: Screen, least: float, high: float) -> list[Box]:
    """Boxes for cards of at least `least` pixels in width and about `high` in height."""
    gap = rng.uniform(0.4, 1.2) * screen.style.size
    columns = max(1, min(rng.randint(1, 5), int(screen.wide / (least + gap))))
    wide = (screen.wide - gap * (columns - 1)) / columns
    rows = int((screen.high + gap) / (high + gap))
    left, top = screen.box[:2]
    return [
        (left + c * (wide + gap), top + r * (high + gap), wide, high)
        for r in range(rows) for c in range(columns)
    ]  # fmt: skip


def _card(rng: random.Random, screen: Screen, at: Box, look: int) -> None:
    """The ground of one card."""
    x, y, w, h = at
    canvas = screen.canvas
    if look == 0:
        canvas.box(
            x, y, x + w, y + h, fill=screen.panel, outline=screen.rule, radius=rng.choice((0, 5))
        )
    elif look == 1:
        canvas.box(x + 2, y + 3, x + w + 1, y + h + 2, fill=screen.rule, radius=8)
        canvas.box(x, y, x + w, y + h, fill=screen.panel, radius=8)
    elif look == 2:
        canvas.box(x, y, x + w, y + h, fill=screen.panel, radius=10)
    elif look == 3:
        canvas.box(x, y, x + w, y + h, fill=screen.panel)
        canvas.box(x, y, x + 4, y + h, fill=screen.accent)


def _metrics(rng: random.Random, screen: Screen) -> None:
    """A grid of figures."""
    size = screen.style.size
    big = screen.style.heading.bold if rng.random() < 0.6 else screen.style.family.regular
    value_face = big(size * rng.uniform(1.4, 2.6))
    label_face = screen.body(rng.uniform(0.8, 1.0))
    high = value_face.line + label_face.line + size * rng.uniform(1.2, 3.2)
    cells = _cells(rng, screen, max(value_face.width("00,000.00"), 100), high)[: rng.randint(2, 14)]
    if not cells:
        return
    look, way = rng.randrange(5), rng.choice(("above", "below", "below", "beside", "above"))
    align = rng.choice(("left", "left", "centre"))
    tone = rng.choice((screen.ink, screen.ink, screen.accent))
    shown: list[Figure] = []
    for at, figure in zip(cells, panels.figures(rng, len(cells)), strict=True):
        if (
            label_face.width(figure.label) > at[2] - size
            or value_face.width(figure.value) > at[2] - size
        ):
            continue
        _card(rng, screen, at, look)
        _one(rng, screen, at, (figure, value_face, label_face, tone, way, align))
        shown.append(figure)
    values = [f.value for f in shown]
    for figure in rng.sample(shown, min(7, len(shown))):
        screen.questions.append(of_figure(rng, figure.label, figure.value, figure.sort))
        if values.count(figure.value) == 1 and rng.random() < 0.3:
            screen.questions.append(put(rng, "label", figure.label, v=figure.value))
    if 1 < len(shown) <= 10:
        lines = "\n".join(f"{f.label}: {f.value}" for f in shown)
        screen.questions.append(ask(rng, "lines", lines, kind="transcribe"))


def _one(rng: random.Random, screen: Screen, at: Box, how: tuple) -> None:
    """One figure on its card."""
    figure, big, small, tone, way, align = how
    x, y, w, h = at
    pad = screen.style.size * 0.6
    at_x = x + w / 2 if align == "centre" else x + pad
    inside = big.line + small.line
    top = y + (h - inside) / 2
    if way == "beside":
        middle = y + h / 2
        screen.text(x + pad, middle - big.line / 2, figure.value, big, tone)
        left = x + pad * 2 + big.width(figure.value)
        if left + small.width(figure.label) < x + w - 2:
            screen.text(left, middle - small.line / 2, figure.label, small, screen.muted)
        else:
            screen.text(x + pad, y + 1, figure.label, small, screen.muted)
        return
    first, second = (figure.label, figure.value) if way == "above" else (figure.value, figure.label)
    faces = (small, big) if way == "above" else (big, small)
    tones = (screen.muted, tone) if way == "above" else (tone, screen.muted)
    screen.text(at_x, top, first, faces[0], tones[0], align)
    screen.text(at_x, top + faces[0].line, second, faces[1], tones[1], align)
    _extras(rng, screen, at, (figure, small, align))


def _extras(rng: random.Random, screen: Screen, at: Box, how: tuple) -> None:
    """An icon, a change or a little curve in a corner where there is room."""
    figure, small, align = how
    x, y, w, h = at
    r = rng.random()
    taken = max(small.width(figure.label), small.width(figure.value) * 2.4)
    if align != "left" or taken > w * 0.55:
        return
    if figure.sort == "count" and rng.random() < 0.5:
        _parts(rng, screen, at, how)
        return
    right = x + w - screen.style.size * 0.6
    if r < 0.25:
        side = min(h * 0.4, w * 0.15)
        chrome.mark(rng, screen.canvas, (right - side, y + (h - side) / 2, side), screen.accent)
    elif r < 0.45:
        up = rng.random() < 0.5
        text = f"{'+' if up else '-'}{rng.uniform(0, 40):.1f}%"
        ink = (22, 150, 80) if up else (205, 50, 50)
        screen.text(right, y + h - small.line * 1.3, text, small, ink, "right")
        screen.questions.append(put(rng, "change", text, f=figure.label))
    elif r < 0.65:
        _curve(rng, screen, (x + w * 0.6, y + h * 0.25, w * 0.35, h * 0.5), screen.accent)


def _parts(rng: random.Random, screen: Screen, at: Box, how: tuple) -> None:
    """The parts of a count: smaller figures with a word each, at the card's right."""
    figure, small, _ = how
    x, y, w, h = at
    n = min(4, int(h / small.line) - 1)
    right = x + w - screen.style.size * 0.6
    top = y + (h - n * small.line) / 2
    for word in rng.sample(panels.PARTS, max(0, n)):
        value = panels.count(rng)
        line = f"{value} {word}" if rng.random() < 0.8 else f"{word} {value}"
        if small.width(line) > w * 0.4:
            continue
        screen.text(right, top, line, small, screen.muted, "right")
        screen.questions.append(put(rng, "part", value, f=word, g=figure.label))
        screen.questions.append(put(rng, "part", value, f=word, g=figure.label))
        top += small.line


def _curve(rng: random.Random, screen: Screen, at: Box, ink: Colour) -> None:
    """A small line or bars without any axis."""
    x, y, w, h = at
    n = rng.randint(6, 24)
    values = [rng.random() for _ in range(n)]
    if rng.random() < 0.6:
        points = [(x + w * i / (n - 1), y + h * (1 - v)) for i, v in enumerate(values)]
        screen.canvas.line(points, ink, 2)
    else:
        for i, v in enumerate(values):
            left = x + w * i / n
            screen.canvas.box(left, y + h * (1 - v), left + max(1, w / n - 2), y + h, fill=ink)


def _chart(rng: random.Random, screen: Screen) -> None:
    """A panel with a title and a chart without questions."""
    face = screen.body(1.0, bold=True)
    x, y, right, foot = screen.box
    if foot - y < face.line * 4:
        return
    screen.canvas.box(x, y, right, foot, fill=screen.panel, radius=6)
    title = words.some(rng, 2, 3)
    screen.text(x + 8, y + 5, title, face, screen.ink)
    small = screen.body(0.75)
    for i in range(4):
        at = y + face.line * 1.8 + (foot - y - face.line * 2.6) * i / 3
        screen.canvas.line([(x + 50, at), (right - 10, at)], screen.rule)
        screen.text(x + 44, at - small.line / 2, str((3 - i) * 50), small, screen.muted, "right")
    _curve(
        rng,
        screen,
        (x + 54, y + face.line * 2, right - x - 70, foot - y - face.line * 2.8),
        screen.accent,
    )


def _things(rng: random.Random, screen: Screen) -> None:
    """A grid of cards, each with a name and the same three or four figures."""
    size = screen.style.size
    sorts = rng.sample(list(panels.FIGURES), rng.randint(2, 4))
    labels = [panels.cased(rng, rng.choice(panels.FIGURES[s][0])) for s in sorts]
    if len({label.lower() for label in labels}) < len(labels):
        return
    makes = [panels.FIGURES[s][1] for s in sorts]
    head, small = (
        screen.body(rng.uniform(0.85, 1.1), bold=True),
        screen.body(rng.uniform(0.72, 0.85)),
    )
    value = screen.body(rng.uniform(0.95, 1.25), bold=rng.random() < 0.7)
    way = rng.choice(("across", "across", "down"))
    high = (
        head.line
        + (small.line + value.line if way == "across" else value.line * 1.25 * len(labels))
        + size * 1.6
    )
    least = (
        sum(max(small.width(label), value.width("100.0 days")) + 10 for label in labels)
        if way == "across"
        else value.width("0") * 26
    )
    cells = _cells(rng, screen, least, high)[: rng.randint(1, 12)]
    if not cells or cells[0][2] < least:
        return
    look, rows = rng.randrange(4), list[tuple[str, list[str]]]()
    for at, name in zip(cells, panels.things(rng, len(cells)), strict=True):
        values = [make(rng) for make in makes]
        shown = fitting(head, name, at[2] - size)
        if shown != name:
            continue
        _card(rng, screen, at, look)
        _thing(rng, screen, at, (name, labels, values, head, small, value, way))
        rows.append((name, values))
    _about_things(rng, screen, labels, rows)


def _thing(rng: random.Random, screen: Screen, at: Box, how: tuple) -> None:
    """One thing: its name, then its figures side by side or one below the other."""
    name, labels, values, head, small, value, way = how
    x, y, w, h = at
    pad = screen.style.size * 0.6
    screen.text(x + pad, y + pad * 0.6, name, head, screen.ink)
    top = y + pad * 0.9 + head.line
    if way == "across":
        step = (w - pad) / len(labels)
        for i, (label, text) in enumerate(zip(labels, values, strict=True)):
            screen.text(
                x + pad + i * step, top, fitting(small, label, step - 4), small, screen.muted
            )
            screen.text(x + pad + i * step, top + small.line, text, value, screen.ink)
        return
    for i, (label, text) in enumerate(zip(labels, values, strict=True)):
        line = top + i * value.line * 1.25
        screen.text(x + pad, line, label, value, screen.muted)
        screen.text(x + w - pad, line, text, value, screen.ink, "right")


def _about_things(
    rng: random.Random, screen: Screen, labels: list[str], rows: list[tuple[str, list[str]]]
) -> None:
    if not rows:
        return
    for _ in range(8):
        name, values = rng.choice(rows)
        i = rng.randrange(len(labels))
        screen.questions.append(put(rng, "of", values[i], f=name, g=labels[i]))
        column = [row[1][i] for row in rows]
        if column.count(values[i]) == 1 and rng.random() < 0.35:
            screen.questions.append(put(rng, "who", name, g=labels[i], v=values[i], n="one"))
    screen.questions.append(ask(rng, "count", str(len(rows)), n=rng.choice(("cards", "entries"))))
    if len(rows) > 1 and len(rows) * len(labels) < 30:
        text = Grid(["Name", *labels], [[name, *values] for name, values in rows], {}).markdown()
        if len(text.encode()) < screen.style.budget:
            screen.questions.append(ask(rng, "table", text, kind="transcribe"))
