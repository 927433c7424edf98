"""Questions about things with prices: receipts, menus, price lists."""

import random
from typing import Final

from pocket.content import words
from pocket.document import Question
from pocket.questions.templates import absent, ask, worded, yes_no

IN_WHICH: Final = (
    "In which section is {f}?", "Under which heading is {f} listed?", "which section has {f}",
)  # fmt: skip
UNDER: Final = (
    "What is listed under {f}?", "List the items in {f}.", "everything in {f}",
)  # fmt: skip
DEAREST: Final = ("What is the most expensive item?", "dearest item?", "What costs the most?")
CHEAPEST: Final = ("What is the cheapest item?", "cheapest?", "What costs the least?")
DEAREST_UNDER: Final = ("What is the dearest item under {f}?", "What costs the most in {f}?")
CHEAPEST_UNDER: Final = ("What is the cheapest item under {f}?", "cheapest in {f}?")
SHOPS: Final = (
    "Which shop is it?", "Who issued the receipt?", "what's the store called",
    "What is the name of the shop?", "shop name?", "What is written at the top?",
)  # fmt: skip
BOUGHT: Final = ("How many {f} were bought?", "quantity of {f}?")
MOST: Final = (
    "Which item costs the most?", "most expensive item?", "What is the dearest item?",
)  # fmt: skip
LEAST: Final = (
    "Which item is the cheapest?", "cheapest item?", "What costs the least?",
)  # fmt: skip

Menu = list[tuple[str, list[tuple[str, str, float]]]]  # sections of (name, price, number)
Priced = tuple[str, str, float]  # name, price as written, number


def weigh_prices(rng: random.Random, items: list[Priced], noun: str = "item") -> list[Question]:
    """Questions that compare prices; items are (name, price as written, number)."""
    out, n = list[Question](), len(items)
    order = sorted(items, key=lambda item: item[2])
    if n < 2:
        return out
    if order[-1][2] > order[-2][2]:
        out.append(ask(rng, "top_price", order[-1][1], kind="highest", n=noun))
    if order[0][2] < order[1][2]:
        out.append(ask(rng, "bottom_price", order[0][1], kind="lowest", n=noun))
        out.append(ask(rng, "least_price", order[0][0], kind="lowest", n=noun))
    if n > 2 and order[-3][2] < order[-2][2] < order[-1][2]:
        out.append(ask(rng, "second_price", order[-2][0], kind="highest", n=noun))
        middle = rng.choice(order[1:-1])
        over = str(sum(item[2] > middle[2] for item in items))
        out.append(ask(rng, "over", over, kind="count", v=middle[1], n=noun))
    a, b = rng.sample(items, 2)
    if a[2] != b[2]:
        out.append(yes_no(rng, "dearer", a[2] > b[2], f=a[0], g=b[0]))
    return out


def ends(
    rng: random.Random, items: list[Priced], most: tuple[str, ...], least: tuple[str, ...]
) -> list[Question]:
    """Which item costs the most and which the least, where one alone does."""
    order, out = sorted(items, key=lambda item: item[2]), list[Question]()
    if len(order) > 1 and order[-1][2] > order[-2][2]:
        out.append(worded(rng, "highest", order[-1][0], *most))
    if len(order) > 1 and order[0][2] < order[1][2]:
        out.append(worded(rng, "lowest", order[0][0], *least))
    return out


def _price(rng: random.Random, name: str, shown: str) -> Question:
    return ask(rng, "price", shown, f=name if rng.random() < 0.5 else name.lower(), kind="value")


def menu_questions(rng: random.Random, title: str, menu: Menu) -> list[Question]:
    """Questions about a price list."""
    every = [(s, *item) for s, items in menu for item in items]
    out = [ask(rng, "title", title)] if title else [absent(rng, "title")]
    if not every:
        return out
    out += [_price(rng, item[1], item[2]) for item in rng.sample(every, min(5, len(every)))]
    section, name, _, _ = rng.choice(every)
    out.append(worded(rng, "reverse", section, *IN_WHICH, f=name))
    section, items = rng.choice(menu)
    out.append(worded(rng, "list", ", ".join(i[0] for i in items), *UNDER, f=section))
    out.append(Question("count", f"How many items are under {section}?", str(len(items))))
    out.append(ask(rng, "count", str(len(menu)), n=rng.choice(("sections", "headings"))))
    priced = [item[1:] for item in every]
    out += ends(rng, priced, DEAREST, CHEAPEST) + weigh_prices(rng, priced)
    out += _ends_of_a_section(rng, menu)
    out.append(yes_no(rng, "present", True, f=rng.choice(every)[1]))
    other = words.product(rng)
    if not words.overlaps(other, (item[1] for item in every)):
        out.append(yes_no(rng, "present", False, f=other))
        out.append(absent(rng, "price", f=other))
    text = "\n\n".join(
        f"## {s}\n" + "\n".join(f"- {n} {p}" for n, p, _ in items) for s, items in menu
    )
    out.append(ask(rng, "page", (f"# {title}\n\n" if title else "") + text, kind="transcribe"))
    return out


def _ends_of_a_section(rng: random.Random, menu: Menu) -> list[Question]:
    """The cheapest and the dearest item under one heading."""
    section, items = rng.choice(menu)
    order, out = sorted(items, key=lambda item: item[2]), list[Question]()
    if len(order) > 1 and order[0][2] < order[1][2]:
        out.append(worded(rng, "lowest", order[0][0], *CHEAPEST_UNDER, f=section))
    if len(order) > 1 and order[-2][2] < order[-1][2]:
        out.append(worded(rng, "highest", order[-1][0], *DEAREST_UNDER, f=section))
    return out


def receipt_questions(
    rng: random.Random,
    shop: str,
    items: list[tuple[str, int, str, float]],
    total: str,
    facts: list[tuple[str, str]],
    lines: list[str],
) -> list[Question]:
    """Questions about a receipt.

    Args:
        rng: Says which, and in which words.
        shop: Its name.
        items: What was bought: name, quantity, amount as written, amount.
        total: As written, or nothing where it is not.
        facts: Other things that are written, each with what it is called.
        lines: All that is written, line by line.
    """
    out = [ask(rng, "page", "\n".join(lines), kind="transcribe")]
    if lines and lines[0] == shop:
        out.append(worded(rng, "title", shop, *SHOPS))
    if total:
        out.append(ask(rng, "total", total))
    for name, quantity, shown, _ in rng.sample(items, min(3, len(items))):
        out.append(_price(rng, name, shown))
        if quantity > 1:
            out.append(worded(rng, "value", str(quantity), *BOUGHT, f=name))
    out += [ask(rng, "field", value, f=key) for key, value in facts]
    priced = [(name, shown, amount) for name, _, shown, amount in items]
    if len(items) > 1:
        out += ends(rng, priced, MOST, LEAST)
        called = rng.choice(("items", "products", "positions"))
        out.append(ask(rng, "count", str(len(items)), n=called))
    out += weigh_prices(rng, priced)
    if items:
        out.append(yes_no(rng, "present", True, f=rng.choice(items)[0]))
    other = words.product(rng)
    if not any(other.lower() in line.lower() for line in lines):
        out.append(yes_no(rng, "present", False, f=other))
        out.append(absent(rng, "price", f=other.lower()))
    return out
