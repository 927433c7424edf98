"""Purchased items, in one of the styles of tills."""

import random

from pocket.content import formats, words
from pocket.content.slips import LEFT, RIGHT, Cell
from pocket.layouts.pillow.till import Till
from pocket.questions.templates import yes_no


def _goods(till: Till, n: int) -> None:
    """A purchased item."""
    rng = till.rng
    top = rng.choice((9, 30, 120, 900))
    many = rng.random() < 0.5
    names = words.unique(rng, lambda r: _thing(r), max(1, n))
    for name in names:
        each = round(
            rng.choice(
                (rng.uniform(0.2, top), rng.randint(1, max(2, top)), rng.randint(1, top * 2) / 2)
            ),
            2,
        )
        count = rng.choice((1, 1, 1, 2, 2, 3, 4, 6, 10, rng.randint(2, 40))) if many else 1
        till.items.append((till.cased(name), count, each, round(each * count, 2)))


def _thing(rng: random.Random) -> str:
    """An article as tills abbreviate it."""
    r = rng.random()
    text = words.product(rng) if r < 0.55 else words.some(rng, 2, 3)
    if rng.random() < 0.25:
        text += (
            f" {rng.randint(1, 900)}{rng.choice(('G', 'ML', 'L', 'KG', 'PCS', 'MM', 'CM', 'W'))}"
        )
    if rng.random() < 0.1:
        text = f"{formats.run(rng, formats.LETTERS, 1, 2)}{rng.randint(1, 99):02} {text}"
    return text[:30].strip()


def put_items(till: Till, n: int) -> None:
    """The items, in one of the ways of tills."""
    rng, slip = till.rng, till.slip
    _goods(till, n)
    way = rng.choice((_one_line, _one_line, _counted, _two_lines, _two_lines, _columns, _columns))
    till.line()
    way(till)
    till.line()
    names = [name for name, *_ in till.items]
    for name, count, each, amount in rng.sample(till.items, min(4, len(till.items))):
        till.note("price", till.amount(amount), f=name if rng.random() < 0.6 else name.lower())
        if count > 1 and way is not _one_line:
            till.note("quantity", str(count), f=name)
            if way in (_two_lines, _columns) and each != amount:
                bare = till.write.bare(each)
                till.note("unit", bare, f=name)
    till.note("first", names[0])
    if len(names) > 1:
        till.note("items", str(len(names)))
        till.note("last", names[-1])
        order = sorted(till.items, key=lambda item: item[3])
        if order[-1][3] > order[-2][3]:
            till.note("dearest", order[-1][0])
        if order[0][3] < order[1][3]:
            till.note("cheapest", order[0][0])
    slip.questions.append(yes_no(rng, "present", True, f=rng.choice(names)))


def _one_line(till: Till) -> None:
    tail = till.rng.choice(("", "", "", " S", " T", " A", " SR", " *"))
    for name, _, _, amount in till.items:
        till.slip.put(Cell(name), Cell(till.amount(amount), 0.93 if tail else 1, RIGHT),
                      *((Cell(tail.strip(), 1, RIGHT),) if tail else ()))  # fmt: skip


def _counted(till: Till) -> None:
    mark = till.rng.choice(("{}", "{} x", "{}x", "{}"))
    if till.rng.random() < 0.4:
        till.slip.put(Cell("QTY"), Cell("ITEM", 0.14), Cell("AMT", 1, RIGHT))
        till.line()
    for name, count, _, amount in till.items:
        till.slip.put(
            Cell(mark.format(count)), Cell(name, 0.14), Cell(till.amount(amount), 1, RIGHT)
        )


def _two_lines(till: Till) -> None:
    """A name; below it, how many at which price."""
    rng, slip, write = till.rng, till.slip, till.write
    times, coded = rng.choice((" X ", " x ", " @ ", " * ")), rng.random() < 0.4
    inset = rng.choice((0.0, 0.06, 0.3))
    for name, count, each, amount in till.items:
        slip.say(name, LEFT)
        sum_ = Cell(till.amount(amount), 1, RIGHT)
        code = formats.run(rng, "0123456789", 6, 13)
        middle = f"{count}{times}{write.bare(each)}"
        cells = (Cell(code), Cell(middle, 0.78, RIGHT)) if coded else (Cell(middle, inset),)
        slip.put(*cells, sum_)


def _columns(till: Till) -> None:
    """A table of quantity, price and amount, the name in front or on a line above."""
    rng, slip, write = till.rng, till.slip, till.write
    sign = f"({write.sign})" if write.sign and till.signs != 2 and rng.random() < 0.5 else ""
    above = rng.random() < 0.6
    heads = (rng.choice(("Item", "ITEM", "Article", "Description", "GOODS")),
    rng.choice(("Qty", "QTY")),
             rng.choice(("Price", "EACH", "U/P", "@")), rng.choice(("Amount", "AMT", "Total",
             "Amt")) + sign)  # fmt: skip
    stops = (0.0, 0.34, 0.66, 1.0) if above else (0.0, 0.56, 0.78, 1.0)
    slip.put(Cell(heads[0]), *(Cell(h, s, RIGHT) for h, s in zip(heads[1:], stops[1:],
    strict=True)),
             bold=rng.random() < 0.3)  # fmt: skip
    till.line()
    for name, count, each, amount in till.items:
        figures = [Cell(text, s, RIGHT) for text, s in
                   zip((str(count), write.bare(each), till.amount(amount)), stops[1:],
                   strict=True)]  # fmt: skip
        if above:
            slip.say(name, LEFT)
            slip.put(
                *((Cell(formats.run(rng, "0123456789", 4, 8)),) if rng.random() < 0.4 else ()),
                *figures,
            )
        else:
            cut = name[:17].rfind(" ") if len(name) > 16 and " " in name[:17] else len(name)
            slip.put(Cell(name[:cut]), *figures)
            if cut < len(name):
                slip.say(name[cut + 1 :], LEFT)
