"""Questions about things with prices: receipts, menus, price lists."""

import random

from rotatek.pocket.content import words
from rotatek.pocket.document import Question
from rotatek.pocket.questions.templates import absent, ask, worded, yes_no


def weigh_prices(
    rng: random.Random, items: list[tuple[str, str, float]], noun: str = "item"
) -> list[Question]:
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


Menu = list[tuple[str, list[tuple[str, str, float]]]]  # sections of (name, price, number)


def menu_questions(rng: random.Random, title: str, menu: Menu) -> list[Question]:
    """Questions about a price list."""
    every = [(s, *item) for s, items in menu for item in items]
    out = [ask(rng, "title", title)] if title else [absent(rng, "title")]
    if not every:
        return out
    for _, name, shown, _ in rng.sample(every, min(5, len(every))):
        out.append(
            ask(rng, "price", shown, f=name if rng.random() < 0.5 else name.lower(), kind="value")
        )
    section, name, _, _ = rng.choice(every)
    out.append(
        worded(
            rng,
            "reverse",
            section,
            f"In which section is {name}?",
            f"Under which heading is {name} listed?",
            f"which section has {name}",
        )
    )
    section, items = rng.choice(menu)
    out.append(
        worded(
            rng,
            "list",
            ", ".join(i[0] for i in items),
            f"What is listed under {section}?",
            f"List the items in {section}.",
            f"everything in {section}",
        )
    )
    out.append(Question("count", f"How many items are under {section}?", str(len(items))))
    out.append(ask(rng, "count", str(len(menu)), n=rng.choice(("sections", "headings"))))
    order = sorted(every, key=lambda e: e[3])
    if len(order) > 1 and order[-1][3] > order[-2][3]:
        out.append(
            worded(
                rng,
                "highest",
                order[-1][1],
                "What is the most expensive item?",
                "dearest item?",
                "What costs the most?",
            )
        )
    if len(order) > 1 and order[0][3] < order[1][3]:
        out.append(
            worded(
                rng,
                "lowest",
                order[0][1],
                "What is the cheapest item?",
                "cheapest?",
                "What costs the least?",
            )
        )
    out += weigh_prices(rng, [item[1:] for item in every])
    section, items = rng.choice(menu)
    ranks = sorted(items, key=lambda item: item[2])
    if len(ranks) > 1 and ranks[0][2] < ranks[1][2]:
        text = rng.choice(("What is the cheapest item under {}?", "cheapest in {}?"))
        out.append(Question("lowest", text.format(section), ranks[0][0]))
    if len(ranks) > 1 and ranks[-2][2] < ranks[-1][2]:
        text = rng.choice(("What is the dearest item under {}?", "What costs the most in {}?"))
        out.append(Question("highest", text.format(section), ranks[-1][0]))
    out.append(yes_no(rng, "present", True, f=rng.choice(every)[1]))
    other = words.product(rng)
    if not any(other.lower() in e[1].lower() or e[1].lower() in other.lower() for e in every):
        out.append(yes_no(rng, "present", False, f=other))
        out.append(absent(rng, "price", f=other))
    text = "\n\n".join(
        f"## {s}\n" + "\n".join(f"- {n} {p}" for n, p, _ in items) for s, items in menu
    )
    out.append(ask(rng, "page", (f"# {title}\n\n" if title else "") + text, kind="transcribe"))
    return out


def receipt_questions(
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
            worded(
                rng,
                "title",
                shop,
                "Which shop is it?",
                "Who issued the receipt?",
                "what's the store called",
                "What is the name of the shop?",
                "shop name?",
                "What is written at the top?",
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
                worded(
                    rng,
                    "value",
                    str(quantity),
                    f"How many {name} were bought?",
                    f"quantity of {name}?",
                )
            )
    for key, value in facts:
        out.append(ask(rng, "field", value, f=key))
    if len(items) > 1:
        ranked = sorted(items, key=lambda item: item[3])
        if ranked[-1][3] > ranked[-2][3]:
            out.append(
                worded(
                    rng,
                    "highest",
                    ranked[-1][0],
                    "Which item costs the most?",
                    "most expensive item?",
                    "What is the dearest item?",
                )
            )
        if ranked[0][3] < ranked[1][3]:
            out.append(
                worded(
                    rng,
                    "lowest",
                    ranked[0][0],
                    "Which item is the cheapest?",
                    "cheapest item?",
                    "What costs the least?",
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
