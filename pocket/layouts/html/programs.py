"""HTML documents of programs and offices: code, chats, forms, sheets, slides, letters, boards."""

import random
from typing import Final

from pocket.content import formats, lexicon, prose, words
from pocket.content.colours import SERIES_NAMES, ink_on, shade
from pocket.content.consoles import source_lines
from pocket.content.fields import any_value
from pocket.content.formats import number
from pocket.content.tables import make_grid
from pocket.document import Question
from pocket.layouts.html.parts import E, Made, css, heading, ornament
from pocket.layouts.style import PageStyle
from pocket.questions.consoles import console_questions
from pocket.questions.fields import field_questions
from pocket.questions.pages import page_questions
from pocket.questions.tables import table_questions
from pocket.questions.templates import ABSENT, ORDINALS, absent, ask, worded, yes_no

ASKED: Final[dict[str, tuple[str, ...]]] = {
    "letter": ("Transcribe the body of the letter.", "Read the text between greeting and close."),
    "article": ("Transcribe the article's text.", "Read the paragraphs."),
}  # fmt: skip


def code(rng: random.Random, style: PageStyle, size: float) -> Made:
    """A listing with coloured words, at times with line numbers."""
    room = max(2, int(size * style.room * 0.85))
    lines = [x for x in source_lines(rng, room) if len(x) < style.width / (style.size * 0.66)]
    lines = lines or ["x = 1"]
    hues = [css(shade(rng, n)) for n in rng.sample(SERIES_NAMES, 4)]
    numbers, out = rng.random() < 0.4, ""
    for i, line in enumerate(lines):
        body = line[: len(line) - len(line.lstrip())]
        body += " ".join(
            f"<span style='color:{rng.choice(hues)}'>{E(w)}</span>" if rng.random() < 0.3 else E(w)
            for w in line.split()
        )
        out += (f"<span class=muted>{i + 1:3} </span>" if numbers else "") + body + "\n"
    text = f"<pre class=card style='margin:0;font-family:monospace'>{out}</pre>"
    return text, console_questions(rng, lines)


def chat(rng: random.Random, style: PageStyle, size: float) -> Made:
    """Speech bubbles of two people."""
    name, said, text = words.person(rng), [], ""
    title = heading(rng, name) if rng.random() < 0.6 else ""
    for _ in range(max(2, int(size * style.room * 0.24))):
        line, mine = prose.sentence(rng, style.lang), rng.random() < 0.5
        stamp = f"<div class='small muted'>{formats.clock(rng)}</div>" if rng.random() < 0.3 else ""
        side = "margin-left:auto" if mine else ""
        ground = css(style.theme.accent if mine else style.theme.rule)
        ink = css(ink_on(style.theme.accent if mine else style.theme.rule))
        text += (
            f"<div style='max-width:75%;width:fit-content;{side};margin-bottom:6px'><div "
            f"style='background:{ground};color:{ink};border-radius:12px;padding:5px 10px'>"
            f"{E(line)}</div>{stamp}</div>"
        )
        said.append(line)
    out = [ask(rng, "count", str(len(said)), n=rng.choice(("messages", "bubbles")))]
    for i in rng.sample(range(min(len(said), 8)), min(3, len(said), 8)):
        out.append(ask(rng, "nth", said[i], k=ORDINALS[i], n="message", kind="find"))
    out.append(ask(rng, "nth", said[-1], k="last", n="message", kind="find"))
    out.append(yes_no(rng, "present", True, f=f'"{rng.choice(said)}"'))
    if title:
        out.append(Question("title", "Who is the conversation with?", name))
    out.append(Question("absent", f"What is {name}'s address?", ABSENT))
    return title + text, out


def settings(rng: random.Random, style: PageStyle, size: float) -> Made:
    """Input elements with their labels: boxes to tick, menus, buttons, sliders."""
    title, rows, ticks, text = words.some(rng, 1, 3), [], [], ""
    names = words.unique(rng, lambda r: words.some(r, 1, 3), max(3, int(size * style.room * 0.4)))
    for name in names[: rng.randint(3, 16)]:
        if rng.random() < 0.4:
            state = rng.random() < 0.5
            text += (
                f"<div><label><input type={rng.choice(('checkbox', 'checkbox', 'radio'))}"
                f"{' checked' * state}> {E(name)}</label></div>"
            )
            ticks.append((name, state))
            continue
        value = any_value(rng)
        if rng.random() < 0.4:
            field = f"<select><option>{E(value)}</option></select>"
        else:
            field = f"<span class=in style='display:inline-block'>{E(value)}</span>"
        text += f"<div class=row><span>{E(name)}</span>{field}</div>"
        rows.append((name, value))
    buttons = words.unique(
        rng, lambda r: r.choice(("Save", "Cancel", "OK", words.some(r, 1, 1))), 2
    )
    text += "<p>" + " ".join(f"<button>{E(b)}</button>" for b in buttons) + "</p>"
    out = [ask(rng, "field", v, f=k) for k, v in rng.sample(rows, min(4, len(rows)))]
    out += [yes_no(rng, "checked", s, f=k) for k, s in rng.sample(ticks, min(3, len(ticks)))]
    if ticks:
        out.append(Question("count", "How many are checked?", str(sum(s for _, s in ticks))))
    for key, value in rng.sample(rows, min(2, len(rows))):
        if [v for _, v in rows].count(value) == 1:
            out.append(ask(rng, "names", key, kind="reverse", v=value))
    out.append(ask(rng, "list", ", ".join(buttons), n="buttons"))
    out += [ask(rng, "title", title), absent(rng, "field", f=lexicon.invented(rng, 3))]
    return heading(rng, title) + text, out


def sheet(rng: random.Random, style: PageStyle, size: float) -> Made:
    """A spreadsheet with letters above and numbers beside its cells."""
    columns = max(2, min(7, int(style.width / (style.size * 8.5))))
    grid = make_grid(rng, columns, max(2, min(16, int(size * style.room * 0.7))))
    rule = css(style.theme.rule)
    rules = f"<style>td,th{{border:1px solid {rule};padding:1px 5px;white-space:nowrap}}</style>"
    letters = "".join(f"<td class=muted>{c}</td>" for c in formats.LETTERS[:columns])
    body, every = "", [grid.headers, *grid.rows]
    for r, row in enumerate(every):
        cells = "".join(f"<td>{E(x)}</td>" for x in row)
        body += f"<tr><td class=muted>{r + 1}</td>{cells}</tr>"
    out = table_questions(rng, grid, "")
    for _ in range(3):
        r, c = rng.randrange(len(every)), rng.randrange(columns)
        cell = f"{formats.LETTERS[c]}{r + 1}"
        form = rng.choice(("What is in cell {}?", "{}?", "What does {} hold?", "value of cell {}"))
        out.append(Question("cell", form.format(cell), every[r][c]))
    return f"{rules}<table><tr><td></td>{letters}</tr>{body}</table>", out


def slide(rng: random.Random, style: PageStyle, size: float) -> Made:
    """A slide: a heading, points, a picture, a foot line."""
    title = words.title(rng, style.lang)
    points = words.unique(rng, lambda r: words.some(r, 2, 7), rng.randint(2, max(3, int(size * 7))))
    body = "".join(f"<li style='margin:.4em 0'>{E(p)}</li>" for p in points)
    foot, page = words.company(rng), str(rng.randint(1, 90))
    picture = ornament(rng, style, rng.randint(60, 140)) if rng.random() < 0.5 else ""
    text = (
        f"<div style='font-size:1.5em'>{heading(rng, title)}</div><div style='display:flex'><ul "
        f"style='font-size:1.15em'>{body}</ul>{picture}</div><div class='row small muted'>"
        f"<span>{E(foot)}</span><span>{page}</span></div>"
    )
    out = page_questions(rng, title, ["# " + title, *(f"- {p}" for p in points)], points)
    out = [q for q in out if q.kind != "transcribe" or len(points) < 2]
    listing = "\n".join(f"- {p}" for p in points)
    out.append(Question("transcribe", "Write the points as a Markdown list.", listing))
    out.append(worded(rng, "field", page, "What is the page number?", "slide number?"))
    out.append(worded(rng, "field", foot, "What is in the foot line?", "footer?"))
    return text, out


def paragraphs(rng: random.Random, style: PageStyle, left: int, most: int) -> list[str]:
    """One to `most` paragraphs in about `left` bytes."""
    lines: list[str] = []
    while left > 50 and len(lines) < most:
        line = " ".join(prose.sentence(rng, style.lang) for _ in range(rng.randint(1, 3)))
        left -= len(line.encode())
        if left > 0 or not lines:
            lines.append(line)
    return lines


def letter(rng: random.Random, style: PageStyle, size: float) -> Made:
    """A letter: sender, date, subject, text, name below."""
    who, to, when = words.company(rng), words.person(rng), formats.date(rng)
    street, subject, by = words.address(rng), words.some(rng, 2, 6), words.person(rng)
    left = int(min(style.budget - 120, size * style.room * style.width / style.size * 0.7))
    lines = paragraphs(rng, style, left, 6)
    greeting, end = rng.choice(
        (("Dear", "Yours sincerely,"), ("Hello", "Regards,"), ("Hi", "Best,"))
    )
    body = "".join(f"<p>{E(x)}</p>" for x in lines)
    text = (
        f"<div class=row><b>{E(who)}</b><span>{E(when)}</span></div><p>{E(to)}<br>{E(street)}</p>"
        f"<p><b>{E(subject)}</b></p><p>{greeting} {E(to)},</p>{body}<p>{end}<br>{E(by)}</p>"
    )
    facts = (
        ("sender", who),
        ("date", when),
        ("subject", subject),
        ("recipient", to),
        ("address", street),
    )
    out = [ask(rng, "field", v, f=k) for k, v in facts]
    out.append(worded(rng, "field", by, "Who signed it?", "Who wrote the letter?"))
    out.append(worded(rng, "transcribe", "\n\n".join(lines), *ASKED["letter"]))
    out.append(absent(rng, "field", f=rng.choice(("phone number", "invoice number", "IBAN"))))
    return text, out


def board(rng: random.Random, style: PageStyle, size: float) -> Made:
    """Columns of cards, as project boards show them."""
    n = max(2, min(4, int(style.width / 150)))
    heads = words.unique(
        rng, lambda r: r.choice(("To do", "Doing", "Done", words.some(r, 1, 2))), n
    )
    cards = iter(words.unique(rng, lambda r: words.some(r, 1, 4), 40))
    each = [[next(cards) for _ in range(rng.randint(1, max(1, int(size * style.room / 4))))][:7]
            for _ in range(n)]  # fmt: skip
    text = ""
    for head, mine in zip(heads, each, strict=True):
        inner = "".join(f"<div class=card style='margin:5px 0'>{E(c)}</div>" for c in mine)
        text += f"<div><b>{E(head)}</b>{inner}</div>"
    out = []
    for c in rng.sample(range(n), min(2, n)):
        out.append(Question("list", f"What is in the column {heads[c]}?", ", ".join(each[c])))
        out.append(Question("reverse", f"In which column is {rng.choice(each[c])}?", heads[c]))
        out.append(Question("count", f"How many cards are in {heads[c]}?", str(len(each[c]))))
    out.append(ask(rng, "list", ", ".join(heads), n="columns"))
    out.append(yes_no(rng, "present", False, f=words.some(rng, 2, 3)))
    return (
        f"<div class=grid style='grid-template-columns:repeat({n},1fr)'>{text}</div>",
        out,
    )


def results(rng: random.Random, style: PageStyle, size: float) -> Made:
    """A page of search results under a box with the query."""
    query, rows, text = words.some(rng, 1, 3), [], ""
    for name in words.unique(rng, words.title, max(1, min(7, int(size * style.room / 4.5)))):
        link, said = formats.url(rng), prose.sentence(rng, style.lang)
        text += (
            f"<div style='margin-top:.6em'><div class='small muted'>{E(link)}</div>"
            f"<div class=accent style='font-size:1.1em'>{E(name)}</div>"
            f"<div class=small>{E(said)}</div></div>"
        )
        rows.append((name, link, said))
    out = [worded(rng, "field", query, "What was searched for?", "search query?")]
    for name, link, said in rng.sample(rows, min(2, len(rows))):
        out.append(Question("find", f"What is the address of {name}?", link))
        out.append(Question("find", f"What does it say below {name}?", said))
        out.append(Question("reverse", f"Which result is at {link}?", name))
    out.append(ask(rng, "list", ", ".join(r[0] for r in rows), n="results"))
    out.append(ask(rng, "count", str(len(rows)), n="results"))
    out.append(ask(rng, "nth", rows[0][0], k="first", n="result"))
    return f"<div class=in>{E(query)}</div>{text}", out


def site(rng: random.Random, style: PageStyle, size: float) -> Made:
    """An article with its surroundings: a menu, a logo, a picture, links below."""
    menu = words.unique(rng, lambda r: words.some(r, 1, 1), rng.randint(2, 5))
    title, brand = words.title(rng, style.lang), words.company(rng)
    left = int(min(style.budget - 60, size * style.room * style.width / style.size * 0.6))
    lines = paragraphs(rng, style, left, 5)
    bar = css(rng.choice((style.theme.accent, style.theme.panel, style.theme.rule)))
    links = "".join(f"<span style='margin-left:1em'>{E(m)}</span>" for m in menu)
    picture = ornament(rng, style, rng.randint(50, 120)) if rng.random() < 0.7 else ""
    by, when = words.person(rng), formats.date(rng)
    text = (
        f"<div class=row style='background:{bar}'><b>{E(brand)}</b><span>{links}</span></div>"
        f"{heading(rng, title)}<div class='small muted'>{E(by)} | {E(when)}</div>{picture}"
        + "".join(f"<p>{E(x)}</p>" for x in lines)
        + f"<div class='small muted'>© {rng.randint(1990, 2030)} {E(brand)}</div>"
    )
    out = [worded(rng, "title", title, "What is the headline?", "title of the article?")]
    out.append(worded(rng, "transcribe", "\n\n".join(lines), *ASKED["article"]))
    out.append(ask(rng, "list", ", ".join(menu), n="menu entries"))
    out += [Question("field", "Who is the author?", by), ask(rng, "field", when, f="date")]
    out.append(worded(rng, "field", brand, "What is the site called?", "name of the site?"))
    out.append(ask(rng, "nth", lines[0], k="first", n="paragraph", kind="transcribe"))
    out.append(absent(rng, "field", f=rng.choice(("price", "phone number", "opening hours"))))
    return text, out


def stats(rng: random.Random, style: PageStyle, size: float) -> Made:
    """A two-column table of facts beside a picture, as encyclopedias have it."""
    title = words.some(rng, 1, 3)
    rows = [(k, rng.choice((number(rng), formats.measure(rng), any_value(rng))))
            for k in words.unique(rng, lambda r: words.some(r, 1, 2),
                                  max(3, min(14, int(size * style.room * 0.5))))]  # fmt: skip
    body = "".join(f"<tr><th>{E(k)}</th><td>{E(v)}</td></tr>" for k, v in rows)
    text = (
        f"<div class=card><h2>{E(title)}</h2>{ornament(rng, style, 60)}<table>{body}</table></div>"
    )
    return text, field_questions(rng, title, rows)
