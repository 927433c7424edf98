"""Shop receipts and invoices with line items and a total that adds up."""

from __future__ import annotations

import random

from .. import words
from ..document import Canvas, Colour, Document, Question
from ..fonts import Face, pick_family
from ..questions import absent, ask, weigh_prices, yes_no
from .look import Look

TOTALS = ("TOTAL", "Total", "Total due", "Amount due", "Grand total", "Summe", "Total TTC", "Razem")


def draw(rng: random.Random, look: Look) -> Document:
    """A till receipt: shop, date, items with prices, tax, total, how it was paid."""
    family = pick_family(rng, look.split, western=True, mono=rng.random() < 0.6)
    size, m = look.size, look.margin + 4
    desk = look.theme.page
    canvas = look.canvas(desk)
    paper = (255, 255, 255) if rng.random() < 0.6 else (250, 248, 240)
    if look.theme.dark and rng.random() < 0.5:
        paper = look.theme.panel
    ink = look.theme.ink if paper == look.theme.panel else (rng.randint(10, 70),) * 3
    inset = rng.choice((0, 0, m))
    canvas.box(inset, inset // 2, look.width - inset, look.height - inset // 2, fill=paper)
    x0, x1, y = m + inset, look.width - m - inset, float(m + inset // 2)
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
        if face.width(text) > x1 - x0 or y + face.line > look.height - inset:
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
        ("Date", words.date),
        ("Time", words.clock),
        ("Receipt", words.code),
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
    room = int((look.height - inset // 2 - y - tail) / pitch)
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
            or y + pitch > look.height - inset - 2 * pitch
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
        if y + face.line > look.height - inset // 2 or face.width(key + value) + 8 > x1 - x0:
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
    return canvas.document(questions(rng, shop, items, shown_total, facts, lines))


def _rule(rng: random.Random, canvas: Canvas, x0: float, x1: float, y: float, ink: Colour) -> None:
    if rng.random() < 0.5:
        canvas.line([(x0, y), (x1, y)], ink)
        return
    step = rng.choice((4, 6, 8))
    for x in range(int(x0), int(x1), step):
        canvas.line([(x, y), (x + step // 2, y)], ink)


def questions(
    rng: random.Random,
    shop: str,
    items: list[tuple[str, int, str, float]],
    total: str,
    facts: list[tuple[str, str]],
    lines: list[str],
) -> list[Question]:
    """Questions about a receipt whose items are (name, quantity, amount as written, amount)."""
    out = [ask(rng, "page", "\n".join(lines), kind="transcribe")]
    if lines and lines[0] == shop:
        out.append(
            Question(
                "title",
                rng.choice(
                    (
                        "Which shop is it?",
                        "Who issued the receipt?",
                        "what's the store called",
                        "What is the name of the shop?",
                        "shop name?",
                        "What is written at the top?",
                    )
                ),
                shop,
            )
        )
    if total:
        out.append(ask(rng, "total", total))
    for name, quantity, shown, _ in rng.sample(items, min(3, len(items))):
        out.append(
            ask(rng, "price", shown, f=name if rng.random() < 0.5 else name.lower(), kind="value")
        )
        if quantity > 1:
            out.append(
                Question(
                    "value",
                    rng.choice((f"How many {name} were bought?", f"quantity of {name}?")),
                    str(quantity),
                )
            )
    for key, value in facts:
        out.append(ask(rng, "field", value, f=key))
    if len(items) > 1:
        ranked = sorted(items, key=lambda item: item[3])
        if ranked[-1][3] > ranked[-2][3]:
            out.append(
                Question(
                    "highest",
                    rng.choice(
                        (
                            "Which item costs the most?",
                            "most expensive item?",
                            "What is the dearest item?",
                        )
                    ),
                    ranked[-1][0],
                )
            )
        if ranked[0][3] < ranked[1][3]:
            out.append(
                Question(
                    "lowest",
                    rng.choice(
                        ("Which item is the cheapest?", "cheapest item?", "What costs the least?")
                    ),
                    ranked[0][0],
                )
            )
        out.append(
            ask(rng, "count", str(len(items)), n=rng.choice(("items", "products", "positions")))
        )
    out += weigh_prices(rng, [(name, shown, amount) for name, _, shown, amount in items])
    if items:
        out.append(yes_no(rng, "present", True, f=rng.choice(items)[0]))
    other = words.product(rng)
    if not any(other.lower() in line.lower() for line in lines):
        out.append(yes_no(rng, "present", False, f=other))
        out.append(absent(rng, "price", f=other.lower()))
    return out
