"""Receipts as shops' tills print them: who, when, what, and five amounts near the word total."""

import random
from dataclasses import dataclass, field
from typing import Final

from pocket.content import formats, lexicon, shops, tills
from pocket.content.slips import CENTRE, LEFT, RIGHT, Cell, Slip
from pocket.document import Document, Question
from pocket.layouts.pillow import paper_strips
from pocket.layouts.pillow.till import Till
from pocket.layouts.pillow.till_items import put_items
from pocket.layouts.style import PageStyle
from pocket.questions.templates import ask, careless
from pocket.questions.tills import asked, missing

DATED: Final = 0.1  # of the tills that name the shop first print the date right below its name
OUTLET: Final = 0.14  # ... and name the outlet, or the company behind a brand, below the sums


def draw(rng: random.Random, style: PageStyle) -> Document:
    """A receipt on a strip of paper."""
    return paper_strips.on_paper(rng, style, _slip)


def _slip(rng: random.Random, items: int, budget: int) -> Slip:
    """A receipt of `items` items, at most."""
    cased = shops.case(rng)
    joint = rng.choice((": ", " : ", ":", " ", ". ", "... "))
    rule = rng.choice(("-", "-", "-", "=", "line", "line", "dots", "_", "*", "", "- ", ". "))
    till = Till(
        rng, Slip(), shops.notation(rng), cased, joint, rng.choice((0, 0, 1, 1, 2, 3)), rule
    )
    below = rng.random() < 0.12  # some shops name themselves below what was bought
    if not below:
        _head(till)
    _facts(till)
    put_items(till, items)
    _totals(till)
    if below:
        till.slip.gap(rng.choice((0.5, 1, 2)))
        _head(till)
    elif rng.random() < OUTLET:
        _outlet(till)
    _foot(till)
    slip = till.slip
    slip.questions += missing(rng, till.shown, slip.text)
    if len(slip.text.encode()) <= budget:
        slip.questions.append(ask(rng, "lines", slip.text, kind="transcribe"))
    return slip


def _head(till: Till) -> None:
    """The shop: a name, at times after other lines, and the lines below it."""
    rng, slip, cased = till.rng, till.slip, till.cased
    shop = shops.shop(rng, cased)
    align = LEFT if rng.random() < 0.22 else CENTRE
    if rng.random() < 0.14:
        slip.say(rng.choice(tills.WELCOMES), align)
    if rng.random() < 0.12:
        brand = cased(lexicon.word(rng)) + rng.choice(("", "", f" {lexicon.word(rng)}", "!"))
        slip.say(brand, align, tall=2.4, wide=2.4, bold=rng.random() < 0.5)
        till.note("brand", brand)
        slip.gap(0.4)
    sort = "legal" if "brand" in till.shown else "company"
    shape = rng.choice(
        ((1, 1), (1, 1), (1, 1), (2, 1), (2, 1), (2, 2), (1.5, 1.2), (1.3, 1.3), (1, 2))
    )
    first_address = rng.random() < 0.06  # a chain's slip: branch and street above the company
    lines = [*shop.address] if first_address else []
    for text in lines:
        slip.say(text, align)
    behind = shop.register if rng.random() < 0.25 else ""
    for i, text in enumerate(shop.lines):
        last = i == len(shop.lines) - 1
        slip.say(f"{text} {behind}".strip() if last else text, align, tall=shape[0],
                 wide=shape[1], bold=rng.random() < 0.4)  # fmt: skip
    till.note(sort, shop.name)
    till.note(sort, shop.name)
    if "date" not in till.shown and rng.random() < DATED:
        for label, value in _when(till):
            slip.say(till.fact(label, value), align)
    below = [("register", shop.register, shop.register)] if shop.register and not behind else []
    if not first_address:
        below += [("address", text, text) for text in shop.address]
    below += [*shop.contacts]
    if shop.tax:
        below.insert(rng.choice((len(below), 1 if below else 0)), ("tax_number", *shop.tax))
    joined = rng.random() < 0.2
    for what, text, value in below:
        if joined and what == "fax" and slip.lines[-1].cells and "phone" in till.shown:
            slip.lines[-1] = type(slip.lines[-1])(
                (Cell(f"{slip.lines[-1].text} {text}", 0.5 if align == CENTRE else 0, align),)
            )
        else:
            slip.say(text, align)
        if what not in ("address", "register"):
            till.note(what, value)
    if not first_address:
        till.note("address", ", ".join(t.rstrip(",.") for t in shop.address[:1]))


def _facts(till: Till) -> None:
    """The heading, when it was, and other facts."""
    rng, slip = till.rng, till.slip
    if rng.random() < 0.7:
        heading = rng.choice(tills.HEADINGS)
        heading = heading if rng.random() < 0.7 else heading.title()
        mark = rng.choice(("{}", "{}", "{}", "** {} **", "[ {} ]", "~ {} ~", "=== {} ==="))
        slip.gap(0.5)
        tall = rng.choice((1, 1, 2, 1.5))
        slip.say(
            mark.format(heading),
            rng.choice((CENTRE, CENTRE, LEFT)),
            tall=tall,
            bold=rng.random() < 0.3,
        )
        till.note("heading", heading)
        slip.gap(0.5)
    elif till.rule:
        till.line()
    pairs = [] if "date" in till.shown else _when(till)
    for what in rng.sample(list(tills.FACTS), rng.choice((0, 1, 2, 2, 3, 4, 5))):
        labels, make = tills.FACTS[what]
        label, value = rng.choice(labels.split("|")), make(rng)
        if what == "table" and rng.random() < 0.3:
            slip.say(f"{label}{till.joint}{value}", LEFT, tall=2, wide=rng.choice((1, 2)))
        else:
            pairs.insert(rng.randrange(len(pairs) + 1), (label, value))
        till.slip.questions.append(asked(rng, "labelled", value, f=what))
        till.shown.add(what)
    _print_facts(till, pairs)


def _when(till: Till) -> list[tuple[str, str]]:
    """The date and the time: under labels, or on a line without any."""
    rng = till.rng
    day = till.write.date(rng.randint(2009, 2031), rng.randint(1, 12), rng.randint(1, 31))
    hour = till.write.clock(rng.randint(0, 23), rng.randint(0, 59), rng.randint(0, 59))
    till.note("date", day)
    till.note("date", day)
    timed = rng.random() < 0.8
    if timed:
        till.note("time", hour)
    joined = f"{day}{rng.choice((' ', ' ', '  ', ' - '))}{hour}" if timed else day
    r = rng.random()
    if r < 0.3:
        extra = rng.choice(
            (
                "",
                "",
                f" T{rng.randint(1, 40)}",
                f" W{rng.randint(1, 9):02}",
                f" {formats.run(rng, '0123456789', 4, 6)}",
            )
        )
        return [("", joined + extra)]
    label = rng.choice(("Date", "DATE", "Date", "Trans Date", "Invoice Date", "Bill Date"))
    if r < 0.65 or not timed:
        return [(label, joined)]
    return [(label, day), (rng.choice(("Time", "TIME")), hour)]


def _print_facts(till: Till, pairs: list[tuple[str, str]]) -> None:
    """In one column, in two, or with the values in line."""
    rng, slip = till.rng, till.slip
    way = rng.choice(("runs", "column", "column", "ends", "two"))
    widest = max((len(label) for label, _ in pairs), default=0)
    place = min(0.45, (widest + 2) / 34)
    while pairs:
        label, value = pairs.pop(0)
        text = till.fact(label, value)
        if not label:
            slip.say(text, rng.choice((LEFT, CENTRE)))
        elif way == "two" and pairs and len(text) + len("".join(pairs[0])) < 34:
            other, figure = pairs.pop(0)
            slip.pair(text, till.fact(other, figure))
        elif way == "column":
            slip.put(
                Cell(label),
                Cell(till.joint.strip() + (" " if till.joint.strip() else "") + value, place),
            )
        elif way == "ends":
            slip.pair(f"{label}{till.joint}".rstrip(), value)
        else:
            slip.say(text, LEFT)


@dataclass
class Sums:
    """Amounts below the items: label, what it is, amount; and which of them is the total."""

    rows: list[tuple[str, str, float]] = field(default_factory=list)
    total: float = 0.0


def _sums(till: Till) -> Sums:
    """Subtotal, discount, tax, rounding, total and payment, as far as this till prints them."""
    rng, sums = till.rng, Sums()
    goods = round(sum(item[3] for item in till.items), 2)
    total, has = goods, lambda share: rng.random() < share  # noqa: E731
    if has(0.55):
        sums.rows.append((rng.choice(tills.SUB), "subtotal", goods))
    if has(0.15):
        off = round(goods * rng.choice((0.05, 0.1, 0.2)), 2)
        sums.rows.append((rng.choice(("Discount", "DISC", "Less discount")), "discount", -off))
        total -= off
    if has(0.15):
        extra = round(goods * 0.1, 2)
        sums.rows.append(
            (rng.choice(("Service Charge", "SVC CHG 10%", "Serv. Chg")), "service", extra)
        )
        total += extra
    share = rng.choice((6, 7, 10, 19, 20, 21, 8))
    if has(0.5):
        inside = has(0.5)
        tax = round(total * share / (100 + share) if inside else total * share / 100, 2)
        if inside and has(0.5):
            sums.rows.append((rng.choice(tills.BEFORE), "net", round(total - tax, 2)))
        sums.rows.append((rng.choice(tills.TAX).format(share), "tax", tax))
        total += 0 if inside else tax
    if has(0.12):
        tip = round(total * rng.choice((0.1, 0.15, 0.18)), 2)
        sums.rows.append((rng.choice(("Tip", "TIP", "Gratuity")), "tip", tip))
        total += tip
    total = round(total, 2)
    if has(0.4):
        even = round(round(total * 20) / 20, 2)
        if has(0.6):
            sums.rows.append(
                (
                    rng.choice(
                        (
                            "Total Sales",
                            "Total Amt",
                            "AMOUNT",
                            "Total (before rounding)",
                            "Total",
                        )
                    ),
                    "",
                    total,
                )
            )
        sums.rows.append((rng.choice(tills.ROUND), "rounding", round(even - total, 2)))
        total = even
    taken = {row[0].lower() for row in sums.rows}
    label = next(w for w in rng.sample(tills.TOTAL, len(tills.TOTAL)) if w.lower() not in taken)
    sums.rows.append((label, "total", total))
    sums.total = total
    return sums


def _totals(till: Till) -> None:
    """The sums, the payment, and at times a table of taxes."""
    rng, slip, sums = till.rng, till.slip, _sums(till)
    pieces = sum(item[1] for item in till.items)
    if rng.random() < 0.25:
        slip.pair(rng.choice(tills.PIECES) + rng.choice((" :", ":", "")), str(pieces))
        till.note("pieces", str(pieces))
    paid = _payment(till, sums.total)
    big = rng.choice(((1.0, 1.0), (1.0, 1.0), (2.0, 1.0), (2.0, 2.0), (1.3, 1.3), (1.6, 1.2)))
    right = rng.random() < 0.3  # labels beside the figures instead of at the left
    strong = rng.random() < 0.5
    for label, what, amount in (*sums.rows, *paid):
        main = what == "total"
        tall, wide = (
            big if main or (what in ("cash", "change") and big[0] > 1 and strong) else (1.0, 1.0)
        )
        _amount(till, (label, what, amount), right, tall=tall, wide=wide, bold=main and strong)
        if main and rng.random() < 0.3:
            till.line()
    if paid:
        sort = paid[0][0]
        if paid[0][1] == "card":
            till.note("method", sort)
        else:
            slip.questions.append(Question("yes_no", careless(rng, "Was it paid in cash?"), "yes"))
    if rng.random() < 0.3:
        _summary(till, sums.total)


def _payment(till: Till, total: float) -> list[tuple[str, str, float]]:
    rng = till.rng
    if rng.random() < 0.2:
        return []
    if rng.random() < 0.4:
        return [(rng.choice(tills.CARDS), "card", total)]
    step = rng.choice((1, 5, 10, 50, 100))
    given = max(total, float(-(-total // step) * step)) if rng.random() < 0.8 else total
    out = [(rng.choice(tills.CASH), "cash", given)]
    if rng.random() < 0.85:
        out.append((rng.choice(tills.CHANGE), "change", round(given - total, 2)))
    return out


def _amount(till: Till, row: tuple[str, str, float], right: bool, **style: float | bool) -> None:
    """One labelled amount, its currency printed or not; it is asked for as it is printed."""
    rng, slip, write = till.rng, till.slip, till.write
    label, what, amount = row
    printed, mark = write.bare(amount), ""
    if till.signs == 3 and write.sign:
        mark = write.sign
    elif (
        till.signs == 2 or (till.signs == 1 and what in ("total", "subtotal", "cash"))
    ) and write.sign:
        printed = write.full(amount)
    if till.joint.startswith("..") and label:
        label += "." * max(2, 16 - len(label))
    elif label and till.joint.strip() and rng.random() < 0.8:
        label += till.joint.rstrip()
    end = Cell(printed, 1.0, RIGHT)
    front = Cell(label, 0.7, RIGHT) if right and len(label) < 22 else Cell(label)
    cells = [front] if label else []
    if mark:
        cells.append(Cell(mark, 0.72, LEFT))
    slip.put(*cells, end, **style)
    if what:
        till.note(what, printed)
        if what == "total":
            till.note(what, printed)
            till.note(what, printed)


def _summary(till: Till, total: float) -> None:
    """The little table of taxes that many tills end with."""
    rng, slip, write = till.rng, till.slip, till.write
    share, code = rng.choice((0, 6, 7, 20)), rng.choice(("SR", "ZRL", "A", "S", "Z"))
    tax = round(total * share / (100 + share), 2)
    sign = f"({write.sign})" if write.sign and rng.random() < 0.5 else ""
    till.line()
    slip.put(
        Cell(rng.choice(("GST Summary", "Tax Code", "VAT"))),
        Cell(f"Amount{sign}", 0.68, RIGHT),
        Cell(f"Tax{sign}", 1, RIGHT),
    )
    slip.put(
        Cell(f"{code} @ {share}%"),
        Cell(write.bare(total - tax), 0.68, RIGHT),
        Cell(write.bare(tax), 1, RIGHT),
    )
    if rng.random() < 0.4:
        slip.put(
            Cell("Total"),
            Cell(write.bare(total - tax), 0.68, RIGHT),
            Cell(write.bare(tax), 1, RIGHT),
        )


def _foot(till: Till) -> None:
    """Thanks, conditions and the like."""
    rng, slip = till.rng, till.slip
    lines = rng.sample(tills.THANKS, rng.choice((0, 1, 1, 2, 3)))
    if lines:
        slip.gap(rng.choice((0.5, 1, 2)))
    for text in lines:
        slip.say(text, CENTRE if rng.random() < 0.85 else LEFT)
    if lines:
        till.note("footer", lines[-1])


def _outlet(till: Till) -> None:
    """A second name below the sums, which is not asked for as the company's."""
    rng, slip = till.rng, till.slip
    other = shops.shop(rng, till.cased)
    name = " ".join(other.lines)
    if rng.random() < 0.4:
        name += rng.choice((" @ ", "@", " - ", ", ")) + till.cased(lexicon.word(rng))
    lines = [name, *other.address[-1:]] if rng.random() < 0.4 else [name]
    if other.tax and rng.random() < 0.5 and "tax_number" not in till.shown:
        lines.append(other.tax[0])
        till.note("tax_number", other.tax[1])
    slip.gap(rng.choice((0, 0.5, 1)))
    for text in lines:
        slip.say(text)
