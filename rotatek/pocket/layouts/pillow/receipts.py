"""Shop receipts and invoices with line items and a total that adds up."""

import random

from rotatek.pocket.content import formats, words
from rotatek.pocket.content.colours import Colour
from rotatek.pocket.content.words import TOTALS
from rotatek.pocket.document import Document
from rotatek.pocket.layouts.fonts import Face, pick_family
from rotatek.pocket.layouts.pillow.canvas import Canvas, blank_page
from rotatek.pocket.layouts.style import PageStyle
from rotatek.pocket.questions.prices import receipt_questions


def draw(rng: random.Random, style: PageStyle) -> Document:
    """A till receipt: shop, date, items with prices, tax, total, how it was paid."""
    family = pick_family(rng, style.split, western=True, mono=rng.random() < 0.6)
    size, m = style.size, style.margin + 4
    desk = style.theme.page
    canvas = blank_page(style, desk)
    paper = (255, 255, 255) if rng.random() < 0.6 else (250, 248, 240)
    if style.theme.dark and rng.random() < 0.5:
        paper = style.theme.panel
    ink = style.theme.ink if paper == style.theme.panel else (rng.randint(10, 70),) * 3
    inset = rng.choice((0, 0, m))
    canvas.box(inset, inset // 2, style.width - inset, style.height - inset // 2, fill=paper)
    x0, x1, y = m + inset, style.width - m - inset, float(m + inset // 2)
    body, bold = family.regular(size), family.bold(size)
    head = family.bold(size * rng.uniform(1.1, 1.6))
    pitch = body.line * rng.uniform(0.98, 1.35)
    cash = words.money(rng)
    sign = rng.random() < 0.3
    shop = words.company(rng)
    if head.width(shop) > x1 - x0:
        head = body
    centre = rng.random() < 0.7
    facts: list[tuple[str, str]] = []
    lines = [shop]

    def put(text: str, face: Face = body) -> bool:
        nonlocal y
        if face.width(text) > x1 - x0 or y + face.line > style.height - inset:
            return False
        canvas.text(
            (x0 + x1) / 2 if centre else x0, y, text, face, ink, "centre" if centre else "left"
        )
        y += max(pitch, face.line)
        lines.append(text)
        return True

    lines.clear()
    put(shop, head)
    if rng.random() < 0.6:
        street = words.address(rng)
        if put(street):
            facts.append(("address", street))
    for key, make in (
        ("Date", formats.date),
        ("Time", formats.clock),
        ("Receipt", formats.code),
        ("Cashier", lambda r: r.choice(words.FIRST)),
        ("Table", lambda r: str(r.randint(1, 40))),
    ):
        if rng.random() < 0.45:
            value = make(rng)
            if put(f"{key}: {value}"):
                facts.append((key.lower(), value))
    y += pitch * 0.3
    _rule(rng, canvas, x0, x1, y, ink)
    y += pitch * 0.4
    tail = 5 * pitch + inset
    room = int((style.height - inset // 2 - y - tail) / pitch)
    n = max(1, min(rng.randint(2, 14), room))
    items, total = [], 0.0
    with_quantity = rng.random() < 0.4
    for name in words.unique(rng, words.product, n):
        unit = round(rng.choice((rng.uniform(0.3, 9), rng.uniform(1, 60), rng.uniform(5, 400))), 2)
        quantity = rng.randint(1, 6) if with_quantity else 1
        amount = round(unit * quantity, 2)
        shown = cash(amount, sign)
        left = f"{quantity} x {name}" if with_quantity else name
        if (
            body.width(left) + body.width(shown) + 12 > x1 - x0
            or y + pitch > style.height - inset - 2 * pitch
        ):
            continue
        canvas.text(x0, y, left, body, ink)
        canvas.text(x1, y, shown, body, ink, "right")
        lines.append(f"{left} {shown}")
        items.append((name, quantity, shown, amount))
        total += amount
        y += pitch
    _rule(rng, canvas, x0, x1, y + pitch * 0.2, ink)
    y += pitch * 0.5
    word = rng.choice(TOTALS)
    extra = []
    if rng.random() < 0.4:
        share = rng.choice((7, 10, 19, 20, 21, 25))
        extra.append((f"VAT {share}%", cash(total * share / (100 + share), sign)))
    extra.append((word, cash(total, True)))
    if rng.random() < 0.4:
        paid = total + rng.choice((0, rng.uniform(0.1, 20)))
        extra.append((rng.choice(("Cash", "Card", "Visa")), cash(paid, sign)))
        if paid > total:
            extra.append(("Change", cash(paid - total, sign)))
    shown_total = ""
    for key, value in extra:
        face = bold if key == word else body
        if y + face.line > style.height - inset // 2 or face.width(key + value) + 8 > x1 - x0:
            continue
        canvas.text(x0, y, key, face, ink)
        canvas.text(x1, y, value, face, ink, "right")
        lines.append(f"{key} {value}")
        if key == word:
            shown_total = value
        else:
            facts.append((key.lower(), value))
        y += max(pitch, face.line)
    if rng.random() < 0.5:
        put(
            rng.choice(
                ("Thank you!", "Thank you for your visit", "Merci", "Vielen Dank!", "Gracias")
            )
        )
    return canvas.document(receipt_questions(rng, shop, items, shown_total, facts, lines))


def _rule(rng: random.Random, canvas: Canvas, x0: float, x1: float, y: float, ink: Colour) -> None:
    if rng.random() < 0.5:
        canvas.line([(x0, y), (x1, y)], ink)
        return
    step = rng.choice((4, 6, 8))
    for x in range(int(x0), int(x1), step):
        canvas.line([(x, y), (x + step // 2, y)], ink)
