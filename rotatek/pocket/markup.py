"""HTML documents from the same contents as the drawn ones; a browser lays them out.

Each template returns markup and a function that asks the questions. ``browser.py`` renders them.
"""

from __future__ import annotations

import html
import math
import random
from collections.abc import Callable

from . import words
from .document import Colour, Question
from .questions import absent, ask, yes_no
from .renderers import charts, forms, menus, pages, receipts, tables
from .renderers.look import Look, number
from .theme import on, series_colours

Made = tuple[str, list[Question]]
E = html.escape


def css(colour: Colour) -> str:
    """A colour as CSS writes it."""
    return "#{:02x}{:02x}{:02x}".format(*colour)


def style(rng: random.Random, look: Look, font: str) -> str:
    """A style sheet around the look's theme: one of many sites."""
    t = look.theme
    size = round(look.size, 1)
    radius, pad = rng.choice((0, 0, 4, 8, 14)), rng.choice((4, 6, 8, 10, 14))
    border = rng.choice(("none", f"1px solid {css(t.rule)}", f"1px solid {css(t.rule)}"))
    shadow = rng.choice(("none", "none", "0 1px 4px rgba(0,0,0,.25)"))
    lines = rng.choice(
        (
            "td,th{border:1px solid " + css(t.rule) + "}",
            "tr{border-bottom:1px solid " + css(t.rule) + "}",
            "",
        )
    )
    zebra = f"tr:nth-child(even) td{{background:{css(t.panel)}}}" if rng.random() < 0.4 else ""
    head = rng.choice(
        (
            f"background:{css(t.accent)};color:{css(on(t.accent))}",
            f"color:{css(t.accent)}",
            f"border-bottom:2px solid {css(t.ink)}",
            "",
        )
    )
    return f"""
*{{box-sizing:border-box}} html,body{{margin:0;overflow:hidden}}
body{{background:{css(t.page)};color:{css(t.ink)};
font:{size}px/{rng.uniform(1.15, 1.6):.2f} {font};padding:{look.margin}px}}
h1{{font-size:{rng.uniform(1.2, 2.1):.2f}em;
margin:0 0 {rng.uniform(0.2, 0.8):.2f}em;
color:{css(rng.choice((t.ink, t.accent)))};
font-weight:{rng.choice((400, 600, 700))}}}
h2{{font-size:{rng.uniform(1.05, 1.4):.2f}em;margin:.5em 0 .2em;
color:{css(rng.choice((t.ink, t.accent)))}}}
p{{margin:0 0 .7em}} ul,ol{{margin:.2em 0 .7em;padding-left:1.6em}}
table{{border-collapse:collapse;{rng.choice(("width:100%", ""))}}} 
th{{text-align:left;{head}}} td,th{{padding:{pad / 2}px {pad}px}}
{lines}{zebra}
.n{{text-align:{rng.choice(("right", "right", "left"))};font-variant-numeric:tabular-nums}}
.card{{background:{css(t.panel)};border:{border};border-radius:{radius}px;
box-shadow:{shadow};padding:{pad}px}}
.grid{{display:grid;gap:{pad}px}} .muted{{color:{css(t.muted)}}} .small{{font-size:.85em}}
.key{{color:{css(t.muted)};font-size:{rng.choice((0.8, 0.9, 1))}em}} 
.big{{font-size:{rng.uniform(1.2, 2):.2f}em;font-weight:600}}
.row{{display:flex;justify-content:space-between;gap:1em;
padding:{pad / 3}px 0;{rng.choice(("", "border-bottom:1px solid " + css(t.rule)))}}}
.in{{border:1px solid {css(t.rule)};border-radius:{radius}px;
background:{css(t.panel)};padding:4px 8px;margin:2px 0 {pad}px}}
.bar{{background:{css(t.accent)};border-radius:{min(radius, 4)}px;
height:1.1em}} .accent{{color:{css(t.accent)}}}
"""


def heading(rng: random.Random, text: str) -> str:
    """A title, plain or as a band across the page."""
    return f"<h1>{E(text)}</h1>" if text else ""


def table(rng: random.Random, look: Look, size: float) -> Made:
    """A table with a caption."""
    columns = max(2, min(6, int(look.width / (look.size * 9))))
    rows = max(2, int(rng.uniform(0.4, 1) * size * look.room * 0.62))
    grid = tables.make_grid(rng, columns, min(rows, 14))
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
    return text, tables.questions(rng, grid, caption)


def fields(rng: random.Random, look: Look, size: float) -> Made:
    """Keys and values as a list, a grid of cards, or a filled-in form."""
    title = rng.choice((words.title(rng), rng.choice(forms.TITLES), ""))
    items = forms.pairs(rng, max(2, int(size * look.room * rng.uniform(0.25, 0.5))))
    columns = rng.choice((1, 2, 2, 3)) if look.width > 380 else 1
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
    ), forms.questions(rng, title, items)


def article(rng: random.Random, look: Look, size: float) -> Made:
    """Headline, paragraphs, a list."""
    title = words.title(rng, look.lang) if rng.random() < 0.85 else ""
    blocks, bullets = (["# " + title] if title else []), list[str]()
    text, left = (
        heading(rng, title),
        int(min(look.budget - 40, size * look.room * look.width / look.size * 1.1)),
    )
    while left > 60 and len(blocks) < 9:
        if rng.random() < 0.7:
            block = " ".join(words.sentence(rng, look.lang) for _ in range(rng.randint(1, 3)))
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
    return text, pages.page_questions(rng, title, blocks, bullets)


def bill(rng: random.Random, look: Look, size: float) -> Made:
    """An order confirmation or a shopping basket."""
    shop, cash = words.company(rng), words.money(rng)
    rows, total = [], 0.0
    for name in words.unique(rng, words.product, max(1, min(10, int(size * look.room * 0.4)))):
        quantity, unit = rng.choice((1, 1, 2, 3, 5)), round(rng.uniform(0.5, 120), 2)
        amount = round(quantity * unit, 2)
        rows.append((name, quantity, cash(amount), amount))
        total += amount
    facts = [
        (k, make(rng))
        for k, make in (
            ("date", words.date),
            ("order number", words.code),
            ("customer", words.person),
        )
        if rng.random() < 0.6
    ]
    body = "".join(
        f"<tr><td>{E(n)}</td><td class=n>{q}</td><td class=n>{E(a)}</td></tr>"
        for n, q, a, _ in rows
    )
    word = rng.choice(receipts.TOTALS)
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
    return text, receipts.questions(rng, shop, rows, cash(total), facts, lines)


def prices(rng: random.Random, look: Look, size: float) -> Made:
    """Sections of names and prices."""
    title, cash = words.some(rng, 1, 3), words.money(rng)
    names = words.unique(rng, words.product, 40)
    menu, text = [], heading(rng, title)
    left = int(size * look.room * 0.5)
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
    return text, menus.menu_questions(rng, title, menu)


def meters(rng: random.Random, look: Look, size: float) -> Made:
    """Horizontal bars made of boxes."""
    n = max(2, min(9, int(size * look.room * 0.4)))
    data = charts.make_data(rng, n, 1, "horizontal bar chart", top=100)
    colours = [css(c) for _, c in series_colours(rng, n)] if rng.random() < 0.4 else []
    rows = ""
    for i, name in enumerate(data.categories):
        tint = f";background:{colours[i]}" if colours else ""
        bar = f"<div class=bar style='width:{data.values[0][i]:.0f}%{tint}'></div>"
        rows += (
            f"<tr><td style='width:1%;white-space:nowrap'>{E(name)}</td><td>"
            f"{bar}</td><td class=n style='width:1%;white-space:nowrap'>"
            f"{E(data.text(0, i))}</td></tr>"
        )
    return f"{heading(rng, data.title)}<table style='width:100%'>{rows}</table>", charts.questions(
        rng, data, True, coloured=False
    )


def columns(rng: random.Random, look: Look, size: float) -> Made:
    """An SVG column or line chart with axis, grid and legend, as web libraries draw them."""
    series, n = rng.choice((1, 1, 2, 3)), rng.randint(3, max(3, min(8, look.width // 90)))
    line = rng.random() < 0.4
    data = charts.make_data(
        rng,
        n,
        series,
        "line chart" if line else "bar chart" if series == 1 else "grouped bar chart",
    )
    w, h = (
        look.width - 2 * look.margin,
        int((look.height - 2 * look.margin) * size) - int(look.size * 5),
    )
    x0, y1 = 20 + look.size * 0.6 * len(data.texts[0][0]), h - look.size * 1.8
    top = max(map(max, data.values)) * 1.18
    step = charts.nice_step(top, 5)
    t, out, slot = look.theme, [], (w - x0) / n
    value = 0.0
    while value <= top:
        y = y1 * (1 - value / top) + 4
        mark = f"{value:,.0f}" if step >= 1 else f"{value:g}"
        out.append(
            f"<line x1={x0} x2={w} y1={y:.1f} y2={y:.1f} "
            f"stroke='{css(t.rule)}'/><text x={x0 - 6:.0f} "
            f"y={y + look.size * 0.35:.1f} text-anchor=end "
            f"fill='{css(t.muted)}'>{mark}{data.suffix}</text>"
        )
        value += step
    shown = rng.random() < 0.7 and (series == 1 or not line)
    small = f"{look.size * (1 if series == 1 else 0.8):.1f}px"
    for s in range(series):
        colour, points = css(data.colours[s][1]), []
        for c in range(n):
            y = y1 * (1 - data.values[s][c] / top) + 4
            wide = slot * 0.75 / (1 if line else series)
            x = x0 + slot * (c + 0.5) if line else x0 + slot * (c + 0.125) + wide * (s + 0.5)
            points.append(f"{x:.1f},{y:.1f}")
            if line:
                out.append(f"<circle cx={x:.1f} cy={y:.1f} r=3 fill='{colour}'/>")
            else:
                out.append(
                    f"<rect x={x - wide / 2:.1f} y={y:.1f} "
                    f"width={wide * 0.92:.1f} height={y1 + 4 - y:.1f} "
                    f"fill='{colour}'/>"
                )
            if shown:
                out.append(
                    f"<text x={x:.1f} y={y - 5:.1f} text-anchor=middle "
                    f"font-size='{small}' fill='{css(t.ink)}'>"
                    f"{E(data.text(s, c))}</text>"
                )
        if line:
            out.append(
                f"<polyline points='{' '.join(points)}' fill=none "
                f"stroke='{colour}' stroke-width=2 />"
            )
    for c, name in enumerate(data.categories):
        out.append(
            f"<text x={x0 + slot * (c + 0.5):.1f} y={h - 4} text-anchor=middle "
            f"fill='{css(t.ink)}'>{E(name)}</text>"
        )
    legend = (
        "".join(
            f"<span style='margin-right:1em'><span style='display:inline-block;"
            f"width:.8em;height:.8em;background:{css(data.colours[s][1])}'>"
            f"</span> {E(name)}</span>"
            for s, name in enumerate(data.series)
        )
        if series > 1
        else ""
    )
    text = (
        f"{heading(rng, data.title)}<div class=small>{legend}</div><svg width={w} "
        f"height={h} style='display:block'>{''.join(out)}</svg>"
    )
    return text, charts.questions(rng, data, shown)


def pie(rng: random.Random, look: Look, size: float) -> Made:
    """An SVG pie or ring with its legend."""
    n = rng.randint(2, 6)
    shares = sorted(rng.sample(range(1, 100), n - 1))
    parts = [b - a for a, b in zip([0, *shares], [*shares, 100], strict=True)]
    if len(set(parts)) < n or min(parts) < 3:
        return pie(rng, look, size)
    data = charts.make_data(rng, n, 1, "pie chart", top=100)
    data.values, data.texts = [[float(p) for p in parts]], [[f"{p}%" for p in parts]]
    data.colours = series_colours(rng, n)
    side = int(min(look.width * 0.5, look.height * 0.62) * size)
    r, at, slices = side / 2, rng.uniform(0, 6.28), ""
    for p, (_, colour) in zip(parts, data.colours, strict=True):
        end = at + p / 100 * 2 * math.pi
        x0, y0, x1, y1 = (r + r * f(a) for a in (at, end) for f in (math.cos, math.sin))
        slices += (
            f"<path "
            f"d='M{r},{r} L{x0:.1f},{y0:.1f} A{r},{r} 0 {int(p > 50)} 1 {x1:.1f},{y1:.1f} Z' "
            f"fill='{css(colour)}'/>"
        )
        at = end
    hole = (
        f"<circle cx={r} cy={r} r={r * 0.5} fill='{css(look.theme.page)}'/>"
        if rng.random() < 0.4
        else ""
    )
    rows = "".join(
        f"<div><span style='display:inline-block;width:.8em;height:.8em;"
        f"background:{css(c)}'></span> {E(name)} {p}%</div>"
        for name, p, (_, c) in zip(data.categories, parts, data.colours, strict=True)
    )
    text = (
        f"{heading(rng, data.title)}<div style='display:flex;gap:1em;"
        f"align-items:center;flex-wrap:wrap'><svg width={side} height={side}>"
        f"{slices}{hole}</svg><div>{rows}</div></div>"
    )
    out = charts.questions(rng, data, True, coloured=False)
    for i in rng.sample(range(n), 2):
        out.append(ask(rng, "colour", data.colours[i][0], f=data.categories[i]))
    return text, out


def inbox(rng: random.Random, look: Look, size: float) -> Made:
    """A list of messages or posts."""
    title = words.title(rng) if rng.random() < 0.6 else ""
    rows, text = [], heading(rng, title)
    for name in words.unique(rng, words.person, max(1, min(8, int(size * look.room * 0.22)))):
        when, said = words.clock(rng), words.sentence(rng, look.lang)
        rows.append((name, when, said))
        text += (
            f"<div class=card style='margin-bottom:6px'><b>{E(name)}</b> <span "
            f"class='muted small'>{when}</span><div>{E(said)}</div></div>"
        )
    out = [ask(rng, "title", title)] if title else []
    for name, when, said in rng.sample(rows, min(3, len(rows))):
        out.append(
            Question(
                "find",
                rng.choice(
                    (f"What does {name} write?", f"message from {name}?", f"What did {name} say?")
                ),
                said,
            )
        )
        out.append(
            Question(
                "find", rng.choice((f"When did {name} write?", f"time of {name}'s message?")), when
            )
        )
        out.append(Question("reverse", f'Who wrote "{said}"?', name))
    out.append(ask(rng, "count", str(len(rows)), n=rng.choice(("messages", "posts", "entries"))))
    out.append(ask(rng, "list", ", ".join(r[0] for r in rows), n="senders"))
    out.append(Question("absent", f"What does {words.person(rng)}son write?", "not in the image"))
    return text, out


def tiles(rng: random.Random, look: Look, size: float) -> Made:
    """A dashboard of figures (kept out of training)."""
    title = words.title(rng) if rng.random() < 0.7 else ""
    per_row = max(1, min(4, int(look.width / (look.size * 11))))
    count = max(1, min(12, int(size * look.room / 4.5) * per_row))
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


def shop(rng: random.Random, look: Look, size: float) -> Made:
    """Product cards with price and rating (kept out of training)."""
    per_row = max(1, min(4, int(look.width / (look.size * 12))))
    count = max(1, min(12, int(size * look.room / 6) * per_row))
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
    out.append(absent(rng, "price", f=words.invented(rng, 3)))
    return (
        f"{heading(rng, title)}<div class=grid "
        f"style='grid-template-columns:repeat({per_row},1fr)'>{cells}</div>",
        out,
    )


Template = Callable[[random.Random, Look, float], Made]
TEMPLATES: dict[str, Template] = {
    "table": table, "fields": fields, "article": article, "bill": bill, "prices": prices,
    "meters": meters, "columns": columns, "pie": pie, "inbox": inbox,
}  # fmt: skip
HELD_OUT: dict[str, Template] = {"tiles": tiles, "shop": shop}
