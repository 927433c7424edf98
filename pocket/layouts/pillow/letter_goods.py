"""Goods on a letter: rows with amounts, their sum, and what is to be paid."""

from typing import Final

from pocket.content import shops, words
from pocket.layouts.fonts import Face
from pocket.layouts.pillow.letter import INK, Letter

SUMS: Final = (
    "Amount due|To pay|Sum|Due now|Balance due|Pay this amount|Grand total|Payable"
).split("|")
UNITS: Final = ("", " x", " pcs", " EA", " Stk", "x", " ST", " units")  # behind a count
SUMMED: Final = 0.3  # share of those with goods that say what is to be paid in a box above them


def goods(letter: Letter) -> None:
    """Rows of goods, their sum, and amounts around it that are not the total."""
    rng, face, write = letter.rng, letter.face(), shops.notation(letter.rng)
    names = words.unique(rng, lambda r: words.product(r)[:24].strip(), rng.randint(1, 9))
    sums, ruled = 0.0, rng.random() < 0.5
    unit, counted = rng.choice(UNITS), rng.choice(("", "", "before", "behind"))
    spot, summed = letter.top, rng.random() < SUMMED
    small, big = letter.face(0.8), letter.face(rng.uniform(1.0, 1.5), True)
    if summed:
        letter.top += small.line + big.line + 6 + face.line * 0.8
    for name in names:
        if letter.top + face.line * 7 > letter.foot:
            break
        price = round(rng.uniform(0.5, 900), 2)
        sums += price
        count = str(rng.randint(1, 60))
        much = f"{count}{unit}"
        inset = face.width(f"60{UNITS[-1]}0") if counted == "before" else 0.0
        letter.put(letter.left + inset, letter.top, name, face)
        letter.put(letter.right, letter.top, write.bare(price), face, "right")
        before = letter.left if inset else letter.right - face.width(f"0{write.bare(9999)}0")
        beside = inset or before - face.width(f"{name}00{much}") > letter.left
        if counted and beside and letter.put(before, letter.top, much, face,
                                             "left" if inset else "right"):  # fmt: skip
            letter.ask("value", count, f"How many {name} are there?", f"quantity of {name}?",
                       f"{name}: how many?", f"How many {name} were delivered?")  # fmt: skip
        letter.ask("value", write.bare(price), f"How much is {name}?", f"price of {name}?",
                   f"What does {name} cost?")  # fmt: skip
        letter.top += face.line * 1.15
        if ruled:
            letter.canvas.line([(letter.left, letter.top - 2), (letter.right, letter.top - 2)], INK)
    if not sums:
        return
    rows = [("Total", "total", sums)]
    if rng.random() < 0.6:
        tax = round(sums * rng.choice((0.07, 0.1, 0.19, 0.2)), 2)
        rows = [("Net", "net amount", sums), ("Tax", "tax", tax), ("Total", "total", sums + tax)]
    if not summed and rng.random() < 0.5:
        paid = round(rows[-1][2] * rng.uniform(0.2, 0.8), 2)
        rows += [("Paid", "amount paid", paid), ("Still due", "balance", rows[-1][2] - paid)]
    shown = write.bare if summed and rng.random() < 0.5 else write.full
    if summed:
        _summed(letter, spot, shown(rows[-1][2]), (small, big))
        if rng.random() < 0.5:
            rows.pop()  # the total is in the box alone
    for label, what, amount in rows:
        text = shown(amount) if what == "total" else write.bare(amount)
        bold = letter.face(1.0, what == "total")
        letter.put(letter.left + (letter.right - letter.left) * 0.5, letter.top, label, bold)
        letter.put(letter.right, letter.top, text, bold, "right")
        letter.ask("total" if what == "total" else "field", text, f"What is the {what}?",
                   f"How much is the {what}?", f"{what}?")  # fmt: skip
        letter.top += face.line * 1.1


def _summed(letter: Letter, y: float, text: str, faces: tuple[Face, Face]) -> None:
    """The amount to pay, large below a small label, in a box at the left or the right."""
    rng, label, (small, big) = letter.rng, letter.rng.choice(SUMS), faces
    wide = max(small.width(label), big.width(text)) + letter.face().size * rng.uniform(1, 6)
    left = rng.choice((letter.left, letter.right - wide))
    foot = y + small.line + big.line + 6
    letter.canvas.frame((left, y, left + wide, foot), INK, 0, rng.choice((1, 2)))
    letter.put(left + 4, y + 2, rng.choice((label, label.upper())), small)
    letter.put(left + wide - 4, y + small.line + 2, text, big, "right")
    letter.ask("total", text, "What is the total?", "How much is to be paid?", f"{label}?",
               "What is the amount to pay?", "amount to be paid")  # fmt: skip
