"""Writing in the street and indoors: letters on walls and doors, shop fronts, signs, posters."""

import math
import random
from typing import Final

from pocket.content import formats, lexicon, words
from pocket.content.colours import SERIES_NAMES, Colour, hsv, ink_on, shade
from pocket.document import Document, Question
from pocket.layouts.backdrops import backdrop
from pocket.layouts.fonts import Face, Family
from pocket.layouts.pillow.canvas import blank_page
from pocket.layouts.pillow.covers import plates, poster
from pocket.layouts.pillow.lettering import (
    LARGE,
    Scene,
    fitted,
    ink_at,
    lettered,
    letters_for,
)
from pocket.layouts.style import PageStyle
from pocket.questions.templates import ABSENT

ROOMS: Final = (
    "Cabin Room Gate Platform Hall Studio Exit Floor Track Bay Lift Office Ward Zone Pier Stage"
).split()
NOTES: Final = (
    "No Entry|Push|Pull|Staff Only|Open|Closed|Way Out|Mind the step|Please knock|"
    "Private|"
    "No smoking|Keep clear|Welcome|Please ring|Tickets|Toilets|Reception|Entrance|"
    "Cash only|Open 24 hours|Parking|Danger|Caution wet floor|Fire exit|One way|Wet paint|"
    "For sale|To let"
).split("|")
TRADES: Final = (
    "CAFE|BAKERY|BOOKS|PIZZA|HOTEL|CINEMA|BAR|MARKET|PHARMACY|SHOES|FLOWERS|GROCER|GRILL|DELI|"
    "OPTICIAN|"
    "BARBER|HARDWARE|BANK|TEA ROOM|LAUNDRY|ANTIQUES|MUSIC|TOYS|GARAGE|DINER|JEWELLER|BUTCHER|TATTOO"
).split("|")
SMALL: Final = (
    "What does the smaller text say?", "What is on the lesser sign?",
    "What is written in small letters?",
    "Read the small text.", "What does the smaller line say?", "What is the small print?",
)  # fmt: skip
WHOLE: Final = (
    "What does it say?",
    "Read the text.",
    "What is written here?",
    "What does the sign say?",
    "transcribe the text",
    "Read everything.",
)
ASKED: Final[dict[str, tuple[str, ...]]] = {
    "colour": ("What colour is the sign?", "What color is the board?", "colour of the sign?"),
    "first": ("What does the first line say?", "What is at the top of the sign?",
        "Read the top line."),
    "last": ("What does the last line say?", "What is at the bottom of the sign?"),
    "count": ("How many lines are on the sign?", "How many lines of text are there?"),
    "after": ("What is written below {f}?", "What comes after {f}?"),
}  # fmt: skip


def draw(rng: random.Random, style: PageStyle) -> Document:
    """A place with some writing."""
    canvas = blank_page(style)
    canvas.replace(backdrop(rng, (style.width, style.height), 0.35))
    scene = Scene(rng, canvas, style)
    rng.choices(
        (_wall, _front, _sign, poster, plates, _slanted, _stacked), (3, 3, 3, 2.5, 1.5, 2, 1)
    )[0](scene)
    if scene.lines:
        whole = "\n".join(scene.lines)
        scene.questions.append(Question("transcribe", rng.choice(WHOLE), whole))
        what = rng.choice(
            ("email address", "web address", "name of the street", "telephone number")
        )
        if sum(c.isdigit() for c in whole) < 5 and "Street" not in whole and "@" not in whole:
            scene.questions.append(Question("absent", f"What is the {what}?", ABSENT))
    return canvas.document(scene.questions)


def _arched(scene: Scene, at: tuple[float, float], text: str, face: Face, ink: Colour) -> None:
    """Letters along a bow, one by one."""
    x, y = at
    total = face.width(text) * 1.12
    bend = scene.rng.uniform(0.3, 1.1)
    radius, angle = total / bend, -bend / 2
    kept = len(scene.canvas.content)
    for ch, advance in zip(text, face.advances(text), strict=True):
        turn = bend * advance * 1.12 / total
        angle += turn / 2
        cx, cy = x + radius * math.sin(angle), y + radius * (1 - math.cos(angle))
        if ch != " ":
            scene.canvas.text_rotated(
                cx, cy + face.line / 2, ch, face, ink, -round(math.degrees(angle))
            )
        angle += turn / 2
    del scene.canvas.content[kept:]
    scene.canvas.content.append(text)


def _slanted(scene: Scene) -> None:
    """Lines of lettering at one slant, large and small, as on vans, banners and packets."""
    rng, w, h = scene.rng, scene.style.width, scene.style.height
    family, degrees = letters_for(scene), rng.choice((-1, 1)) * rng.randint(5, 26)
    lines = [_line(rng, i) for i in range(rng.randint(1, 3))]
    if len(set(lines)) < len(lines):
        return
    x, y = w / 2, h * rng.uniform(0.25, 0.4)
    tilt = math.radians(degrees)
    for i, line in enumerate(lines):
        wide = w * (rng.uniform(0.6, 0.85) if i == 0 else rng.uniform(0.3, 0.6))
        face = fitted(family, line, wide, h * (0.24 if i == 0 else 0.12), i == 0)
        if face.size < 11 or y + face.width(line) / 2 * abs(math.sin(tilt)) > h - face.line / 2:
            break
        tone, ink = ink_at(scene, x, y, face.width(line) / 2)
        scene.canvas.text_rotated(x, y, line, face, ink, degrees)
        scene.lines.append(line)
        if i == 0:
            scene.ask("find", line, f"What is written in {tone}?", *LARGE)
        step = face.line * rng.uniform(1.1, 1.6)
        x, y = x + step * math.sin(tilt) * 0.6, y + step
    if not scene.lines:
        return
    scene.ask("title", scene.lines[0], *LARGE)
    if len(scene.lines) > 1:
        scene.ask("nth", scene.lines[-1], "What does the last line say?", *SMALL)


def _stacked(scene: Scene) -> None:
    """A tall sign whose letters stand one below the other, at times a small line beside it."""
    rng, canvas, w, h = scene.rng, scene.canvas, scene.style.width, scene.style.height
    word = lexicon.word(rng).upper()[:9] if rng.random() < 0.6 else rng.choice(TRADES).split()[0]
    family, step = letters_for(scene), h * 0.88 / len(word)
    face = fitted(family, "M", w * 0.2, min(step * 1.15, h * 0.2))
    x, top = w * rng.uniform(0.2, 0.8), h * 0.06
    ground = hsv(rng.random(), rng.uniform(0, 0.9), rng.uniform(0.1, 0.95))
    half = face.size * rng.uniform(0.6, 0.9)
    canvas.box(x - half, top - 6, x + half, top + step * len(word) + 2, fill=ground, radius=6)
    ink, kept = ink_on(ground), len(canvas.content)
    for i, ch in enumerate(word):
        canvas.text(x, top + i * step + (step - face.line) / 2, ch, face, ink, "centre")
    del canvas.content[kept:]
    canvas.content.append(word)
    scene.lines.append(word)
    for _ in range(2):
        scene.ask("title", word, "What do the letters spell from top to bottom?",
                  "What does the tall sign say?", *LARGE)  # fmt: skip
    if rng.random() < 0.6:
        _plaque(scene, family, (w - x, h * rng.uniform(0.3, 0.8)))


def _wall(scene: Scene) -> None:
    """A name and perhaps a number in large letters on a wall or door, a smaller line below."""
    rng, w, h = scene.rng, scene.style.width, scene.style.height
    family = letters_for(scene)
    number = ""
    if rng.random() < 0.6:
        number = rng.choice(
            (
                str(rng.randint(1, 60)),
                str(rng.randint(1, 9)),
                f"{rng.randint(1, 9)}{rng.choice('ABCD')}",
                f"{rng.randint(100, 499)}",
            )
        )
        noun = rng.choice(ROOMS)
        big = f"{noun} {number}"
    else:
        noun, big = (
            "",
            rng.choice(
                (words.some(rng, 1, 2).title(), lexicon.word(rng).capitalize(), rng.choice(NOTES))
            ),
        )
    face = fitted(
        family, big, w * rng.uniform(0.5, 0.92), h * rng.uniform(0.2, 0.45), rng.random() < 0.5
    )
    y, x = h * rng.uniform(0.12, 0.4), w * rng.uniform(0.48, 0.52)
    name, ink = ink_at(scene, x, y)
    lettered(scene, (x, y), big, face, ink)
    scene.lines.append(big)
    scene.ask("title", big, *LARGE)
    scene.ask(
        "find", big, f"What do the letters in {name} say?", f"What is written in {name}?", *LARGE
    )
    if number:
        low = noun.lower()
        for _ in range(2):
            scene.ask("value", number, f"Which number does the {low} have?", f"Which {low} is it?",
            f"{low} number?",
                      f"What is the number of the {low}?")  # fmt: skip
    y += face.line * rng.uniform(1.02, 1.4)
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        line = rng.choice(NOTES) if rng.random() < 0.6 else words.some(rng, 2, 4).capitalize()
        small = fitted(
            family,
            line,
            face.width(big) * rng.uniform(0.4, 0.8),
            face.size * rng.uniform(0.3, 0.7),
            False,
        )
        if y + small.line > h - 6 or small.size < 10 or line in scene.lines:
            break
        lettered(scene, (x, y), line, small, ink)
        scene.lines.append(line)
        y += small.line * 1.1
    if len(scene.lines) == 2:
        scene.ask("find", scene.lines[1], *SMALL)
        scene.ask("find", scene.lines[1], *SMALL)
    elif len(scene.lines) > 2:
        scene.ask("nth", scene.lines[-1], "What does the last line say?", "Read the bottom line.")


def _front(scene: Scene) -> None:
    """A shop's fascia, a window below it, at times a small sign."""
    rng, canvas, w, h = scene.rng, scene.canvas, scene.style.width, scene.style.height
    family = letters_for(scene)
    high, top = h * rng.uniform(0.16, 0.34), h * rng.uniform(0.05, 0.3)
    board = rng.random() < 0.75
    ground = hsv(rng.random(), rng.uniform(0, 0.9), rng.uniform(0.08, 0.95))
    if board:
        canvas.box(-2, top, w + 2, top + high, fill=ground)
        canvas.box(-2, top + high, w + 2, top + high + 4, fill=hsv(0.1, 0.1, 0.25))
    for x in range(0, w, max(40, w // 3)):  # windows
        if rng.random() < 0.7:
            pane = hsv(rng.uniform(0.5, 0.65), rng.uniform(0.05, 0.3), rng.uniform(0.15, 0.7))
            canvas.box(x + 8, top + high + 18, x + w // 3 - 8, h + 2, fill=pane, outline=ground)
    name = rng.choice(
        (
            lexicon.word(rng),
            rng.choice(words.LAST),
            f"{rng.choice(words.FIRST)}'s",
            words.some(rng, 1, 2),
        )
    )
    big = rng.choice((name.upper(), name.title(), f"{name.upper()} {rng.choice(TRADES)}"))
    face = fitted(family, big, w * rng.uniform(0.5, 0.9), high * rng.uniform(0.6, 0.95))
    tone, ink = ink_at(scene, w / 2, top + high / 2)
    at = (w / 2, top + (high - face.line) / 2)
    if rng.random() < 0.12 and len(big) < 12:
        _arched(scene, (w / 2, at[1]), big, face, ink)
    else:
        lettered(scene, at, big, face, ink)
    scene.lines.append(big)
    for _ in range(2):
        scene.ask("title", big, "What is the name of the shop?",
        "What does the sign above the window say?",
                  f"What is written in {tone}?", "Which shop is it?",
                  "What do the large letters say?", *LARGE)  # fmt: skip
    if rng.random() < 0.7:
        _plaque(
            scene,
            family,
            (w * rng.uniform(0.15, 0.75), min(h - 40.0, top + high + h * rng.uniform(0.12, 0.4))),
        )


def _plaque(scene: Scene, family: Family, at: tuple[float, float]) -> None:
    """A small sign with one or two lines, around a place."""
    rng, canvas = scene.rng, scene.canvas
    line = rng.choice(
        (
            rng.choice(NOTES),
            rng.choice(NOTES).upper(),
            f"Open {rng.randint(7, 11)}-{rng.randint(16, 22)}",
            formats.phone(rng),
        )
    )
    face = family.regular(max(11, scene.style.height * rng.uniform(0.03, 0.055)))
    wide, high = face.width(line) + face.size, face.line * 1.4
    x = min(max(4.0, at[0] - wide / 2), scene.style.width - wide - 4)
    if x < 2 or at[1] + high > scene.style.height or line in scene.lines:
        return
    ground = rng.choice(((250, 250, 248), (30, 30, 34), shade(rng, rng.choice(SERIES_NAMES))))
    canvas.box(
        x,
        at[1],
        x + wide,
        at[1] + high,
        fill=ground,
        outline=ink_on(ground),
        radius=rng.choice((0, 4)),
    )
    canvas.text(x + wide / 2, at[1] + high * 0.12, line, face, ink_on(ground), "centre")
    scene.lines.append(line)
    scene.ask("find", line, *SMALL)
    scene.ask(
        "find", line, *SMALL, "What is on the small sign?", "What does the sign in the window say?"
    )


def _sign(scene: Scene) -> None:
    """A plate or board with a few lines, on a post or a wall."""
    rng, canvas, w, h = scene.rng, scene.canvas, scene.style.width, scene.style.height
    family = letters_for(scene)
    tone = rng.choice(("green", "blue", "white", "yellow", "red", "brown", "black", "white"))
    ground = shade(rng, tone)
    ink = ink_on(ground)
    n = rng.randint(1, 4)
    lines = [_line(rng, i) for i in range(n)]
    if len(set(lines)) < n:
        return
    wide, high = w * rng.uniform(0.45, 0.9), h * rng.uniform(0.3, 0.75)
    x, y = rng.uniform(0.02, 0.98) * (w - wide), rng.uniform(0.05, 0.9) * (h - high)
    if rng.random() < 0.4:
        canvas.box(x + wide / 2 - 6, y + high, x + wide / 2 + 6, h, fill=(120, 122, 125))
    canvas.box(x, y, x + wide, y + high, fill=ground, radius=rng.choice((0, 6, 16)))
    if rng.random() < 0.5:
        canvas.frame((x + 6, y + 6, x + wide - 6, y + high - 6), ink, 8, max(2, int(high / 60)))
    top = y + high * 0.08
    room = high * 0.84 / n
    align = rng.choice(("left", "centre", "centre"))
    for i, line in enumerate(lines):
        face = fitted(
            family, line, wide * 0.88, room * (0.95 if i == 0 else rng.uniform(0.5, 0.9)), i == 0
        )
        if face.size < 10:
            continue
        canvas.text(
            x + wide / 2 if align == "centre" else x + wide * 0.06, top, line, face, ink, align
        )
        scene.lines.append(line)
        top += room
    if not scene.lines:
        return
    scene.ask("colour", tone, *ASKED["colour"])
    scene.ask("nth", scene.lines[0], *ASKED["first"])
    if len(scene.lines) > 1:
        scene.ask("nth", scene.lines[-1], *ASKED["last"])
        scene.ask("count", str(len(scene.lines)), *ASKED["count"])
        i = rng.randrange(len(scene.lines) - 1)
        scene.ask("find", scene.lines[i + 1], *ASKED["after"], f=scene.lines[i])


def _line(rng: random.Random, i: int) -> str:
    if rng.random() < 0.3:
        return rng.choice(NOTES)
    return rng.choice((
        lambda: words.some(rng, 1, 2).title(), lambda: rng.choice(words.CITIES),
        lambda: f"{rng.choice(words.CITIES)} {rng.randint(2, 400)} km",
        lambda: f"{rng.choice(ROOMS)} {rng.randint(1, 40)}",
        lambda: f"{lexicon.word(rng).capitalize()} {rng.choice(('Street', 'Park', 'Lane'))}",
        lambda: f"Mon-Fri {rng.randint(7, 10)}:00-{rng.randint(16, 20)}:00",
        lambda: f"{rng.randint(1, 60)} {rng.choice(('min', 'm', 'mph', '%'))}",
        lambda: lexicon.word(rng).upper(), lambda: formats.phone(rng),
    ))()  # fmt: skip
