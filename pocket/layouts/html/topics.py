"""Documents by topic as HTML: the plans of `questions.topics`, laid out by a browser."""

import random
from itertools import groupby
from typing import Final

from pocket.content import prose, topic, words
from pocket.content.colours import ink_on
from pocket.document import Question
from pocket.layouts.html.parts import E, Made, css, heading, ornament
from pocket.layouts.style import PageStyle
from pocket.questions.pages import page_markdown
from pocket.questions.templates import ask
from pocket.questions.topics import Fact, Plan, plan


def leaflet(rng: random.Random, style: PageStyle, size: float) -> Made:
    """Facts and rows of one topic, asked about freely."""
    made = plan(rng, max(2, int(size * style.room * rng.uniform(0.3, 0.6))))
    body, blocks = WAYS[made.layout](rng, style, made)
    if rng.random() < 0.12:
        picture = ornament(rng, style, rng.randint(40, 110))
        body = f"<div style='display:flex;gap:1em'>{picture}<div style='flex:1'>{body}</div></div>"
    elif rng.random() < 0.3:
        body = f"<div class=card>{body}</div>"
    big = rng.uniform(1, 1.5) if size == 1 and rng.random() < 0.4 else 1
    text = f"<div style='font-size:{big:.2f}em'>{heading(rng, made.head)}{body}</div>"
    questions = [q for q in made.questions if len(q.answer.encode()) <= style.budget]
    return text, questions + _whole(rng, style, made, blocks)


def _whole(rng: random.Random, style: PageStyle, made: Plan, blocks: list[str]) -> list[Question]:
    """The transcription, where the order of reading is plain."""
    if not blocks:
        return []
    head = [made.head] if made.head else []
    if made.layout == "prose":
        text = page_markdown([f"# {h}" for h in head] + blocks)
    else:
        text = "\n".join(head + blocks)
    fits = len(text.encode()) <= style.budget
    return [ask(rng, "page", text, kind="transcribe")] if fits else []


def _lines(rng: random.Random, style: PageStyle, made: Plan) -> tuple[str, list[str]]:
    """A line or a list item each, some of them larger."""
    texts = made.texts
    align = rng.choice(("left", "left", "left", "center"))
    if rng.random() < 0.25 and align == "left":
        return "<ul>" + "".join(f"<li>{E(x)}</li>" for x in texts) + "</ul>", texts
    tag, loud = rng.choice(("p", "div", "div class=row", "div")), rng.random() < 0.4
    body = ""
    for text in texts:
        emphasis = ""
        if loud and rng.random() < 0.3:
            emphasis = rng.choice(("class=big", "class=accent", "style='font-weight:700'"))
        body += f"<{tag}><span {emphasis}>{E(text)}</span></{tag.split()[0]}>"
    return f"<div style='text-align:{align}'>{body}</div>", texts


def _cell(fact: Fact, way: str) -> str:
    if not fact.label:
        return f"<div>{E(fact.text)}</div>"
    key = E(fact.label)
    if way == "row":
        return f"<div class=row><span class=key>{key}</span><span>{E(fact.value)}</span></div>"
    if way == "form":
        return f"<div><div class=key>{key}</div><div class=in>{E(fact.value)}</div></div>"
    if way == "bold":
        return f"<div><b>{key}:</b> {E(fact.value)}</div>"
    return f"<div><div class=key>{key}</div><div>{E(fact.value)}</div></div>"


def _pairs(rng: random.Random, style: PageStyle, made: Plan) -> tuple[str, list[str]]:
    """Labels and values as rows, a table, a form, or a grid."""
    way = rng.choice(("row", "row", "form", "bold", "grid", "table"))
    rest = "".join(f"<div>{E(x)}</div>" for x in made.lines)
    if way == "table":
        rows = "".join(
            f"<tr><th>{E(f.label)}</th><td>{E(f.value)}</td></tr>" for f in made.facts if f.label
        )
        lone = "".join(f"<p>{E(f.text)}</p>" for f in made.facts if not f.label)
        return f"<table>{rows}</table>{lone}{rest}", []
    cells = "".join(_cell(f, way) for f in made.facts)
    if way in ("form", "grid") and style.width > 330:
        columns = f"grid-template-columns:repeat({rng.choice((2, 2, 3))},1fr)"
        cells = f"<div class=grid style='{columns}'>{cells}</div>"
    return cells + rest, []


def _prose(rng: random.Random, style: PageStyle, made: Plan) -> tuple[str, list[str]]:
    """Paragraphs with other sentences between at times."""
    paragraphs: list[list[str]] = [[]]
    fillers = rng.random() < 0.4
    for text in made.texts:
        paragraphs[-1].append(text if text.endswith((".", "!", "?")) else text + ".")
        if fillers and rng.random() < 0.3:
            paragraphs[-1].append(prose.sentence(rng, "en"))
        if rng.random() < 0.35:
            paragraphs.append([])
    blocks = [" ".join(p) for p in paragraphs if p]
    emphasis = rng.choice(("", "style='text-align:justify'", "style='line-height:1.7'"))
    return "".join(f"<p {emphasis}>{E(b)}</p>" for b in blocks), blocks


def _bubbles(rng: random.Random, style: PageStyle, made: Plan) -> tuple[str, list[str]]:
    """Messages left and right, at times with the writer's name above."""
    t, texts = style.theme, made.texts
    sides = [rng.random() < 0.5 for _ in texts]
    body, blocks = "", []
    named, names = rng.random() < 0.4, words.unique(rng, words.person, 2)
    for side, group in groupby(zip(sides, texts, strict=True), key=lambda pair: pair[0]):
        ground = t.accent if side else t.panel if t.panel != t.page else t.rule
        ink = ink_on(t.accent) if side else t.ink
        if named:
            where = "right" if side else "left"
            body += f"<div class='muted small' style='text-align:{where}'>{E(names[side])}</div>"
            blocks.append(names[side])
        for _, text in group:
            body += (
                f"<div style='background:{css(ground)};color:{css(ink)};border-radius:.8em;"
                f"padding:.4em .7em;margin:0 0 .4em;max-width:80%;width:fit-content;"
                f"{'margin-left:auto' if side else ''}'>{E(text)}</div>"
            )
            blocks.append(text)
    return body, blocks


def _table(rng: random.Random, style: PageStyle, made: Plan) -> tuple[str, list[str]]:
    """Rows below their heads."""
    figures = {
        i for i in range(len(made.heads)) if all(topic.figure(r[i]) is not None for r in made.rows)
    }

    def cells(row: list[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=n' if i in figures else ''}>{E(x)}</{tag}>" for i, x in enumerate(row)
        )

    body = "".join(f"<p>{E(f.text)}</p>" for f in made.facts)
    if made.rows:
        body += f"<table><tr>{cells(made.heads, 'th')}</tr>"
        body += "".join(f"<tr>{cells(r, 'td')}</tr>" for r in made.rows) + "</table>"
    return body, []


WAYS: Final = {
    "lines": _lines,
    "pairs": _pairs,
    "prose": _prose,
    "bubbles": _bubbles,
    "table": _table,
}
