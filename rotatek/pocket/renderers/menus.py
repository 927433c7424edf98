"""Menus and price lists: sections of names with prices, at times with leaders or a description."""

from __future__ import annotations

import random

from .. import words
from ..document import Document, Question
from ..fonts import pick_family
from ..questions import absent, ask, weigh_prices, yes_no
from .look import Look

SECTIONS = (
    "Starters|Mains|Desserts|Drinks|Breakfast|Lunch|Soups|Salads|Pizza|Pasta|Wines|Tea|Coffee|Snacks|"
    "Services|Repairs|Tickets|Rooms|Classes|Entradas|Vorspeisen|Plats|Hair|Nails|Rentals|Tours"
).split("|")


Menu = list[tuple[str, list[tuple[str, str, float]]]]  # sections of (name, price, number)


def draw(rng: random.Random, look: Look) -> Document:
    """One price list in one or two columns."""
    canvas, t, m = look.canvas(), look.theme, look.margin + 4
    head = pick_family(rng, look.split, western=False, fancy=True)
    size, cash = look.size, words.money(rng)
    body, big = look.family.regular(size), head.bold(size * rng.uniform(1.5, 2.4))
    section_face = head.bold(size * rng.uniform(1.05, 1.4))
    title = words.company(rng) if rng.random() < 0.6 else words.some(rng, 1, 3)
    y = float(m)
    if big.width(title) < look.width - 2 * m:
        canvas.text(look.width / 2, y, title, big, t.accent, "centre")
        y += big.line * 1.2
    else:
        title = ""
    columns = 2 if look.width > 600 and rng.random() < 0.5 else 1
    width = (look.width - 2 * m - 30 * (columns - 1)) / columns
    pitch, top, column = body.line * rng.uniform(1.1, 1.7), y, 0
    leaders, plain = rng.random() < 0.35, rng.random() < 0.4
    names = words.unique(rng, words.product, 60)
    menu: Menu = []
    for section in words.unique(
        rng,
        lambda r: r.choice(SECTIONS) if r.random() < 0.6 else words.some(r, 1, 1),
        rng.randint(1, 6),
    ):
        if y + section_face.line + 2 * pitch > look.height - m:
            column, y = column + 1, top
            if column >= columns:
                break
        x0 = m + column * (width + 30)
        canvas.text(x0, y, section, section_face, t.accent if rng.random() < 0.5 else t.ink)
        y += section_face.line * 1.15
        items: list[tuple[str, str, float]] = []
        for _ in range(rng.randint(2, 7)):
            name, price = (
                names.pop(),
                round(
                    rng.choice((rng.randint(2, 60), rng.uniform(1, 40), rng.randint(2, 30) + 0.5)),
                    2,
                ),
            )
            shown = cash(price, not plain)
            if y + pitch > look.height - m or body.width(name) + body.width(shown) > width - 24:
                continue
            canvas.text(x0, y, name, body, t.ink)
            canvas.text(x0 + width, y, shown, body, t.ink, "right")
            if leaders:
                left, right = x0 + body.width(name) + 6, x0 + width - body.width(shown) - 6
                for x in range(int(left), int(right), 5):
                    canvas.box(x, y + body.ascent - 1, x + 1, y + body.ascent, fill=t.muted)
            items.append((name, shown, price))
            y += pitch
        if items:
            menu.append((section, items))
        y += pitch * 0.4
    return canvas.document(menu_questions(rng, title, menu))


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
        Question(
            "reverse",
            rng.choice(
                (
                    f"In which section is {name}?",
                    f"Under which heading is {name} listed?",
                    f"which section has {name}",
                )
            ),
            section,
        )
    )
    section, items = rng.choice(menu)
    out.append(
        Question(
            "list",
            rng.choice(
                (
                    f"What is listed under {section}?",
                    f"List the items in {section}.",
                    f"everything in {section}",
                )
            ),
            ", ".join(i[0] for i in items),
        )
    )
    out.append(Question("count", f"How many items are under {section}?", str(len(items))))
    out.append(ask(rng, "count", str(len(menu)), n=rng.choice(("sections", "headings"))))
    order = sorted(every, key=lambda e: e[3])
    if len(order) > 1 and order[-1][3] > order[-2][3]:
        out.append(
            Question(
                "highest",
                rng.choice(
                    ("What is the most expensive item?", "dearest item?", "What costs the most?")
                ),
                order[-1][1],
            )
        )
    if len(order) > 1 and order[0][3] < order[1][3]:
        out.append(
            Question(
                "lowest",
                rng.choice(("What is the cheapest item?", "cheapest?", "What costs the least?")),
                order[0][1],
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
