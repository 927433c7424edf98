"""Draw the gallery's images: `python -m pocket.examples assets/examples`.

Eight documents with contents written by hand, and questions whose answers are known from them. The
page, the tests and the documentation share them.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from PIL import Image

from pocket.content.colours import Colour
from pocket.layouts.fonts import Face, face
from pocket.layouts.pillow.axes import Frame
from pocket.layouts.pillow.canvas import Canvas

INK: Final = (28, 32, 40)
GREY: Final = (110, 116, 128)
LINE: Final = (222, 226, 232)
WHITE: Final = (255, 255, 255)
BLUE: Final = (37, 99, 235)
TEAL: Final = (13, 148, 136)
ORANGE: Final = (245, 130, 32)

Pairs = tuple[tuple[str, str], ...]
Example = tuple[Canvas, str, Pairs]


def _centred(canvas: Canvas, y: float, text: str, font: Face, fill: Colour) -> float:
    canvas.text(canvas.width / 2, y, text, font, fill, "centre")
    return y + font.line


def receipt() -> Example:
    """A till receipt on warm paper."""
    canvas = Canvas(392, 560, (252, 250, 244))
    mono, big = face("hack-regular", 15), face("roboto-medium", 28)
    small = face("courierprime-regular", 17)
    y = _centred(canvas, 26, "Harbour Café", big, INK)
    y = _centred(canvas, y + 4, "12 Station Road, Bristol", mono, GREY)
    y = _centred(canvas, y + 2, "Date: 14.03.2026  Time: 09:42", mono, GREY) + 12
    items = (
        ("Flat white", "3.40"),
        ("Green tea", "2.80"),
        ("Apple pie", "4.25"),
        ("Bagel", "3.10"),
        ("Orange juice", "3.95"),
        ("Croissant", "2.60"),
    )
    canvas.line([(28, y), (364, y)], LINE, 2)
    y += 14
    for name, price in items:
        canvas.text(28, y, name, mono, INK)
        canvas.text(364, y, price, mono, INK, "right")
        y += 27
    canvas.line([(28, y + 4), (364, y + 4)], LINE, 2)
    y += 18
    strong = face("hack-regular", 19)
    canvas.text(28, y, "Total", strong, INK)
    canvas.text(364, y, "£20.10", strong, INK, "right")
    y += 36
    for name, price in (("Card", "20.10"), ("VAT 20%", "3.35")):
        canvas.text(28, y, name, mono, GREY)
        canvas.text(364, y, price, mono, GREY, "right")
        y += 26
    _centred(canvas, y + 24, "Thank you for your visit", small, GREY)
    return (
        canvas,
        "A till receipt",
        (
            ("What is the total?", "£20.10"),
            ("How much is the apple pie?", "4.25"),
            ("What is the name of the shop?", "Harbour Café"),
            ("What is the time?", "09:42"),
            ("How much is the cheese?", "not in the image"),
        ),
    )


def bars() -> Example:
    """A bar chart in two blues."""
    canvas = Canvas(616, 448, WHITE)
    title, body = face("inter-semibold", 24), face("inter-regular", 16)
    canvas.text(32, 24, "Museum visitors 2025", title, INK)
    canvas.text(32, 58, "Thousands per month", body, GREY)
    values = (
        ("January", 41),
        ("February", 36),
        ("March", 58),
        ("April", 73),
        ("May", 96),
        ("June", 84),
    )
    frame = Frame(72, 100, 592, 400, 0, 100)
    for tick in range(0, 101, 25):
        canvas.line([(frame.x0, frame.y(tick)), (frame.x1, frame.y(tick))], LINE)
        canvas.text(frame.x0 - 10, frame.y(tick) - 10, str(tick), body, GREY, "right")
    slot = (frame.x1 - frame.x0) / len(values)
    for i, (name, value) in enumerate(values):
        x = frame.x0 + slot * (i + 0.5)
        canvas.box(x - 28, frame.y(value), x + 28, frame.y1, fill=BLUE)
        canvas.text(x, frame.y(value) - 22, str(value), body, INK, "centre")
        canvas.text(x, frame.y1 + 8, name, body, INK, "centre")
    canvas.line([(frame.x0, frame.y1), (frame.x1, frame.y1)], INK)
    return (
        canvas,
        "A bar chart",
        (
            ("What is the value of April?", "73"),
            ("Which month is highest?", "May"),
            ("What is the title?", "Museum visitors 2025"),
            ("How many bars are there?", "6"),
            ("Is March higher than June?", "no"),
            ("Convert the chart to a table.", _table(("Category", "Value"), values)),
        ),
    )


def _table(head: tuple[str, ...], rows: tuple[tuple[object, ...], ...]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def table() -> Example:
    """A table with a coloured head."""
    canvas = Canvas(644, 392, WHITE)
    title, bold, body = (
        face("opensans-semibold", 22),
        face("opensans-semibold", 16),
        face("opensans-regular", 16),
    )
    canvas.text(28, 20, "Regional stock list", title, INK)
    head = ("Product", "Code", "City", "Stock", "Price")
    rows = (
        ("Desk lamp", "LM-2041", "Oslo", "38", "49.90"),
        ("Backpack", "BP-1176", "Lyon", "112", "64.50"),
        ("Keyboard", "KB-8305", "Porto", "57", "89.00"),
        ("Umbrella", "UM-0527", "Leeds", "240", "18.75"),
        ("Notebook", "NB-3918", "Graz", "415", "3.20"),
        ("Headphones", "HP-4662", "Turin", "26", "129.00"),
    )
    stops, y, pitch = (28, 196, 306, 490, 616), 66, 44
    canvas.box(16, y, 628, y + pitch, fill=TEAL, radius=6)
    for r, row in enumerate((head, *rows)):
        top = y + r * pitch + 11
        for i, text in enumerate(row):
            canvas.text(
                stops[i],
                top,
                text,
                body if r else bold,
                INK if r else WHITE,
                "left" if i < 3 else "right",
            )
        if r:
            canvas.line([(16, y + (r + 1) * pitch), (628, y + (r + 1) * pitch)], LINE)
    return (
        canvas,
        "A table",
        (
            ("What is the stock of Umbrella?", "240"),
            ("What is the city of Umbrella?", "Leeds"),
            ("What is the stock of Notebook?", "415"),
            ("How many rows are there?", "6"),
            ("What is the code of Backpack?", "BP-1176"),
            ("Transcribe the table as Markdown.", _table(head, rows)),
        ),
    )


def form() -> Example:
    """A booking in boxes."""
    canvas = Canvas(532, 448, (244, 247, 251))
    canvas.box(0, 0, 532, 64, fill=(30, 58, 138))
    canvas.text(28, 16, "Booking confirmation", face("roboto-bold", 26), WHITE)
    key, value = face("roboto-regular", 15), face("roboto-medium", 18)
    fields = (
        ("Name", "Sofia Lindqvist"),
        ("Reference", "QX-4821"),
        ("Arrival", "12 June 2026"),
        ("Departure", "16 June 2026"),
        ("Room", "214"),
        ("Guests", "2"),
        ("Phone", "+46 851 274 409"),
        ("Amount", "€486.00"),
    )
    for i, (name, text) in enumerate(fields):
        x, y = 28 + (i % 2) * 244, 84 + (i // 2) * 86
        canvas.text(x, y, name, key, GREY)
        canvas.box(x, y + 22, x + 228, y + 62, fill=WHITE, outline=(203, 213, 225), radius=6)
        canvas.text(x + 12, y + 31, text, value, INK)
    return (
        canvas,
        "A form",
        (
            ("What is the reference?", "QX-4821"),
            ("What is the arrival?", "12 June 2026"),
            ("What is the phone?", "+46 851 274 409"),
            ("Who is it?", "Sofia Lindqvist"),
            ("What is the email?", "not in the image"),
            (
                "Transcribe the page.",
                "# Booking confirmation\n\n" + "\n".join(f"{k}: {v}" for k, v in fields),
            ),
        ),
    )


def sign() -> Example:
    """A sign on a wall."""
    canvas = Canvas(448, 336, (226, 220, 208))
    canvas.box(24, 32, 424, 304, fill=(22, 101, 52), radius=18)
    canvas.frame((32, 40, 416, 296), WHITE, 14, 3)
    for y, text, size in (
        (64, "City Library", 46),
        (138, "Open 09:30 to 18:00", 32),
        (190, "Closed on Monday", 32),
        (242, "Level 2", 30),
    ):
        _centred(
            canvas, y, text, face("roboto-bold" if size > 40 else "roboto-medium", size), WHITE
        )
    return (
        canvas,
        "A sign",
        (
            (
                "What does the sign say?",
                "City Library\nOpen 09:30 to 18:00\nClosed on Monday\nLevel 2",
            ),
            ("What colour is the sign?", "green"),
            ("Which line comes third?", "Closed on Monday"),
            ("How many lines are there?", "4"),
        ),
    )


def page() -> Example:
    """A page of prose with a list."""
    canvas = Canvas(504, 448, (255, 254, 250))
    body, head = face("notoserif-regular", 17), face("notoserif-bold", 27)
    canvas.text(36, 32, "A garden in winter", head, INK)
    canvas.line([(36, 76), (468, 76)], LINE, 2)
    prose = (
        ("Snow covers the path and the small pond.",),
        ("A robin comes every morning. It waits on", "the fence until we bring some seed."),
    )
    y = 96
    for block in prose:
        for line in block:
            canvas.text(36, y, line, body, INK)
            y += 29
        y += 16
    items = (
        "Clean the tools",
        "Order new seeds",
        "Repair the gate",
        "Feed the birds",
        "Plan the spring beds",
    )
    for item in items:
        canvas.text(42, y, "•", body, INK)
        canvas.text(70, y, item, body, INK)
        y += 33
    text = (
        "# A garden in winter\n\n"
        + "\n\n".join(" ".join(b) for b in prose)
        + "\n\n"
        + "\n".join(f"- {i}" for i in items)
    )
    return (
        canvas,
        "A page of text",
        (
            ("Transcribe the page as Markdown.", text),
            ("What is the title?", "A garden in winter"),
            ("How many bullets are there?", "5"),
            ("What is the last item?", "Plan the spring beds"),
            ("What is the phone number?", "not in the image"),
        ),
    )


def lines() -> Example:
    """Two temperature curves."""
    canvas = Canvas(616, 420, WHITE)
    title, body = face("roboto-medium", 24), face("roboto-regular", 16)
    canvas.text(28, 18, "Average temperature", title, INK)
    series = (
        ("Lisbon", ORANGE, (11, 13, 17, 21, 24, 22, 16)),
        ("Oslo", BLUE, (-4, 0, 6, 12, 17, 12, 3)),
    )
    months = ("Jan", "Mar", "Apr", "May", "Jul", "Sep", "Nov")
    x = 28.0
    for name, colour, _ in series:
        canvas.box(x, 60, x + 13, 73, fill=colour)
        x += 20 + canvas.text(x + 20, 56, name, body, INK) + 24
    frame = Frame(64, 96, 592, 376, -5, 30)
    for tick in range(-5, 31, 5):
        canvas.line([(frame.x0, frame.y(tick)), (frame.x1, frame.y(tick))], LINE)
        canvas.text(frame.x0 - 8, frame.y(tick) - 10, str(tick), body, GREY, "right")
    step = (frame.x1 - frame.x0) / len(months)
    for _, colour, values in series:
        points = [(frame.x0 + step * (i + 0.5), frame.y(v)) for i, v in enumerate(values)]
        canvas.line(points, colour, 3)
        for px, py in points:
            canvas.draw.ellipse((px - 5, py - 5, px + 5, py + 5), fill=colour)
    for i, month in enumerate(months):
        canvas.text(frame.x0 + step * (i + 0.5), frame.y1 + 8, month, body, INK, "centre")
    return (
        canvas,
        "A line chart",
        (
            ("What is the title?", "Average temperature"),
            ("Where is Oslo lowest?", "Jan"),
            ("Which series are shown?", "Lisbon, Oslo"),
            ("Where is Lisbon highest?", "Jul"),
            ("What kind of chart is it?", "line chart"),
        ),
    )


def screen() -> Example:
    """Settings of a program, on dark."""
    canvas = Canvas(448, 560, (17, 21, 29))
    canvas.box(0, 0, 448, 66, fill=(30, 36, 48))
    canvas.text(28, 18, "Preferences", face("inter-semibold", 25), WHITE)
    font = face("inter-regular", 19)
    state = (
        ("Dark mode", True),
        ("Notifications", False),
        ("Auto-save", True),
        ("Spell check", True),
        ("Location", False),
        ("Captions", False),
        ("Battery saver", True),
    )
    for i, (name, on) in enumerate(state):
        y = 92 + i * 64
        canvas.text(28, y, name, font, (232, 236, 243))
        canvas.box(372, y, 420, y + 24, fill=(34, 160, 107) if on else (70, 78, 92), radius=12)
        x = 398 if on else 374
        canvas.draw.ellipse((x, y + 2, x + 20, y + 22), fill=WHITE)
        canvas.line([(28, y + 44), (420, y + 44)], (44, 51, 64))
    return (
        canvas,
        "A dark screen",
        (
            ("Is Auto-save on?", "yes"),
            ("Is Captions enabled?", "no"),
            ("What is the title?", "Preferences"),
            ("Is Bluetooth in the image?", "no"),
            ("How many settings are there?", "7"),
        ),
    )


EXAMPLES: Final[dict[str, Callable[[], Example]]] = {
    "receipt": receipt,
    "bars": bars,
    "table": table,
    "form": form,
    "sign": sign,
    "page": page,
    "lines": lines,
    "screen": screen,
}


def draw(name: str) -> tuple[Image.Image, str, Pairs]:
    """Image, title and questions with their answers of the example `name`."""
    canvas, title, pairs = EXAMPLES[name]()
    return canvas.image, title, pairs


def main() -> None:
    """Write every image and `index.json`."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    index = []
    for name in EXAMPLES:
        image, title, pairs = draw(name)
        image.save(folder / f"{name}.png", optimize=True)
        questions = [{"question": q, "answer": a} for q, a in pairs]
        entry = {
            "image": f"{name}.png",
            "title": title,
            "width": image.width,
            "height": image.height,
        }
        index.append(entry | {"questions": questions})
    text = json.dumps(index, indent=1, ensure_ascii=False)
    (folder / "index.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
