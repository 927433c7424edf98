"""HTML documents in rows and columns: labelled fields, cards, strips, tables of figures."""

import random
from typing import Final

from pocket.content.cards import Deck, caption, make_deck
from pocket.content.colours import SERIES_NAMES, ink_on, shade
from pocket.content.fields import make_fields
from pocket.content.tables import make_grid
from pocket.layouts.html.parts import E, Made, css, heading, ornament
from pocket.layouts.style import PageStyle
from pocket.questions.cards import deck_questions
from pocket.questions.fields import grid_questions
from pocket.questions.tables import column_questions, table_questions
from pocket.questions.templates import absent, ask

SMALL: Final = "font-size:max(.85em,10px)"  # smaller type is not read


def facts(rng: random.Random, style: PageStyle, size: float) -> Made:
    """Labels above, below or beside their values, in columns or running on in rows."""
    title = caption(rng)
    columns = rng.randint(2, 5 if style.width > 600 else 3) if style.width > 330 else 2
    count = int(rng.uniform(0.2, 1) * size * style.room * 0.3 * columns)
    made = make_fields(rng, max(2, min(28, count)))
    way = rng.choice(("grid", "grid", "grid", "flow", "ruled"))
    place = rng.choice(("column", "column", "column", "column-reverse", "column-reverse"))
    t, big = style.theme, rng.uniform(1.15, 1.7) if rng.random() < 0.3 else 1.0
    ink = css(rng.choice((t.muted, t.muted, t.accent)))
    weight = rng.choice((400, 600, 700))
    cell = rng.choice(("", "", "card", "under", "edge"))
    lines = {
        "under": f"border-bottom:1px solid {css(t.rule)}",
        "edge": f"border-left:2px solid {css(t.rule)};padding-left:8px",
    }
    extra = lines.get(cell, "")
    align = rng.choice(("left", "left", "left", "center", "right"))
    small = rng.uniform(0.75, 0.9) * (0.9 if place != "column" else 1)
    cells = [
        f"<div{' class=card' * (cell == 'card')} style='display:flex;flex-direction:{place};"
        f"text-align:{align};{extra}'><div style='font-size:max({small:.2f}em,10px);color:{ink}'>"
        f"{E(k)}</div>"
        f"<div style='font-size:{big:.2f}em;font-weight:{weight}'>{E(v)}</div></div>"
        for k, v in made.pairs
    ]
    if way == "flow":
        rows = [made.pairs]
        body = f"<div style='display:flex;flex-wrap:wrap;gap:.8em 2em'>{''.join(cells)}</div>"
    else:
        rows = [made.pairs[i : i + columns] for i in range(0, len(made.pairs), columns)]
        split = f"repeat({columns},1fr)" if rng.random() < 0.6 else "auto " * columns
        if way == "ruled":
            body = _ruled(style, cells, columns)
        else:
            body = (
                f"<div class=grid style='row-gap:1em;grid-template-columns:{split}'>"
                f"{''.join(cells)}</div>"
            )
    if rng.random() < 0.2:
        picture = ornament(rng, style, rng.randint(50, 110))
        body = f"<div style='display:flex;gap:1em'>{picture}<div style='flex:1'>{body}</div></div>"
    if rng.random() < 0.3:
        body = f"<div class=card>{body}</div>"
    questions = grid_questions(rng, title, rows, made.numbers)
    if way == "flow":  # where its rows break is the browser's choice
        questions = [q for q in questions if q.kind != "find"]
    return heading(rng, title) + body, questions


def _ruled(style: PageStyle, cells: list[str], columns: int) -> str:
    """The cells as a table with lines between all of them."""
    rule, rows = css(style.theme.rule), ""
    for i in range(0, len(cells), columns):
        row = "".join(f"<td style='border:1px solid {rule};vertical-align:top'>{c}</td>"
                      for c in cells[i : i + columns])  # fmt: skip
        rows += f"<tr>{row}</tr>"
    return f"<table style='width:100%'>{rows}</table>"


def _pill(tag: str, tints: dict[str, str]) -> str:
    shape = "display:inline-block;border-radius:1em;padding:1px 8px;margin:3px 0"
    return f"<span style='{tints[tag]};{shape};{SMALL}'>{E(tag)}</span>"


def _tints(rng: random.Random, made: Deck) -> dict[str, str]:
    """Grounds of the tags."""
    one = shade(rng, rng.choice(SERIES_NAMES))
    plain, out = rng.random() < 0.5, {}
    for tag in sorted(set(made.tags)):
        tint = one if plain else shade(rng, rng.choice(SERIES_NAMES))
        out[tag] = f"background:{css(tint)};color:{css(ink_on(tint))}"
    return out


def gallery(rng: random.Random, style: PageStyle, size: float) -> Made:
    """Cards in two to five columns: name, figures, tag, at times a picture."""
    columns = max(2, min(rng.randint(2, 5), int(style.width / (style.size * 8))))
    rows = max(1, int(rng.uniform(0.5, 1) * size * style.room / rng.uniform(3.5, 5.5)))
    made = make_deck(rng, max(2, min(24, rows * columns - rng.choice((0, 0, 1)))))
    title, tints = caption(rng), _tints(rng, made)
    mini, centre = rng.random() < 0.35, rng.random() < 0.2
    picture = rng.randint(20, 60) if rng.random() < 0.2 else 0
    big, at, cells = rng.uniform(1.1, 1.7), rng.randrange(-1, 1), ""
    frame = rng.choice(("class=card", "class=card", "edge", ""))
    rule = f"border-left:3px solid {css(style.theme.accent)}"
    if mini:
        for f in made.fields:
            f.pattern, f.label = "{k}: {v}", f.label.capitalize()
    for i, name in enumerate(made.names):
        tint = css(shade(rng, rng.choice(SERIES_NAMES)))
        inner = f"<div style='height:{picture}px;background:{tint}'></div>" if picture else ""
        inner += f"<div><b>{E(name)}</b></div>"
        if mini:
            inner += "<div style='display:flex;gap:1em'>" + "".join(
                f"<div><div class=muted style='{SMALL}'>{E(f.label)}</div>{E(f.texts[i])}</div>"
                for f in made.fields) + "</div>"  # fmt: skip
        for j, f in enumerate(() if mini else made.fields):
            tone = f"class=muted style='{SMALL}'"
            tone = f"class=accent style='font-size:{big:.2f}em'" if j == at else tone
            inner += f"<div {tone}>{E(f.line(i))}</div>"
        inner += _pill(made.tags[i], tints) if made.tags else ""
        where = "text-align:center;" * centre
        if frame == "edge":
            cells += f"<div style='{rule};padding-left:8px;{where}'>{inner}</div>"
        else:
            cells += f"<div {frame} style='{where}'>{inner}</div>"
    split = f"grid-template-columns:repeat({columns},1fr)"
    text = f"{heading(rng, title)}<div class=grid style='{split}'>{cells}</div>"
    return text, deck_questions(rng, title, made, style.budget)


def roster(rng: random.Random, style: PageStyle, size: float) -> Made:
    """Strips one below the other: a mark, the name, figures at the right."""
    title = caption(rng)
    made = make_deck(rng, max(2, min(22, int(rng.uniform(0.4, 1) * size * style.room * 0.5))))
    tints, text, marks = _tints(rng, made), heading(rng, title), rng.random() < 0.4
    under, card = rng.random() < 0.5, rng.random() < 0.4
    for i, name in enumerate(made.names):
        mark = ""
        if marks:
            ground = css(shade(rng, rng.choice(SERIES_NAMES)))
            shape = "width:1.8em;height:1.8em;border-radius:50%"
            mark = f"<div style='{shape};background:{ground}'></div>"
        lines = [E(f.line(i)) for f in made.fields]
        sub = f"<div class=muted style='{SMALL}'>{lines.pop(0)}</div>" if under else ""
        tail = "".join(f"<span style='min-width:5em;text-align:right'>{x}</span>" for x in lines)
        tail += _pill(made.tags[i], tints) if made.tags else ""
        inner = (f"<div style='display:flex;gap:.7em;align-items:center;width:100%'>{mark}<div "
                 f"style='flex:1'><b>{E(name)}</b>{sub}</div>{tail}</div>")  # fmt: skip
        text += f"<div class={'card' if card else 'row'}>{inner}</div>"
    return text, deck_questions(rng, title, made, style.budget)


def ranking(rng: random.Random, style: PageStyle, size: float) -> Made:
    """A long table of mostly figures, without a caption."""
    columns = max(2, min(6, int(style.width / (style.size * 7))))
    rows = max(3, min(22, int(rng.uniform(0.6, 1) * size * style.room * 0.75)))
    grid = make_grid(rng, columns, rows, numeric=0.9)
    align = {i: rng.choice(("right", "right", "center", "left")) for i in grid.values}
    body = ""
    for tag, row in [("th", grid.headers), *(("td", r) for r in grid.rows)]:
        body += "<tr>" + "".join(
            f"<{tag} style='text-align:{align.get(i, 'left')}'>{E(x)}</{tag}>"
            for i, x in enumerate(row)) + "</tr>"  # fmt: skip
    out = table_questions(rng, grid, "") + column_questions(rng, grid)
    out = [q for q in out if len(q.answer.encode()) <= style.budget]
    if not any(q.kind == "absent" for q in out):
        out.append(absent(rng, "title"))
    out.append(ask(rng, "count", str(len(grid.rows)), n="rows"))
    return f"<table>{body}</table>", out
