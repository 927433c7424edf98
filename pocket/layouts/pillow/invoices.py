"""Invoices and orders: sender, recipient, facts, a table of items, totals that add up."""

import random
from typing import Final

from pocket.content import formats, words
from pocket.content.colours import ink_on
from pocket.content.words import TOTALS
from pocket.document import Document, Question
from pocket.layouts.fonts import Face
from pocket.layouts.pillow.canvas import Canvas, blank_page
from pocket.layouts.style import PageStyle
from pocket.questions.templates import absent, ask, worded, yes_no

HEADS: Final = (
    "Invoice|INVOICE|Order|Quotation|Rechnung|Facture|Factura|Delivery note|Credit note|Bill".split(
        "|"
    )
)
COLUMNS: Final = (
    ("Description", "Qty", "Price", "Amount"),
    ("Item", "Quantity", "Unit price", "Total"),
    ("Article", "Units", "Rate", "Sum"),
    ("Product", "Qty", "Each", "Line total"),
    ("Service", "Hours", "Rate", "Amount"),
    ("Artikel", "Menge", "Preis", "Betrag"),
)
AMOUNTS: Final = ("What is the amount for {f}?", "total for {f}?", "What does {f} come to?")
QUANTITIES: Final = ("How many {f} were ordered?", "quantity of {f}", "How many of {f}?")
UNIT_PRICES: Final = ("What is the unit price of {f}?", "price each of {f}?", "rate for {f}")
LARGEST: Final = (
    "Which item has the largest amount?", "most expensive line?", "Which position costs the most?",
)  # fmt: skip
LARGEST_AMOUNT: Final = ("What is the largest amount of a line?", "highest line amount?")
SMALLEST: Final = ("Which item has the smallest amount?", "cheapest line?")
ROWS: Final = (
    "List the items as Markdown rows.", "transcribe the item rows",
    "Write the item lines as a Markdown table without header.",
)  # fmt: skip


Facts = list[tuple[str, str]]
Item = tuple[str, int, str, str, float, bool, words.Money]  # name .. amount, number, whole row?


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One sheet; what does not fit is left out of the questions, too."""
    canvas, t, m = blank_page(style), style.theme, style.margin
    size = min(style.size, style.width / 26)
    body, bold = style.family.regular(size), style.family.bold(size)
    head = style.heading.bold(size * rng.uniform(1.3, 2.2))
    sender, title = words.company(rng), rng.choice(HEADS)
    facts: list[tuple[str, str]] = []
    y = float(m)
    apart = head.width(title) + bold.width(sender) + 20 < style.width - 2 * m
    canvas.text(
        style.width - m if apart else m, y, title, head, t.accent, "right" if apart else "left"
    )
    y += 0 if apart else head.line
    if bold.width(sender) < style.width - 2 * m:
        canvas.text(m, y, sender, bold, t.ink)
        facts.append((rng.choice(("sender", "seller", "company that issued it")), sender))
    y += max(head.line if apart else 0, body.line) * 1.1
    y = _parties(rng, canvas, style, body, bold, y, facts)
    items, y = _items(rng, canvas, style, body, bold, y)
    total = _totals(rng, canvas, style, (body, bold), y, items, facts) if items else ""
    return canvas.document(_questions(rng, title, facts, items, total))


def _parties(
    rng: random.Random,
    canvas: Canvas,
    style: PageStyle,
    body: Face,
    bold: Face,
    y: float,
    facts: Facts,
) -> float:
    """The recipient on the left, dates and numbers on the right."""
    t, m = style.theme, style.margin
    name, street, city = words.person(rng), words.address(rng), rng.choice(words.CITIES)
    left = [rng.choice(("Bill to", "Customer", "To", "Ship to", "Kunde")), name, street, city]
    top = y
    for i, line in enumerate(left):
        canvas.text(m, y, line, bold if i == 0 else body, t.muted if i == 0 else t.ink)
        y += body.line * 1.08
    facts += [(rng.choice(("customer", "recipient", "name of the customer")), name)]
    facts += [("street" if rng.random() < 0.5 else "customer's address", street), ("city", city)]
    pool = [
        ("Number", formats.code),
        ("Date", formats.date),
        ("Due", formats.date),
        ("Order no.", formats.code),
        ("Reference", formats.code),
        ("Contact", words.person),
        ("VAT ID", formats.code),
        (words.some(rng, 1, 1), formats.code),
    ]
    start = m + max(body.width(x) for x in left) + 2 * body.size
    wide = style.width - m - start
    for key, draw_value in rng.sample(pool, rng.randint(1, 4)):
        value = draw_value(rng)
        if body.width(key + ": " + value) > wide or top + body.line > y:
            continue
        key_end = style.width - m - wide * 0.55
        if body.width(key) < key_end - start and body.width(value) < wide * 0.5:
            canvas.text(start, top, key, body, t.muted)
            canvas.text(style.width - m, top, value, body, t.ink, "right")
        else:
            canvas.text(start, top, f"{key}: {value}", body, t.ink)
        facts.append((key.lower().rstrip("."), value))
        top += body.line * 1.08
    return y + body.line * 0.6


def _items(
    rng: random.Random, canvas: Canvas, style: PageStyle, body: Face, bold: Face, y: float
) -> tuple[list[Item], float]:
    """The table of items; returns them as (name, quantity, unit, amount, number)."""
    t, m, cash = style.theme, style.margin, words.money(rng)
    names = rng.choice(COLUMNS)
    pitch = body.line * rng.uniform(1.15, 1.6)
    room = int((style.height - m - y - 4.5 * body.line) / pitch) - 1
    rows = []
    for name in words.unique(rng, words.product, max(0, min(room, rng.randint(1, 9)))):
        quantity, unit = (
            rng.randint(1, 20),
            round(rng.choice((rng.uniform(1, 40), rng.uniform(10, 900))), 2),
        )
        rows.append(
            (
                name,
                quantity,
                cash(unit, False),
                cash(quantity * unit, False),
                round(quantity * unit, 2),
            )
        )
    full = style.width - 2 * m
    stops: tuple[float, float | None, float | None, float]
    if full < body.width("0") * 42:  # narrow: name and amount only
        stops = (0.0, None, None, full)
    else:
        stops = (0.0, full * 0.56, full * 0.77, full)
    rows = [r for r in rows if body.width(r[0]) < (stops[1] or full * 0.68) - body.width("000 ")]
    if not rows:
        return [], y
    filled = rng.random() < 0.5
    ground = rng.choice((t.accent, t.rule))
    if filled:
        canvas.box(m - 3, y, style.width - m + 3, y + pitch, fill=ground)
    for r, row in enumerate([names, *rows]):
        top = y + r * pitch + (pitch - body.line) / 2
        ink = ink_on(ground) if r == 0 and filled else t.ink
        for i, stop in enumerate(stops):
            if stop is None:
                continue
            at = m + stop
            canvas.text(
                at, top, str(row[i]), bold if r == 0 else body, ink, "left" if i == 0 else "right"
            )
        if not filled or rng.random() < 0.0:
            canvas.line([(m, y + (r + 1) * pitch), (style.width - m, y + (r + 1) * pitch)], t.rule)
    shown = [(*row, stops[1] is not None, cash) for row in rows]
    return shown, y + (len(rows) + 1) * pitch + body.line * 0.4


def _totals(
    rng: random.Random,
    canvas: Canvas,
    style: PageStyle,
    faces: tuple[Face, Face],
    y: float,
    items: list[Item],
    facts: Facts,
) -> str:
    """Subtotal, tax and total at the right, by plain and bold `faces`: the total as written."""
    body, bold = faces
    t, m, cash = style.theme, style.margin, items[0][-1]
    total = round(sum(item[4] for item in items), 2)
    lines = []
    if rng.random() < 0.6:
        share = rng.choice((5, 7, 10, 19, 20, 25))
        tax = round(total * share / 100, 2)
        lines = [("Subtotal", cash(total)), (f"Tax {share}%", cash(tax))]
        total += tax
    word = rng.choice(TOTALS)
    lines.append((word, cash(total)))
    start, shown = style.width * rng.uniform(0.4, 0.6), ""
    for key, value in lines:
        face = bold if key == word else body
        if y + face.line > style.height or face.width(key + value) + 10 > style.width - m - start:
            continue
        canvas.text(start, y, key, face, t.ink)
        canvas.text(style.width - m, y, value, face, t.ink, "right")
        if key == word:
            shown = value
        else:
            facts.append((key.split()[0].lower(), value))
        y += face.line * 1.15
    return shown


def _questions(
    rng: random.Random, title: str, facts: Facts, items: list[Item], total: str
) -> list[Question]:
    out = [ask(rng, "kind", title)] if rng.random() < 0.2 else []
    for key, value in rng.sample(facts, min(6, len(facts))):
        out.append(ask(rng, "field", value, f=key))
    if total:
        out.append(ask(rng, "total", total))
    for name, quantity, unit, amount, _, whole, _ in rng.sample(items, min(3, len(items))):
        out.append(worded(rng, "value", amount, *AMOUNTS, f=name))
        if whole:
            out.append(worded(rng, "value", str(quantity), *QUANTITIES, f=name))
            out.append(worded(rng, "value", unit, *UNIT_PRICES, f=name))
    if items:
        out += _about_all(rng, items)
    other = words.product(rng)
    if not words.overlaps(other, (item[0] for item in items)):
        out.append(yes_no(rng, "present", False, f=other))
        out.append(absent(rng, "price", f=other.lower()))
    missing = rng.choice(("IBAN", "fax number", "delivery time", "discount code"))
    return [*out, absent(rng, "field", f=missing)]


def _about_all(rng: random.Random, items: list[Item]) -> list[Question]:
    """The number of items, their names, the largest and the smallest amount, all as rows."""
    called = rng.choice(("items", "lines", "positions"))
    out = [ask(rng, "count", str(len(items)), n=called)]
    out.append(yes_no(rng, "present", True, f=rng.choice(items)[0]))
    out.append(ask(rng, "list", ", ".join(i[0] for i in items), n="items"))
    order = sorted(items, key=lambda item: item[4])
    if len(order) > 1 and order[-1][4] > order[-2][4]:
        out.append(worded(rng, "highest", order[-1][0], *LARGEST))
        out.append(worded(rng, "highest", order[-1][3], *LARGEST_AMOUNT))
    if len(order) > 1 and order[0][4] < order[1][4]:
        out.append(worded(rng, "lowest", order[0][0], *SMALLEST))
    text = "\n".join(
        f"| {i[0]} | {i[1]} | {i[2]} | {i[3]} |" if i[5] else f"| {i[0]} | {i[3]} |" for i in items
    )
    return [*out, worded(rng, "transcribe", text, *ROWS)]
