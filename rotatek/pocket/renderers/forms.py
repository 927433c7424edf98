"""Keys and values: forms, invoices, business cards, badges, specification sheets."""

from __future__ import annotations

import random
from collections.abc import Callable

from .. import formats, words
from ..document import Canvas, Document, Question
from ..fonts import Face
from ..questions import absent, ask, yes_no
from ..theme import on
from .look import Look, number

FIELDS: dict[str, Callable[[random.Random], str]] = {
    "Name": words.person,
    "First name": lambda r: r.choice(words.FIRST),
    "Last name": lambda r: r.choice(words.LAST),
    "Customer": words.person,
    "Company": words.company,
    "Date": words.date,
    "Due date": words.date,
    "Date of birth": words.date,
    "Issued": words.date,
    "Order date": words.date,
    "Invoice no.": words.code,
    "Order number": words.code,
    "Reference": words.code,
    "Account": words.code,
    "Serial no": words.code,
    "Member ID": words.code,
    "Tracking number": words.code,
    "Licence": words.code,
    "Passport no": words.code,
    "Email": words.email,
    "Phone": words.phone,
    "Address": words.address,
    "Street": words.address,
    "City": lambda r: r.choice(words.CITIES),
    "Country": lambda r: r.choice(words.COUNTRIES),
    "Place of birth": lambda r: r.choice(words.CITIES),
    "Department": lambda r: r.choice(words.CATEGORIES),
    "Contact": words.person,
    "Manager": words.person,
    "Doctor": words.person,
    "Teacher": words.person,
    "Product": words.product,
    "Model": words.product,
    "Item": words.product,
    "Quantity": lambda r: str(r.randint(1, 99)),
    "Weight": lambda r: f"{r.uniform(0.1, 90):.1f} kg",
    "Height": lambda r: f"{r.randint(90, 210)} cm",
    "Room": lambda r: str(r.randint(1, 999)),
    "Amount": lambda r: words.money(r)(r.uniform(1, 9000)),
    "Balance": lambda r: words.money(r)(r.uniform(1, 90000)),
    "Subtotal": lambda r: words.money(r)(r.uniform(1, 900)),
    "Price": lambda r: words.money(r)(r.uniform(1, 500)),
    "Time": words.clock,
    "Arrival": words.clock,
    "Departure": words.clock,
    "Start": words.clock,
    "Status": lambda r: r.choice(
        "Open Closed Paid Pending Approved Cancelled Shipped Active Draft".split()
    ),
    "Priority": lambda r: r.choice("Low Medium High Urgent".split()),
    "Colour": lambda r: r.choice("red blue green black white silver yellow".split()),
    "Size": lambda r: r.choice("XS S M L XL 38 40 42 44".split()),
    "Score": number,
    "Rating": lambda r: f"{r.uniform(1, 5):.1f}",
    "Temperature": lambda r: f"{r.uniform(-20, 42):.1f} °C",
    "Distance": lambda r: f"{r.randint(1, 999)} km",
    "Duration": lambda r: f"{r.randint(1, 59)} min",
    "Version": lambda r: f"{r.randint(0, 9)}.{r.randint(0, 20)}.{r.randint(0, 9)}",
    "Language": lambda r: r.choice("English German French Spanish Polish Swedish".split()),
    "Job title": lambda r: r.choice(
        "Engineer|Nurse|Sales manager|Teacher|Designer|Accountant|Driver|Editor".split("|")
    ),
    "Website": lambda r: f"www.{words.invented(r, 2)}.{r.choice(('com', 'org', 'net'))}",
    "Password hint": lambda r: words.invented(r),
    "URL": formats.url,
    "File": formats.file_name,
    "User": formats.handle,
    "Value": formats.measure,
    "Range": formats.rare,
    "Table no.": lambda r: str(r.randint(1, 60)),
    "Kunde": words.person,
    "Datum": words.date,
    "Betrag": lambda r: words.money(r)(r.uniform(1, 900)),
    "Nom": words.person,
    "Adresse": words.address,
    "Fecha": words.date,
    "Nombre": words.person,
    "Importe": lambda r: words.money(r)(r.uniform(1, 900)),
    "Ort": lambda r: r.choice(words.CITIES),
}
TITLES = (
    "Registration form|Invoice|Order confirmation|Delivery note|Patient record|Member card|Profile|"
    "Contact details|Booking|Work order|Product data sheet|Application|Visitor badge|Quotation|"
    "Account summary|Shipping label|Rechnung|Facture|Bestellung|Details|Customer file|Report card"
).split("|")


def pairs(rng: random.Random, n: int) -> list[tuple[str, str]]:
    """``n`` different fields and their values; some fields are invented words."""
    strange = rng.choice((0.1, 0.3, 0.7))
    out: dict[str, tuple[str, str]] = {}
    for key in rng.sample(tuple(FIELDS), min(n, len(FIELDS))):
        value = FIELDS[key](rng)
        if rng.random() < 0.35:
            value = anything(rng)
        if rng.random() < strange:
            key = words.some(rng, 1, 2)
        out.setdefault(key.lower(), (key, value))
    return list(out.values())


def anything(rng: random.Random) -> str:
    """A value of any sort."""
    draw_one = rng.choice(
        (words.code, number, words.person, words.company, words.date, words.clock, words.product)
    )
    r = rng.random()
    if r < 0.4:
        return draw_one(rng)
    return formats.anything(rng) if r < 0.7 else words.some(rng, 1, 3)


def draw(rng: random.Random, look: Look) -> Document:
    """A titled sheet of fields in one of several layouts."""
    layout = rng.choice((_beside, _beside, _below, _boxed, _striped, _flow))
    canvas = look.canvas()
    title, y = put_title(rng, canvas, look)
    shown = layout(rng, canvas, look, y)
    return canvas.document(questions(rng, title, shown))


def put_title(rng: random.Random, canvas: Canvas, look: Look) -> tuple[str, float]:
    """Draw a title at the top, or none: its text, and where the rest begins."""
    t, m = look.theme, look.margin
    y = float(m)
    if rng.random() < 0.12:
        return "", y
    r = rng.random()
    text = rng.choice(TITLES) if r < 0.3 else words.company(rng) if r < 0.55 else words.title(rng)
    face = look.heading.bold(look.size * rng.uniform(1.1, 1.9))
    if face.width(text) > look.width - 2 * m:
        face = look.heading.bold(look.size)
    if face.width(text) > look.width - 2 * m:
        return "", y
    ink, foot = t.ink, 0
    if rng.random() < 0.3:
        foot = m + face.line + m // 2
        canvas.box(0, 0, look.width, foot, fill=t.accent)
        ink = on(t.accent)
    elif rng.random() < 0.4:
        ink = t.accent
    if rng.random() < 0.25:
        canvas.text(look.width / 2, y, text, face, ink, "centre")
    else:
        canvas.text(m, y, text, face, ink)
    return text, max(y + face.line + look.size * rng.uniform(0.6, 1.4), foot + look.size * 0.5)


def _faces(rng: random.Random, look: Look) -> tuple[Face, Face]:
    s = look.size
    return rng.choice(
        (
            (look.family.regular(s), look.family.bold(s)),
            (look.family.bold(s), look.family.regular(s)),
            (look.family.regular(s), look.family.regular(s)),
            (look.family.regular(max(10, s * 0.85)), look.family.regular(s)),
        )
    )


def _beside(rng: random.Random, canvas: Canvas, look: Look, y: float) -> list[tuple[str, str]]:
    """Key left, value right of it, at a tab stop or at the right margin."""
    t, m = look.theme, look.margin
    key_face, value_face = _faces(rng, look)
    pitch = value_face.line * rng.uniform(1.05, 1.9)
    colon = rng.choice((":", ":", "", ""))
    items = pairs(rng, max(1, int((look.height - m - y) / pitch)))
    stop = max(key_face.width(k + colon) for k, _ in items) + look.size * rng.uniform(0.7, 2.5)
    right = rng.random() < 0.3
    rules = rng.random() < 0.35
    shown = []
    for key, value in items[: rng.randint(3, 16)]:
        if m + stop + value_face.width(value) > look.width - m or y + pitch > look.height - 2:
            continue
        canvas.text(m, y, key + colon, key_face, t.muted if not colon else t.ink)
        if right:
            canvas.text(look.width - m, y, value, value_face, t.ink, "right")
        else:
            canvas.text(m + stop, y, value, value_face, t.ink)
        if rules:
            canvas.line([(m, y + pitch - 2), (look.width - m, y + pitch - 2)], t.rule)
        shown.append((key, value))
        y += pitch
    return shown


def _below(rng: random.Random, canvas: Canvas, look: Look, y: float) -> list[tuple[str, str]]:
    """A grid of small keys with the value under each."""
    t, m = look.theme, look.margin
    key_face = look.family.regular(max(10, look.size * 0.8))
    value_face = rng.choice((look.family.regular, look.family.bold))(look.size)
    columns = max(1, min(3, int((look.width - 2 * m) / (look.size * rng.uniform(10, 15)))))
    width = (look.width - 2 * m) / columns
    pitch = (key_face.line + value_face.line) * rng.uniform(1.1, 1.5)
    rows = max(1, int((look.height - m - y) / pitch))
    shown = []
    upper = rng.random() < 0.2
    for i, (key, value) in enumerate(pairs(rng, min(rows * columns, rng.randint(3, 18)))):
        x, top = m + (i % columns) * width, y + (i // columns) * pitch
        key = key.upper() if upper else key
        if max(value_face.width(value), key_face.width(key)) > width - 6:
            continue
        canvas.text(x, top, key, key_face, t.muted)
        canvas.text(x, top + key_face.line, value, value_face, t.ink)
        shown.append((key, value))
    return shown


def _boxed(rng: random.Random, canvas: Canvas, look: Look, y: float) -> list[tuple[str, str]]:
    """Form fields: the key above a box that holds the value."""
    t, m = look.theme, look.margin
    key_face, value_face = (
        look.family.regular(max(10, look.size * 0.9)),
        look.family.regular(look.size),
    )
    columns = 2 if look.width > 400 and rng.random() < 0.5 else 1
    width = (look.width - 2 * m) / columns
    pitch = key_face.line + value_face.line * 1.6 + look.size * rng.uniform(0.2, 0.8)
    rows = max(1, int((look.height - m - y) / pitch))
    radius = rng.choice((0, 3, 6))
    shown = []
    for i, (key, value) in enumerate(pairs(rng, min(rows * columns, rng.randint(2, 14)))):
        x, top = m + (i % columns) * width, y + (i // columns) * pitch
        if max(value_face.width(value), key_face.width(key)) > width - 20:
            continue
        canvas.text(x, top, key, key_face, t.ink)
        box = top + key_face.line
        canvas.box(x, box, x + width - 8, box + value_face.line * 1.5, t.panel, t.rule, radius)
        canvas.text(x + 6, box + value_face.line * 0.22, value, value_face, t.ink)
        shown.append((key, value))
    return shown


def _striped(rng: random.Random, canvas: Canvas, look: Look, y: float) -> list[tuple[str, str]]:
    """Rows on alternating grounds inside a frame."""
    t, m = look.theme, look.margin
    key_face, value_face = _faces(rng, look)
    pitch = value_face.line * rng.uniform(1.3, 1.9)
    stop = (look.width - 2 * m) * rng.uniform(0.38, 0.5)
    shown: list[tuple[str, str]] = []
    for key, value in pairs(rng, min(16, max(1, int((look.height - m - y) / pitch)))):
        if (
            stop + value_face.width(value) > look.width - 2 * m - 8
            or key_face.width(key) > stop - 8
        ):
            continue
        ground = t.panel if len(shown) % 2 else t.page
        canvas.box(m, y, look.width - m, y + pitch, ground, t.rule)
        top = y + (pitch - value_face.line) / 2
        canvas.text(m + 6, top, key, key_face, t.ink)
        canvas.text(m + stop, top, value, value_face, t.ink)
        shown.append((key, value))
        y += pitch
    return shown


def _flow(rng: random.Random, canvas: Canvas, look: Look, y: float) -> list[tuple[str, str]]:
    """Fields one after another along the line, the value beside or under its key."""
    t, m = look.theme, look.margin
    key_face = look.family.regular(max(10, look.size * rng.uniform(0.75, 1)))
    value_face = rng.choice((look.family.regular, look.family.bold))(look.size)
    under, gap = rng.random() < 0.6, look.size * rng.uniform(1.2, 3)
    pitch = (key_face.line * under + value_face.line) * rng.uniform(1.2, 1.8)
    x, shade = float(m), rng.choice((t.muted, t.accent, t.ink))
    shown: list[tuple[str, str]] = []
    for key, value in pairs(rng, rng.randint(3, 20)):
        head = key if under else key + ":"
        wide = key_face.width(head + " ")
        width = max(wide, value_face.width(value)) if under else wide + value_face.width(value)
        if x + width > look.width - m and x > m:
            x, y = float(m), y + pitch
        if y + pitch > look.height - m / 2:
            break
        if x + width > look.width - m:
            continue
        canvas.text(x, y, head, key_face, shade)
        if under:
            canvas.text(x, y + key_face.line, value, value_face, t.ink)
        else:
            canvas.text(x + wide, y + key_face.ascent - value_face.ascent, value, value_face, t.ink)
        shown.append((key, value))
        x += width + gap
    return shown


def questions(rng: random.Random, title: str, shown: list[tuple[str, str]]) -> list[Question]:
    """Questions about a sheet of fields."""
    out = []
    names = {k.lower() for k, _ in shown}
    for key, value in rng.sample(shown, min(6, len(shown))):
        out.append(
            ask(rng, "field", value, f=key if rng.random() < 0.4 else key.lower().rstrip("."))
        )
    missing = [k for k in FIELDS if not any(k.lower() in n or n in k.lower() for n in names)]
    strange = words.some(rng, 1, 2)
    if not any(strange.lower() in n or n in strange.lower() for n in names):
        missing += [strange] * len(missing)
    out.append(absent(rng, "field", f=rng.choice(missing).lower().rstrip(".")))
    if title:
        out.append(ask(rng, "title", title))
    if shown:
        key, value = rng.choice(shown)
        out.append(yes_no(rng, "present", True, f=f"a field called {key}"))
        out.append(yes_no(rng, "present", False, f=f"a field called {rng.choice(missing)}"))
        others = [v for _, v in shown]
        once = [pair for pair in shown if others.count(pair[1]) == 1]
        for key, value in rng.sample(once, min(2, len(once))):
            out.append(ask(rng, "names", key, kind="reverse", v=value))
        if len(shown) <= 10:
            out.append(ask(rng, "list", ", ".join(k for k, _ in shown), n="fields"))
        if 2 <= len(shown) <= 12:
            out.append(ask(rng, "count", str(len(shown)), n="fields"))
        text = "\n".join(f"{k}: {v}" for k, v in shown)
        head = f"# {title}\n\n" if title else ""
        out.append(ask(rng, "page", head + text, kind="transcribe"))
    return out
