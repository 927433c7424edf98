"""Vouchers: ruled boxes with small labels above their values, a list, a sum at the head.

Never trained on: with type and printers that training does not have either, they measure how far
what was learned of receipts carries.
"""

import random
from typing import Final

from pocket.content import formats, shops, words
from pocket.document import Document, Question
from pocket.layouts.pillow.canvas import Canvas, blank_page
from pocket.layouts.pillow.paper_strips import LEAST, printer_and_type
from pocket.layouts.pillow.slips import Type
from pocket.layouts.stretched import stretched
from pocket.layouts.style import PageStyle
from pocket.questions.templates import ABSENT, phrased

INK = (0, 0, 0)
BOXES = {
    "voucher number": ("VOUCHER NO", "No.", "DOCUMENT"),
    "date": ("DATE", "ISSUED ON", "DATED"),
    "customer": ("CUSTOMER", "DELIVERED TO", "BILL TO"),
    "order number": ("YOUR ORDER", "ORDER NO", "P.O."),
    "driver": ("DRIVER", "CARRIER", "HANDLED BY"),
    "weight": ("GROSS WEIGHT", "WEIGHT"),
    "account": ("ACCOUNT", "A/C NO"),
    "terms": ("TERMS", "PAYABLE"),
}
KINDS = (
    "DELIVERY NOTE|CREDIT NOTE|PACKING SLIP|PAYMENT ADVICE|WORK ORDER|REPAIR TICKET|DEPOSIT SLIP"
)
ASKED: Final[dict[str, tuple[str, ...]]] = {
    "price": ("How much is {name}?", "What does {name} cost?", "price of {name}"),
    "issuer": ("Which company is it?", "Who issued it?", "What is the name of the company?"),
}  # fmt: skip


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One voucher over the whole sheet."""
    printer, type_ = printer_and_type(rng, style.split)
    canvas = blank_page(style, (255, 255, 255))
    size = max(LEAST + 0.6, min(style.width / 36, style.height / 40, 19.0))
    document = canvas.document(_voucher(rng, style, canvas, type_, size))
    document.printer = printer
    return document


def _text(
    canvas: Canvas, at: tuple[float, float], text: str, type_: Type, size: float, right: bool
) -> float:
    face = stretched(type_.slug, size, type_.wide)
    canvas.text(at[0], at[1], text, face, INK, "right" if right else "left")
    return face.width(text)


def _voucher(
    rng: random.Random, style: PageStyle, canvas: Canvas, type_: Type, size: float
) -> list[Question]:
    write, shop = shops.notation(rng), shops.shop(rng, str.upper)
    out, m = list[Question](), style.width * 0.05
    right, y = style.width - m, style.height * 0.03
    say = lambda kind, answer, *forms, **slots: out.append(  # noqa: E731
        phrased(rng, kind, answer, *forms, **slots)
    )
    goods = _goods(rng, max(1, min(12, int((style.height - y) / size / 1.5) - 22)))
    total = round(sum(price for _, _, price in goods), 2)
    kind, sum_ = rng.choice(KINDS.split("|")), write.bare(total)
    _text(canvas, (m, y), kind, type_, size * 1.25, False)
    canvas.frame((right - size * 11, y - 3, right, y + size * 3.1), INK, 0, 2)
    _text(canvas, (right - size * 10.6, y), "PLEASE PAY", type_, size * 0.85, False)
    _text(canvas, (right - size * 0.5, y + size * 1.3), sum_, type_, size * 1.2, True)
    say("total", sum_, "What is the total?", "How much is to be paid?", "amount to pay?")
    say("find", kind, "What kind of document is it?", "What is the heading?")
    y += size * 4
    facts = {"date": write.date(rng.randint(2011, 2030), rng.randint(1, 12), rng.randint(1, 28))}
    makes = {
        "customer": words.person,
        "driver": words.person,
        "weight": lambda r: f"{r.randint(1, 900)} kg",
    }
    for what in rng.sample([b for b in BOXES if b != "date"], 3):
        facts[what] = makes.get(what, lambda r: formats.run(r, "0123456789", 4, 8))(rng)
    wide = (right - m) / 2
    for i, (what, value) in enumerate(facts.items()):
        x, top = m + (i % 2) * wide, y + (i // 2) * size * 2.9
        canvas.frame((x, top, x + wide, top + size * 2.9), INK, 0, 1)
        _text(
            canvas, (x + 4, top + 1), rng.choice(BOXES[what]), type_, max(LEAST, size * 0.7), False
        )
        _text(canvas, (x + size, top + size * 1.2), value, type_, size, False)
        say("field", value, f"What is the {what}?", f"{what}?", f"Which {what} is it?")
    y += (len(facts) + 1) // 2 * size * 2.9 + size
    for name, count, price in goods:
        if y + size * 5.5 > style.height:
            break
        _text(canvas, (m, y), f"{count} PC", type_, size, False)
        _text(canvas, (m + size * 4, y), name, type_, size, False)
        _text(canvas, (right, y), write.bare(price), type_, size, True)
        say("value", write.bare(price), *ASKED["price"], name=name)
        say("value", str(count), f"How many {name} are there?", f"quantity of {name}?")
        y += size * 1.45
    canvas.line([(m, y + 3), (right, y + 3)], INK, 2)
    foot = max(y + size * 1.2, style.height - size * rng.uniform(4.2, 7))
    _text(canvas, (m, foot), shop.name, type_, size * 1.1, False)
    _text(canvas, (m, foot + size * 1.5), ", ".join(shop.address)[:60], type_, size * 0.9, False)
    say("title", shop.name, *ASKED["issuer"])
    out.append(
        Question("absent", rng.choice(("How much is the tip?", "What is the discount?")), ABSENT)
    )
    return out


def _goods(rng: random.Random, n: int) -> list[tuple[str, int, float]]:
    """Names, counts and amounts."""
    names = words.unique(rng, lambda r: words.some(r, 1, 2).upper()[:22].strip(), rng.randint(1, n))
    return [(name, rng.randint(1, 40), round(rng.uniform(1, 900), 2)) for name in names]
