"""Shop receipts and invoices with line items and a total that adds up."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pocket.content import formats, words
from pocket.content.colours import Colour
from pocket.content.words import TOTALS
from pocket.document import Document
from pocket.layouts.fonts import Face, pick_family
from pocket.layouts.pillow.canvas import Canvas, blank_page
from pocket.layouts.style import PageStyle
from pocket.questions.prices import receipt_questions

FACTS: Final[dict[str, Callable[[random.Random], str]]] = {
    "Date": formats.date,
    "Time": formats.clock,
    "Receipt": formats.code,
    "Cashier": lambda r: r.choice(words.FIRST),
    "Table": lambda r: str(r.randint(1, 40)),
}
THANKS: Final = ("Thank you!", "Thank you for your visit", "Merci", "Vielen Dank!", "Gracias")


@dataclass
class Till:
    """A receipt that is being printed: where the next line goes, and what was printed so far."""

    rng: random.Random
    canvas: Canvas
    sides: tuple[float, float]  # left and right end of its lines
    y: float
    bottom: float
    inset: int  # from the page's edge to the paper's
    ink: Colour
    body: Face
    bold: Face
    pitch: float
    cash: words.Money
    sign: bool  # before every amount
    centre: bool = True
    total: float = 0.0
    lines: list[str] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)

    def wide(self, *texts: float) -> bool:
        """Whether widths and gaps are more than there is room for."""
        return sum(texts) > self.sides[1] - self.sides[0]

    def put(self, text: str, face: Face) -> bool:
        """Print a line of its own, if it fits."""
        if self.wide(face.width(text)) or self.y + face.line > self.bottom - self.inset:
            return False
        x, align = (sum(self.sides) / 2, "centre") if self.centre else (self.sides[0], "left")
        self.canvas.text(x, self.y, text, face, self.ink, align)
        self.y += max(self.pitch, face.line)
        self.lines.append(text)
        return True

    def pair(self, left: str, right: str, face: Face) -> None:
        """Print a text and, at the right, its amount."""
        self.canvas.text(self.sides[0], self.y, left, face, self.ink)
        self.canvas.text(self.sides[1], self.y, right, face, self.ink, "right")
        self.lines.append(f"{left} {right}")

    def rule(self, below: float) -> None:
        """A line across, whole or in dashes, a share of a pitch `below` the last line."""
        y, (x0, x1) = self.y + self.pitch * below, self.sides
        if self.rng.random() < 0.5:
            self.canvas.line([(x0, y), (x1, y)], self.ink)
            return
        step = self.rng.choice((4, 6, 8))
        for x in range(int(x0), int(x1), step):
            self.canvas.line([(x, y), (x + step // 2, y)], self.ink)


Item = tuple[str, int, str, float]  # name, quantity, amount as written, amount


def draw(rng: random.Random, style: PageStyle) -> Document:
    """A till receipt: shop, date, items with prices, tax, total, how it was paid."""
    till, head = _paper(rng, style)
    shop = words.company(rng)
    head = till.body if till.wide(head.width(shop)) else head
    till.centre = rng.random() < 0.7
    till.put(shop, head)
    _facts(till)
    till.y += till.pitch * 0.3
    till.rule(0)
    till.y += till.pitch * 0.4
    items = _items(till)
    till.rule(0.2)
    till.y += till.pitch * 0.5
    total = _totals(till)
    if rng.random() < 0.5:
        till.put(rng.choice(THANKS), till.body)
    asked = receipt_questions(rng, shop, items, total, till.facts, till.lines)
    return till.canvas.document(asked)


def _paper(rng: random.Random, style: PageStyle) -> tuple[Till, Face]:
    """An empty receipt on its desk, and the face of its head."""
    family = pick_family(rng, style.split, western=True, mono=rng.random() < 0.6)
    size, m = style.size, style.margin + 4
    canvas = blank_page(style)
    paper = (255, 255, 255) if rng.random() < 0.6 else (250, 248, 240)
    if style.theme.dark and rng.random() < 0.5:
        paper = style.theme.panel
    ink = style.theme.ink if paper == style.theme.panel else (rng.randint(10, 70),) * 3
    inset = rng.choice((0, 0, m))
    canvas.box(inset, inset // 2, style.width - inset, style.height - inset // 2, fill=paper)
    sides, y = (m + inset, style.width - m - inset), float(m + inset // 2)
    body, bold = family.regular(size), family.bold(size)
    head = family.bold(size * rng.uniform(1.1, 1.6))
    pitch, cash = body.line * rng.uniform(0.98, 1.35), words.money(rng)
    sign = rng.random() < 0.3
    till = Till(rng, canvas, sides, y, style.height, inset, ink, body, bold, pitch, cash, sign)
    return till, head


def _facts(till: Till) -> None:
    """The shop, its place and the time of purchase."""
    rng = till.rng
    if rng.random() < 0.6:
        street = words.address(rng)
        if till.put(street, till.body):
            till.facts.append(("address", street))
    for key, make in FACTS.items():
        if rng.random() < 0.45:
            value = make(rng)
            if till.put(f"{key}: {value}", till.body):
                till.facts.append((key.lower(), value))


def _items(till: Till) -> list[Item]:
    """The purchased items, as far as they fit."""
    rng, body = till.rng, till.body
    tail = 5 * till.pitch + till.inset
    room = int((till.bottom - till.inset // 2 - till.y - tail) / till.pitch)
    n = max(1, min(rng.randint(2, 14), room))
    items, with_quantity = list[Item](), rng.random() < 0.4
    for name in words.unique(rng, words.product, n):
        unit = round(rng.choice((rng.uniform(0.3, 9), rng.uniform(1, 60), rng.uniform(5, 400))), 2)
        quantity = rng.randint(1, 6) if with_quantity else 1
        amount = round(unit * quantity, 2)
        shown = till.cash(amount, till.sign)
        left = f"{quantity} x {name}" if with_quantity else name
        below = till.y + till.pitch > till.bottom - till.inset - 2 * till.pitch
        if below or till.wide(body.width(left), body.width(shown), 12):
            continue
        till.pair(left, shown, body)
        items.append((name, quantity, shown, amount))
        till.total += amount
        till.y += till.pitch
    return items


def _totals(till: Till) -> str:
    """Tax, total and how it was paid, as far as they fit; the total as written."""
    rng, cash, sign, total = till.rng, till.cash, till.sign, till.total
    word, extra = rng.choice(TOTALS), list[tuple[str, str]]()
    if rng.random() < 0.4:
        share = rng.choice((7, 10, 19, 20, 21, 25))
        extra.append((f"VAT {share}%", cash(total * share / (100 + share), sign)))
    extra.append((word, cash(total, True)))
    if rng.random() < 0.4:
        paid = total + rng.choice((0, rng.uniform(0.1, 20)))
        extra.append((rng.choice(("Cash", "Card", "Visa")), cash(paid, sign)))
        if paid > total:
            extra.append(("Change", cash(paid - total, sign)))
    written = ""
    for key, value in extra:
        face = till.bold if key == word else till.body
        below = till.y + face.line > till.bottom - till.inset // 2
        if below or till.wide(face.width(key + value), 8):
            continue
        till.pair(key, value, face)
        if key == word:
            written = value
        else:
            till.facts.append((key.lower(), value))
        till.y += max(till.pitch, face.line)
    return written
