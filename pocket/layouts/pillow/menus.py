"""Menus and price lists: sections of names with prices, at times with leaders or a description."""

import random
from typing import Final

from pocket.content import words
from pocket.document import Document
from pocket.layouts.fonts import pick_family
from pocket.layouts.pillow.canvas import blank_page
from pocket.layouts.style import PageStyle
from pocket.questions.prices import Menu, menu_questions

SECTIONS: Final = (
    "Starters|Mains|Desserts|Drinks|Breakfast|Lunch|Soups|Salads|Pizza|Pasta|Wines|Tea|Coffee|Snacks|"
    "Services|Repairs|Tickets|Rooms|Classes|Entradas|Vorspeisen|Plats|Hair|Nails|Rentals|Tours"
).split("|")


def draw(rng: random.Random, style: PageStyle) -> Document:
    """One price list in one or two columns."""
    canvas, t, m = blank_page(style), style.theme, style.margin + 4
    head = pick_family(rng, style.split, western=False, fancy=True)
    size, cash = style.size, words.money(rng)
    body, big = style.family.regular(size), head.bold(size * rng.uniform(1.5, 2.4))
    section_face = head.bold(size * rng.uniform(1.05, 1.4))
    title = words.company(rng) if rng.random() < 0.6 else words.some(rng, 1, 3)
    y = float(m)
    if big.width(title) < style.width - 2 * m:
        canvas.text(style.width / 2, y, title, big, t.accent, "centre")
        y += big.line * 1.2
    else:
        title = ""
    columns = 2 if style.width > 600 and rng.random() < 0.5 else 1
    width = (style.width - 2 * m - 30 * (columns - 1)) / columns
    pitch, top, column = body.line * rng.uniform(1.1, 1.7), y, 0
    leaders, plain = rng.random() < 0.35, rng.random() < 0.4
    names = words.unique(rng, words.product, 60)
    menu: Menu = []
    for section in words.unique(
        rng,
        lambda r: r.choice(SECTIONS) if r.random() < 0.6 else words.some(r, 1, 1),
        rng.randint(1, 6),
    ):
        if y + section_face.line + 2 * pitch > style.height - m:
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
            if y + pitch > style.height - m or body.width(name) + body.width(shown) > width - 24:
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
