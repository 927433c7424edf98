"""Editors and terminals: lines of code or of output in a typewriter face."""

import random
from typing import Final

from pocket.content.consoles import log_lines, shell_lines, source_lines
from pocket.document import Document
from pocket.layouts.fonts import pick_family
from pocket.layouts.pillow.canvas import Canvas, blank_page
from pocket.layouts.style import PageStyle
from pocket.questions.consoles import console_questions

# inks of words, on dark and on light grounds, and the buttons of a window
BRIGHT: Final = ((97, 175, 239), (152, 195, 121), (224, 108, 117), (229, 192, 123), (198, 120, 221))
DEEP: Final = ((0, 90, 190), (20, 120, 40), (180, 30, 40), (150, 90, 0), (120, 40, 160))
BUTTONS: Final = ((255, 95, 86), (255, 189, 46), (39, 201, 63))


def title_bar(canvas: Canvas, high: float, dark: bool) -> None:
    """A window's title bar, `high` pixels, with its buttons."""
    canvas.box(0, 0, canvas.width, high, fill=(60, 60, 64) if dark else (225, 225, 228))
    for i, colour in enumerate(BUTTONS):
        canvas.draw.ellipse((10 + 18 * i, high / 2 - 5, 20 + 18 * i, high / 2 + 5), fill=colour)


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One window of code, a log, or commands with their output."""
    dark = rng.random() < 0.7
    ground = (
        rng.choice(((30, 30, 30), (13, 17, 23), (40, 42, 54), (0, 0, 0), (0, 43, 54)))
        if dark
        else rng.choice(((255, 255, 255), (250, 250, 245), (253, 246, 227)))
    )
    canvas = blank_page(style, ground)
    family = pick_family(rng, style.split, western=True, mono=True)
    face = family.regular(min(style.size, 18))
    ink = (225, 225, 225) if dark else (30, 30, 35)
    colours = BRIGHT if dark else DEEP
    y = float(style.margin)
    if rng.random() < 0.4:
        high = face.line * 1.6
        title_bar(canvas, high, dark)
        y = high + 6
    numbers = rng.random() < 0.4
    make = rng.choice((source_lines, source_lines, log_lines, shell_lines))
    room = int((style.height - style.margin - y) / (face.line * 1.12))
    left = style.margin + (face.width("00  ") if numbers else 0)
    wide = int((style.width - style.margin - left) / face.width("0"))
    lines: list[str] = []
    budget = style.budget
    for fresh in make(rng, min(room, rng.randint(3, 30))):
        line = rng.choice(lines) if lines and rng.random() < 0.05 else fresh  # lines do come twice
        if len(line) > wide or len(lines) >= room or budget < len(line.encode()) + 2:
            continue
        budget -= len(line.encode()) + 1
        if numbers:
            canvas.text(style.margin, y, f"{len(lines) + 1:2}", face, (110, 115, 125))
        x = float(left)
        for part in line.split(" "):
            colour = rng.choice(colours) if rng.random() < 0.35 else ink
            if part:
                canvas.text(x, y, part, face, colour)
            x += face.width(part + " ")
        lines.append(line)
        y += face.line * 1.12
    return canvas.document(console_questions(rng, lines))
