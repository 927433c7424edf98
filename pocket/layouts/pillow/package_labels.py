"""Labels of packages: what is in it, how much of it, on boxes, bottles and bags."""

import random
from typing import Final

from pocket.content import formats, lexicon, words
from pocket.content.colours import hsv, ink_on
from pocket.document import Document, Question
from pocket.layouts.backdrops import backdrop
from pocket.layouts.fonts import pick_family
from pocket.layouts.pillow.canvas import Canvas, blank_page, wrap
from pocket.layouts.style import PageStyle
from pocket.questions.templates import ABSENT, ask, phrased

FACTS: Final = (
    ("Total Fat", "g", 0), ("Saturated Fat", "g", 1), ("Trans Fat", "g", 1), ("Cholesterol", "mg",
    0),
    ("Sodium", "mg", 0), ("Total Carbohydrate", "g", 0), ("Dietary Fiber", "g", 1), ("Sugars", "g",
    1),
    ("Protein", "g", 0), ("Calcium", "mg", 0), ("Iron", "mg", 0), ("Vitamin C", "mg", 0),
    ("Potassium", "mg", 0), ("Salt", "g", 0), ("Fibre", "g", 0), ("Energy", "kJ", 0),
)  # fmt: skip
FRONTS: Final = (
    "Net Wt {a} oz ({b} g)", "{b} g", "{b} ml", "Net weight {b} g", "{a} pieces", "{a} x {b} ml",
    "Contents: {b} ml", "{a} tablets",
)  # fmt: skip
HINTS: Final = (
    "Keep refrigerated", "Store in a dry place", "Shake well before use",
    "Best before end: see lid",
    "Keep out of reach of children", "Recyclable", "Contains milk and nuts", "Not for resale",
    "Gluten free", "Handle with care", "This side up", "Fragile", "Made in {c}",
)  # fmt: skip
ASKED: Final[dict[str, tuple[str, ...]]] = {
    "energy": ("How many {low} does it have?", "{low}?", "What is the number of {low}?"),
    "percent": ("What percent daily value is {name}?", "daily value of {f}?"),
    "amount": ("How much {low} does it contain?", "How much {low}?",
        "What is the amount of {low}?", "{low}?", "{low} content"),
    "heading": ("What is the heading?", "What is the title of the label?",
        "What is this label about?"),
    "brand": ("Which brand is it?", "brand?", "What does the large text say?",
        "What is it called?"),
    "product": ("What product is it?", "What is in the package?", "What stands below {brand}?"),
    "content": ("How much is in it?", "What is the net weight or content?",
        "What does the last line say?", "contents?"),
}  # fmt: skip


def draw(rng: random.Random, style: PageStyle) -> Document:
    """A package's side."""
    canvas = blank_page(style)
    canvas.replace(backdrop(rng, (style.width, style.height), 0.5))
    out = rng.choice((_nutrition, _nutrition, _front, _parcel))(rng, style, canvas)
    return canvas.document(out)


def _panel(
    rng: random.Random, style: PageStyle, canvas: Canvas
) -> tuple[float, float, float, float]:
    """The label's ground: left, top, right, bottom."""
    w, h = style.width, style.height
    x0, y0 = rng.uniform(0.02, 0.1) * w, rng.uniform(0.02, 0.08) * h
    x1, y1 = w - rng.uniform(0.02, 0.1) * w, h - rng.uniform(0.02, 0.08) * h
    ground = rng.choice(
        (
            (255, 255, 255),
            (250, 248, 240),
            hsv(rng.random(), rng.uniform(0, 0.25), rng.uniform(0.85, 1)),
        )
    )
    canvas.box(x0, y0, x1, y1, fill=ground, outline=(20, 20, 20) if rng.random() < 0.5 else None)
    return x0 + 8, y0 + 6, x1 - 8, y1 - 6


def _nutrition(rng: random.Random, style: PageStyle, canvas: Canvas) -> list[Question]:
    """Amounts in one or two columns under heavy rules."""
    x0, y, x1, foot = _panel(rng, style, canvas)
    family, ink = pick_family(rng, style.split, western=True), (15, 15, 18)
    two = rng.random() < 0.5
    size = min((x1 - x0) / (26 if two else 17), (foot - y) / 13, 30.0)
    if size < 9:
        return []
    bold, body, head = (
        family.bold(size),
        family.regular(size),
        family.bold(size * rng.uniform(1.3, 1.8)),
    )
    title = rng.choice(
        (
            "Nutrition Facts",
            "Nutrition Facts",
            "Nutrition Information",
            "Typical values",
            "Supplement Facts",
        )
    )
    out, lines = [], [title]
    canvas.text(x0, y, title, head, ink)
    y += head.line
    grams, packs, energy = rng.randint(10, 250), rng.randint(1, 20), rng.randint(10, 700)
    unit = rng.choice(("1 spoon", "1 cup", "2 slices", "1 bottle", "3 pieces", "1 scoop"))
    serving = rng.choice((f"{unit} ({grams}g)", f"{grams} g", f"{unit}"))
    for label, value, asked in (
        (rng.choice(("Serving size: ", "Serving Size ")), serving, ("What is the serving size?",
        "serving size?", "How large is a serving?")),
        (rng.choice(("Servings per package: ", "Servings per container ",
        "Portions: ")), str(packs),
         ("How many servings are in it?", "How many servings are there?",
         "servings per container?")),
    ):  # fmt: skip
        canvas.text(x0, y, label + value, body, ink)
        out.append(phrased(rng, "value", value, *asked))
        lines.append(label + value)
        y += body.line
    canvas.box(x0, y + 2, x1, y + 2 + size * 0.35, fill=ink)
    y += size * 0.6
    label = rng.choice(("Calories", "Calories", "Energy"))
    canvas.text(x0, y, f"{label} ", bold, ink)
    canvas.text(
        x0 + bold.width(f"{label} "), y, str(energy), bold if rng.random() < 0.5 else body, ink
    )
    low = label.lower()
    for _ in range(2):
        out.append(phrased(rng, "value", str(energy), *ASKED["energy"], low=low))
    lines.append(f"{label} {energy}")
    y += bold.line * 1.1
    return out + _amounts(rng, canvas, (x0, y, x1, foot), two, (bold, body, lines, ink))


def _amounts(
    rng: random.Random, canvas: Canvas, area: tuple[float, float, float, float], two: bool,
    how: tuple
) -> list[Question]:  # fmt: skip
    """The rows below the calories."""
    x0, y, x1, foot = area
    bold, body, lines, ink = how
    out, top = list[Question](), y
    stops = [(x0, (x0 + x1) / 2 - 8), ((x0 + x1) / 2 + 8, x1)] if two else [(x0, x1)]
    rows = rng.sample(FACTS, rng.randint(4, 12))
    daily = rng.random() < 0.5
    shown: list[tuple[str, str]] = []
    column = 0
    for name, unit, level in rows:
        if y + body.line > foot:
            column, y = column + 1, top
            if column >= len(stops):
                break
        left, right = stops[column]
        figure = rng.choice((rng.randint(0, 60), rng.randint(0, 900) / 10, rng.randint(0, 9)))
        value = f"{figure:g}{rng.choice(('', '', ' '))}{unit}"
        at = left + level * body.size
        face = body if level else bold
        if (
            at
            + face.width(name)
            + body.width(f" {value}")
            + (body.width("100%") if daily else 0)
            + 10
            > right
        ):
            continue
        canvas.line([(left, y), (right, y)], ink)
        canvas.text(at, y + 1, name, face, ink)
        canvas.text(at + face.width(name + " "), y + 1, value, body, ink)
        if daily:
            share = f"{rng.randint(0, 60)}%"
            canvas.text(right, y + 1, share, bold, ink, "right")
            out.append(phrased(rng, "cell", share, *ASKED["percent"], name=name, f=name.lower()))
        shown.append((name, value))
        lines.append(f"{name} {value}")
        y += body.line * 1.12
    for name, value in rng.sample(shown, min(6, len(shown))):
        low = name.lower()
        out.append(phrased(rng, "value", value, *ASKED["amount"], low=low))
    absent = [n for n, _, _ in FACTS if n.lower() not in "\n".join(lines).lower()]
    if absent:
        out.append(Question("absent", f"How much {rng.choice(absent).lower()} is there?", ABSENT))
    out.append(phrased(rng, "title", lines[0], *ASKED["heading"]))
    return out


def _front(rng: random.Random, style: PageStyle, canvas: Canvas) -> list[Question]:
    """A brand, what it is, how much, a hint."""
    x0, y0, x1, y1 = _panel(rng, style, canvas)
    first, second = (
        pick_family(rng, style.split, western=True, fancy=rng.random() < 0.3) for _ in range(2)
    )
    ground = hsv(rng.random(), rng.uniform(0.4, 0.9), rng.uniform(0.2, 0.9))
    canvas.box(x0 - 8, y0 - 6, x1 + 8, y1 + 6, fill=ground)
    ink, wide = ink_on(ground), x1 - x0
    brand = lexicon.word(rng).capitalize() if rng.random() < 0.5 else lexicon.word(rng).upper()
    what = words.product(rng)
    a, b = rng.randint(2, 60), rng.choice((100, 125, 250, 330, 500, 750, rng.randint(20, 990)))
    amount = rng.choice(FRONTS).format(a=a, b=b)
    hint = rng.choice(HINTS).format(c=rng.choice(words.COUNTRIES))
    y, lines = y0 + (y1 - y0) * rng.uniform(0.05, 0.25), list[str]()
    for text, share, family in (
        (brand, 0.2, first),
        (what, 0.11, second),
        (hint, 0.055, second),
        (amount, 0.06, second),
    ):
        make = family.bold if share > 0.1 else family.regular
        size = min((y1 - y0) * share, wide / max(0.1, make(40).width(text) / 40))
        if size < 10:
            continue
        face = make(size)
        if text == amount:
            y = max(y, y1 - face.line * 1.3)
        if y + face.line > y1 + 4:
            continue
        canvas.text((x0 + x1) / 2, y, text, face, ink, "centre")
        lines.append(text)
        y += face.line * rng.uniform(1.05, 1.5)
    out = [
        Question(
            "transcribe",
            rng.choice(("What does the label say?", "Read the label.", "What is written here?")),
            "\n".join(lines),
        )
    ]
    if brand in lines:
        out += [phrased(rng, "title", brand, *ASKED["brand"]) for _ in range(2)]
    if what in lines:
        out.append(phrased(rng, "find", what, *ASKED["product"], brand=brand))
    if amount in lines:
        out.append(phrased(rng, "value", amount, *ASKED["content"]))
    if hint in lines:
        out.append(
            phrased(rng, "find", hint, "What hint is given?", f"What is written below {what}?")
            if what in lines
            else phrased(rng, "find", hint, "What hint is given?")
        )
    return out


def _parcel(rng: random.Random, style: PageStyle, canvas: Canvas) -> list[Question]:
    """A parcel's label: from, to, codes."""
    x0, y, x1, y1 = _panel(rng, style, canvas)
    family, ink = pick_family(rng, style.split, western=True), (15, 15, 18)
    size = min((x1 - x0) / 22, (y1 - y) / 12, 26.0)
    if size < 9:
        return []
    body, bold = family.regular(size), family.bold(size * 1.25)
    out, lines = list[Question](), list[str]()
    for label, kinds in (
        ("FROM", ("Who is the sender?", "Who sent it?", "sender?")),
        ("TO", ("Who is the recipient?", "Who is it addressed to?", "Who gets the parcel?")),
    ):
        name = words.person(rng) if rng.random() < 0.7 else words.company(rng)
        town = f"{formats.run(rng, '0123456789', 4, 5)} {rng.choice(words.CITIES)}"
        street = words.address(rng).split(",")[0]
        canvas.text(x0, y, f"{label}:", body, ink)
        y += body.line
        for text, face in ((name, bold), (street, body), (town, body)):
            for line in wrap(text, face, x1 - x0 - size):
                canvas.text(x0 + size, y, line, face, ink)
                y += face.line
        lines += [f"{label}:", name, street, town]
        out += [phrased(rng, "find", name, *kinds), phrased(rng, "find", street,
        f"What is the street of {name}?", f"In which street is {name}?"),
                phrased(rng, "find", town, f"Which town is {name} in?",
                f"What is the postcode and town of {name}?")]  # fmt: skip
        canvas.line([(x0, y + 4), (x1, y + 4)], ink, 2)
        y += 10
    pairs = [("Weight", f"{rng.uniform(0.1, 30):.1f} kg"), ("Tracking", formats.run(rng,
    "0123456789", 8, 12)), ("Date", formats.date(rng)),
             ("Service", rng.choice(("Express", "Standard", "Economy", "Priority"))), ("Ref",
             formats.code(rng))]  # fmt: skip
    for label, value in rng.sample(pairs, 3):
        if y + body.line > y1:
            break
        canvas.text(x0, y, f"{label}: {value}", body, ink)
        out += [ask(rng, "field", value, f=label.lower())]
        lines.append(f"{label}: {value}")
        y += body.line * 1.1
    out.append(
        Question(
            "transcribe",
            rng.choice(("What does the label say?", "Read the label.", "transcribe")),
            "\n".join(lines),
        )
    )
    return out
