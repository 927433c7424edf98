"""HTML documents from the same contents as the drawn ones; a browser lays them out.

Each template returns markup and the questions; `pocket.browser` renders it.
"""

import random
from typing import Final

from pocket.content import formats, lexicon, prose, words
from pocket.content.fields import TITLES, field_pairs
from pocket.content.formats import number
from pocket.content.tables import make_grid
from pocket.content.words import TOTALS
from pocket.document import Question
from pocket.layouts.html import cards
from pocket.layouts.html import programs as more
from pocket.layouts.html.charts import columns, meters, pie
from pocket.layouts.html.composed import composed
from pocket.layouts.html.parts import E, Made, Template, heading
from pocket.layouts.html.topics import leaflet
from pocket.layouts.style import PageStyle
from pocket.questions.fields import field_questions
from pocket.questions.messages import message_questions
from pocket.questions.pages import page_questions
from pocket.questions.prices import menu_questions, receipt_questions
from pocket.questions.tables import table_questions
from pocket.questions.templates import absent, ask, yes_no

OFTEN: Final = {
    "leaflet": 30, "composed": 34, "facts": 5, "gallery": 6, "roster": 3, "ranking": 4, "table": 2,
    "sheet": 2, "bill": 2,
}  # fmt: skip


def table(rng: random.Random, style: PageStyle, size: float) -> Made:
    """A table with a caption."""
    columns = max(2, min(6, int(style.width / (style.size * 9))))
    rows = max(2, int(rng.uniform(0.4, 1) * size * style.room * 0.62))
    grid = make_grid(rng, columns, min(rows, 14))
    caption = words.title(rng) if rng.random() < 0.6 else ""

    def cells(row: list[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=n' if i in grid.values else ''}>{E(x)}</{tag}>"
            for i, x in enumerate(row)
        )

    body = "".join(f"<tr>{cells(r, 'td')}</tr>" for r in grid.rows)
    text = (
        f"{heading(rng, caption)}<table><thead><tr>{cells(grid.headers, 'th')}</tr>"
        f"</thead><tbody>{body}</tbody></table>"
    )
    return text, table_questions(rng, grid, caption)


def fields(rng: random.Random, style: PageStyle, size: float) -> Made:
    """Keys and values as a list, a grid of cards, or a filled-in form."""
    title = rng.choice((words.title(rng), rng.choice(TITLES), ""))
    items = field_pairs(rng, max(2, int(size * style.room * rng.uniform(0.25, 0.5))))
    columns = rng.choice((1, 2, 2, 3)) if style.width > 380 else 1
    kind = rng.choice(("rows", "grid", "form", "table"))
    if kind == "rows":
        body = "".join(
            f"<div class=row><span class=key>{E(k)}</span><span>{E(v)}</span></div>"
            for k, v in items
        )
    elif kind == "table":
        body = (
            "<table>"
            + "".join(f"<tr><th>{E(k)}</th><td>{E(v)}</td></tr>" for k, v in items)
            + "</table>"
        )
    else:
        inner = "<div class=in>" if kind == "form" else "<div>"
        cells = "".join(
            f"<div><div class=key>{E(k)}</div>{inner}{E(v)}</div></div>" for k, v in items
        )
        body = f"<div class=grid style='grid-template-columns:repeat({columns},1fr)'>{cells}</div>"
    box = rng.random() < 0.5
    return heading(rng, title) + (
        f"<div class=card>{body}</div>" if box else body
    ), field_questions(rng, title, items)


def article(rng: random.Random, style: PageStyle, size: float) -> Made:
    """Headline, paragraphs, a list."""
    title = words.title(rng, style.lang) if rng.random() < 0.85 else ""
    blocks, bullets = (["# " + title] if title else []), list[str]()
    text, left = (
        heading(rng, title),
        int(min(style.budget - 40, size * style.room * style.width / style.size * 1.1)),
    )
    while left > 60 and len(blocks) < 9:
        if rng.random() < 0.7:
            block = " ".join(prose.sentence(rng, style.lang) for _ in range(rng.randint(1, 3)))
            if len(block.encode()) > left:
                break
            blocks.append(block)
            text += f"<p>{E(block)}</p>"
            left -= len(block.encode())
        elif not bullets:
            ordered = rng.random() < 0.4
            bullets = words.unique(rng, lambda r: words.some(r, 1, 4), rng.randint(2, 6))
            tag = "ol" if ordered else "ul"
            text += f"<{tag}>" + "".join(f"<li>{E(b)}</li>" for b in bullets) + f"</{tag}>"
            blocks += [f"{i + 1}. {b}" if ordered else f"- {b}" for i, b in enumerate(bullets)]
            left -= sum(len(b.encode()) + 4 for b in bullets)
    return text, page_questions(rng, title, blocks, bullets)


def bill(rng: random.Random, style: PageStyle, size: float) -> Made:
    """An order confirmation or a shopping basket."""
    shop, cash = words.company(rng), words.money(rng)
    rows, total = [], 0.0
    for name in words.unique(rng, words.product, max(1, min(10, int(size * style.room * 0.4)))):
        quantity, unit = rng.choice((1, 1, 2, 3, 5)), round(rng.uniform(0.5, 120), 2)
        amount = round(quantity * unit, 2)
        rows.append((name, quantity, cash(amount), amount))
        total += amount
    facts = [
        (k, make(rng))
        for k, make in (
            ("date", formats.date),
            ("order number", formats.code),
            ("customer", words.person),
        )
        if rng.random() < 0.6
    ]
    body = "".join(
        f"<tr><td>{E(n)}</td><td class=n>{q}</td><td class=n>{E(a)}</td></tr>"
        for n, q, a, _ in rows
    )
    word = rng.choice(TOTALS)
    above = "".join(
        f"<div><span class=key>{E(k.capitalize())}:</span> {E(v)}</div>" for k, v in facts
    )
    text = (
        f"<h1>{E(shop)}</h1>{above}<table style='width:100%'>{body}<tr><th>"
        f"{word}</th><th></th><th class=n>{E(cash(total))}</th></tr></table>"
    )
    lines = [
        shop,
        *(f"{k.capitalize()}: {v}" for k, v in facts),
        *(f"{n} {q} {a}" for n, q, a, _ in rows),
        f"{word} {cash(total)}",
    ]
    return text, receipt_questions(rng, shop, rows, cash(total), facts, lines)


def prices(rng: random.Random, style: PageStyle, size: float) -> Made:
    """Sections of names and prices."""
    title, cash = words.some(rng, 1, 3), words.money(rng)
    names = words.unique(rng, words.product, 40)
    menu, text = [], heading(rng, title)
    left = int(size * style.room * 0.5)
    for section in words.unique(rng, lambda r: words.some(r, 1, 1), 4):
        count = min(left - 2, rng.randint(2, 6))
        if count < 1:
            break
        items = []
        for _ in range(count):
            price = round(rng.uniform(1, 60), 2)
            items.append((names.pop(), cash(price), price))
        left -= count + 2
        rows = "".join(
            f"<div class=row><span>{E(n)}</span><span>{E(p)}</span></div>" for n, p, _ in items
        )
        text += f"<h2>{E(section)}</h2>{rows}"
        menu.append((section, items))
    return text, menu_questions(rng, title, menu)


def inbox(rng: random.Random, style: PageStyle, size: float) -> Made:
    """A list of messages or posts."""
    title = words.title(rng) if rng.random() < 0.6 else ""
    rows, text = [], heading(rng, title)
    for name in words.unique(rng, words.person, max(1, min(8, int(size * style.room * 0.22)))):
        when, said = formats.clock(rng), prose.sentence(rng, style.lang)
        rows.append((name, when, said))
        text += (
            f"<div class=card style='margin-bottom:6px'><b>{E(name)}</b> <span "
            f"class='muted small'>{when}</span><div>{E(said)}</div></div>"
        )
    out = [ask(rng, "title", title)] if title else []
    for name, when, said in rng.sample(rows, min(3, len(rows))):
        out += message_questions(rng, name, when, said)
        out.append(Question("reverse", f'Who wrote "{said}"?', name))
    out.append(ask(rng, "count", str(len(rows)), n=rng.choice(("messages", "posts", "entries"))))
    out.append(ask(rng, "list", ", ".join(r[0] for r in rows), n="senders"))
    out.append(Question("absent", f"What does {words.person(rng)}son write?", "not in the image"))
    return text, out


def tiles(rng: random.Random, style: PageStyle, size: float) -> Made:
    """A dashboard of figures (kept out of training)."""
    title = words.title(rng) if rng.random() < 0.7 else ""
    per_row = max(1, min(4, int(style.width / (style.size * 11))))
    count = max(1, min(12, int(size * style.room / 4.5) * per_row))
    items = [
        (k, rng.choice((number(rng), words.money(rng)(rng.uniform(1, 9999)))))
        for k in words.unique(rng, lambda r: words.some(r, 1, 2), count)
    ]
    cells = "".join(
        f"<div class=card><div class=key>{E(k)}</div><div class=big>{E(v)}</div></div>"
        for k, v in items
    )
    out = [ask(rng, "value", v, f=k) for k, v in rng.sample(items, min(5, len(items)))]
    out += [ask(rng, "title", title)] if title else []
    out.append(ask(rng, "count", str(len(items)), n=rng.choice(("tiles", "figures", "cards"))))
    missing = words.some(rng, 1, 2)
    if not any(missing.lower() in k.lower() for k, _ in items):
        out += [absent(rng, "value", f=missing), yes_no(rng, "present", False, f=missing)]
    out.append(yes_no(rng, "present", True, f=rng.choice(items)[0]))
    return (
        f"{heading(rng, title)}<div class=grid "
        f"style='grid-template-columns:repeat({per_row},1fr)'>{cells}</div>",
        out,
    )


def shop(rng: random.Random, style: PageStyle, size: float) -> Made:
    """Product cards with price and rating (kept out of training)."""
    per_row = max(1, min(4, int(style.width / (style.size * 12))))
    count = max(1, min(12, int(size * style.room / 6) * per_row))
    cash, items, cells = words.money(rng), [], ""
    for name in words.unique(rng, words.product, count):
        price, stars = round(rng.uniform(1, 400), 2), f"{rng.uniform(1, 5):.1f}"
        items.append((name, cash(price), stars, price))
        cells += (
            f"<div class=card><b>{E(name)}</b><div class='big accent'>"
            f"{E(cash(price))}</div><div class='small muted'>Rating {stars}</div>"
            f"</div>"
        )
    title = words.company(rng)
    out = [ask(rng, "title", title)]
    for name, cost, stars, _ in rng.sample(items, min(3, len(items))):
        out.append(ask(rng, "price", cost, f=name, kind="value"))
        out.append(Question("value", f"What is the rating of {name}?", stars))
    order = sorted(items, key=lambda i: i[3])
    if len(items) > 1:
        out.append(Question("highest", "What is the most expensive product?", order[-1][0]))
        out.append(Question("lowest", "What is the cheapest product?", order[0][0]))
    out.append(ask(rng, "count", str(len(items)), n="products"))
    out.append(absent(rng, "price", f=lexicon.invented(rng, 3)))
    return (
        f"{heading(rng, title)}<div class=grid "
        f"style='grid-template-columns:repeat({per_row},1fr)'>{cells}</div>",
        out,
    )


TEMPLATES: Final[dict[str, Template]] = {
    "table": table, "fields": fields, "article": article, "bill": bill, "prices": prices,
    "meters": meters, "columns": columns, "pie": pie, "inbox": inbox, "code": more.code,
    "chat": more.chat, "settings": more.settings, "sheet": more.sheet, "slide": more.slide,
    "letter": more.letter, "board": more.board, "results": more.results, "site": more.site,
    "stats": more.stats, "facts": cards.facts, "gallery": cards.gallery, "roster": cards.roster,
    "ranking": cards.ranking, "leaflet": leaflet, "composed": composed,
}  # fmt: skip
HELD_OUT: Final[dict[str, Template]] = {"tiles": tiles, "shop": shop}
